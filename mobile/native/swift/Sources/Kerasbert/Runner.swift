import CKerasbert
import Foundation

/// The version of kerasbert that this package was written by.
public let release = KB_RELEASE

/// What the portable core says of a call that failed: what, received, expected.
public struct CoreError: LocalizedError {
    public let message: String
    /// Whether only the Python runtime knows this file, tokenizer or answer.
    public let isUnsupported: Bool
    /// Whether `cancel` ended the answer.
    public let isCancelled: Bool

    public var errorDescription: String? { message }

    init(_ status: kb_status, _ message: String) {
        self.message = (status == KB_UNSUPPORTED ? "the portable core does not read " : "") + message
        isUnsupported = status == KB_UNSUPPORTED
        isCancelled = status == KB_CANCELLED
    }

    init(_ status: kb_status, _ message: kb_message) {
        let text = withUnsafeBytes(of: message.text) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        self.init(status, text)
    }
}

/// How a file is run. What is 0 or nil is the default.
public struct Options {
    /// LiteRT's library; by default the program's own functions, then libLiteRt.dylib.
    public var library: String?
    /// Of the network, 1 to 256; 1 by default.
    public var threads: Int
    /// The most rows of the model's length that an input may take, 1 to 1,024, which is the default: longer ones are refused.
    public var rows: Int
    /// What computes: "xnnpack" (the processor), the default, or LiteRT's accelerators "gpu", which leaves to the processor what it
    /// does not take, and "npu", which takes all of the network or is refused.
    public var delegate: String?

    public init(library: String? = nil, threads: Int = 0, rows: Int = 0, delegate: String? = nil) {
        self.library = library
        self.threads = threads
        self.rows = rows
        self.delegate = delegate
    }
}

/// What runs the network of a file in the place of LiteRT's library.
public protocol Network: AnyObject {
    /// The numbers of an output, float32. Inputs are of the shape [1, count]: int32, or a byte of 0 or 1 for each.
    func run(signature: String, inputs: [String: Data], output: String) throws -> Data
}

/// A label, a choice, or a token for a mask.
public struct Label {
    public let name: String
    public let score: Double
    /// Of a token its id; else its place.
    public let id: Int
    /// Whether it is the answer: the best, or of several labels one above its threshold.
    public let isChosen: Bool

    init(_ from: kb_label) {
        name = string(from.name)
        score = from.score
        id = Int(from.id)
        isChosen = from.chosen != 0
    }
}

/// A part of a text: a word, an entity, an answer.
public struct Span {
    /// `source[range]`, of the text that was asked about.
    public let text: String
    /// Of tags; else empty.
    public let label: String
    public let score: Double
    public let range: Range<String.Index>

    init(_ from: kb_span, _ source: String) {
        let bytes = source.utf8
        let start = bytes.index(bytes.startIndex, offsetBy: from.bytes.start)
        range = start..<bytes.index(start, offsetBy: from.bytes.end - from.bytes.start)
        text = string(from.text)
        label = string(from.label)
        score = from.score
    }
}

/// A .tflite of `kerasbert-mobile compress` of any kind: text to an answer as json. Its subclasses give answers typed.
///
/// Threads take turns; `cancel` alone does not wait. Errors are `CoreError`s.
public class Runner: @unchecked Sendable {
    let handle: OpaquePointer
    let lock = NSRecursiveLock()
    private let model: OpaquePointer?  // of a network of the caller's, with what holds that
    private let holder: Holder?

    /// A file of any kind.
    public convenience init(contentsOf file: URL, options: Options = Options()) throws {
        try self.init(file, options, nil, [])
    }

    init(_ file: URL, _ options: Options, _ network: Network?, _ kinds: [String]) throws {
        var made: OpaquePointer?, read: OpaquePointer?
        var message = kb_message()
        var status = KB_OK
        let held = network.map(Holder.init)
        if let held = held {
            let data = try Data(contentsOf: file, options: .mappedIfSafe)
            status = data.withUnsafeBytes { kb_model_open($0.baseAddress, $0.count, &read, &message) }
            if status == KB_OK {
                var calls = kb_network(context: Unmanaged.passUnretained(held).toOpaque(), run: runNetwork, close: nil)
                var given = kb_runner_options(library: nil, threads: 0, rows: options.rows, delegate: nil)
                status = kb_runner_over(read, &calls, &given, &made, &message)
            }
        } else {
            status = file.path.withCString { path in
                withName(options.library) { library in
                    withName(options.delegate) { delegate in
                        var given = kb_runner_options(
                            library: library, threads: Int32(clamping: options.threads), rows: options.rows, delegate: delegate)
                        return kb_runner_open(path, &given, &made, &message)
                    }
                }
            }
        }
        guard status == KB_OK, let opened = made else {
            kb_model_close(read)
            throw CoreError(status, message)
        }
        let kind = String(cString: kb_model_kind(kb_runner_model(opened)))
        guard kinds.isEmpty || kinds.contains(kind) else {
            kb_runner_close(opened)
            kb_model_close(read)
            throw CoreError(KB_ARGUMENT, "the file answers with \(kind), expected \(kinds.joined(separator: " or "))")
        }
        handle = opened
        model = read
        holder = held
    }

    deinit {
        kb_runner_close(handle)
        kb_model_close(model)
    }

    /// Such as "classification".
    public var kind: String { String(cString: kb_model_kind(kb_runner_model(handle))) }

    /// The answer as json, as Python's `to_json` gives it: of a text, a pair, a question and its context, a text and its choices.
    public func json(_ texts: String...) throws -> String {
        lock.lock()
        defer { lock.unlock() }
        return string(try asked(texts, false))
    }

    /// Ends the answer that another thread waits for: it throws a CoreError that `isCancelled`.
    public func cancel() { kb_runner_cancel(handle) }

    /// Asks on another thread: `try await classifier.asking { try classifier.answer(text) }`. A task that is cancelled ends its own
    /// answer, and no other's.
    public func asking<T>(_ ask: @escaping @Sendable () throws -> T) async throws -> T {
        let turn = Turn()
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { (waiting: CheckedContinuation<T, Error>) in
                DispatchQueue.global().async {
                    self.lock.lock()
                    let answer = Result<T, Error> {
                        guard turn.begin() else { throw CancellationError() }
                        return try ask()
                    }
                    turn.end()
                    self.lock.unlock()
                    waiting.resume(with: answer)
                }
            }
        } onCancel: {
            turn.cancel(self)
        }
    }

    /// What `make` reads of the typed answer, which lives until the next call.
    func result<T>(_ texts: [String], words: Bool = false, _ make: (kb_result) -> T) throws -> T {
        lock.lock()
        defer { lock.unlock() }
        _ = try asked(texts, words)
        return make(kb_runner_result(handle).pointee)
    }

    /// The same of a text of a file of vectors, after a prompt.
    func result<T>(after prompt: String, _ text: String, _ make: (kb_result) -> T) throws -> T {
        lock.lock()
        defer { lock.unlock() }
        var json = kb_text()
        var message = kb_message()
        let status = withTexts([prompt, text]) { kb_runner_prompted(handle, $0[0], [$0[1]], 1, &json, &message) }
        guard status == KB_OK else { throw CoreError(status, message) }
        return make(kb_runner_result(handle).pointee)
    }

    private func asked(_ texts: [String], _ words: Bool) throws -> kb_text {
        var json = kb_text()
        var message = kb_message()
        let status = withTexts(texts) { kb_runner_answer(handle, $0, texts.count, words ? 1 : 0, &json, &message) }
        guard status == KB_OK else { throw CoreError(status, message) }
        return json
    }
}

/// Whether an answer is under way, and whether its task was cancelled before.
private final class Turn: @unchecked Sendable {
    private let lock = NSLock()
    private var isOn = false, isCancelled = false

    func begin() -> Bool {
        lock.lock()
        defer { lock.unlock() }
        isOn = !isCancelled
        return isOn
    }

    func end() {
        lock.lock()
        isOn = false
        lock.unlock()
    }

    func cancel(_ runner: Runner) {
        lock.lock()
        isCancelled = true
        if isOn { runner.cancel() }
        lock.unlock()
    }
}

/// A network, and the numbers of its last call, which the core reads until the next.
private final class Holder {
    let network: Network
    private var numbers = UnsafeMutableBufferPointer<Float>.allocate(capacity: 0)

    init(_ network: Network) { self.network = network }

    deinit { numbers.deallocate() }

    func hold(_ data: Data) -> UnsafeMutableBufferPointer<Float> {
        numbers.deallocate()
        numbers = .allocate(capacity: data.count / 4)
        _ = data.copyBytes(to: numbers)
        return numbers
    }
}

/// kb_network's function.
private func runNetwork(
    context: UnsafeMutableRawPointer?, signature: UnsafePointer<CChar>?, inputs: UnsafePointer<kb_input>?, count: Int,
    output: UnsafePointer<CChar>?, values: UnsafeMutablePointer<UnsafePointer<Float>?>?, size: UnsafeMutablePointer<Int>?,
    message: UnsafeMutablePointer<kb_message>?
) -> kb_status {
    let holder = Unmanaged<Holder>.fromOpaque(context!).takeUnretainedValue()
    var given: [String: Data] = [:]
    for input in UnsafeBufferPointer(start: inputs, count: count) {
        given[String(cString: input.name)] = Data(bytes: input.data, count: input.count * (input.is_bool != 0 ? 1 : 4))
    }
    do {
        let data = try holder.network.run(signature: String(cString: signature!), inputs: given, output: String(cString: output!))
        let numbers = holder.hold(data)
        values!.pointee = UnsafePointer(numbers.baseAddress)
        size!.pointee = numbers.count
        return KB_OK
    } catch {
        let said = Array("\(error)".utf8.prefix(255))
        withUnsafeMutableBytes(of: &message!.pointee.text) { text in
            text.copyBytes(from: said)
            text[said.count] = 0
        }
        return KB_INTERPRETER
    }
}

func string(_ text: kb_text) -> String {
    String(decoding: UnsafeRawBufferPointer(start: text.data, count: text.size), as: UTF8.self)
}

func labels(_ result: kb_result) -> [Label] {
    UnsafeBufferPointer(start: result.labels, count: result.label_count).map(Label.init)
}

func spans(_ from: UnsafePointer<kb_span>?, _ count: Int, _ source: String) -> [Span] {
    UnsafeBufferPointer(start: from, count: count).map { Span($0, source) }
}

/// Texts as the core reads them, while `body` runs.
func withTexts<T>(_ texts: [String], _ body: ([kb_text]) throws -> T) rethrows -> T {
    let bytes: [UInt8] = texts.flatMap { Array($0.utf8) } + [0]
    return try bytes.withUnsafeBufferPointer { all in
        try all.baseAddress!.withMemoryRebound(to: CChar.self, capacity: all.count) { start in
            var at = 0
            var parts: [kb_text] = []
            for text in texts {
                parts.append(kb_text(data: start + at, size: text.utf8.count))
                at += text.utf8.count
            }
            return try body(parts)
        }
    }
}

private func withName(_ name: String?, _ body: (UnsafePointer<CChar>?) -> kb_status) -> kb_status {
    guard let name = name else { return body(nil) }
    return name.withCString { body($0) }
}
