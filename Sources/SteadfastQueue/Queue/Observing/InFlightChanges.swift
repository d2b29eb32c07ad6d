import Synchronization

/// Tracks the tasks with a change that is being stored, or is stored and not reported yet.
///
/// A change is reported when observers and waiting callers have been notified of it. A caller may
/// learn from the store what became of a task before an earlier change of that task has been
/// reported. Such a caller waits here. So the changes of one task are reported in the order in
/// which they were stored. While no change is under way that a later one can follow, this costs one
/// atomic read for each attempt.
final class InFlightChanges: Sendable {
  private struct Entry {
    /// What was requested of a task.
    ///
    /// Only a completion may come during an attempt.
    enum Request { case none, completion, other }

    /// The number of ends of attempts that are under way; more than one if a lease has run out.
    var ends = 0
    /// The requested change that is under way, if there is one.
    var request = Request.none
  }

  private let entries = Mutex<[TaskID: Entry]>([:])
  /// Whether `entries` holds anything.
  private let areAny = Atomic(false)
  private let told = Waiters<Void>()
  private let absence: StoreAvailability

  init(_ absence: StoreAvailability) {
    self.absence = absence
    absence.listen { [weak told] in told?.resumeAll(with: .success(())) }
  }

  /// The number of tasks with a change under way.
  var count: Int { entries.withLock { $0.count } }

  /// Whether any change is being stored, or is stored and not reported yet.
  var areUnderWay: Bool { areAny.load(ordering: .acquiring) }

  /// Returns whether a change of a task is being stored, or is stored and not reported yet.
  func isUnderWay(_ id: TaskID) -> Bool { entries.withLock { $0[id] != nil } }

  // MARK: Ends of attempts

  /// Waits until no completion of these tasks is under way, then begins to end their attempts.
  ///
  /// An attempt that ends while its task is completed may end because of that, and it would be
  /// unknown which of the two was stored first. If the caller is cancelled, and the store is gone,
  /// this waits no longer.
  func beginEnds(of ids: [TaskID]) async {
    do {
      try await begin(ids, when: { $0.request != .completion }) { $0.ends += 1 }
    } catch {
      change { entries in for id in ids { entries[id, default: Entry()].ends += 1 } }
    }
  }

  func endsAreTold(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.ends -= 1
        if entries[id]?.ends == 0, entries[id]?.request == Entry.Request.none { entries[id] = nil }
      }
    }
    told.resumeAll(with: .success(()))
  }

  // MARK: Requested changes

  /// Waits until no other requested change of these tasks is under way, then begins one.
  ///
  /// Of two changes at the same time, it would be unknown which one was stored first. The one under
  /// way may take as long as the store is gone.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled before, and the store is gone. Then
  ///   ``changesAreTold(of:)`` must not be called.
  func beginChanges(of ids: [TaskID]) async throws {
    try await begin(ids, when: { $0.request == .none }) { $0.request = .other }
  }

  /// Does what ``beginChanges(of:)`` does for a completion, which waits for the end of an attempt,
  /// too.
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
      try await told.wait(until: { entries.withLock { canBeginAll(in: $0) } }, orGone: absence)
    }
  }

  func changesAreTold(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.request = .none
        if entries[id]?.ends == 0 { entries[id] = nil }
      }
    }
    told.resumeAll(with: .success(()))
  }

  // MARK: Waiting for earlier changes

  /// What a caller waits for, of the changes of a task that are under way.
  enum Wait {
    /// The end of the attempt that came before a change is reported.
    ///
    /// An attempt that comes after the change waits for the change before it begins.
    case endIsTold
    /// Every change is reported.
    case allIsTold
  }

  /// Waits for changes of a task, also if the caller is cancelled: something is stored that must be
  /// reported after them.
  func waitUncancelled(until wait: Wait, of id: TaskID) async {
    guard areUnderWay else { return }
    while !isOver(wait, of: id) {
      await told.waitUncancelled { isOver(wait, of: id) ? () : nil }
    }
  }

  /// Waits for changes of a task, which may take as long as the store is gone.
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  func wait(until wait: Wait, of id: TaskID) async throws {
    guard areUnderWay else { return }
    try await told.wait(until: { isOver(wait, of: id) }, orGone: absence)
  }

  private func isOver(_ wait: Wait, of id: TaskID) -> Bool {
    entries.withLock { entries in
      entries[id].map { wait == .endIsTold && $0.ends == 0 } ?? true
    }
  }

  @discardableResult
  private func change<Result: Sendable>(_ body: (inout [TaskID: Entry]) -> Result) -> Result {
    entries.withLock { entries in
      defer { areAny.store(!entries.isEmpty, ordering: .releasing) }
      return body(&entries)
    }
  }
}
