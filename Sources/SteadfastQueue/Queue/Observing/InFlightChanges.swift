import Synchronization

/// Tracks the tasks with a change that is being stored, or is stored and not reported yet.
///
/// A change counts as reported when observers and waiting callers have been notified of it. A
/// caller may learn the state of a task from the store before an earlier change of that task has
/// been reported. Such a caller waits here, so that the changes of one task are reported in the
/// order in which they were stored. While no change is under way, this costs one atomic read for
/// each attempt.
final class InFlightChanges: Sendable {
  private struct Entry {
    /// The kind of the requested change.
    ///
    /// Only a completion may arrive during an attempt.
    enum Request { case none, completion, other }

    /// The number of ends of attempts that are under way; more than one if a lease has expired.
    var ends = 0
    /// The requested change that is under way, if there is one.
    var request = Request.none
  }

  private let entries = Mutex<[TaskID: Entry]>([:])
  /// Whether `entries` is not empty.
  private let hasEntries = Atomic(false)
  private let reported = Waiters<Void>()
  private let availability: StoreAvailability

  init(_ availability: StoreAvailability) {
    self.availability = availability
    availability.notifyWhenUnavailable { [weak reported] in
      reported?.resumeAll(with: .success(()))
    }
  }

  /// The number of tasks with a change under way.
  var count: Int { entries.withLock { $0.count } }

  /// Whether any change is being stored, or is stored and not reported yet.
  var areUnderWay: Bool { hasEntries.load(ordering: .acquiring) }

  /// Returns whether a change of a task is being stored, or is stored and not reported yet.
  func isUnderWay(_ id: TaskID) -> Bool { entries.withLock { $0[id] != nil } }

  // MARK: Ends of attempts

  /// Waits until no completion of these tasks is under way, then marks the ends of their attempts
  /// as under way.
  ///
  /// An attempt may end because of a completion. If both were under way, it would be unknown
  /// whether the end or the completion was stored first. A cancelled caller stops waiting once the
  /// store is unavailable.
  func beginAttemptResults(of ids: [TaskID]) async {
    do {
      try await begin(ids, when: { $0.request != .completion }) { $0.ends += 1 }
    } catch {
      change { entries in for id in ids { entries[id, default: Entry()].ends += 1 } }
    }
  }

  func markAttemptResultsReported(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.ends -= 1
        if entries[id]?.ends == 0, entries[id]?.request == Entry.Request.none { entries[id] = nil }
      }
    }
    reported.resumeAll(with: .success(()))
  }

  // MARK: Requested changes

  /// Waits until no other requested change of these tasks is under way, then starts a new one.
  ///
  /// If two changes were under way, it would be unknown which of them was stored first. A change
  /// stays under way as long as the store is unavailable.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled before, and the store is unavailable.
  ///   Then ``markRequestedChangesReported(of:)`` must not be called.
  func beginRequestedChanges(of ids: [TaskID]) async throws {
    try await begin(ids, when: { $0.request == .none }) { $0.request = .other }
  }

  /// Starts a completion as ``beginRequestedChanges(of:)`` starts a change, but also waits until no
  /// end of an attempt at the task is under way.
  func beginCompletion(of id: TaskID) async throws {
    try await begin([id], when: { $0.request == .none && $0.ends == 0 }) {
      $0.request = .completion
    }
  }

  private func begin(
    _ ids: [TaskID],
    when canBegin: (Entry) -> Bool,
    _ begin: (inout Entry) -> Void
  ) async throws {
    func canBeginAll(in entries: [TaskID: Entry]) -> Bool {
      ids.allSatisfy { entries[$0].map(canBegin) ?? true }
    }
    while !change({ entries in
      guard canBeginAll(in: entries) else { return false }
      for id in ids { begin(&entries[id, default: Entry()]) }
      return true
    }) {
      try await reported.wait(
        until: { entries.withLock { canBeginAll(in: $0) } },
        orUnavailable: availability
      )
    }
  }

  func markRequestedChangesReported(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.request = .none
        if entries[id]?.ends == 0 { entries[id] = nil }
      }
    }
    reported.resumeAll(with: .success(()))
  }

  // MARK: Waiting for earlier changes

  /// The changes under way that a caller waits for.
  enum Wait {
    /// Wait until the end of the attempt before the caller's change is reported.
    ///
    /// The caller need not wait for later attempts: they start only once its change is reported.
    case attemptResultIsReported
    /// Wait until every change is reported.
    case allIsReported
  }

  /// Waits for changes of a task, even if cancelled: the caller's own change is stored, and must be
  /// reported after those changes.
  func waitUncancelled(until wait: Wait, of id: TaskID) async {
    guard areUnderWay else { return }
    while !isOver(wait, of: id) {
      await reported.waitUncancelled { isOver(wait, of: id) ? () : nil }
    }
  }

  /// Waits for changes of a task, which may take as long as the store is unavailable.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled, and the store is unavailable.
  func wait(until wait: Wait, of id: TaskID) async throws {
    guard areUnderWay else { return }
    try await reported.wait(until: { isOver(wait, of: id) }, orUnavailable: availability)
  }

  private func isOver(_ wait: Wait, of id: TaskID) -> Bool {
    entries.withLock { entries in
      entries[id].map { wait == .attemptResultIsReported && $0.ends == 0 } ?? true
    }
  }

  @discardableResult
  private func change<Result: Sendable>(_ body: (inout [TaskID: Entry]) -> Result) -> Result {
    entries.withLock { entries in
      defer { hasEntries.store(!entries.isEmpty, ordering: .releasing) }
      return body(&entries)
    }
  }
}
