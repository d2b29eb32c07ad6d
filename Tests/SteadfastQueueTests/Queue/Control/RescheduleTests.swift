import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests calls that change the date of a waiting task.
@Suite(.virtualTime) struct RescheduleTests {
  private let clock: VirtualClock
  private let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(on store: any Persistence = InMemoryStore()) async -> TaskQueue {
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(backoff: .constant(.seconds(1_000))),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, context in
      log.add("\(note.text) \(context.retryCount) at \(clock.now.offset.components.seconds)")
      if context.retryCount < 2 { throw Refusal() }
    }
    return queue
  }

  @Test(arguments: StoreKind.allCases)
  func `performing a task now skips its backoff, and retains its retry count`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      let events = queue.events
      let task = try await queue.enqueue(Note("a"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(10))
        #expect(try await task.performNow())
        #expect(try await task.outcome() == .succeeded)
      }
      #expect(log.entries == ["a 0 at 0", "a 1 at 10", "a 2 at 1010"])
      for await event in events {
        if case .rescheduled(let id, let date) = event {
          #expect(id == task.id && date == clock.date - 1_000)
          break
        }
      }
    }
  }

  @Test func `all tasks that wait for a retry are performed when the network is available again`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(
      contentsOf: [Note("a"), Note("b")],
      options: TaskOptions(tags: ["network"])
    )
    try await queue.enqueue(Note("c"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(10))
      #expect(try await queue.performNow(matching: TaskFilter(tags: ["network"])) == 2)
      try await clock.sleep(for: .seconds(10))
    }
    #expect(log.entries == ["a 0 at 0", "b 0 at 0", "c 0 at 0", "a 1 at 10", "b 1 at 10"])
  }

  @Test(arguments: StoreKind.allCases)
  func `performing retrying tasks now doesn't affect tasks that are scheduled for tomorrow`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(
        persistence: store,
        configuration: TaskQueueConfiguration(backoff: .constant(.seconds(1_000))),
        clock: clock
      )
      await queue.register(Note.self) { [log, clock] note, context in
        log.add("\(note.text) at \(clock.now.offset.components.seconds)")
        guard clock.now.offset < .seconds(10) else { return }
        if note.text == "fails" { throw Refusal() }
        throw TaskSnoozed(for: .seconds(1_000))
      }
      let tomorrow = clock.date + 86_400
      try await queue.enqueue(contentsOf: [Note("fails"), Note("is put off")])
      let scheduled = try await queue.enqueue(Note("scheduled"), availableDate: tomorrow)
      let moved = try await queue.enqueue(Note("moved"))
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(5))
        // This task is rescheduled after it was postponed, so it no longer counts as retrying.
        #expect(try await moved.reschedule(to: tomorrow + 60))
        try await clock.sleep(for: .seconds(5))
        #expect(try await queue.count(matching: .retrying) == 2)
        #expect(try await queue.performNow(matching: .retrying) == 2)
        #expect(try await queue.count(matching: .retrying) == 0)
        #expect(try await scheduled.outcome() == .succeeded)
        #expect(try await moved.outcome() == .succeeded)
      }
      #expect(
        log.entries == [
          "fails at 0", "is put off at 0", "moved at 0", "fails at 10", "is put off at 10",
          "scheduled at 86400", "moved at 86460",
        ]
      )
    }
  }

  @Test
  func `tasks remain marked as postponed after a restart of the process and a compaction`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue")
      let store = JSONFileStore(at: url)
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.register(Note.self) { note, _ in
        if note.text == "fails" { throw Refusal() }
        throw TaskSnoozed(for: .seconds(1_000))
      }
      let tasks = try await queue.enqueue(contentsOf: [Note("fails"), Note("is put off")])
      try await queue.enqueue(Note("scheduled"), availableDate: clock.date + 86_400)
      try await queue.runAvailable()
      try await store.close()
      let (journal, table) = try Journal.open(MemoryStorage(Array(Data(contentsOf: url))))
      let compacted = MemoryStorage()
      var compaction = try Compaction(
        of: journal,
        snapshot: table.snapshot,
        in: compacted
      )
      try compaction.finish(journal, at: clock.date)
      for table in [table, try JournalReader.read(compacted.bytes).table] {
        let found = table.tasks(matching: .retrying, after: nil, limit: 9).map(\.id)
        #expect(found == tasks.map(\.id))
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a rescheduled task is performed at its new date, earlier or later`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.register(Note.self) { [log, clock] note, _ in
        log.add("\(note.text) at \(clock.now.offset.components.seconds)")
      }
      let date = clock.date
      let early = try await queue.enqueue(Note("early"), availableDate: date + 5_000)
      let late = try await queue.enqueue(Note("late"), availableDate: date + 50)
      try await withRunning(queue) {
        try await clock.sleep(for: .seconds(1))
        #expect(try await queue.reschedule(early.id, to: date + 100))
        #expect(
          try await queue.reschedule(matching: TaskFilter(ids: [late.id]), to: date + 200) == 1
        )
        #expect(try await late.outcome() == .succeeded)
      }
      #expect(log.entries == ["early at 100", "late at 200"])
    }
  }

  @Test func `a paused task can be rescheduled, and has its new date when it is resumed`()
    async throws
  {
    let queue = await makeQueue()
    let date = clock.date + 100
    let task = try await queue.enqueue(Note("a"))
    try await queue.pause(task.id)
    #expect(try await task.reschedule(to: date))
    #expect(try await queue.tasks().map(\.state) == [.paused])
    try await queue.resume(task.id)
    #expect(try await queue.tasks().map(\.availableDate) == [date.storable])
  }

  @Test func `performing an available task now doesn't change its position`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [log] note, _ in log.add(note.text) }
    let first = try await queue.enqueue(Note("first"))
    try await queue.enqueue(Note("second"))
    try await clock.sleep(for: .seconds(1))
    #expect(try await first.performNow())
    #expect(try await queue.performNow(matching: .unfinished) == 0)
    try await queue.runAvailable()
    #expect(log.entries == ["first", "second"])
  }

  @Test func `rescheduling a running, ended or unknown task has no effect`() async throws {
    let queue = TaskQueue(clock: clock)
    await queue.register(Note.self) { [clock] _, _ in try await clock.sleep(for: .seconds(100)) }
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.performNow() == false)
      #expect(try await queue.performNow(matching: .unfinished) == 0)
      #expect(try await task.outcome() == .succeeded)
    }
    #expect(clock.now.offset == .seconds(100))
    #expect(try await task.performNow() == false)
    #expect(try await queue.performNow(.numbered(7)) == false)
  }

  @Test func `a task whose retry is being stored can be performed now`() async throws {
    let store = FaultInjectingStore()
    store.inject(.hang, times: nil) { $0.changes.contains("retry") }
    let queue = await makeQueue(on: store)
    let task = try await queue.enqueue(Note("a"))
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(try await task.performNow())
      store.letGo()
      try await clock.sleep(for: .seconds(1))
      store.letGo()
    }
    #expect(log.entries == ["a 0 at 0", "a 1 at 1"])
  }

  @Test func `a new date persists after a restart of the process`() async throws {
    try await withTemporaryFolder { folder in
      let store = JSONFileStore(at: folder.appending(path: "queue"))
      let date = clock.date + 77
      let task = try await TaskQueue(persistence: store, clock: clock).enqueue(Note("a"))
      try await task.reschedule(to: date)
      try await store.close()
      let reopened = JSONFileStore(at: folder.appending(path: "queue"))
      let records = try await TaskQueue(persistence: reopened, clock: clock).tasks()
      #expect(records.map(\.availableDate) == [date.storable])
      try await reopened.close()
    }
  }

  @Test func `an invalid date is rejected`() async throws {
    let queue = TaskQueue(clock: clock)
    let task = try await queue.enqueue(Note("a"))
    let never = Date(timeIntervalSince1970: .infinity)
    for reschedule in [
      { try await task.reschedule(to: never) },
      { try await queue.reschedule(matching: .unfinished, to: never) > 0 },
    ] as [() async throws -> Bool] {
      let error = await #expect(throws: TaskQueueError.self) { _ = try await reschedule() }
      #expect(error?.code == .invalidArgument)
    }
  }
}
