// swift-tools-version: 6.3
import PackageDescription

let settings: [SwiftSetting] = [
  .enableUpcomingFeature("ExistentialAny"),
  .enableUpcomingFeature("InternalImportsByDefault"),
  .enableUpcomingFeature("MemberImportVisibility"),
  .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
  .enableUpcomingFeature("InferIsolatedConformances"),
  .strictMemorySafety(),
]

let package = Package(
  name: "Steadfast",
  platforms: [.macOS(.v15), .iOS(.v18), .tvOS(.v18), .watchOS(.v11), .visionOS(.v2)],
  products: [
    .library(name: "SteadfastRetry", targets: ["SteadfastRetry"]),
    .library(name: "SteadfastQueue", targets: ["SteadfastQueue"]),
    .library(name: "SteadfastTesting", targets: ["SteadfastTesting"]),
    .library(name: "SteadfastSQLite", targets: ["SteadfastSQLite"]),
    .library(name: "SteadfastPostgreSQL", targets: ["SteadfastPostgreSQL"]),
  ],
  traits: [
    .trait(name: "SQLite", description: "A store in a database, over the system's libsqlite3."),
    .trait(
      name: "PostgreSQL",
      description: "A store in a database that many machines share, over the system's libpq."
    ),
  ],
  targets: [
    // The C library and the small Foundation, which have another name on each system.
    .target(name: "SystemC", swiftSettings: settings),
    .target(name: "SystemFoundation", swiftSettings: settings),
    .target(name: "SteadfastRetry", swiftSettings: settings),
    .target(
      name: "SteadfastQueue",
      dependencies: ["SteadfastRetry", "SystemC", "SystemFoundation"],
      swiftSettings: settings
    ),
    .target(
      name: "SteadfastTesting",
      dependencies: ["SteadfastQueue", "SystemC", "SystemFoundation"],
      swiftSettings: settings
    ),
    // What the stores in databases have in common.
    .target(
      name: "SteadfastDatabases",
      dependencies: ["SteadfastQueue", "SystemFoundation"],
      swiftSettings: settings
    ),
    // Without its trait, the targets of a database are empty, and need no library.
    .systemLibrary(name: "SystemSQLite", providers: [.apt(["libsqlite3-dev"])]),
    .target(
      name: "SteadfastSQLite",
      dependencies: [
        "SteadfastQueue", "SteadfastDatabases", "SystemC", "SystemFoundation",
        .target(name: "SystemSQLite", condition: .when(traits: ["SQLite"])),
      ],
      swiftSettings: settings
    ),
    .systemLibrary(name: "SystemPostgreSQL", providers: [.apt(["libpq-dev"]), .brew(["libpq"])]),
    .target(
      name: "SteadfastPostgreSQL",
      dependencies: [
        "SteadfastQueue", "SteadfastDatabases", "SystemC", "SystemFoundation",
        .target(name: "SystemPostgreSQL", condition: .when(traits: ["PostgreSQL"])),
      ],
      swiftSettings: settings
    ),
    .executableTarget(
      name: "CrashWorker",
      dependencies: ["SteadfastQueue"],
      path: "Tests/EndToEnd/Worker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "StepWorker",
      dependencies: ["SteadfastQueue"],
      path: "Tests/EndToEnd/StepWorker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "SQLiteWorker",
      dependencies: ["SteadfastQueue", "SteadfastSQLite"],
      path: "Tests/EndToEnd/SQLiteWorker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "StatementWorker",
      dependencies: ["SteadfastQueue", "SteadfastSQLite", "SteadfastPostgreSQL"],
      path: "Tests/EndToEnd/StatementWorker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "ComputeWorker",
      dependencies: ["SteadfastQueue", "SteadfastSQLite", "SteadfastPostgreSQL"],
      path: "Tests/EndToEnd/ComputeWorker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "HistoryWorker",
      dependencies: [
        "SteadfastQueue", "SteadfastSQLite", "SteadfastPostgreSQL", "SteadfastTesting",
        "TestSupport",
      ],
      path: "Tests/EndToEnd/HistoryWorker",
      swiftSettings: settings
    ),
    .executableTarget(
      name: "Stress",
      dependencies: ["SteadfastQueue", "SteadfastTesting", "TestSupport"],
      path: "Tests/Stress",
      swiftSettings: settings
    ),
    .target(
      name: "TestSupport",
      dependencies: ["SteadfastRetry", "SteadfastQueue", "SteadfastDatabases"],
      path: "Tests/Support",
      swiftSettings: settings
    ),
    .testTarget(
      name: "SteadfastRetryTests",
      dependencies: ["SteadfastRetry", "SteadfastTesting", "TestSupport"],
      swiftSettings: settings
    ),
    .testTarget(
      name: "SteadfastQueueTests",
      dependencies: [
        "SteadfastQueue", "SteadfastTesting", "SteadfastSQLite", "SteadfastPostgreSQL",
        "TestSupport",
      ],
      exclude: ["GoldenFiles/version-1"],
      swiftSettings: settings
    ),
    .testTarget(
      name: "SteadfastTestingTests",
      dependencies: ["SteadfastTesting", "TestSupport"],
      swiftSettings: settings
    ),
    .testTarget(
      name: "SteadfastSQLiteTests",
      dependencies: [
        "SteadfastSQLite", "SteadfastDatabases", "SteadfastTesting", "TestSupport",
        .target(name: "SystemSQLite", condition: .when(traits: ["SQLite"])),
      ],
      swiftSettings: settings
    ),
    .testTarget(
      name: "SteadfastPostgreSQLTests",
      dependencies: [
        "SteadfastPostgreSQL", "SteadfastDatabases", "SteadfastTesting", "TestSupport",
      ],
      swiftSettings: settings
    ),
  ],
  swiftLanguageModes: [.v6]
)

// The Swift Package Index documents the store in SQLite, too. Its configuration enables no trait,
// and its machines have no libpq.
if Context.environment["SPI_GENERATE_DOCS"] != nil {
  package.traits.insert(.default(enabledTraits: ["SQLite"]))
}
