import CKerasbert
import Foundation

/// How a text is generated: the options of Python's `kb.predict`, over those of the file. What is nil is the file's.
public struct Settings: Encodable {
    public enum EarlyStopping: Encodable {
        case yes, no, never

        public func encode(to encoder: Encoder) throws {
            var value = encoder.singleValueContainer()
            if self == .never { try value.encode("never") } else { try value.encode(self == .yes) }
        }
    }

    public var maxTokens, minNewTokens, beams, numReturnSequences, topK, seed: Int?
    public var noRepeatNgramSize, forcedBosTokenId, forcedEosTokenId: Int?
    public var temperature, topP, repetitionPenalty, lengthPenalty: Double?
    public var prefix, separator: String?
    public var earlyStopping: EarlyStopping?
    public var suppressTokens, beginSuppressTokens: [Int]?
    public var badWordsIds: [[Int]]?

    public init(temperature: Double? = nil, topK: Int? = nil, topP: Double? = nil, seed: Int? = nil, beams: Int? = nil, maxTokens: Int? = nil) {
        self.temperature = temperature
        self.topK = topK
        self.topP = topP
        self.seed = seed
        self.beams = beams
        self.maxTokens = maxTokens
    }

    /// As the core reads them.
    func json() throws -> String {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return String(decoding: try encoder.encode(self), as: UTF8.self)
    }
}

/// Text to the text that is generated from it.
public final class Writer: Runner, @unchecked Sendable {
    /// A text and its log-probability, by the length penalty that ranked it.
    public struct Text {
        public let text: String
        public let score: Double
    }

    public struct Answer {
        /// The best text.
        public let text: String
        public let score: Double
        /// All that were asked for, best first.
        public let sequences: [Text]
        /// Whether the text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            sequences = labels(from).map { Text(text: $0.name, score: $0.score) }
            text = sequences[0].text
            score = sequences[0].score
            isTruncated = from.truncated != 0
        }
    }

    /// How probable a text is.
    public struct Score {
        /// Its tokens but the first, with their log-probabilities as scores.
        public let tokens: [Label]
        /// The sum of them.
        public let score: Double
        public let perplexity: Double
        /// Whether the text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            tokens = labels(from)
            score = tokens.reduce(0) { $0 + $1.score }
            perplexity = exp(-score / Double(tokens.count))
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options()) throws {
        try super.init(file, options, nil, ["generation"])
    }

    /// The text that is generated; `listener` gets each piece of it as its tokens come, whole characters, in this thread, and ends it with
    /// false. Not with beams, or several texts: none is known before the end.
    public func generate(_ text: String, _ settings: Settings = Settings(), listener: ((String) -> Bool)? = nil) throws -> Answer {
        lock.lock()
        defer { lock.unlock() }
        var json = kb_text()
        var message = kb_message()
        let hearing = Hearing(listener)
        let hear: kb_listener = { context, piece in
            Unmanaged<Hearing>.fromOpaque(context!).takeUnretainedValue().listener!(string(piece)) ? 0 : 1
        }
        let status = try withTexts([text, settings.json()]) { texts -> kb_status in
            withExtendedLifetime(hearing) { () -> kb_status in
                let context = Unmanaged.passUnretained(hearing).toOpaque()
                return kb_runner_generate(handle, texts[0], texts[1], listener == nil ? nil : hear, context, &json, &message)
            }
        }
        guard status == KB_OK else { throw CoreError(status, message) }
        return Answer(kb_runner_result(handle).pointee)
    }

    /// The pieces of the text as its tokens come; joined they are the text. Who leaves the loop ends it. Not with beams.
    public func stream(_ text: String, _ settings: Settings = Settings()) -> AsyncThrowingStream<String, Error> {
        AsyncThrowingStream { pieces in
            DispatchQueue.global().async {
                do {
                    _ = try self.generate(text, settings) { piece in
                        if case .terminated = pieces.yield(piece) { return false }
                        return true
                    }
                    pieces.finish()
                } catch {
                    pieces.finish(throwing: error)
                }
            }
        }
    }

    /// How probable a text of at least two tokens is, by a file of a decoder alone (GPT-2).
    public func score(_ text: String) throws -> Score {
        lock.lock()
        defer { lock.unlock() }
        var json = kb_text()
        var message = kb_message()
        let status = withTexts([text]) { kb_runner_score(handle, $0[0], &json, &message) }
        guard status == KB_OK else { throw CoreError(status, message) }
        return Score(kb_runner_result(handle).pointee)
    }
}

private final class Hearing {
    let listener: ((String) -> Bool)?

    init(_ listener: ((String) -> Bool)?) { self.listener = listener }
}
