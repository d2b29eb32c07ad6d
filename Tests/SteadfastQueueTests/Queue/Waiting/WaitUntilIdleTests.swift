import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite(.virtualTime) struct WaitUntilIdleTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// Makes a queue on a store that either stores results at once, or returns later.
  private func makeQueue(appliesAtOnce: Bool = true) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: FaultInjectingStore(appliesAtOnce: appliesAtOnce),
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 2),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      try await clock.sleep(for: .seconds(10))
      if note.text == "fails", context.retryCount < 3 { throw Refusal() }
      if note.text == "parent" { try await context.enqueue(Note("child")) }
      log.add("\(note.text) \(Int(clock.now.offset / .seconds(1)))")
    }
    return queue
  }

  @Test(arguments: [true, false])
  func `waiting until the queue is idle includes immediate retries and tasks that handlers add`(
    appliesAtOnce: Bool
  ) async throws {
    let queue = await makeQueue(appliesAtOnce: appliesAtOnce)
    let left = try await withRunning(queue) {
      try await queue.enqueue(Note("fails"), usesBackoff: false)
      try await queue.enqueue(Note("parent"))
      try await queue.enqueue(Note("later"), delay: .seconds(3_600))
      try await queue.waitUntilIdle()
      return try await queue.count
    }
    #expect(log.entries == ["parent 10", "child 20", "fails 40"])
    #expect(left == 1)
    #expect(clock.now.offset == .seconds(40))
  }

  @Test(arguments: [true, false])
  func `waiting until the queue is idle returns at once if there is nothing to do`(
    appliesAtOnce: Bool
  ) async throws {
    let queue = await makeQueue(appliesAtOnce: appliesAtOnce)
    try await queue.enqueue(name: "without a handler")
    try await queue.enqueue(Note("paused"))
    await queue.pause(name: Note.taskName)
    try await withRunning(queue) {
      for _ in 0..<3 { try await queue.waitUntilIdle() }
    }
    #expect(clock.now.offset == .zero)
  }

  @Test(arguments: [true, false])
  func `a paused queue is idle after its attempts have ended`(appliesAtOnce: Bool) async throws {
    let queue = await makeQueue(appliesAtOnce: appliesAtOnce)
    try await queue.enqueue(contentsOf: (1...5).map { Note("\($0)") })
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      await queue.pause()
      try await queue.waitUntilIdle()
      #expect(log.entries == ["1 10", "2 10"])
      try await queue.waitUntilIdle()
      await queue.resume()
      try await queue.waitUntilIdle()
      #expect(log.entries.count == 5)
    }
  }

  @Test
  func `a caller can wait until the queue is idle even before the queue runs`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Note("a"))
    async let idle: Void = queue.waitUntilIdle()
    try await clock.sleep(for: .seconds(60))
    #expect(try await queue.runAvailable() == 1)
    try await idle
    #expect(clock.now.offset == .seconds(70))
  }

  @Test func `a wait until the queue is idle ends after a pass that finds no tasks`() async throws {
    let queue = await makeQueue(appliesAtOnce: false)
    async let idle: Void = queue.waitUntilIdle()
    try await clock.sleep(for: .seconds(1))
    #expect(try await queue.runAvailable() == 0)
    try await idle
    #expect(clock.now.offset == .seconds(1))
  }

  @Test func `a shutdown or a cancellation ends a wait until the queue is idle`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Note("a"))
    try await withThrowingTaskGroup { group in
      group.addTask {
        await #expect(throws: CancellationError.self) { try await queue.waitUntilIdle() }
      }
      try await clock.sleep(for: .seconds(1))
      group.cancelAll()
    }
    try await withThrowingTaskGroup { group in
      group.addTask {
        let error = await #expect(throws: TaskQueueError.self) { try await queue.waitUntilIdle() }
        #expect(error?.code == .shutDown)
      }
      try await clock.sleep(for: .seconds(1))
      await queue.shutDown()
    }
    let late = await #expect(throws: TaskQueueError.self) { try await queue.waitUntilIdle() }
    #expect(late?.code == .shutDown)
  }

  @Test func `a handler can't wait until its own queue is idle`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [log] _, _ in
      do {
        try await queue.waitUntilIdle()
      } catch let error as TaskQueueError {
        log.add("\(error.code)")
      }
    }
    try await queue.enqueue(Note("a"))
    try await queue.runAvailable()
    #expect(log.entries == ["waitsForItself"])
  }

  @Test
  func `a store failure or a later shutdown ends a wait until the queue is idle`() async throws {
    let store = FaultInjectingStore()
    store.inject(.error(Refusal("the disk is full")), times: nil) {
      $0.changes.contains("succeed")
    }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(1)) }
    try await queue.enqueue(Note("a"))
    async let run: Void = queue.run()
    for _ in 0..<2 {
      let error = await #expect(throws: TaskQueueError.self) { try await queue.waitUntilIdle() }
      #expect(error?.code == .storeFailed)
    }
    do {
      try await run
      Issue.record("the run did not fail")
    } catch is TaskQueueError {}
    await queue.shutDown()
    let error = await #expect(throws: TaskQueueError.self) { try await queue.waitUntilIdle() }
    #expect(error?.code == .shutDown)
  }

  /// The claim reads the store before the retry is stored, but returns afterwards.
  @Test
  func `a claim that started before a retry was stored doesn't make the queue idle`() async throws {
    let store = FaultInjectingStore()
    for kind in [FaultInjectingStore.Call.Kind.claim, .tasks] {
      store.inject(.delay(.seconds(5), on: clock), .afterEffect, times: nil) { $0.kind == kind }
    }
    let queue = TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { [log, clock] note, context in
      try await clock.sleep(for: .seconds(1))
      if context.retryCount < 3 { throw Refusal() }
      log.add(note.text)
    }
    try await withRunning(queue) {
      try await queue.enqueue(Note("a"), usesBackoff: false)
      try await queue.waitUntilIdle()
      #expect(log.entries == ["a"])
    }
  }

  @Test func `a pass that started before a task was added doesn't make the queue idle`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Note("a"))
    async let pass = queue.runAvailable()
    try await clock.sleep(for: .seconds(5))
    try await queue.enqueue(Note("b"))
    async let idle: Void = queue.waitUntilIdle()
    #expect(try await pass == 1)
    try await clock.sleep(for: .seconds(20))
    #expect(try await queue.runAvailable() == 1)
    try await idle
    #expect(clock.now.offset == .seconds(40))
  }

  @Test func `a queue is idle after a pause ends its pass`() async throws {
    let queue = await makeQueue(appliesAtOnce: false)
    try await queue.enqueue(contentsOf: (1...5).map { Note("\($0)") })
    async let pass = queue.runAvailable()
    try await clock.sleep(for: .seconds(1))
    await queue.pause()
    try await queue.waitUntilIdle()
    #expect(try await pass == 2)
    #expect(clock.now.offset == .seconds(10))
  }

  /// When a call returns, all tasks that were added before the call are done.
  @Test(arguments: [true, false])
  func `each of many callers waits until its own tasks are done`(
    appliesAtOnce: Bool
  )
    async throws
  {
    let queue = TaskQueue(
      persistence: FaultInjectingStore(appliesAtOnce: appliesAtOnce),
      configuration: TaskQueueConfiguration(maxConcurrentTasks: 3),
      clock: clock
    )
    let done = Log<String>()
    await queue.register(Note.self) { [clock] note, context in
      if context.retryCount == 0, note.text.hasSuffix("3") { throw Refusal() }
      try await clock.sleep(for: .milliseconds(note.text.count))
      done.add(note.text)
    }
    try await withRunning(queue) {
      try await withThrowingTaskGroup { group in
        for producer in 0..<20 {
          group.addTask {
            for round in 0..<20 {
              let text = "\(producer) \(round)"
              try await queue.enqueue(Note(text), usesBackoff: false)
              try await queue.waitUntilIdle()
              #expect(done.entries.contains(text))
              try await self.clock.sleep(for: .milliseconds(producer % 3))
            }
          }
        }
        try await group.waitForAll()
      }
    }
    #expect(done.count == 400)
  }
}
