import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests checkpoints, which store the progress of a task.
@Suite(.virtualTime) struct CheckpointTests {
  private let test: StepQueue

  init() throws { test = try StepQueue() }

  private struct Position: Codable, Sendable, Equatable {
    var offset: Int
  }

  /// Returns how many changes stored a checkpoint.
  private func checkpointCount(in store: FaultInjectingStore) -> Int {
    store.calls.flatMap(\.changes).count { change in
      if case .memory(.remember(_, "checkpoint", _)) = change { true } else { false }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `the next attempt continues from the last checkpoint`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await test.makeQueue(on: store) { [test] _, context in
        var position = try await context.checkpoint(Position.self) ?? Position(offset: 0)
        test.logWithTime("from \(position.offset)")
        while position.offset < 10 {
          position.offset += 1
          try await context.save(position)
          #expect(try await context.checkpoint(Position.self) == position)
          if position.offset == 4, context.retryCount == 0 { throw Refusal() }
        }
      }
      let task = try await queue.enqueue(Note("a"))
      try await queue.runAvailable()
      #expect(
        try await queue.memory(of: task.id).checkpoint(as: Position.self) == Position(offset: 4)
      )
      try await VirtualTime.current?.drain(queue)
      #expect(test.log.entries == ["0 from 0", "60 from 4"])
    }
  }

  @Test func `checkpoints are stored once a second, at the end, and on demand`() async throws {
    let store = FaultInjectingStore()
    let queue = await test.makeQueue(on: store) { [test] note, context in
      for offset in 1...50 {
        try await context.save(Position(offset: offset))
        try await test.clock.sleep(for: .milliseconds(100))
      }
      if note.text == "durable" {
        for offset in 51...60 {
          try await context.save(Position(offset: offset), durability: .durable)
        }
      }
      if note.text != "succeeds" { throw TaskAbandoned("enough") }
    }
    try await withRunning(queue) {
      let task = try await queue.enqueue(Note("fails"))
      _ = try await task.outcome()
      #expect(checkpointCount(in: store) == 6)
      let memory = try await queue.memory(of: task.id)
      #expect(try memory.checkpoint(as: Position.self) == Position(offset: 50))
      _ = try await queue.enqueue(Note("succeeds")).outcome()
      #expect(checkpointCount(in: store) == 11)
      _ = try await queue.enqueue(Note("durable")).outcome()
      #expect(checkpointCount(in: store) == 26)
    }
  }

  @Test
  func `a shutdown stops an attempt at a stored checkpoint, and the attempt doesn't count`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await test.makeQueue(on: store) { [test] _, context in
      var position = try await context.checkpoint(Position.self) ?? Position(offset: 0)
      while true {
        position.offset += 1
        await test.workDespiteCancellation(for: .milliseconds(10))
        try await context.save(position)
      }
    }
    let task = try await queue.enqueue(Note("a"))
    async let run: Void = queue.run()
    try await test.clock.sleep(for: .milliseconds(505))
    await queue.shutDown(within: .zero)
    try? await run
    let record = try #require(try await queue.core.storage.record(of: task.id))
    #expect(record.state == .waiting)
    #expect(record.retryCount == 0)
    #expect(
      try await queue.memory(of: task.id).checkpoint(as: Position.self) == Position(offset: 51)
    )
  }

  @Test func `the last of several concurrent saves is stored`() async throws {
    let store = FaultInjectingStore()
    store.inject(.delay(.milliseconds(100), on: test.clock), .beforeEffect, times: nil) {
      $0.kind == .apply
    }
    let queue = await test.makeQueue(on: store) { [test] _, context in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for offset in 1...20 {
          group.addTask { [test] in
            try await test.clock.sleep(for: .milliseconds(10 * offset))
            try await context.save(
              Position(offset: offset),
              durability: offset.isMultiple(of: 3) ? .durable : .relaxed
            )
          }
        }
        try await group.waitForAll()
      }
      throw TaskAbandoned("enough")
    }
    try await withRunning(queue) {
      let task = try await queue.enqueue(Note("a"))
      _ = try await task.outcome()
      let memory = try await queue.memory(of: task.id)
      #expect(try memory.checkpoint(as: Position.self) == Position(offset: 20))
    }
  }

  @Test
  func `a checkpoint resets the interruptions, so a transfer that makes progress isn't abandoned`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      for process in 1...20 {
        let store = JSONFileStore(at: url)
        let configuration = TaskQueueConfiguration(maxInterruptions: 2)
        let queue = await test.makeQueue(
          on: store,
          configuration: configuration
        ) { [test] _, context in
          let position = try await context.checkpoint(Position.self) ?? Position(offset: 0)
          #expect(context.interruptionCount <= 1)
          try await context.save(Position(offset: position.offset + 1))
          if position.offset < 15 {
            // The process ends here.
            try await store.close()
            return
          }
          test.logWithTime("done after \(process)")
        }
        if process == 1 { try await queue.enqueue(Note("a")) }
        _ = try? await queue.runAvailable()
        try? await store.close()
      }
      #expect(test.log.entries == ["0 done after 16"])
    }
  }

  @Test func `a checkpoint of another type parks the task`() async throws {
    let queue = await test.makeQueue(on: InMemoryStore()) { note, context in
      if context.retryCount == 0 {
        try await context.save("text")
        throw Refusal()
      }
      _ = try? await context.checkpoint(Position.self)
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    test.clock.advance(by: .seconds(60))
    try await queue.runAvailable()
    #expect(try await queue.core.storage.record(of: task.id)?.state == .parked)
  }
}
