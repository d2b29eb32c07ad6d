import Synchronization

/// Tracks changes from when they are sent to the store until they are reported.
///
/// A change is reported when observers and waiting callers have been notified of it. A caller that
/// finds a task in the store may have to wait until earlier changes to the task are reported, so
/// that changes to a task are reported in the order in which they were stored. While no change is
/// tracked, that costs one atomic read for each attempt.
///
/// There are two kinds of changes: results of attempts, and changes that a caller requests.
final class InFlightChanges: Sendable {
  private struct Entry {
    /// The kind of the requested change.
    ///
    /// Only a completion can be requested during an attempt.
    enum Request { case none, completion, other }

    /// The number of attempts whose results are tracked; more than one if a lease has expired.
    var resultCount = 0
    /// The requested change that is tracked, if there is one.
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

  /// The number of tasks with a tracked change.
  var count: Int { entries.withLock { $0.count } }

  /// Whether any change is being stored, or is stored and not reported yet.
  var areUnderWay: Bool { hasEntries.load(ordering: .acquiring) }

  /// Returns whether a change of a task is being stored, or is stored and not reported yet.
  func isUnderWay(_ id: TaskID) -> Bool { entries.withLock { $0[id] != nil } }

  // MARK: Results of attempts

  /// Starts tracking the results of attempts at these tasks.
  ///
  /// This first waits until all completions of the tasks are reported. Otherwise, the order in
  /// which a completion and a result were stored would be unknown. If the caller is cancelled and
  /// the store is unavailable, this does not wait any longer.
  func beginAttemptResults(of ids: [TaskID]) async {
    do {
      try await begin(ids, when: { $0.request != .completion }) { $0.resultCount += 1 }
    } catch {
      change { entries in for id in ids { entries[id, default: Entry()].resultCount += 1 } }
    }
  }

  func markAttemptResultsReported(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.resultCount -= 1
        if entries[id]?.resultCount == 0, entries[id]?.request == Entry.Request.none {
          entries[id] = nil
        }
      }
    }
    reported.resumeAll(with: .success(()))
  }

  // MARK: Requested changes

  /// Starts tracking requested changes of these tasks.
  ///
  /// This first waits until other requested changes of the tasks are reported. Otherwise, the order
  /// in which the changes were stored would be unknown. The wait lasts as long as the store is
  /// unavailable.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled while it waits and the store is
  ///   unavailable. Then the caller must not call ``markRequestedChangesReported(of:)``.
  func beginRequestedChanges(of ids: [TaskID]) async throws {
    try await begin(ids, when: { $0.request == .none }) { $0.request = .other }
  }

  /// Starts tracking a completion that a caller requests.
  ///
  /// This first waits until other requested changes of the task, and the results of attempts at the
  /// task, are reported.
  ///
  /// - Throws: The same errors as ``beginRequestedChanges(of:)``.
  func beginCompletion(of id: TaskID) async throws {
    try await begin([id], when: { $0.request == .none && $0.resultCount == 0 }) {
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
        if entries[id]?.resultCount == 0 { entries[id] = nil }
      }
    }
    reported.resumeAll(with: .success(()))
  }

  // MARK: Waiting for earlier changes

  /// The tracked changes for which a caller waits.
  enum Wait {
    /// Wait until the tracked results of attempts at the task are reported.
    case attemptResultIsReported
    /// Wait until every tracked change of the task is reported.
    case allIsReported
  }

  /// Waits until changes of a task are reported, even if the caller is cancelled.
  ///
  /// Use this if the caller's own change is stored, and must be reported after those changes.
  func waitUncancelled(until wait: Wait, of id: TaskID) async {
    guard areUnderWay else { return }
    while !isOver(wait, of: id) {
      await reported.waitUncancelled { isOver(wait, of: id) ? () : nil }
    }
  }

  /// Waits until changes of a task are reported.
  ///
  /// The wait lasts as long as the store is unavailable.
  ///
  /// - Throws: `CancellationError` if the caller is cancelled and the store is unavailable.
  func wait(until wait: Wait, of id: TaskID) async throws {
    guard areUnderWay else { return }
    try await reported.wait(until: { isOver(wait, of: id) }, orUnavailable: availability)
  }

  private func isOver(_ wait: Wait, of id: TaskID) -> Bool {
    entries.withLock { entries in
      entries[id].map { wait == .attemptResultIsReported && $0.resultCount == 0 } ?? true
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
