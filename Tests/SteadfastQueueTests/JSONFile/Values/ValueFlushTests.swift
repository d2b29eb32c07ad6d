import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

/// Changes of one value by several callers, while others are being written and flushed.
@Suite struct ValueFlushTests: FlushSuite {
  let setting = FlushSetting()

  /// Sets the value 'a', and logs the outcome.
  private func set(_ old: [UInt8]?, _ new: [UInt8]?, beside number: Int? = nil) async {
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

  private func found() throws -> (value: [UInt8]?, tasks: [TaskID]) {
    let table = try JournalReader.read(storage.bytes).table
    return (table.values["a"], table.ids.elements())
  }

  @Test func `a caller learns that a value differs only after the other value is stored`()
    async throws
  {
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      // The first change is written, but not acknowledged.
      log.add("read \(value.map { "\($0)" } ?? "none")")
      await set(nil, [2])
    }
    try await executor.runToEnd { await set(nil, [1]) }
    #expect(log.entries == ["read none", "flushed", "[1] done", "[2] differs"])
    #expect(value == [1])
    #expect(try found().value == [1])
  }

  @Test func `a change of a value that is being flushed is written after it`() async throws {
    try await executor.runToEnd { try await core.open() }
    duringFlushes {
      async let second: Void = set([1], [2], beside: 2)
      async let third: Void = set([1], [3], beside: 3)
      _ = await (second, third)
    }
    try await executor.runToEnd { await set(nil, [1], beside: 1) }
    #expect(log.entries.count == 4)
    #expect(log.entries.count { $0.hasSuffix("done") } == 2)
    #expect(log.entries.count { $0.hasSuffix("differs") } == 1)
    let (value, tasks) = try found()
    #expect(value == self.value)
    #expect(value == [2] && tasks == [.numbered(1), .numbered(2)])
  }

  @Test func `if a write fails, changes that depend on it fail, and the value is unchanged`()
    async throws
  {
    try await executor.runToEnd {
      try await core.open()
      await set(nil, [1])
    }
    storage.fail(.append, ENOSPC)
    try await executor.runToEnd {
      async let second: Void = set([1], [2], beside: 2)
      async let third: Void = set([2], [3], beside: 3)
      async let fourth: Void = set([1], [4])
      _ = await (second, third, fourth)
    }
    #expect(Set(log.entries) == ["[1] done", "[2] failed", "[3] failed", "[4] failed"])
    #expect(value == [1])
    try await executor.runToEnd { await set([1], [5]) }
    #expect(log.entries.last == "[5] done")
    #expect(core.read { $0.values.staged.isEmpty })
    let (value, tasks) = try found()
    #expect(value == [5] && tasks.isEmpty)
  }

  @Test func `a batch and its value are stored together or not at all`() async throws {
    try await executor.runToEnd {
      try await core.open()
      await set(nil, [1], beside: 1)
      await set([1], [2], beside: 2)
    }
    let whole = storage.bytes
    for count in 0...whole.count {
      guard let table = try? JournalReader.read(Array(whole.prefix(count))).table else { continue }
      let expected: [UInt8]? = table.taskCount == 0 ? nil : [UInt8(table.taskCount)]
      #expect(table.values["a"] == expected, "\(count) bytes")
    }
  }
}
