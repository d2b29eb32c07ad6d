import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Checkpoints: how far a task has come.
@Suite(.virtualTime) struct CheckpointTests {
  private let test: StepQueue

  init() throws { test = try StepQueue() }

  private struct Place: Codable, Sendable, Equatable {
    var offset: Int
  }

  /// Counts the changes that store a checkpoint.
  private func writes(of store: FaultInjectingStore) -> Int {
    store.calls.flatMap(\.changes).count { change in
      if case .remember(_, "checkpoint", _) = change { true } else { false }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `the next attempt goes on from the last checkpoint`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await test.queue(store) { [test] _, context in
        var place = try await context.checkpoint(Place.self) ?? Place(offset: 0)
        test.note("from \(place.offset)")
        while place.offset < 10 {
          place.offset += 1
          try await context.save(place)
          #expect(try await context.checkpoint(Place.self) == place)
          if place.offset == 4, context.retryCount == 0 { throw Refusal() }
        }
      }
      let task = try await queue.enqueue(Note("a"))
      try await queue.runAvailable()
      #expect(try await queue.memory(of: task.id).checkpoint(as: Place.self) == Place(offset: 4))
      try await VirtualTime.current?.drain(queue)
      #expect(test.log.entries == ["0 from 0", "60 from 4"])
    }
  }

  @Test func `checkpoints are stored once a second, at the end, and on demand`() async throws {
    let store = FaultInjectingStore()
    let queue = await test.queue(store) { [test] note, context in
      for offset in 1...50 {
        try await context.save(Place(offset: offset))
        try await test.clock.sleep(for: .milliseconds(100))
      }
      if note.text == "durable" {
        for offset in 51...60 {
          try await context.save(Place(offset: offset), durability: .durable)
        }
      }
      if note.text != "succeeds" { throw TaskAbandoned("enough") }
    }
    try await withRunning(queue) {
      let task = try await queue.enqueue(Note("fails"))
      _ = try await task.outcome()
      #expect(writes(of: store) == 6)
      let memory = try await queue.memory(of: task.id)
      #expect(try memory.checkpoint(as: Place.self) == Place(offset: 50))
      _ = try await queue.enqueue(Note("succeeds")).outcome()
      #expect(writes(of: store) == 11)
      _ = try await queue.enqueue(Note("durable")).outcome()
      #expect(writes(of: store) == 26)
    }
  }

  @Test func `a shutdown interrupts at a checkpoint, which is stored, and counts no attempt`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await test.queue(store) { [test] _, context in
      var place = try await context.checkpoint(Place.self) ?? Place(offset: 0)
      while true {
        place.offset += 1
        await test.work(for: .milliseconds(10))
        try await context.save(place)
      }
    }
    let task = try await queue.enqueue(Note("a"))
    async let run: Void = queue.run()
    try await test.clock.sleep(for: .milliseconds(505))
    await queue.shutDown(within: .zero)
    try? await run
    let record = try #require(try await queue.record(of: task.id))
    #expect(record.state == .waiting)
    #expect(record.retryCount == 0)
    #expect(try await queue.memory(of: task.id).checkpoint(as: Place.self) == Place(offset: 51))
  }

  @Test func `saves from several child tasks leave the last one`() async throws {
    let store = FaultInjectingStore()
    store.inject(.delay(.milliseconds(100), on: test.clock), .beforeEffect, times: nil) {
      $0.kind == .apply
    }
    let queue = await test.queue(store) { [test] _, context in
      try await withThrowingTaskGroup(of: Void.self) { group in
        for offset in 1...20 {
          group.addTask { [test] in
            try await test.clock.sleep(for: .milliseconds(10 * offset))
            try await context.save(
              Place(offset: offset),
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
      #expect(try memory.checkpoint(as: Place.self) == Place(offset: 20))
    }
  }

  @Test func `a checkpoint clears the interruptions, so that a transfer that goes on is kept`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      for process in 1...20 {
        let store = JSONFileStore(at: url)
        let configuration = TaskQueueConfiguration(maxInterruptions: 2)
        let queue = await test.queue(store, configuration) { [test] _, context in
          let place = try await context.checkpoint(Place.self) ?? Place(offset: 0)
          #expect(context.interruptionCount <= 1)
          try await context.save(Place(offset: place.offset + 1))
          if place.offset < 15 {
            // The process ends here.
            try await store.close()
            return
          }
          test.note("done after \(process)")
        }
        if process == 1 { try await queue.enqueue(Note("a")) }
        _ = try? await queue.runAvailable()
        try? await store.close()
      }
      #expect(test.log.entries == ["0 done after 16"])
    }
  }

  @Test func `a checkpoint of another type parks the task`() async throws {
    let queue = await test.queue(InMemoryStore()) { note, context in
      if context.retryCount == 0 {
        try await context.save("text")
        throw Refusal()
      }
      _ = try? await context.checkpoint(Place.self)
    }
    let task = try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    test.clock.advance(by: .seconds(60))
    try await queue.runAvailable()
    #expect(try await queue.record(of: task.id)?.state == .parked)
  }
}
