import Foundation

@testable import SteadfastQueue

extension GoldenWriter {
  /// Writes changes in which tasks get, pass on or lose a unique key in every way.
  mutating func writeRoles() throws {
    try insert(task(1, key: "a"), task(2, key: "b"), task(3, key: ""), task(4, key: "d"))
    try insert(task(5, available: 20, key: "e", latest: 60), task(6, name: "Other", key: "a"))
    try insert(task(7, key: "g", uniqueUntil: 90), task(8, key: "h"), task(9, key: "i"))
    try begin(1, 2, 4, 7, 8)
    // Insertions of successors, and of tasks whose contents replace those of another task.
    try append(.addition(task(11, key: "a"), .successor))
    try append(.addition(task(12, priority: 2, key: "a"), .takenOver(by: .numbered(11))))
    try append(.addition(task(13, key: "b"), .successor))
    try append(.addition(task(14, key: "d"), .successor))
    try append(.addition(task(15, available: 40, key: "e"), .takenOver(by: .numbered(5))))
    try append(.addition(task(16, available: 99, key: "e"), .takenOver(by: .numbered(5))))
    try append(.addition(task(17, available: -5, key: "i"), .takenOver(by: .numbered(9))))
    // The end of the task that holds the key, and its effects.
    try append(
      .supersession(
        .retry(lease(1), availableDate: date(300), retryCount: 3, failure: failure(1))
      )
    )
    try change(
      .succeed(lease(2), at: date(2), retains: true),
      .abandon(lease(4), failure: failure(4), retains: true),
      .cancel(.unclaimed(.numbered(14)), at: date(4), retains: false),
      .restart(.unclaimed(.numbered(4)), availableDate: date(5)),
      .succeed(lease(7), at: date(6), retains: true),
      .prune(.succeeded, endedBefore: date(5), keepingLatest: nil, now: date(80)),
      .prune(.succeeded, endedBefore: nil, keepingLatest: 0, now: date(80))
    )
    // A postponed task keeps its date. A parked task waits again.
    try change(.retry(lease(8), availableDate: date(70), retryCount: 1, failure: nil))
    try append(.addition(task(18, key: "h"), .takenOver(by: .numbered(8))))
    try begin(9)
    try change(.park(lease(9), failure: failure(9)))
    try append(.addition(task(19, key: "i"), .takenOver(by: .numbered(9))))
    // After a release, both tasks wait. An addition may come after the end of the key's holder.
    try begin(13)
    try append(.addition(task(20, key: "b"), .successor))
    try change(.release(lease(13)))
    try begin(3)
    try change(.cancel(.claimed(lease(3)), at: date(7), retains: false))
    try append(.addition(task(21, key: ""), .successor))
  }

  /// Writes tasks with order keys, and tasks with conditions.
  mutating func writeOrderKeys() throws {
    try insert(task(1, order: "a", holds: true), task(2, order: "a"), task(3, order: "a"))
    try insert(task(4, name: "Other", order: "\u{e9}\"", holds: true), task(5, order: "\u{e9}\""))
    try insert(task(6, requires: ["network", "b \""]), task(7, key: "k", requires: ["network"]))
    try insert(task(8, key: "l", order: "c", requires: ["x"]), task(9, order: "c", holds: true))
    try begin(1, 4, 8)
    try change(
      .abandon(lease(1), failure: failure(1), retains: true),
      .cancel(.claimed(lease(4)), at: date(2), retains: true),
      .prune(.cancelled, endedBefore: date(99), keepingLatest: 0, now: date(99))
    )
    try append(
      .addition(
        task(10, key: "k", order: "a", holds: true, requires: ["y"]),
        .takenOver(by: .numbered(7))
      )
    )
    try change(.succeed(lease(8), at: date(3), retains: true), .remove(.numbered(1)))
    try begin(2, 9)
    // An ended task returns to its position while another task with its order key is running.
    try change(.restart(.unclaimed(.numbered(8)), availableDate: date(4)))
    try insert(task(11, order: "d"), task(12, order: "d"))
    try begin(11)
    try change(.succeed(lease(11), at: date(5), retains: true))
    try begin(12)
    try change(.restart(.unclaimed(.numbered(11)), availableDate: date(6)))
  }

  /// Compacts a file of tasks with order keys, and writes changes during and after the compaction.
  mutating func writeCompactedOrderKeys() throws {
    try writeOrderKeys()
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try insert(task(13, order: "d"))
    journal = try compaction.finish(journal, at: date(7))
    try change(
      .retry(lease(12), availableDate: date(0), retryCount: 1, failure: failure(12)),
      .cancel(.unclaimed(.numbered(13)), at: date(8), retains: true)
    )
    try begin(11)
  }
}
