import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Several callers change one value while earlier changes are being written and flushed.
@Suite struct ValueFlushTests: FlushSuite {
  let setting = FlushSetting()

  /// Sets the value named "a", and logs the outcome.
  private func setValue(from old: [UInt8]?, to new: [UInt8]?, beside number: Int? = nil) async {
    var batch = [TaskChange.setValue(named: "a", from: old, to: new)]
    if let number { batch.append(.insert(.make(number), onDuplicate: .keep)) }
    let text = new.map { "\($0)" } ?? "none"
    do {
      let outcomes = try await core.apply(batch, .durable)
      let isDone = outcomes == batch.map { _ in .done }
      let differs = outcomes == batch.map { _ in .valueDiffers }
      log.add("\(text) \(isDone ? "done" : differs ? "differs" : "\(outcomes)")")
    } catch {
      log.add("\(text) failed")
    }
  }

  private var value: [UInt8]? { core.read { $0.values["a"] } }

  private func valueAndTasksInFile() throws -> (value: [UInt8]?, tasks: [TaskID]) {
    let table = try JournalReader.read(storage.bytes).table
    return (table.values["a"], table.ids.elements())
  }

  @Test func `a caller learns that a value differs only after the differing value is stored`()
    async throws
  {
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      // The first change is written, but not acknowledged.
      log.add("read \(value.map { "\($0)" } ?? "none")")
      await setValue(from: nil, to: [2])
    }
    try await executor.runToEnd { await setValue(from: nil, to: [1]) }
    #expect(log.entries == ["read none", "flushed", "[1] done", "[2] differs"])
    #expect(value == [1])
    #expect(try valueAndTasksInFile().value == [1])
  }

  @Test
  func `a change of a value whose earlier change is being flushed is written after the flush`()
    async throws
  {
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      async let second: Void = setValue(from: [1], to: [2], beside: 2)
      async let third: Void = setValue(from: [1], to: [3], beside: 3)
      _ = await (second, third)
    }
    try await executor.runToEnd { await setValue(from: nil, to: [1], beside: 1) }
    #expect(log.entries.count == 4)
    #expect(log.entries.count { $0.hasSuffix("done") } == 2)
    #expect(log.entries.count { $0.hasSuffix("differs") } == 1)
    let (value, tasks) = try valueAndTasksInFile()
    #expect(value == self.value)
    #expect(value == [2] && tasks == [.numbered(1), .numbered(2)])
  }

  @Test func `if a write fails, changes that depend on it fail, and the value is unchanged`()
    async throws
  {
    try await executor.runToEnd {
      try await core.open()
      await setValue(from: nil, to: [1])
    }
    storage.fail(.append, ENOSPC)
    try await executor.runToEnd {
      async let second: Void = setValue(from: [1], to: [2], beside: 2)
      async let third: Void = setValue(from: [2], to: [3], beside: 3)
      async let fourth: Void = setValue(from: [1], to: [4])
      _ = await (second, third, fourth)
    }
    #expect(Set(log.entries) == ["[1] done", "[2] failed", "[3] failed", "[4] failed"])
    #expect(value == [1])
    try await executor.runToEnd { await setValue(from: [1], to: [5]) }
    #expect(log.entries.last == "[5] done")
    #expect(core.read { $0.values.staged.isEmpty })
    let (value, tasks) = try valueAndTasksInFile()
    #expect(value == [5] && tasks.isEmpty)
  }

  @Test func `a batch and its value are stored together or not at all`() async throws {
    try await executor.runToEnd {
      try await core.open()
      await setValue(from: nil, to: [1], beside: 1)
      await setValue(from: [1], to: [2], beside: 2)
    }
    let whole = storage.bytes
    for count in 0...whole.count {
      guard let table = try? JournalReader.read(Array(whole.prefix(count))).table else { continue }
      let expected: [UInt8]? = table.taskCount == 0 ? nil : [UInt8(table.taskCount)]
      #expect(table.values["a"] == expected, "\(count) bytes")
    }
  }
}
