import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite(.virtualTime) struct TaskControlTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func withQueue(
    on kind: StoreKind,
    configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
    _ body: (TaskQueue) async throws -> Void
  ) async throws {
    try await kind.withStore { store in
      try await body(TaskQueue(persistence: store, configuration: configuration, clock: clock))
    }
  }

  // MARK: Cancel

  @Test(arguments: StoreKind.allCases)
  func `cancelling a waiting task removes it from the queue`(kind: StoreKind) async throws {
    try await withQueue(on: kind) { queue in
      let log = Log<String>()
      await queue.register(Note.self) { note, _ in log.add(note.text) }
      let first = try await queue.enqueue(Note("first"))
      try await queue.enqueue(Note("second"))
      #expect(try await first.cancel())
      #expect(try await first.outcome() == .cancelled)
      #expect(try await queue.count == 1)
      #expect(try await first.cancel() == false)
      #expect(try await queue.runAvailable() == 1)
      #expect(log.entries == ["second"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `cancelling a running task lets its worker continue with the next task`(
    kind: StoreKind
  ) async throws {
    try await withQueue(on: kind) { queue in
      let log = Log<String>()
      await queue.register(Note.self) { [clock] note, _ in
        log.add("\(note.text) begins")
        if note.text == "long" { try await clock.sleep(for: .seconds(3_600)) }
        log.add("\(note.text) ends")
      }
      let long = try await queue.enqueue(Note("long"))
      let next = try await queue.enqueue(Note("next"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(10))
        #expect(try await long.cancel())
        #expect(try await long.outcome() == .cancelled)
        #expect(try await next.outcome() == .succeeded)
      }
      #expect(log.entries == ["long begins", "next begins", "next ends"])
      #expect(clock.now.offset == .seconds(10))
      #expect(try await queue.count == 0)
    }
  }

  @Test func `a cancelled handler that returns counts as a success`() async throws {
    try await withQueue(on: .memory) { queue in
      await queue.register(Note.self) { [clock] _, _ in
        try? await clock.sleep(for: .seconds(60))
      }
      let task = try await queue.enqueue(Note("stubborn"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        try await task.cancel()
        #expect(try await task.outcome() == .succeeded)
      }
    }
  }

  @Test func `a worker continues if its attempt ends before it is cut short`()
    async throws
  {
    try await withQueue(on: .memory) { queue in
      await queue.register(Note.self) { note, context in
        guard note.text == "first" else { return }
        // The task is cancelled, but the handler returns before the worker is interrupted.
        let answer = queue.core.dispatch.machine.withLock { $0.request(.cancel, of: context.id) }
        if case .interrupt = answer { return }
        Issue.record("the command doesn't interrupt the attempt")
      }
      try await queue.enqueue(contentsOf: [Note("first"), Note("second")])
      #expect(try await queue.runAvailable() == 2)
    }
  }

  @Test func `a handler may cancel its own task, and others`() async throws {
    try await withQueue(on: .memory) { queue in
      let other = try await queue.enqueue(Note("other"), availableDate: clock.date + 60)
      await queue.register(Note.self) { [clock] note, context in
        try await queue.cancel(other.id)
        try await queue.cancel(context.id)
        try await clock.sleep(for: .seconds(60))
      }
      let own = try await queue.enqueue(Note("own"))
      try await withRunning(queue) {
        let outcomes = [try await own.outcome(), try await other.outcome()]
        #expect(outcomes == [.cancelled, .cancelled])
      }
      #expect(clock.now.offset == .zero)
    }
  }

  @Test func `a call can cancel the tasks with a tag, the tasks with a name, or all tasks`()
    async throws
  {
    try await withQueue(on: .memory) { queue in
      try await queue.enqueue(Note("a"), options: TaskOptions(tags: ["red", "round"]))
      try await queue.enqueue(Note("b"), options: TaskOptions(tags: ["round"]))
      try await queue.enqueue(Note("c"), options: TaskOptions(tags: ["blue"]))
      try await queue.enqueue(name: "Other", "d")
      try await queue.enqueue(name: "Other", "e")
      #expect(try await queue.tasks(matching: TaskFilter(tags: ["red", "blue"])).count == 2)
      #expect(try await queue.cancel(matching: TaskFilter(tags: ["round"])) == 2)
      #expect(try await queue.cancel(matching: TaskFilter(names: ["Other"])) == 2)
      try await queue.enqueue(Note("f"))
      #expect(try await queue.cancelAll() == 2)
      #expect(try await queue.count == 0)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `cancelling all tasks cancels waiting, running and paused tasks`(
    kind: StoreKind
  ) async throws {
    try await withQueue(
      on: kind,
      configuration: TaskQueueConfiguration(cancelledRetention: .forever)
    ) { queue in
      await queue.register(Note.self) { [clock] _, _ in
        try await clock.sleep(for: .seconds(3_600))
      }
      let running = try await queue.enqueue(Note("running"))
      let paused = try await queue.enqueue(Note("paused"))
      let waiting = try await queue.enqueue(Note("waiting"))
      try await queue.pause(paused.id)
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        #expect(try await queue.cancelAll() == 3)
        for task in [running, paused, waiting] {
          #expect(try await task.outcome() == .cancelled)
        }
      }
      #expect(try await queue.tasks(matching: TaskFilter(states: [.cancelled])).count == 3)
    }
  }

  // MARK: Pause, resume, restart, remove

  @Test(arguments: StoreKind.allCases)
  func `a paused task waits until it is resumed, and retains its retry count`(
    kind: StoreKind
  ) async throws {
    try await withQueue(
      on: kind,
      configuration: TaskQueueConfiguration(backoff: .immediate)
    ) { queue in
      await queue.register(Note.self) { _, context in
        if context.retryCount == 0 { throw Refusal() }
      }
      let task = try await queue.enqueue(Note("a"))
      try await queue.runAvailable()
      #expect(try await queue.pause(task.id))
      #expect(try await queue.runAvailable() == 0)
      #expect(try await queue.tasks().map(\.state) == [.paused])
      #expect(try await queue.resume(task.id))
      #expect(try await queue.resume(task.id) == false)
      #expect(try await queue.tasks().map(\.retryCount) == [1])
      #expect(try await queue.runAvailable() == 1)
      #expect(try await task.outcome() == .succeeded)
    }
  }

  @Test func `pausing a running task ends its attempt without counting a retry`() async throws {
    try await withQueue(on: .memory) { queue in
      await queue.register(Note.self) { [clock] _, _ in
        try await clock.sleep(for: .seconds(3_600))
      }
      let task = try await queue.enqueue(Note("a"))
      let events = queue.events
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        #expect(try await queue.pause(task.id))
        for await event in events { if case .paused(task.id) = event { break } }
        let record = try #require(try await queue.tasks().first)
        #expect(record.state == .paused)
        #expect(record.retryCount == 0 && record.lastError == nil)
        #expect(try await queue.retry(task.id))
        #expect(try await task.outcome() == .succeeded)
      }
      #expect(clock.now.offset == .seconds(3_601))
    }
  }

  @Test func `resuming a running task right after pausing it releases the task`() async throws {
    try await withQueue(on: .memory) { queue in
      await queue.register(Note.self) { [clock] _, _ in
        try await clock.sleep(for: .seconds(100))
      }
      let task = try await queue.enqueue(Note("a"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        #expect(try await queue.pause(task.id))
        #expect(try await queue.resume(task.id))
        #expect(try await task.outcome() == .succeeded)
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a dead letter is listed with its reason, and performed again when it is restarted`(
    kind: StoreKind
  ) async throws {
    try await withQueue(on: kind) { queue in
      let isOnline = Log<Void>()
      await queue.register(Note.self) { _, _ in
        if isOnline.count == 0 { throw TaskAbandoned("offline") }
      }
      let tasks = try await queue.enqueue(contentsOf: ["a", "b", "c"].map(Note.init))
      try await queue.runAvailable()
      let letters = try await queue.tasks(matching: .deadLetters)
      #expect(letters.map(\.lastError) == ["offline", "offline", "offline"])
      #expect(try await queue.remove(letters[2].id))
      #expect(try await queue.retry(letters[0].id))
      #expect(try await queue.retry(matching: .deadLetters) == 1)
      #expect(try await queue.tasks(matching: .deadLetters).isEmpty)
      isOnline.add(())
      try await queue.runAvailable()
      #expect(try await tasks[0].outcome() == .succeeded)
      #expect(try await tasks[1].outcome() == .succeeded)
      #expect(try await queue.retry(tasks[2].id) == false)
    }
  }

  @Test func `restarting a running task starts it again`() async throws {
    try await withQueue(on: .memory) { queue in
      let begins = Log<Duration>()
      await queue.register(Note.self) { [clock] _, _ in
        begins.add(clock.now.offset)
        try await clock.sleep(for: .seconds(100))
      }
      let task = try await queue.enqueue(Note("a"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(30))
        #expect(try await queue.retry(task.id))
        #expect(try await task.outcome() == .succeeded)
      }
      #expect(begins.entries == [.zero, .seconds(30)])
    }
  }

  @Test func `changes of tasks persist after a restart of the process`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let first = JSONFileStore(at: url)
      let queue = TaskQueue(
        persistence: first,
        configuration: TaskQueueConfiguration(cancelledRetention: .forever),
        clock: clock
      )
      let tasks = try await queue.enqueue(
        contentsOf: (0..<5).map { Note("\($0)") },
        options: TaskOptions(tags: ["t"])
      )
      try await queue.cancel(tasks[0].id)
      try await queue.pause(tasks[1].id)
      try await queue.pause(tasks[2].id)
      try await queue.resume(tasks[2].id)
      try await queue.remove(tasks[3].id)
      try await queue.retry(tasks[0].id)
      try await queue.cancel(tasks[4].id)
      let before = try await queue.tasks(matching: TaskFilter())
      try await first.close()
      let second = JSONFileStore(at: url)
      let after = try await second.tasks(matching: TaskFilter(tags: ["t"]), after: nil, limit: 9)
      #expect(after.map(\.state) == before.map(\.state))
      #expect(after.map(\.id) == [tasks[0].id, tasks[1].id, tasks[2].id, tasks[4].id])
      #expect(after.map(\.state) == [.waiting, .paused, .waiting, .cancelled])
      let reopened = TaskQueue(persistence: second, clock: clock)
      let found = try await reopened.task(tasks[4].id)
      #expect(try await found?.outcome() == .cancelled)
      let gone = try await reopened.task(tasks[3].id)
      #expect(gone == nil, "\(String(describing: gone?.id))")
      try await second.close()
    }
  }
}
