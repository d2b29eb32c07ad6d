#if !PostgreSQL
public import SteadfastQueue

// Without the trait, these names exist only to report the missing trait.

/// The store in a PostgreSQL database: enable the trait `PostgreSQL` of the package to use it.
@available(
  *,
  unavailable,
  message: "enable the trait \"PostgreSQL\" of the package Steadfast, in Package.swift"
)
public struct PostgreSQLStore: Sendable {}

extension Persistence where Self == InMemoryStore {
  /// A store in a PostgreSQL database: enable the trait `PostgreSQL` of the package to use it.
  @available(
    *,
    unavailable,
    message: "enable the trait \"PostgreSQL\" of the package Steadfast, in Package.swift"
  )
  public static func postgreSQL(
    _ connection: String,
    schema: String? = nil,
    prefix: String = "steadfast",
    sharing: StoreSharing? = StoreSharing(),
    migrates: Bool = true
  ) -> InMemoryStore { InMemoryStore() }
}
#endif
