import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests dependencies between tasks through the public interface of a queue.
@Suite(.virtualTime) struct DependencyTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence,
    retention: Retention = .forever,
    _ perform: @escaping @Sendable (Note, TaskContext) async throws -> Void = { _, _ in }
  ) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        backoff: .constant(.seconds(60)),
        abandonedRetention: retention,
        cancelledRetention: retention
      ),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      log.add("\(Int(clock.now.offset / .seconds(1))) \(note.text)")
      try await perform(note, context)
    }
    return queue
  }

  /// Abandons each note whose text starts with "bad".
  private static let abandonsBadNotes: @Sendable (Note, TaskContext) async throws -> Void = {
    note,
    _ in
    if note.text.hasPrefix("bad") { throw TaskAbandoned("it is bad") }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task waits until all its dependencies have succeeded`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store) { [clock] note, context in
        let seconds = note.text == "album" ? 10 : 30
        if note.text != "share" { try await clock.sleep(for: .seconds(seconds)) }
        if note.text == "cover", context.retryCount == 0 { throw Refusal() }
      }
      try await withRunning(queue) {
        let album = try await queue.enqueue(Note("album"))
        let cover = try await queue.enqueue(Note("cover"))
        let after = TaskOptions(priority: .high, dependencies: [album.id, cover.id])
        let share = try await queue.enqueue(Note("share"), options: after)
        #expect(try await share.outcome() == .succeeded)
      }
      #expect(Set(log.entries.prefix(2)) == ["0 album", "0 cover"])
      #expect(log.entries.dropFirst(2) == ["90 cover", "120 share"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `abandoning a task cancels its dependents, and restarting the task restarts its dependents`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let fixed = Log<Bool>()
      let queue = await makeQueue(on: store) { note, _ in
        if note.text == "upload", fixed.entries.isEmpty { throw TaskAbandoned("no such file") }
      }
      let events = queue.events
      let tasks = try await queue.enqueue { tasks in
        let upload = try tasks.add(Note("upload"))
        let share = try tasks.add(Note("share"), options: TaskOptions(dependencies: [upload]))
        try tasks.add(Note("notify"), options: TaskOptions(dependencies: [share]))
      }
      try await withRunning(queue) {
        #expect(try await tasks[0].outcome() == .abandoned(reason: "no such file"))
        #expect(try await tasks[1].outcome() == .cancelled)
        #expect(try await tasks[2].outcome() == .cancelled)
        let share = try #require(try await tasks[1].record())
        #expect(share.dependencies.cause == tasks[0].id)
        #expect(share.dependencies.failed == [tasks[0].id: .abandoned])
        fixed.add(true)
        try await queue.retry(tasks[0].id)
        for task in tasks { #expect(try await task.outcome() == .succeeded) }
      }
      #expect(log.entries == ["0 upload", "0 upload", "0 share", "0 notify"])
      await queue.shutDown()
      var reported: [String] = []
      for await event in events {
        let index = tasks.firstIndex { $0.id == event.taskID }.map { "\($0)" } ?? "?"
        switch event {
        case .cancelledByDependency(_, let cause):
          reported.append("\(index) because \(cause == tasks[0].id ? "0" : "?")")
        case .abandoned, .retried, .succeeded: reported.append("\(index)")
        default: break
        }
      }
      #expect(reported == ["0", "1 because 0", "2 because 0", "0", "1", "2", "0", "1", "2"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `cancelling a task cancels its dependents, even if no ended task is retained`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store, retention: .none)
      let first = try await queue.enqueue(Note("first"), delay: .seconds(60))
      let second = try await queue.enqueue(
        Note("second"),
        options: TaskOptions(dependencies: [first.id])
      )
      let third = try await queue.enqueue(
        Note("third"),
        options: TaskOptions(dependencies: [second.id])
      )
      #expect(try await first.cancel())
      #expect(try await third.outcome() == .cancelled)
      #expect(try await second.outcome() == .cancelled)
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task that waits for the end of all its dependencies gets the failed ones in its context`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let found = Log<[TaskID: TaskState]>()
      let queue = await makeQueue(on: store) { note, context in
        try await Self.abandonsBadNotes(note, context)
        if note.text == "report" { found.add(context.dependencies.failed) }
      }
      let bad = try await queue.enqueue(Note("bad"))
      let good = try await queue.enqueue(Note("good"))
      let late = try await queue.enqueue(Note("late"), delay: .seconds(9))
      let options = TaskOptions(
        dependencies: [bad.id, good.id, late.id],
        dependencyRule: .allEnded
      )
      let report = try await queue.enqueue(Note("report"), options: options)
      try await late.cancel()
      try await withRunning(queue) {
        let outcome = try await report.outcome()
        #expect(outcome == .succeeded)
      }
      #expect(found.entries == [[bad.id: .abandoned, late.id: .cancelled]])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a task that would wait forever is rejected, along with its whole batch`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store, Self.abandonsBadNotes)
      let bad = try await queue.enqueue(Note("bad"))
      try await withRunning(queue) { _ = try await bad.outcome() }
      let error = await queueError {
        try await queue.enqueue { tasks in
          try tasks.add(Note("with it"))
          try tasks.add(Note("without end"), options: TaskOptions(dependencies: [bad.id]))
        }
      }
      #expect(error?.code == .unmetDependency)
      #expect(error?.message.contains("\(bad.id)") == true)
      #expect(try await queue.count == 0)
      // A task that waits for any end of the dependency, successful or not, is accepted.
      let after = TaskOptions(dependencies: [bad.id], dependencyRule: .allEnded)
      try await queue.enqueue(Note("report"), options: after)
      let none = TaskOptions(dependencies: [TaskID(high: 1, low: 1)], dependencyRule: .allEnded)
      #expect(
        await queueError { try await queue.enqueue(Note("?"), options: none) }?.code
          == .unmetDependency
      )
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a dependent waits again for a restarted task`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(succeededRetention: .forever),
        clock: clock
      )
      await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
      let first = try await queue.enqueue(Note("first"))
      let late = try await queue.enqueue(Note("late"), delay: .seconds(60))
      let options = TaskOptions(dependencies: [first.id, late.id])
      let last = try await queue.enqueue(Note("last"), options: options)
      #expect(try await queue.runAvailable() == 1)
      try await queue.retry(first.id)
      try await queue.pause(first.id)
      clock.advance(by: .seconds(60))
      #expect(try await queue.runAvailable() == 1)
      #expect(log.entries == ["first", "late"])
      try await queue.resume(first.id)
      #expect(try await queue.runAvailable() == 2)
      #expect(log.entries == ["first", "late", "first", "last"])
      #expect(try await last.outcome() == .succeeded)
    }
  }

  @Test func `invalid options are rejected`() async throws {
    let queue = await makeQueue(on: InMemoryStore())
    let first = try await queue.enqueue(Note("first"))
    let replacing = TaskOptions(dependencies: [first.id], onDuplicate: .replace)
    let error = await queueError {
      try await queue.enqueue(Note("second"), uniqueKey: "k", options: replacing)
    }
    #expect(error?.code == .invalidArgument)
    let many = TaskOptions(dependencies: Set((1...10_001).map(TaskID.numbered)))
    #expect(
      await queueError { try await queue.enqueue(Note("second"), options: many) }?.message
        == "dependencies has 10001 tasks; give at most 10000, or enqueue a batch with a follower"
    )
  }

  @Test
  func `a caller isn't notified of its task's cancellation if the task has been restarted since`()
    async throws
  {
    let store = FaultInjectingStore(InMemoryStore())
    let queue = await makeQueue(on: store)
    let first = try await queue.enqueue(Note("1"), delay: .seconds(60))
    let second = try await queue.enqueue(Note("2"), options: TaskOptions(dependencies: [first.id]))
    // The cancellation is stored first, but reported only after the restart.
    store.inject(.hang, .afterEffect) { $0.kind == .apply }
    async let isCancelled = queue.cancel(first.id)
    try await store.waitForHeldCalls()
    #expect(try await queue.retry(second.id))
    store.restore()
    #expect(try await isCancelled)
    try await withRunning(queue) {
      let outcome = try await second.outcome()
      #expect(outcome == .succeeded)
    }
  }
}
