import Foundation
import Testing

@testable import SteadfastQueue

/// What a compaction keeps of tasks that run although others, which they waited for, wait again.
@Suite struct CompactedDependenciesTests {
  private var writer: GoldenWriter

  init() throws { writer = try GoldenWriter() }

  /// Performs a task to its end, then lets another one begin, and restarts the first.
  private mutating func restart(_ first: Int, whileRunning second: Int) throws {
    try writer.begin(first)
    try writer.change(.succeed(writer.lease(first), at: writer.date(1), retains: true))
    try writer.begin(second)
    try writer.change(
      .restart(.unclaimed(.numbered(first)), availableDate: writer.date(2))
    )
  }

  /// What the file holds before and after a compaction, as the second reader tells it.
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
    return (try before.table.told(), try after.table.told())
  }

  @Test mutating func `a task goes on running that waited for one that was restarted`() throws {
    let dependencies = TaskDependencies(on: [.numbered(1)])
    try writer.insert(writer.task(1), writer.task(2, dependencies: dependencies))
    try restart(1, whileRunning: 2)
    let (before, after) = try compacted()
    #expect(after == before && after.count == 2)
  }

  @Test mutating func `a follower goes on running when a task of its batch is restarted`() throws {
    let dependencies = TaskDependencies(follower: .numbered(2))
    try writer.insert(writer.task(1, dependencies: dependencies), writer.task(2))
    try restart(1, whileRunning: 2)
    let (before, after) = try compacted()
    #expect(after == before && after.count == 2)
  }

  @Test
  mutating func `a task goes on running that is behind others with its order key and waits again`()
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
