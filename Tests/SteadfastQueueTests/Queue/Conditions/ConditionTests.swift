import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests tasks that wait for conditions, such as a network connection.
@Suite(.virtualTime) struct ConditionTests {
  private let clock: VirtualClock
  private let log = Log<String>()
  private let notices = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  private func makeQueue(
    on store: some Persistence = InMemoryStore(),
    lasting seconds: Int = 0
  ) async -> TaskQueue {
    let queue = TaskQueue(
      name: "mail",
      persistence: store,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 4,
        notice: { [notices] in notices.add($0) }
      ),
      clock: clock
    )
    await queue.register(Note.self) { [log, clock] note, _ in
      log.add("\(Int(clock.now.offset / .seconds(1))) \(note.text)")
      do {
        try await clock.sleep(for: .seconds(seconds))
      } catch {
        log.add("cut short")
        throw error
      }
    }
    return queue
  }

  private let wifi = TaskOptions(conditions: ["wifi"])

  @Test(arguments: StoreKind.allCases)
  func `a task waits until its conditions hold, without using up attempts`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await makeQueue(on: store)
      try await withRunning(queue) {
        let both = TaskOptions(conditions: ["wifi", "charging"])
        let first = try await queue.enqueue(Note("both"), options: both)
        let second = try await queue.enqueue(Note("wifi"), options: wifi)
        try await queue.enqueue(Note("none"))
        try await queue.waitUntilIdle()
        try await clock.sleep(for: .seconds(5))
        await queue.setCondition("wifi", holds: true)
        #expect(try await second.outcome() == .succeeded)
        await queue.setCondition("wifi", holds: false)
        await queue.setCondition("charging", holds: true)
        try await queue.waitUntilIdle()
        #expect(try await first.record()?.state == .waiting)
        await queue.setCondition("wifi", holds: true)
        #expect(try await first.outcome() == .succeeded)
      }
      #expect(log.entries == ["0 none", "5 wifi", "5 both"])
      #expect(try await queue.statistics.attempts == 3)
    }
  }

  @Test func `when a condition ends, an attempt under way continues, but no new attempt starts`()
    async throws
  {
    let queue = await makeQueue(lasting: 10)
    await queue.setCondition("wifi", holds: true)
    try await withRunning(queue) {
      let first = try await queue.enqueue(Note("1"), options: wifi)
      try await clock.sleep(for: .seconds(1))
      await queue.setCondition("wifi", holds: false)
      let second = try await queue.enqueue(Note("2"), options: wifi)
      #expect(try await first.outcome() == .succeeded)
      try await queue.waitUntilIdle()
      #expect(try await second.record()?.state == .waiting)
    }
    #expect(log.entries == ["0 1"])
  }

  @Test func `a pass waits until a monitor has reported whether its condition holds`()
    async throws
  {
    let queue = await makeQueue()
    await queue.register(StubMonitor([true]), for: "wifi")
    try await queue.enqueue(Note("1"), options: wifi)
    #expect(try await queue.runAvailable() == 1)
    #expect(notices.entries.isEmpty)
  }

  @Test func `a pass waits for a monitor that takes a second`() async throws {
    let queue = await makeQueue()
    let (monitor, values) = AsyncStream<Bool>.makeStream()
    await queue.register(StubMonitor(monitor), for: "wifi")
    try await queue.enqueue(Note("1"), options: wifi)
    async let attempts = queue.runAvailable()
    try await clock.sleep(for: .seconds(1))
    values.yield(true)
    #expect(try await attempts == 1)
    #expect(log.entries == ["1 1"])
  }

  @Test(arguments: [false, true])
  func `attempts that an interrupting monitor cuts short don't count`(interrupts: Bool)
    async throws
  {
    let queue = await makeQueue(lasting: 10)
    let (monitor, values) = AsyncStream<Bool>.makeStream()
    await queue.register(StubMonitor(monitor), for: "wifi", interruptsTasks: interrupts)
    values.yield(true)
    try await withRunning(queue) {
      let task = try await queue.enqueue(Note("1"), options: wifi)
      let other = try await queue.enqueue(Note("2"))
      try await clock.sleep(for: .seconds(1))
      values.yield(false)
      try await clock.sleep(for: .seconds(1))
      if interrupts { #expect(try await task.record()?.state == .waiting) }
      values.yield(true)
      #expect(try await task.outcome() == .succeeded)
      #expect(try await other.outcome() == .succeeded)
    }
    let expected = interrupts ? ["0 1", "0 2", "cut short", "2 1"] : ["0 1", "0 2"]
    #expect(log.entries == expected)
    #expect(try await queue.statistics.failed == 0)
  }

  @Test func `a monitor registered during a run takes effect, and replaces the previous one`()
    async throws
  {
    let queue = await makeQueue()
    let (oldValues, old) = AsyncStream<Bool>.makeStream()
    await queue.register(StubMonitor(oldValues), for: "wifi")
    old.yield(false)
    try await withRunning(queue) {
      let task = try await queue.enqueue(Note("1"), options: wifi)
      try await queue.waitUntilIdle()
      await queue.register(StubMonitor([true]), for: "wifi")
      #expect(try await task.outcome() == .succeeded)
      // The old monitor's values are ignored.
      old.yield(true)
      await queue.setCondition("wifi", holds: false)
      old.yield(true)
      let second = try await queue.enqueue(Note("2"), options: wifi)
      try await queue.waitUntilIdle()
      #expect(try await second.record()?.state == .waiting)
    }
  }

  @Test func `the end of a run stops its monitors, and the next run starts them again`()
    async throws
  {
    let queue = await makeQueue()
    let monitor = CountingMonitor()
    await queue.register(monitor, for: "wifi")
    for run in 1...3 {
      try await queue.enqueue(Note("\(run)"), options: wifi)
      #expect(try await queue.runAvailable() == 1)
      #expect(monitor.begun.value == run)
    }
    #expect(monitor.ended.value == 3)
  }

  @Test func `a queue that waits for a monitor can be shut down`() async throws {
    let queue = await makeQueue()
    let (silent, values) = AsyncStream<Bool>.makeStream()
    await queue.register(StubMonitor(silent), for: "wifi")
    async let run: Void = queue.run()
    try await clock.sleep(for: .seconds(1))
    await queue.shutDown()
    try await run
    values.finish()
  }

  @Test func `replacing a silent monitor lets the run start`() async throws {
    let queue = await makeQueue()
    let (silent, values) = AsyncStream<Bool>.makeStream()
    await queue.register(StubMonitor(silent), for: "wifi")
    let task = try await queue.enqueue(Note("1"), options: wifi)
    try await withRunning(queue) {
      try await clock.sleep(for: .seconds(1))
      #expect(log.entries.isEmpty)
      await queue.register(StubMonitor([true]), for: "wifi")
      #expect(try await task.outcome() == .succeeded)
    }
    values.finish()
  }

  @Test func `conditions with different bytes are different, even in a file`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      let both: Set<TaskCondition> = ["\u{e9}", "e\u{301}"]
      for round in 1...2 {
        let store = JSONFileStore(at: url)
        let queue = await makeQueue(on: store)
        if round == 1 { try await queue.enqueue(Note("1"), options: TaskOptions(conditions: both)) }
        #expect(try await queue.tasks().first?.conditions.count == 2)
        await queue.setCondition("\u{e9}", holds: true)
        #expect(try await queue.runAvailable() == 0)
        if round == 2 {
          await queue.setCondition("e\u{301}", holds: true)
          #expect(try await queue.runAvailable() == 1)
        }
        try await store.close()
      }
    }
  }

  @Test func `a monitor that reports no values doesn't delay a run`() async throws {
    let queue = await makeQueue()
    await queue.register(StubMonitor([]), for: "wifi")
    try await queue.enqueue(Note("1"), options: wifi)
    #expect(try await queue.runAvailable() == 0)
  }

  @Test func `an unknown condition is reported once`() async throws {
    let queue = await makeQueue()
    for _ in 0..<3 { try await queue.enqueue(Note("1"), options: wifi) }
    try await queue.runAvailable()
    try await queue.enqueue(Note("2"), options: TaskOptions(conditions: ["wifi", "charging"]))
    try await queue.runAvailable()
    try await queue.runAvailable()
    func noticeText(for condition: String) -> String {
      "the queue 'mail' has waiting tasks: the queue does not know whether the condition "
        + "'\(condition)' holds; register a monitor for it, or call setCondition(_:holds:)"
    }
    #expect(notices.entries == [noticeText(for: "wifi"), noticeText(for: "charging")])
  }

  @Test func `observers get an event for each task with an unknown condition`() async throws {
    let queue = await makeQueue()
    let events = queue.events
    let task = try await queue.enqueue(Note("1"), options: wifi)
    await queue.setCondition("wifi", holds: false)
    try await queue.enqueue(Note("2"), options: wifi)
    await queue.shutDown()
    var reasons: [TaskID: String] = [:]
    for await case .unhandled(let record, let reason) in events { reasons[record.id] = reason }
    #expect(reasons.keys.map(\.self) == [task.id])
    #expect(reasons[task.id]?.contains("the condition 'wifi' holds") == true)
  }

  @Test func `an empty condition is rejected`() async throws {
    let queue = await makeQueue()
    let error = await queueError {
      try await queue.enqueue(Note("1"), options: TaskOptions(conditions: [""]))
    }
    #expect(error?.code == .invalidArgument)
  }

  @Test func `the conditions of the payload's type and of the call are combined`() async throws {
    struct Sync: TaskPayload {
      var options: TaskOptions { TaskOptions(conditions: [.network]) }
    }
    let queue = await makeQueue()
    let task = try await queue.enqueue(Sync(), options: wifi)
    #expect(try await task.record()?.conditions == ["network", "wifi"])
    let waiting = TaskFilter(unmetBy: ["network"])
    #expect(try await queue.tasks(matching: waiting).map(\.id) == [task.id])
  }
}

/// A monitor that reports the values that it was given.
private struct StubMonitor: ConditionMonitor {
  let stream: AsyncStream<Bool>

  init(_ stream: AsyncStream<Bool>) { self.stream = stream }

  init(_ values: [Bool]) {
    stream = AsyncStream { continuation in
      for value in values { continuation.yield(value) }
      if values.isEmpty { continuation.finish() }
    }
  }

  func values() -> AsyncStream<Bool> { stream }
}

/// A monitor whose condition holds, and that counts how often it starts and stops.
private struct CountingMonitor: ConditionMonitor {
  let begun = Counter()
  let ended = Counter()

  func values() -> AsyncStream<Bool> {
    begun.add(1)
    return AsyncStream { continuation in
      continuation.yield(true)
      continuation.onTermination = { _ in ended.add(1) }
    }
  }
}
