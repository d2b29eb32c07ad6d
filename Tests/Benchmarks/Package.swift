// swift-tools-version: 6.3
import PackageDescription

let settings: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
]

let package = Package(
  name: "Benchmarks",
  platforms: [.macOS(.v15)],
  dependencies: [.package(name: "Steadfast", path: "../..", traits: ["SQLite"])],
  targets: [
    .target(name: "AllocationCounter"),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .executableTarget(
      name: "bench",
      dependencies: [
        "AllocationCounter",
        "CSQLite",
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastRetry", package: "Steadfast"),
        .product(name: "SteadfastSQLite", package: "Steadfast"),
        .product(name: "SteadfastTesting", package: "Steadfast"),
      ],
      swiftSettings: settings
    ),
  ],
  swiftLanguageModes: [.v6]
)
