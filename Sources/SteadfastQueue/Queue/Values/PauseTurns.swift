import Synchronization

/// Lets one call at a time read or change the stored pause, and follow it.
///
/// Otherwise a call that has read an earlier value could follow it after a later one.
struct PauseTurns: ~Copyable, Sendable {
  private let turns = KeyTurns()
  private let wasRead = Atomic(false)

  /// Whether the stored pause was read since the queue was made.
  var hasRead: Bool { wasRead.load(ordering: .acquiring) }

  /// Performs the body, which reads the stored pause, when it has its turn.
  func perform<Result>(_ body: () async throws -> Result) async throws -> Result {
    let key: Set = [StoredPause.valueName]
    await turns.begin(key)
    defer { turns.end(key) }
    let result = try await body()
    wasRead.store(true, ordering: .releasing)
    return result
  }
}
