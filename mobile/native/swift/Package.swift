// swift-tools-version:5.7
import PackageDescription

let package = Package(
    name: "Kerasbert",
    platforms: [.iOS(.v13), .macOS(.v10_15)],
    products: [.library(name: "Kerasbert", targets: ["Kerasbert"])],
    targets: [
        .target(name: "CKerasbert"),  // C99; its header is in include/
        .target(name: "Kerasbert", dependencies: ["CKerasbert"]),
    ]
)
