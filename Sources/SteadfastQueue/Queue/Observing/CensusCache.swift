import Synchronization

/// The last census of a store, and the look-up of the next one, which concurrent callers share.
final class CensusCache: Sendable {
  private struct State {
    var census: TaskCensus?
    /// When the look-up of the census began.
    var start = Duration.zero
    /// The number of censuses that were looked up.
    var count = 0
  }

  private static let key: Set = ["census"]

  private let time: QueueTime
  private let mutex: KeyedMutex
  private let state = Mutex(State())

  init(_ time: QueueTime, _ availability: StoreAvailability) {
    self.time = time
    mutex = KeyedMutex(availability)
  }

  /// Returns the last census if its look-up began at most `maxAge` ago, or looks up a new one.
  ///
  /// If another caller's look-up is under way, this call waits for it, and returns its census. If
  /// that look-up fails, for instance because its caller was cancelled, this call makes its own.
  func census(
    maxAge: Duration,
    lookUp: () async throws -> TaskCensus
  ) async throws -> TaskCensus {
    let now = time.stopwatch()
    let (known, count) = state.withLock { state in
      (now - state.start <= maxAge ? state.census : nil, state.count)
    }
    if let known { return known }
    try await mutex.lock(Self.key)
    defer { mutex.unlock(Self.key) }
    if let census = state.withLock({ $0.count > count ? $0.census : nil }) { return census }
    let start = time.stopwatch()
    let census = try await lookUp()
    state.withLock { $0 = State(census: census, start: start, count: $0.count + 1) }
    return census
  }
}
