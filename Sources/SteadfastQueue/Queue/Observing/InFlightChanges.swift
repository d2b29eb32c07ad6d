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
    /// The number of ends of attempts that are under way; more than one if a lease has run out.
    var ends = 0
    /// Whether a requested change is under way.
    var isChanged = false
  }

  private let entries = Mutex<[TaskID: Entry]>([:])
  /// Whether `entries` holds anything.
  private let areAny = Atomic(false)
  private let told = Waiters<Void>()
  private let absence: StoreAbsence

  init(_ absence: StoreAbsence) {
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

  func beginEnds(of ids: [TaskID]) {
    change { entries in for id in ids { entries[id, default: Entry()].ends += 1 } }
  }

  func endsAreTold(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.ends -= 1
        if entries[id]?.ends == 0, entries[id]?.isChanged == false { entries[id] = nil }
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
    while !areBegun(of: ids) {
      try await told.wait(until: { areUnchanged(ids) }, orGone: absence)
    }
  }

  private func areUnchanged(_ ids: [TaskID]) -> Bool {
    entries.withLock { Self.areUnchanged(ids, in: $0) }
  }

  private static func areUnchanged(_ ids: [TaskID], in entries: [TaskID: Entry]) -> Bool {
    !ids.contains { entries[$0]?.isChanged ?? false }
  }

  private func areBegun(of ids: [TaskID]) -> Bool {
    change { entries in
      guard Self.areUnchanged(ids, in: entries) else { return false }
      for id in ids { entries[id, default: Entry()].isChanged = true }
      return true
    }
  }

  func changesAreTold(of ids: [TaskID]) {
    change { entries in
      for id in ids {
        entries[id]?.isChanged = false
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
