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
  /// Of two changes at the same time, it would be unknown which one was stored first.
  func beginChanges(of ids: [TaskID]) async {
    while !areBegun(of: ids) {
      await told.waitUncancelled {
        entries.withLock { entries in
          ids.contains { entries[$0]?.isChanged ?? false } ? nil : ()
        }
      }
    }
  }

  private func areBegun(of ids: [TaskID]) -> Bool {
    change { entries in
      guard !ids.contains(where: { entries[$0]?.isChanged ?? false }) else { return false }
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

  /// Waits until the end of the attempt that came before a change is reported.
  ///
  /// An attempt that comes after the change waits for the change before it begins.
  func waitUntilEndIsTold(of id: TaskID) async { await wait(for: id) { $0.ends == 0 } }

  /// Waits until every change of a task that is under way is reported.
  func waitUntilAllIsTold(of id: TaskID) async { await wait(for: id) { _ in false } }

  private func wait(for id: TaskID, until isOver: (Entry) -> Bool) async {
    guard areUnderWay else { return }
    func check() -> Void? { entries.withLock { $0[id].map(isOver) ?? true } ? () : nil }
    while check() == nil { await told.waitUncancelled(unless: check) }
  }

  @discardableResult
  private func change<Result: Sendable>(_ body: (inout [TaskID: Entry]) -> Result) -> Result {
    entries.withLock { entries in
      defer { areAny.store(!entries.isEmpty, ordering: .releasing) }
      return body(&entries)
    }
  }
}
