import Synchronization

/// Lets one call at a time read or change the stored pause, and follow it.
///
/// Otherwise a call that has read an earlier value could follow it after a later one.
struct PauseTurns: ~Copyable, Sendable {
  private let isTaken = Atomic(false)
  private let ends = Waiters<Void>()
  private let wasRead = Atomic(false)

  /// Whether the stored pause was read since the queue was made.
  var hasRead: Bool { wasRead.load(ordering: .acquiring) }

  /// Performs the body, which reads the stored pause, when it has its turn.
  ///
  /// The call before may take as long as the store is gone, so a call that is cancelled does not
  /// wait for its turn.
  ///
  /// - Throws: What the body throws; `CancellationError` when cancelled before its turn.
  func perform<Result>(_ body: () async throws -> Result) async throws -> Result {
    while isTaken.exchange(true, ordering: .acquiringAndReleasing) {
      try await ends.wait { isTaken.load(ordering: .acquiring) ? nil : .success(()) }
    }
    defer {
      isTaken.store(false, ordering: .releasing)
      ends.resumeAll(with: .success(()))
    }
    let result = try await body()
    wasRead.store(true, ordering: .releasing)
    return result
  }
}
