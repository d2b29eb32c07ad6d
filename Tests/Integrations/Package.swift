// swift-tools-version: 6.3
import PackageDescription

// A separate package, so that the root package has no dependencies.
let package = Package(
  name: "Integrations",
  platforms: [.macOS(.v15)],
  dependencies: [
    .package(name: "Steadfast", path: "../..", traits: ["SQLite"]),
    .package(url: "https://github.com/groue/GRDB.swift", exact: "7.10.0"),
  ],
  targets: [
    .testTarget(
      name: "GRDBTests",
      dependencies: [
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastSQLite", package: "Steadfast"),
        .product(name: "GRDB", package: "GRDB.swift"),
      ]
    )
  ],
  swiftLanguageModes: [.v6]
)
