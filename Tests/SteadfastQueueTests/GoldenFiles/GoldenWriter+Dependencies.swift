import Foundation

@testable import SteadfastQueue

extension GoldenWriter {
  private func after(
    _ numbers: Int...,
    rule: DependencyRule = .allSucceeded,
    follower: Int? = nil
  ) -> TaskDependencies {
    TaskDependencies(
      on: Set(numbers.map(TaskID.numbered)),
      rule: rule,
      follower: follower.map(TaskID.numbered)
    )
  }

  /// Writes tasks with dependencies, and ends, restarts and removals of the dependencies.
  mutating func writeDependencies() throws {
    try insert(task(1), task(2), task(3, dependencies: after(1, 2)))
    try insert(task(4, dependencies: after(3)), task(5, dependencies: after(3, rule: .allEnded)))
    // A batch whose follower comes last. One of its tasks is cancelled because its dependency is.
    try insert(task(11, dependencies: after(follower: 13)))
    try insert(task(12, dependencies: after(3, follower: 13)), task(13))
    try insert(task(14, dependencies: after(13, rule: .allEnded)))
    try begin(1, 2)
    try change(
      .succeed(lease(1), at: date(1), retains: true),
      .abandon(lease(2), failure: failure(2), retains: true)
    )
    // Task 15 waits for a task that has already failed.
    try insert(task(15, dependencies: after(2, 14, rule: .allEnded)))
    try begin(5)
    try change(.succeed(lease(5), at: date(2), retains: false))
    // Task 22 is cancelled with task 21, and another task gets its key before task 21 restarts.
    try insert(task(21), task(22, key: "k", dependencies: after(21)))
    try insert(task(23, dependencies: after(22)), task(24, dependencies: after(21)))
    try change(.cancel(.unclaimed(.numbered(21)), at: date(3), retains: true))
    try insert(task(25, key: "k"))
    try append(
      .restart(
        .restart(.unclaimed(.numbered(21)), availableDate: date(4)),
        excluding: [.numbered(22)]
      )
    )
    // A removal and a pruning also remove the dependents that were cancelled.
    try insert(task(31), task(32, dependencies: after(31)), task(33, dependencies: after(32)))
    try insert(task(41), task(42, dependencies: after(41)), task(43, dependencies: after(42)))
    try change(
      .cancel(.unclaimed(.numbered(31)), at: date(5), retains: true),
      .remove(.numbered(31)),
      .cancel(.unclaimed(.numbered(41)), at: date(6), retains: true),
      .prune(.cancelled, endedBefore: nil, keepingLatest: 0, now: date(7))
    )
    // If a cancelled task isn't retained, neither are the dependents that are cancelled with it.
    try insert(
      task(51),
      task(52, dependencies: after(51)),
      task(53, dependencies: after(51, rule: .allEnded))
    )
    try change(.cancel(.unclaimed(.numbered(51)), at: date(8), retains: false))
    try begin(53)
  }

  /// Writes tasks with dependencies, compacts the file, and writes changes.
  mutating func writeCompactedDependencies() throws {
    try writeDependencies()
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try insert(task(61, dependencies: after(11)))
    journal = try compaction.finish(journal, at: date(9))
    try change(.restart(.unclaimed(.numbered(2)), availableDate: date(10)))
    try begin(11)
    try change(.succeed(lease(11), at: date(11), retains: true))
    try begin(61)
  }

  /// Writes tasks of several queues.
  ///
  /// Each key, order key and change applies to one queue.
  mutating func writeQueues() throws {
    try insert(task(1, key: "k", order: "o"), task(2, key: "k", order: "o", queue: "é \""))
    try insert(task(3, order: "o", queue: "é \""), task(4, queue: "other"))
    try begin(1, 2, 4)
    try append(.addition(task(5, key: "k", queue: "é \""), .successor))
    try change(
      .park(lease(4), failure: failure(4)),
      .unpark(name: "Note"),
      .unpark(name: "Note", queue: "other"),
      .succeed(lease(1), at: date(1), retains: true),
      .succeed(lease(2), at: date(2), retains: true),
      .prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: date(3), queue: "é \"")
    )
    try insert(task(6, queue: "other"))
    try begin(6)
    try change(.park(lease(6), failure: failure(6)), .unpark(name: "Note"))
    try begin(3)
  }
}
