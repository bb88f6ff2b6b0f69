import CKerasbert
import Foundation

/// Text, or a pair of texts, to labels.
public final class Classifier: Runner, @unchecked Sendable {
    public struct Answer {
        /// The best label and its probability.
        public let label: String
        public let score: Double
        /// Every label, in the file's order.
        public let labels: [Label]
        /// The labels that the text has: of several at a time (multi_label) those above their thresholds, else the best alone.
        public let chosen: [Label]
        /// Whether the text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            labels = Kerasbert.labels(from)
            let best = Kerasbert.best(labels)
            label = best.name
            score = best.score
            chosen = labels.filter { $0.isChosen }
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["classification", "multi_label"])
    }

    public func answer(_ text: String) throws -> Answer { try result([text], Answer.init) }

    public func answer(_ first: String, _ second: String) throws -> Answer { try result([first, second], Answer.init) }
}

/// A text to a label for every word, and entities.
public final class Tagger: Runner, @unchecked Sendable {
    public struct Answer {
        /// What was asked about, of which spans are parts.
        public let text: String
        public let words: [Span]
        public let entities: [Span]

        init(_ from: kb_result, _ text: String) {
            self.text = text
            words = spans(from.spans, from.span_count, text)
            entities = spans(from.entities, from.entity_count, text)
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["tags"])
    }

    public func answer(_ text: String) throws -> Answer { try result([text]) { Answer($0, text) } }

    /// Of words; their ranges are those of `text`, the words joined by blanks.
    public func answer(words: [String]) throws -> Answer {
        let text = words.joined(separator: " ")
        return try result(words, words: true) { Answer($0, text) }
    }
}

/// A question and a text to the part of the text that answers it.
public final class QuestionAnswerer: Runner, @unchecked Sendable {
    public struct Answer {
        /// `context[range]`; empty where the text has no answer.
        public let text: String
        public let range: Range<String.Index>
        public let score: Double
        /// Others, best first.
        public let alternatives: [Span]
        /// Whether the question was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result, _ context: String) {
            let all = spans(from.spans, from.span_count, context)
            text = all[0].text
            range = all[0].range
            score = all[0].score
            alternatives = Array(all.dropFirst())
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["span"])
    }

    public func answer(_ question: String, in context: String) throws -> Answer {
        try result([question, context]) { Answer($0, context) }
    }
}

/// A text, or a pair of texts, to a vector.
public final class Embedder: Runner, @unchecked Sendable {
    public struct Answer {
        public let values: [Float]
        /// Whether the text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            values = Array(UnsafeBufferPointer(start: from.values, count: from.value_count))
            isTruncated = from.truncated != 0
        }

        /// Cosine of the angle between two vectors: 1 of the same direction; 0 where one is 0.
        public func cosine(_ other: Answer) -> Double {
            var product = 0.0, own = 0.0, others = 0.0
            for (one, two) in zip(values, other.values) {
                product += Double(one) * Double(two)
                own += Double(one) * Double(one)
                others += Double(two) * Double(two)
            }
            return own * others == 0 ? 0 : product / (own * others).squareRoot()
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["vector"])
    }

    public func answer(_ text: String) throws -> Answer { try result([text], Answer.init) }

    public func answer(_ first: String, _ second: String) throws -> Answer { try result([first, second], Answer.init) }

    /// After another prompt of the file than its default, such as "query"; "" for none.
    public func prompted(_ prompt: String, _ text: String) throws -> Answer { try result(after: prompt, text, Answer.init) }
}

/// A text, or a pair of texts, to a number.
public final class Regressor: Runner, @unchecked Sendable {
    public struct Answer {
        public let value: Double
        /// Whether the text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            value = Double(from.values[0])
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["regression"])
    }

    public func answer(_ text: String) throws -> Answer { try result([text], Answer.init) }

    public func answer(_ first: String, _ second: String) throws -> Answer { try result([first, second], Answer.init) }
}

/// A text and at least two choices to the one that fits best.
public final class Chooser: Runner, @unchecked Sendable {
    public struct Answer {
        /// The place of the choice that fits best, its text and its probability.
        public let index: Int
        public let text: String
        public let score: Double
        /// Every choice, in the order that was given.
        public let choices: [Label]
        /// Whether a text was longer than the model reads.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            choices = labels(from)
            let best = Kerasbert.best(choices)
            index = best.id
            text = best.name
            score = best.score
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["choice"])
    }

    public func answer(_ text: String, choices: [String]) throws -> Answer { try result([text] + choices, Answer.init) }
}

/// A text with [MASK] in it to the tokens that may stand there.
public final class MaskFiller: Runner, @unchecked Sendable {
    public struct Answer {
        /// The text with the best tokens in the place of its masks.
        public let text: String
        /// Of each mask the tokens, best first.
        public let tokens: [[Label]]
        /// Whether the model did not read the whole text.
        public let isTruncated: Bool

        init(_ from: kb_result) {
            let all = labels(from)
            let each = all.count / from.mask_count
            text = string(from.text)
            tokens = (0..<from.mask_count).map { Array(all[$0 * each..<($0 + 1) * each]) }
            isTruncated = from.truncated != 0
        }
    }

    public init(contentsOf file: URL, options: Options = Options(), network: Network? = nil) throws {
        try super.init(file, options, network, ["tokens"])
    }

    public func answer(_ text: String) throws -> Answer { try result([text], Answer.init) }
}

/// Texts that `kerasbert-mobile index` keeps with vectors of an embedder's file. Threads may share it.
public final class Index: @unchecked Sendable {
    public struct Hit {
        /// Its number, from 0.
        public let number: Int
        /// The cosine of the int8 vectors.
        public let score: Double
        public let id: String
        public let text: String

        init(_ from: kb_hit) {
            number = from.number
            score = from.score
            id = string(from.id)
            text = string(from.text)
        }
    }

    private let handle: OpaquePointer

    /// A file that was made by the embedder's.
    public init(contentsOf file: URL, embedder: Embedder) throws {
        var made: OpaquePointer?
        var message = kb_message()
        let status = file.path.withCString { kb_index_open_file($0, kb_runner_model(embedder.handle), &made, &message) }
        guard status == KB_OK, let opened = made else { throw CoreError(status, message) }
        handle = opened
    }

    deinit { kb_index_close(handle) }

    public var count: Int { kb_index_count(handle) }

    /// The texts of the largest cosines with a vector, largest first: `top` of them, or all there are.
    public func nearest(_ vector: Embedder.Answer, top: Int = 5) throws -> [Hit] {
        var hits = [kb_hit](repeating: kb_hit(), count: max(0, min(top, count)))
        var found = 0
        var message = kb_message()
        let status = kb_index_nearest(handle, vector.values, vector.values.count, hits.count, &hits, &found, &message)
        guard status == KB_OK else { throw CoreError(status, message) }
        return hits.prefix(found).map(Hit.init)
    }
}

/// The label of the highest score, the first of equal ones.
func best(_ labels: [Label]) -> Label {
    labels.dropFirst().reduce(labels[0]) { $1.score > $0.score ? $1 : $0 }
}
