import Foundation
import SteadfastPostgreSQL
import SteadfastQueue
import SteadfastSQLite
import SteadfastTesting
import TestSupport

/// A queue on one of the stores, with a recorder of its history.
struct Worker {
  let store: any Persistence
  let recorder: HistoryRecorder
  let queue: TaskQueue

  init(storeKind kind: String, place: String, history: String, offset: Double) throws {
    store = try Self.makeStore(ofKind: kind, at: place)
    recorder = try HistoryRecorder(store, to: URL(filePath: history))
    let clock = SkewedClock(base: ContinuousClock(), seconds: offset)
    queue = TaskQueue(
      persistence: recorder,
      configuration: TaskQueueConfiguration(
        maxConcurrentTasks: 8,
        backoff: .constant(.milliseconds(20)),
        rateLimits: [.atMost(HistoryWorker.limit, per: .seconds(1), of: LimitedJob.self)],
        maxInterruptions: 1000
      ),
      clock: clock
    )
  }

  /// Creates the store; only this function depends on the kind of the store.
  private static func makeStore(ofKind kind: String, at place: String) throws -> any Persistence {
    let sharing = StoreSharing(leaseDuration: HistoryWorker.lease, pollInterval: .seconds(1))
    switch kind {
    #if SQLite
    case "sqlite": return SQLiteStore(at: URL(filePath: place), sharing: sharing)
    #endif
    #if PostgreSQL
    // The place is the prefix of the tables.
    case "postgresql":
      guard let server = ProcessInfo.processInfo.environment["STEADFAST_POSTGRESQL"] else {
        throw Mistake("set STEADFAST_POSTGRESQL to the connection string of a server")
      }
      return PostgreSQLStore(server, prefix: place, sharing: sharing)
    #endif
    default: throw Mistake("no store '\(kind)' with \(sharing) in this build; check its traits")
    }
  }

  private func registerHandlers() async {
    let recorder = recorder
    await queue.register(Job.self) { job, context in
      try await recorder.recordAttempt(of: context.id) {
        try await ContinuousClock().sleep(for: .milliseconds(job.milliseconds))
        if context.retryCount < job.failures { throw Mistake("this attempt fails") }
      }
    }
    await queue.register(LimitedJob.self) { _, context in
      try await recorder.recordAttempt(of: context.id) {}
    }
  }

  /// Adds and performs tasks until the process is killed, or until standard input ends.
  func work(addingTasks count: Int) async throws {
    await registerHandlers()
    try await withThrowingTaskGroup { group in
      group.addTask { try await queue.run() }
      group.addTask { try await enqueueTasks(count: count) }
      shutDownAtEndOfInput()
      try await group.waitForAll()
    }
    try await store.close()
  }

  /// Shuts the queue down at the end of standard input.
  private func shutDownAtEndOfInput() {
    let queue = queue
    // Reading blocks its thread.
    Thread.detachNewThread {
      while readLine() != nil {}
      // A thread can't await the shut-down; `work(addingTasks:)` waits until the run has ended.
      Task { await queue.shutDown() }
    }
  }

  private func enqueueTasks(count: Int) async throws {
    var left = count
    var number = 0
    while left > 0 {
      number += 1
      left -= try await enqueueGroup(number)
    }
  }

  /// Adds a group of tasks, whose kind depends on the number of the group, and returns their count.
  private func enqueueGroup(_ number: Int) async throws -> Int {
    let job = Job(number: number, milliseconds: number % 7, failures: number % 10 / 9)
    switch number % 8 {
    case 0, 1:
      // The last two tasks of the batch end together.
      let jobs = Array(repeating: Job(number: number, milliseconds: 5), count: 4)
      try await queue.enqueue(contentsOf: jobs, then: Job(number: number, milliseconds: 0))
      return 5
    case 2, 3, 4:
      let options = TaskOptions(orderKey: "key \(number % 40)")
      try await queue.enqueue(contentsOf: [job, job, job], options: options)
      return 3
    case 5 where number % 5 == 0:
      // Longer than a lease that is not extended.
      try await queue.enqueue(Job(number: number, milliseconds: 1500))
      return 1
    case 6 where number % 3 == 0:
      try await queue.enqueue(LimitedJob(number: number))
      return 1
    default:
      try await queue.enqueue(contentsOf: Array(repeating: job, count: 10))
      return 10
    }
  }

  /// Performs the remaining tasks without faults, and records the tasks that still remain.
  func performRemainingTasks() async throws {
    try await store.open()
    try recorder.recordEndOfFaults()
    await registerHandlers()
    let end = ContinuousClock.now.advanced(by: .seconds(60))
    while ContinuousClock.now < end, try await queue.count(matching: .unfinished) > 0 {
      try await queue.runAvailable()
      try await ContinuousClock().sleep(for: .milliseconds(100))
    }
    try await recorder.recordRemainingTasks()
    try await store.close()
  }
}
