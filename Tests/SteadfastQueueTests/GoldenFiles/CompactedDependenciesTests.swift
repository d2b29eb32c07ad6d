import Foundation
import Testing

@testable import SteadfastQueue

/// Compacts a file while a task runs, and an earlier task that it depended on is waiting again.
@Suite struct CompactedDependenciesTests {
  private var writer: GoldenWriter

  init() throws { writer = try GoldenWriter() }

  /// Completes the first task, begins the second, and restarts the first.
  private mutating func restart(_ first: Int, whileRunning second: Int) throws {
    try writer.begin(first)
    try writer.change(.succeed(writer.lease(first), at: writer.date(1), retains: true))
    try writer.begin(second)
    try writer.change(
      .restart(.unclaimed(.numbered(first)), availableDate: writer.date(2))
    )
  }

  /// The contents before and after a compaction, in the format of `read_queue_file.py`.
  private func compacted() throws -> (before: [NSDictionary], after: [NSDictionary]) {
    let before = try JournalReader.read(writer.storage.bytes)
    var compaction = try Compaction(
      of: writer.journal,
      snapshot: writer.table.snapshot,
      in: writer.storage
    )
    _ = try compaction.finish(writer.journal, at: writer.date(3))
    let after = try JournalReader.read(writer.storage.bytes)
    #expect(after.table.brokenInvariants() == [])
    return (
      try before.table.contentsForPythonReader(), try after.table.contentsForPythonReader()
    )
  }

  @Test mutating func `a task keeps running after a task that it waited for is restarted`() throws {
    let dependencies = TaskDependencies(on: [.numbered(1)])
    try writer.insert(writer.task(1), writer.task(2, dependencies: dependencies))
    try restart(1, whileRunning: 2)
    let (before, after) = try compacted()
    #expect(after == before && after.count == 2)
  }

  @Test mutating func `a follower keeps running after a task of its batch is restarted`() throws {
    let dependencies = TaskDependencies(follower: .numbered(2))
    try writer.insert(writer.task(1, dependencies: dependencies), writer.task(2))
    try restart(1, whileRunning: 2)
    let (before, after) = try compacted()
    #expect(after == before && after.count == 2)
  }

  @Test
  mutating func `a task keeps running after an earlier task with the same order key is restarted`()
    throws
  {
    let dependencies = TaskDependencies(on: [.numbered(1)])
    try writer.insert(
      writer.task(1, order: "o"),
      writer.task(2, order: "o", dependencies: dependencies)
    )
    try restart(1, whileRunning: 2)
    let (before, after) = try compacted()
    #expect(after == before && after.count == 2)
  }
}
