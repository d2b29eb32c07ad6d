import Foundation
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct FlushingTests {
  private let storage = MemoryStorage()
  private let executor = ManualExecutor { 0 }

  private func makeCore(_ flushing: JSONFileStore.Flushing) -> JSONFileCore {
    let (storage, executor) = (storage, executor)
    return JSONFileCore(
      URL(filePath: "/queue.jsonl"),
      flushing: flushing,
      thread: { executor }
    ) { (nil, storage) }
  }

  private var flushCount: Int { storage.calls.count { $0 == .synchronize } }

  @Test func `changes made within a flush interval share one flush at the end of the interval`()
    async throws
  {
    let core = makeCore(.atMostEvery(.seconds(1)))
    try await executor.run { try await core.open() }
    let before = flushCount
    for number in 1...5 {
      try await executor.run {
        _ = try await core.apply([.insert(.make(number), onDuplicate: .keep)], .durable)
      }
    }
    #expect(flushCount == before)
    executor.letTimePass()
    _ = executor.doJob()
    #expect(flushCount == before + 1)
    executor.letTimePass()
    #expect(!executor.doJob())
  }

  @Test func `if a flush after an interval fails, the next call gets the error`() async throws {
    let core = makeCore(.atMostEvery(.seconds(1)))
    try await executor.run {
      try await core.open()
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
    }
    storage.fail(.synchronize, EIO)
    executor.letTimePass()
    _ = executor.doJob()
    let error = await #expect(throws: JSONFileError.self) { try await core.open() }
    #expect(error?.code == .outcomeUnknown)
  }

  @Test func `a flush after an interval doesn't touch a file that a failed write has poisoned`()
    async throws
  {
    let core = makeCore(.atMostEvery(.seconds(1)))
    try await executor.run {
      try await core.open()
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
    }
    storage.fail(.append, EIO)
    // The incomplete line of the failed write can't be removed.
    storage.onCall { [storage] call in
      if case .truncate = call { storage.fail(call, EIO) }
    }
    let error = await #expect(throws: JSONFileError.self) {
      try await executor.run { try await core.insert(.make(2)) }
    }
    #expect(error?.code == .outcomeUnknown)
    let before = storage.calls
    executor.letTimePass()
    _ = executor.doJob()
    #expect(storage.calls == before)
  }

  @Test func `when flushing is left to the system, the store flushes only on closing`() async throws
  {
    let core = makeCore(.leftToSystem)
    try await executor.run { try await core.open() }
    let before = flushCount
    try await executor.run {
      _ = try await core.apply([.insert(.make(1), onDuplicate: .keep)], .durable)
    }
    #expect(flushCount == before)
    try await executor.run { try await core.close() }
    #expect(flushCount == before + 2)
  }
}
