#if !SQLite
public import SteadfastQueue
public import SystemFoundation

// Without the trait, these names exist only to report the missing trait.

/// The store in a SQLite database: enable the trait `SQLite` of the package to use it.
@available(
  *,
  unavailable,
  message: "enable the trait \"SQLite\" of the package Steadfast, in Package.swift"
)
public struct SQLiteStore: Sendable {}

extension Persistence where Self == InMemoryStore {
  /// A store in a SQLite database: enable the trait `SQLite` of the package to use it.
  @available(
    *,
    unavailable,
    message: "enable the trait \"SQLite\" of the package Steadfast, in Package.swift"
  )
  public static func sqlite(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing? = nil
  ) -> InMemoryStore { InMemoryStore() }
}
#endif
