import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests what iDelayedJob promises for its manager of several queues.
extension IDelayedJobTests {
  /// Makes a manager that registers the job classes with each queue.
  private func manager(_ store: any Persistence = InMemoryStore()) -> TaskQueueGroup {
    TaskQueueGroup(persistence: store, configuration: configuration, clock: clock) { [self] queue in
      await queue.register(Note.self) { [name = queue.name] note, _ in
        log.add("\(name) \(note.text)")
        if note.text == "bad" { throw Refusal("no") }
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `the manager schedules jobs by queue name, also after a restart`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      for day in 1...2 {
        let manager = manager(store)
        try await manager.addQueue("PrimaryQueue")
        try await manager.addQueue("SecondaryQueue")
        if day == 2 { #expect(try await manager.runAvailable() == 2) }
        for name in ["PrimaryQueue", "SecondaryQueue"] {
          try await manager.enqueue(Note("day \(day)"), on: name)
        }
        await manager.shutDown()
      }
      #expect(log.entries.sorted() == ["PrimaryQueue day 1", "SecondaryQueue day 1"])
    }
  }

  @Test func `scheduling on an unknown queue fails, and so does adding a queue with a used name`()
    async throws
  {
    let manager = manager()
    try await manager.addQueue("PrimaryQueue")
    let unknown = await queueError { try await manager.enqueue(Note("1"), on: "ThirdQueue") }
    #expect(unknown?.code == .unknownQueue)
    let doubled = await queueError { try await manager.addQueue("PrimaryQueue") }
    #expect(doubled?.code == .nameTaken)
    #expect(try await manager.count() == 0)
  }

  @Test func `a queue is found by its name, and has its own attempt limit`() async throws {
    let manager = manager()
    let patient = TaskQueueConfiguration(
      backoff: configuration.backoff,
      taskDefaults: TaskOptions(maxRetries: 3)
    )
    try await manager.addQueue("PrimaryQueue")
    try await manager.addQueue("SecondaryQueue", configuration: patient)
    for name in ["PrimaryQueue", "SecondaryQueue"] {
      let queue = try manager.queue(named: name)
      #expect(queue.name == name)
      try await queue.enqueue(Note("bad"))
    }
    try await withThrowingTaskGroup { tasks in
      tasks.addTask { try await manager.run() }
      try await clock.sleep(for: .seconds(100_000))
      await manager.shutDown()
      try await tasks.waitForAll()
    }
    #expect(log.entries.count { $0 == "PrimaryQueue bad" } == 10)
    #expect(log.entries.count { $0 == "SecondaryQueue bad" } == 4)
  }

  @Test func `the manager pauses, resumes and shuts down all queues`() async throws {
    let manager = manager()
    for name in ["PrimaryQueue", "SecondaryQueue"] {
      try await manager.addQueue(name)
      try await manager.enqueue(Note("1"), on: name)
    }
    try await withThrowingTaskGroup { tasks in
      await manager.pause()
      tasks.addTask { try await manager.run() }
      try await clock.sleep(for: .seconds(100))
      #expect(log.entries == [])
      await manager.resume()
      try await manager.waitUntilIdle()
      #expect(log.entries.count == 2)
      await manager.shutDown()
      try await tasks.waitForAll()
    }
    let late = await queueError { try await manager.run() }
    #expect(late?.code == .shutDown)
  }

  @Test func `a unique job replaces only a job of the same queue`() async throws {
    let manager = manager()
    for name in ["PrimaryQueue", "SecondaryQueue"] {
      let queue = try await manager.addQueue(name)
      for text in ["1", "2"] {
        try await queue.enqueue(Note(text), uniqueKey: "k", onDuplicate: .replace)
      }
    }
    #expect(try await manager.runAvailable() == 2)
    #expect(log.entries.sorted() == ["PrimaryQueue 2", "SecondaryQueue 2"])
  }

  @Test func `resetting all queues removes their jobs`() async throws {
    let store = InMemoryStore()
    let manager = manager(store)
    for name in ["PrimaryQueue", "SecondaryQueue"] {
      try await manager.addQueue(name)
      try await manager.enqueue(Note("1"), on: name)
    }
    for queue in manager.queues { #expect(try await queue.cancelAll() == 1) }
    #expect(try await manager.count() == 0)
  }
}
