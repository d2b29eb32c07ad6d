// swift-tools-version: 6.3
import PackageDescription

// A separate package, so that the root package has no dependencies.
let package = Package(
  name: "Integrations",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "Steadfast", path: "../..", traits: ["SQLite"]),
    .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
    .package(url: "https://github.com/apple/swift-log", exact: "1.16.2"),
    .package(url: "https://github.com/apple/swift-metrics", exact: "2.13.0"),
    .package(url: "https://github.com/apple/swift-distributed-tracing", exact: "1.7.3"),
    .package(
      url: "https://github.com/swift-server/swift-service-lifecycle",
      exact: "2.13.0"
    ),
    .package(
      url: "https://github.com/hummingbird-project/hummingbird",
      exact: "2.28.1",
      traits: []
    ),
    .package(url: "https://github.com/apple/swift-nio", exact: "2.101.2"),
  ],
  targets: [
    // Files that people copy into their programs. Without the features that the root package has,
    // as most programs are.
    .target(
      name: "Bridges",
      dependencies: [
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "Logging", package: "swift-log"),
        .product(name: "Metrics", package: "swift-metrics"),
        .product(name: "Tracing", package: "swift-distributed-tracing"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
        .product(name: "Hummingbird", package: "hummingbird"),
      ]
    ),
    .testTarget(
      name: "BridgesTests",
      dependencies: [
        "Bridges",
        .product(name: "SteadfastTesting", package: "Steadfast"),
        .product(name: "InMemoryLogging", package: "swift-log"),
        .product(name: "MetricsTestKit", package: "swift-metrics"),
        .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
        .product(name: "NIOEmbedded", package: "swift-nio"),
      ]
    ),
    .testTarget(
      name: "GRDBTests",
      dependencies: [
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastSQLite", package: "Steadfast"),
        .product(name: "GRDB", package: "GRDB.swift"),
      ]
    ),
  ],
  swiftLanguageModes: [.v6]
)
