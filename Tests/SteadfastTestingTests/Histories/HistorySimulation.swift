import Foundation
import SteadfastTesting
import Synchronization
import TestSupport

/// A run of several processes on one store, in virtual time, with random faults from a seed.
///
/// Connections are slow, and fail before and after the effects of calls. Processes are killed, or
/// stopped for a while, and some have clocks that are ten minutes off.
final class HistorySimulation: Sendable {
  struct Job: TaskPayload {
    var number: Int
    /// The duration of an attempt, in seconds.
    var seconds: Int
    var failures = 0
  }

  struct LimitedJob: TaskPayload { var number: Int }

  /// The fault of the store or the connection in a run; by default there is none.
  struct Fault: Sendable {
    var behaviour: @Sendable (inout PlainStore.Behaviour) -> Void = { _ in }
    /// Inserts a broken store between a process and its connection.
    var wrap: @Sendable (any Persistence, VirtualClock) -> any Persistence = { store, _ in store }
    var retention = Retention.forever
  }

  static let lease = Duration.seconds(30)
  static let stormSeconds = 240
  static let limit = 3
  static let limitInterval = Duration.seconds(20)

  private let time: VirtualTime
  private let dice: Dice
  private let fault: Fault
  private let hasLimits: Bool
  private let seed: UInt64
  private let store: BrakedStore
  private let lines = Log<HistoryLine>()
  private let processes = Mutex<[SimulatedProcess]>([])
  private let dead = Mutex<[SimulatedProcess]>([])
  private let calls = Mutex<[Task<Void, Never>]>([])
  private let count = Counter()

  private init(seed: UInt64, _ fault: Fault, _ time: VirtualTime) {
    self.seed = seed
    self.time = time
    self.fault = fault
    dice = Dice(seed: seed)
    // Rate limits hold only if the clocks agree. So half of the runs have rate limits, and the
    // others have clocks that differ.
    hasLimits = seed.isMultiple(of: 2)
    var behaviour = PlainStore.Behaviour()
    behaviour.sharing = StoreSharing(leaseDuration: Self.lease, pollInterval: .seconds(7))
    behaviour.clock = { [clock = time.clock] in clock.date }
    fault.behaviour(&behaviour)
    store = BrakedStore(PlainStore(PlainStore.Shelf(), "database", behaviour), time.clock)
  }

  private var expectations: History.Expectations {
    let limit = History.Expectations.StartLimit(
      Self.limit,
      per: Self.limitInterval,
      names: [LimitedJob.taskName]
    )
    return History.Expectations(limits: hasLimits ? [limit] : [], endsWithin: .seconds(900))
  }

  /// Performs a run, checks the recorded history, and returns the report.
  static func check(seed: UInt64, fault: Fault = Fault()) async throws -> History.Report {
    try await withVirtualTime(order: .shuffled(seed: seed)) { time in
      let simulation = HistorySimulation(seed: seed, fault, time)
      try await simulation.run()
      return History(simulation.lines.entries).check(simulation.expectations)
    }
  }

  private func run() async throws {
    try await store.open()
    for _ in 0..<4 { await startProcess() }
    try await withThrowingTaskGroup { group in
      group.addTask { try await self.enqueueTasks() }
      group.addTask { try await self.killAndStopProcesses() }
      try await group.waitForAll()
    }
    let processes = processes.withLock { $0 }
    for process in processes { process.removeFaults() }
    try processes[0].recorder.recordEndOfFaults()
    // Waits until everything has ended, or for longer than the check allows.
    for _ in 0..<95 where try await hasUnfinishedTasks() {
      try await time.clock.sleep(for: .seconds(10))
    }
    try await processes[0].recorder.recordRemainingTasks()
    for process in processes + dead.withLock({ $0 }) { await process.endRemainingWork() }
    for call in calls.withLock({ $0 }) {
      call.cancel()
      await call.value
    }
  }

  private func hasUnfinishedTasks() async throws -> Bool {
    try await store.contains(TaskFilter(states: [.waiting, .running, .suspended]))
  }

  // MARK: Processes

  private func startProcess() async {
    let number = count.add(1)
    let process = SimulatedProcess(
      "p\(number)",
      over: store,
      clockOffset: hasLimits || number % 4 != 1 ? 0 : dice.happens(1, in: 2) ? 600 : -600,
      configuration(ofProcess: number),
      time,
      dice,
      wrapping: { fault.wrap($0, time.clock) }
    ) { line in
      self.lines.add(line)
    }
    process.injectFaults()
    await registerHandlers(on: process)
    process.startRun()
    processes.withLock { $0.append(process) }
  }

  private func configuration(ofProcess number: Int) -> TaskQueueConfiguration {
    TaskQueueConfiguration(
      maxConcurrentTasks: 3,
      backoff: .constant(.seconds(1)),
      rateLimits: hasLimits
        ? [.atMost(Self.limit, per: Self.limitInterval, of: LimitedJob.self)] : [],
      maxInterruptions: 100,
      succeededRetention: fault.retention,
      cancelledRetention: fault.retention,
      randomness: .seeded(seed &* 1000 &+ UInt64(number))
    )
  }

  private func registerHandlers(on process: SimulatedProcess) async {
    let (recorder, clock) = (process.recorder, time.clock)
    await process.queue.register(Job.self) { job, context in
      try await recorder.recordAttempt(of: context.id) {
        try await clock.sleep(for: .seconds(job.seconds))
        if context.retryCount < job.failures { throw SimulatedEnd() }
      }
    }
    await process.queue.register(LimitedJob.self) { _, context in
      try await recorder.recordAttempt(of: context.id) { try await clock.sleep(for: .seconds(1)) }
    }
  }

  // MARK: Events

  /// Adds tasks of all kinds from several processes.
  ///
  /// The calls of killed processes never return.
  private func enqueueTasks() async throws {
    for number in 0..<20 {
      let queue = processes.withLock { $0[dice.number(0...$0.count - 1)] }.queue
      let job = Job(number: number, seconds: dice.number(0...12), failures: number % 5 / 4)
      startCall {
        switch number % 4 {
        case 0:
          let group = Array(repeating: Job(number: number, seconds: job.seconds), count: 3)
          try await queue.enqueue(contentsOf: group, then: Job(number: number, seconds: 1))
        case 1, 2:
          let key = TaskOptions(orderKey: "key \(number % 3)")
          try await queue.enqueue(contentsOf: [job, job], options: key)
        default:
          let limited = Array(repeating: LimitedJob(number: number), count: number % 8 / 7 * 8 + 1)
          try await queue.enqueue(contentsOf: limited)
          try await queue.enqueue(Job(number: number, seconds: 40))
        }
      }
      try await time.clock.sleep(for: .seconds(dice.number(0...15)))
    }
  }

  /// Starts a call, which is cancelled when the run ends.
  private func startCall(_ call: @escaping @Sendable () async throws -> Void) {
    let task = Task(executorPreference: time.executor) { _ = try? await call() }
    calls.withLock { $0.append(task) }
  }

  /// Kills some processes, and stops others for the duration of half a lease to three leases.
  private func killAndStopProcesses() async throws {
    let end = time.clock.now.advanced(by: .seconds(Self.stormSeconds))
    while time.clock.now < end {
      try await time.clock.sleep(for: .seconds(dice.number(5...20)))
      let index = dice.number(0...3)
      if dice.happens(1, in: 2) {
        let victim = processes.withLock { $0.remove(at: index) }
        if dice.happens(1, in: 2) {
          victim.withholdAnswers()
          try await time.clock.sleep(for: .seconds(10))
        }
        victim.kill()
        dead.withLock { $0.append(victim) }
        await startProcess()
      } else {
        let victim = processes.withLock { $0[index] }
        victim.suspendNewCalls()
        try await time.clock.sleep(for: Self.lease * dice.number(1...6) / 2)
        victim.injectFaults()
      }
    }
  }
}
