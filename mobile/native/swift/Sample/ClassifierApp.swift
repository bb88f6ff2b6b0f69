import Kerasbert
import SwiftUI
import TensorFlowLite

/// TensorFlowLiteSwift as what runs the network.
final class LiteNetwork: Network {
    private let interpreter: Interpreter
    private var runners: [String: SignatureRunner] = [:]

    init(contentsOf file: URL) throws { interpreter = try Interpreter(modelPath: file.path) }

    func run(signature: String, inputs: [String: Data], output: String) throws -> Data {
        let runner = try runners[signature] ?? interpreter.signatureRunner(with: signature)
        runners[signature] = runner
        try runner.invoke(with: inputs)
        return try runner.output(named: output).data
    }
}

/// A text to its labels, by model.tflite of `kerasbert-mobile compress` among the app's resources.
struct ContentView: View {
    @State private var text = "a gripping film"
    @State private var said = ""
    @State private var classifier: Classifier?

    var body: some View {
        VStack {
            TextField("Text", text: $text)
            Button("Classify") {
                Task {
                    do {
                        let asked = text
                        let open = try classifier ?? opened()
                        classifier = open
                        let answer = try await open.asking { try open.answer(asked) }
                        said = answer.labels.map { "\($0.name) \($0.score)" }.joined(separator: "\n")
                    } catch {
                        said = error.localizedDescription
                    }
                }
            }
            Text(said)
        }
        .padding()
    }

    private func opened() throws -> Classifier {
        guard let file = Bundle.main.url(forResource: "model", withExtension: "tflite") else { throw CocoaError(.fileNoSuchFile) }
        return try Classifier(contentsOf: file, network: LiteNetwork(contentsOf: file))
    }
}

@main
struct ClassifierApp: App {
    var body: some Scene {
        WindowGroup { ContentView() }
    }
}
