//! How the manifest of a package names this one. CI checks it with the package manager's library.

#if canImport(PackageDescription)
import PackageDescription

let sqlite = Package(
  name: "App",
  // snippet.sqlite
  dependencies: [
    .package(
      url: "the URL of this repository",
      branch: "main",
      traits: ["SQLite"]
    )
  ],
  targets: [
    .target(
      name: "App",
      dependencies: [
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastSQLite", package: "Steadfast"),
      ]
    )
  ]
  // snippet.end
)

let postgreSQL = Package(
  name: "App",
  // snippet.postgresql
  dependencies: [
    .package(
      url: "the URL of this repository",
      branch: "main",
      traits: ["PostgreSQL"]
    )
  ],
  targets: [
    .target(
      name: "App",
      dependencies: [
        .product(name: "SteadfastQueue", package: "Steadfast"),
        .product(name: "SteadfastPostgreSQL", package: "Steadfast"),
      ]
    )
  ]
  // snippet.end
)
#else
print("a manifest is compiled by the package manager")
#endif
