import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the behaviour that the README and the headers of iDelayedJob, an older library, promise.
///
/// The intended differences:
/// - A job whose class can't be found stays in the queue, and doesn't count as exhausted.
/// - The queue doesn't look for jobs at an interval. A task is performed when it is due.
/// - `max_attempts: n` is `maxRetries: n - 1`. iDelayedJob's code allowed one attempt more than its
///   README.
/// - A single queue has its own file; the queues of a manager share one file, and have names.
/// - A shared manager or a default queue is a static property of the program.
/// - The program defines the conditions for a host that can be reached and for an active app.
@Suite(.virtualTime, .timeLimit(.minutes(5))) struct IDelayedJobTests {
  let clock: VirtualClock
  let log = Log<String>()

  init() throws { clock = try #require(VirtualTime.current).clock }

  var seconds: Int { Int(clock.now.offset / .seconds(1)) }

  /// A configuration with iDelayedJob's delays: (attempts + 5) × 4 s after a failure.
  let configuration = TaskQueueConfiguration(
    backoff: .custom { attempt in .seconds(4) * (min(attempt.number, 1_000_000) + 5) },
    taskDefaults: TaskOptions(maxRetries: 9)
  )

  func queue(_ store: any Persistence = InMemoryStore()) -> TaskQueue {
    TaskQueue(persistence: store, configuration: configuration, clock: clock)
  }

  /// A queue that logs its jobs' attempts, and whose job `bad` fails.
  func workingQueue(_ store: any Persistence = InMemoryStore()) async -> TaskQueue {
    let queue = queue(store)
    await queue.register(Note.self) { [self] note, context in
      log.add("\(seconds) \(note.text)")
      if note.text == "bad" { throw Refusal("performed in vain") }
    }
    return queue
  }

  // MARK: Performing

  @Test(arguments: StoreKind.allCases)
  func `a job that fails runs again after (attempts + 5) × 4 s`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = await workingQueue(store)
      let job = try await queue.enqueue(Note("bad"), maxRetries: 3)
      let outcome = try await withRunning(queue) { try await job.outcome() }
      #expect(outcome == .abandoned(reason: "performed in vain"))
      #expect(log.entries == ["0 bad", "24 bad", "52 bad", "84 bad"])
    }
  }

  @Test func `a failing job is attempted 10 times by default, then removed from the queue`()
    async throws
  {
    let queue = await workingQueue()
    let job = try await queue.enqueue(Note("bad"))
    _ = try await withRunning(queue) { try await job.outcome() }
    #expect(log.count == 10)
    #expect(try await queue.count == 0)
  }

  @Test func `the maximum number of attempts is set per queue`() async throws {
    var configuration = configuration
    configuration.taskDefaults.maxRetries = 2
    let second = TaskQueue(name: "SecondaryQueue", configuration: configuration, clock: clock)
    let first = await workingQueue()
    await second.register(Note.self) { [log] _, _ in
      log.add("second")
      throw Refusal()
    }
    try await first.enqueue(Note("good"))
    let job = try await second.enqueue(Note("bad"))
    _ = try await withRunning(second) { try await job.outcome() }
    #expect(log.entries == ["second", "second", "second"])
    #expect(try await first.count == 1)
    #expect(second.name == "SecondaryQueue")
  }

  @Test func `a job is a type that performs itself, or a handler with hooks`()
    async throws
  {
    struct PrimaryJob: PerformableTask {
      static let log = Log<String>()
      func perform(in context: TaskContext) async throws { Self.log.add(context.name) }
    }
    let queue = queue()
    await queue.register(PrimaryJob.self)
    await queue.register(handler: AbilityJob(log: log))
    try await queue.enqueue(PrimaryJob())
    try await queue.enqueue(AbilityJob.Arguments(text: "a"))
    #expect(try await queue.runAvailable() == 2)
    #expect(PrimaryJob.log.entries == ["IDelayedJobTests.PrimaryJob"])
    #expect(log.entries == ["perform a", "before delete a: succeeded"])
  }

  @Test func `a job and its arguments are found again by name after a restart`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        _ = try await queue(store).enqueue(AbilityJob.Arguments(text: "Arg1"), priority: 5)
      }
      try await file.inNewProcess { store in
        let queue = queue(store)
        await queue.register(handler: AbilityJob(log: log))
        let record = try #require(try await queue.tasks().first)
        #expect(record.priority == 5 && record.name == "AbilityJob.Arguments")
        try await queue.runAvailable()
      }
      #expect(log.entries.first == "perform Arg1")
    }
  }

  @Test func `retries continue after a restart`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        let queue = await workingQueue(store)
        try await queue.enqueue(Note("bad"), maxRetries: 1)
        try await queue.runAvailable()
      }
      try await file.inNewProcess { store in
        let queue = await workingQueue(store)
        let id = try #require(try await queue.tasks().first?.id)
        let job = try #require(try await queue.task(id))
        _ = try await withRunning(queue) { try await job.outcome() }
      }
      #expect(log.entries == ["0 bad", "24 bad"])
    }
  }

  @Test func `a job that was locked during a crash runs again after the start`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        let queue = queue(store)
        let copies = Log<QueueFile>()
        await queue.register(Note.self) { _, _ in copies.add(try file.copyAsIfKilled()) }
        try await queue.enqueue(Note("cut off"))
        try await queue.runAvailable()
        let found = try #require(copies.entries.first)
        try await found.inNewProcess { store in
          let queue = await workingQueue(store)
          #expect(try await queue.tasks().map(\.interruptionCount) == [1])
          try await queue.runAvailable()
        }
      }
      #expect(log.entries == ["0 cut off"])
    }
  }

  @Test func `a job whose class is unknown waits until the class is registered`() async throws {
    let queue = queue()
    let job = try await queue.enqueue(Note("orphan"), maxRetries: 0)
    #expect(try await queue.runAvailable() == 0)
    #expect(try await queue.contains(job.id))
    await queue.register(Note.self) { _, _ in }
    #expect(try await queue.runAvailable() == 1)
    #expect(try await job.outcome() == .succeeded)
  }

  // MARK: Order

  @Test(arguments: StoreKind.allCases)
  func `jobs of higher priority run first, and any integer is a priority`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await workingQueue(store)
      for priority in [1, 5, 10, -7, 11] {
        try await queue.enqueue(
          Note("\(priority)"),
          priority: TaskQueue.Priority(rawValue: priority)
        )
      }
      try await queue.runAvailable()
      #expect(log.entries == ["0 11", "0 10", "0 5", "0 1", "0 -7"])
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a unique job replaces a waiting job, but not a running one`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = queue(store)
      await queue.register(Note.self) { [log] note, _ in
        log.add(note.text)
        guard note.text == "running" else { return }
        for text in ["first", "second"] {
          try await queue.enqueue(Note(text), uniqueKey: "Note", onDuplicate: .replace)
        }
      }
      try await queue.enqueue(Note("early"), uniqueKey: "Note")
      try await queue.enqueue(Note("running"), uniqueKey: "Note", onDuplicate: .replace)
      try await queue.runAvailable()
      #expect(log.entries == ["running", "second"])
    }
  }

  // MARK: Hooks

  @Test func `the schedule hook chooses the next run`() async throws {
    let queue = queue()
    await queue.register(handler: AbilityJob(log: log, nextRun: clock.date + 500))
    let job = try await queue.enqueue(AbilityJob.Arguments(text: "bad"), maxRetries: 1)
    _ = try await withRunning(queue) { try await job.outcome() }
    #expect(seconds == 500)
  }

  @Test func `an exhausted job restarts if its hook says so, and is deleted otherwise`()
    async throws
  {
    let queue = queue()
    await queue.register(handler: AbilityJob(log: log, restarts: 1))
    let job = try await queue.enqueue(AbilityJob.Arguments(text: "bad"), maxRetries: 1)
    let outcome = try await withRunning(queue) { try await job.outcome() }
    #expect(outcome == .abandoned(reason: "performed in vain"))
    #expect(
      log.entries == [
        "perform bad", "perform bad", "should restart bad",
        "perform bad", "perform bad", "should restart bad",
        "before delete bad: abandoned: performed in vain",
      ]
    )
    #expect(seconds == 24 * 3)
    #expect(try await queue.count == 0)
  }

  @Test func `the delete hook runs before a job is deleted, on success too`() async throws {
    let queue = queue()
    await queue.register(handler: AbilityJob(log: log))
    try await queue.enqueue(AbilityJob.Arguments(text: "good"))
    try await queue.runAvailable()
    #expect(log.entries == ["perform good", "before delete good: succeeded"])
  }

  // MARK: Inspection and control

  @Test(arguments: StoreKind.allCases)
  func `a job's record has its attempts, last error, failure date and next run`(kind: StoreKind)
    async throws
  {
    try await kind.withStore { store in
      let queue = await workingQueue(store)
      let start = clock.date
      try await queue.enqueue(Note("bad"), priority: 5)
      try await queue.runAvailable()
      let record = try #require(try await queue.tasks().first)
      #expect(record.retryCount == 1)
      #expect(record.lastError == "performed in vain")
      #expect(record.failedDate == start)
      #expect(record.availableDate == start + 24)
      #expect(record.state == .waiting)
    }
  }

  @Test func `run processes all jobs that are due, and returns their number`() async throws {
    let queue = await workingQueue()
    try await queue.enqueue(contentsOf: [Note("a"), Note("b"), Note("bad")])
    try await queue.enqueue(Note("later"), availableDate: clock.date + 1)
    #expect(try await queue.runAvailable() == 3)
    #expect(try await queue.runAvailable() == 0)
    #expect(try await queue.count == 2)
  }

  @Test func `pausing prevents new jobs from being processed, resuming allows it`() async throws {
    let queue = await workingQueue()
    await queue.pause()
    let job = try await queue.enqueue(Note("a"))
    #expect(try await queue.runAvailable() == 0)
    await queue.resume()
    #expect(try await queue.runAvailable() == 1)
    #expect(try await job.outcome() == .succeeded)
  }

  @Test func `stopping ends the work, and the jobs remain`() async throws {
    let queue = await workingQueue()
    try await queue.enqueue(Note("later"), availableDate: clock.date + 60)
    try await withRunning(queue) { try await clock.sleep(for: .seconds(30)) }
    #expect(log.entries == [])
    #expect(try await queue.count == 1)
    let error = await #expect(throws: TaskQueueError.self) { try await queue.run() }
    #expect(error?.code == .shutDown)
  }

  @Test func `a second queue on the same file is rejected while the first is open`() async throws {
    try await withQueueFile { file in
      try await file.inNewProcess { store in
        try await queue(store).open()
        let second = TaskQueue(persistence: .jsonFile(at: file.url), clock: clock)
        await #expect(throws: JSONFileError.self) { try await second.open() }
      }
    }
  }
}
