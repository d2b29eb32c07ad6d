import Synchronization

/// The tasks with a change that is being stored, or is stored and not told yet.
///
/// Whoever learns from the store what has become of a task may be ahead of the one who has changed
/// it before, and waits here until that is told. So what happens to one task is told in the order in
/// which the store has kept it. While nothing is under way that a later change can follow, it costs
/// one atomic read for each attempt.
final class ChangesUnderWay: Sendable {
  private struct Entry {
    /// How many ends of attempts are under way; more than one if a claim has run out.
    var ends = 0
    /// Whether a change is under way that somebody has asked for.
    var isChanged = false
  }

  private let entries = Mutex<[TaskID: Entry]>([:])
  /// Whether there are entries.
  private let areAny = Atomic(false)
  private let told = Waiters<Void>()

  /// How many tasks there are.
  var count: Int { entries.withLock { $0.count } }

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

  // MARK: Changes that somebody has asked for

  /// Waits until no other such change of these tasks is under way: of two, nobody could say which
  /// one was stored first.
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

  // MARK: Those who come later

  /// Waits until the end of the attempt is told that came before a change.
  ///
  /// An attempt that came after it waits for the change before it begins.
  func waitUntilEndIsTold(of id: TaskID) async { await wait(for: id) { $0.ends == 0 } }

  /// Waits until all is told that is under way of a task.
  func waitUntilAllIsTold(of id: TaskID) async { await wait(for: id) { _ in false } }

  private func wait(for id: TaskID, until isOver: (Entry) -> Bool) async {
    guard areAny.load(ordering: .acquiring) else { return }
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
