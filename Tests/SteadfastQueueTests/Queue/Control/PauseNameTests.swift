import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Mail: TaskPayload { var text: String }

/// Tests pausing the tasks with one name.
@Suite(.virtualTime) struct PauseNameTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    workers: Int = 1,
    on store: some Persistence = InMemoryStore()
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(maxConcurrentTasks: workers),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, _ in
      log.add("begins \(note.text)")
      try await clock.sleep(for: .seconds(10))
      log.add(note.text)
    }
    await queue.register(Mail.self) { [log] mail, _ in log.add(mail.text) }
    return queue
  }

  @Test func `tasks of a paused name wait, while others are performed`() async throws {
    let queue = await makeQueue()
    await queue.pause(name: "Note")
    try await queue.enqueue(Note("note"))
    try await queue.enqueue(Mail(text: "mail"))
    let attempts = try await queue.runAvailable()
    #expect(attempts == 1)
    #expect(log.entries == ["mail"])
    #expect(queue.pausedNames == ["Note"])
    await queue.resume(name: "Note")
    #expect(queue.pausedNames.isEmpty)
    let more = try await queue.runAvailable()
    #expect(more == 1)
    #expect(log.entries == ["mail", "begins note", "note"])
  }

  @Test func `attempts under way continue, but no new attempt of the paused name starts`()
    async throws
  {
    let queue = await makeQueue(workers: 2)
    try await queue.enqueue(contentsOf: ["a", "b", "c", "d"].map(Note.init))
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      try await clock.sleep(for: .seconds(1))
      await queue.pause(name: "Note")
      try await queue.enqueue(Mail(text: "mail"))
      try await clock.sleep(for: .seconds(60))
      #expect(Set(log.entries) == ["begins a", "begins b", "a", "b", "mail"])
      await queue.resume(name: "Note")
      try await clock.sleep(for: .seconds(60))
      #expect(Set(log.entries).isSuperset(of: ["c", "d"]))
      #expect(log.entries.count == 9)
      await queue.shutDown()
      try await group.waitForAll()
    }
  }

  @Test func `a fallback handler doesn't perform tasks of a paused name`() async throws {
    let queue = await makeQueue()
    await queue.registerFallback { [log] _, context in log.add(context.name) }
    await queue.pause(name: "Unknown")
    try await queue.enqueue(name: "Unknown")
    try await queue.enqueue(name: "Other")
    try await queue.runAvailable()
    #expect(log.entries == ["Other"])
    await queue.resume(name: "Unknown")
    try await queue.runAvailable()
    #expect(log.entries == ["Other", "Unknown"])
  }

  @Test
  func `registering a handler doesn't resume its name, and the handler's limit applies afterwards`()
    async throws
  {
    let queue = await makeQueue(workers: 4)
    await queue.pause(name: "Note")
    await queue.register(Note.self, maxConcurrentTasks: 1) { [log, clock] note, _ in
      try await clock.sleep(for: .seconds(1))
      log.add(note.text)
    }
    try await queue.enqueue(contentsOf: ["a", "b", "c"].map(Note.init))
    let none = try await queue.runAvailable()
    #expect(none == 0)
    await queue.resume(name: "Note")
    let start = clock.now
    try await queue.runAvailable()
    #expect(start.duration(to: clock.now) == .seconds(3))
  }

  @Test func `a task whose name is paused during its claim doesn't start`()
    async throws
  {
    // A claim takes a second, and hands out more tasks than can start at once.
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(1), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    let queue = await makeQueue(workers: 3, on: store)
    try await queue.enqueue(contentsOf: (0..<9).map { Note("\($0)") })
    try await withRunning(queue) {
      for step in 0..<12 {
        try await clock.sleep(for: .milliseconds(300 + 170 * step))
        await queue.pause(name: "Note")
        let begun = log.entries.count { $0.hasPrefix("begins") }
        try await clock.sleep(for: .seconds(30))
        #expect(log.entries.count { $0.hasPrefix("begins") } == begun)
        await queue.resume(name: "Note")
      }
      try await clock.sleep(for: .seconds(200))
    }
    #expect(log.entries.count == 18)
    #expect(try await queue.count == 0)
  }

  /// The store takes some time to release the claimed tasks that haven't started.
  @Test(arguments: [false, true])
  func `a command for a task that is being released is carried out`(resumes: Bool) async throws {
    let store = FaultInjectingStore()
    store.inject(.delay(.seconds(1), on: clock), .afterEffect, times: nil) { $0.kind == .claim }
    store.inject(.delay(.seconds(5), on: clock), times: nil) { $0.changes.contains("release") }
    let queue = await makeQueue(workers: 3, on: store)
    try await withRunning(queue) {
      let tasks = try await queue.enqueue(contentsOf: ["a", "b", "c"].map(Note.init))
      try await clock.sleep(for: .milliseconds(500))
      async let pause: Void = queue.pause(name: "Note")
      try await clock.sleep(for: .seconds(2))
      for task in tasks { #expect(try await queue.cancel(task.id)) }
      if resumes { await queue.resume(name: "Note") }
      await pause
      for task in tasks { #expect(try await task.outcome() == .cancelled) }
      try await queue.waitUntilIdle()
    }
    #expect(try await queue.count == 0)
  }

  @Test func `a call that pauses a name stops waiting for a claim when it is cancelled`()
    async throws
  {
    let store = FaultInjectingStore()
    let queue = await makeQueue(workers: 1, on: store)
    store.inject(.hang) { $0.kind == .claim }
    try await withRunning(queue) {
      try await store.waitForHeldCalls()
      await withTaskGroup { group in
        group.addTask { await queue.pause(name: "Note") }
        try? await clock.sleep(for: .seconds(1))
        group.cancelAll()
      }
      #expect(queue.pausedNames == ["Note"])
      store.letGo()
    }
  }
}
