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
  traits: [
    .trait(name: "SQLite", description: "The rows over SQLite."),
    .trait(name: "PostgreSQL", description: "The rows over PostgreSQL."),
    .default(enabledTraits: ["SQLite"]),
  ],
  dependencies: [
    .package(
      name: "Steadfast",
      path: "../..",
      traits: [
        .trait(name: "SQLite", condition: .when(traits: ["SQLite"])),
        .trait(name: "PostgreSQL", condition: .when(traits: ["PostgreSQL"])),
      ]
    )
  ],
  targets: [
    .target(name: "AllocationCounter"),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "CPostgreSQL", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
    .executableTarget(
      name: "bench",
      dependencies: [
        "AllocationCounter",
        .target(name: "CSQLite", condition: .when(traits: ["SQLite"])),
        .target(name: "CPostgreSQL", condition: .when(traits: ["PostgreSQL"])),
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastRetry", package: "Steadfast"),
        .product(name: "SteadfastSQLite", package: "Steadfast"),
        .product(name: "SteadfastPostgreSQL", package: "Steadfast"),
        .product(name: "SteadfastTesting", package: "Steadfast"),
      ],
      swiftSettings: settings
    ),
  ],
  swiftLanguageModes: [.v6]
)
