@testable import SteadfastQueue

extension TaskTable {
  /// Describes the invariants of dependencies that this table violates.
  func brokenDependencyInvariants() -> [String] {
    var broken: [String] = []
    func check(_ isTrue: Bool, _ name: @autoclosure () -> String) {
      if !isTrue { broken.append(name()) }
    }
    for slot in entries.slots {
      let (id, record) = (entries[slot].id, entries[slot].record)
      let named = record.dependencies.tasks.compactMap(self.slot)
      let open = named.count { !entries[$0].record.state.isFinished }
      check(
        graph.edges.unfinishedCount(of: slot) == open,
        "\(id) waits for \(open) tasks that it names"
      )
      let unfinished = record.dependencies.batch?.unfinished ?? 0
      check(
        entries[slot].waitsForOthers == (open > 0 || unfinished > 0),
        "\(id) waits exactly as long as it must"
      )
      check(!entries[slot].isPinned && !graph.isPinned(id), "\(id) is bound by nothing")
      check(!entries[slot].isFailing, "\(id) is not about to end")
      for name in named {
        check(graph.edges.slots(naming: entries[name].id).contains(slot), "\(id) is listed")
        check(entries[name].isAwaited, "\(entries[name].id) is awaited")
      }
      if record.dependencies.follower != nil {
        check(entries[slot].isAwaited, "\(id) is awaited as a member of a batch")
      }
      check(
        record.dependencies.cause == nil || record.state == .cancelled,
        "\(id) has a cause only if it was cancelled"
      )
    }
    return broken
  }
}
