import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// An error that describes how a queue violates the model.
struct ModelViolation: Error, CustomStringConvertible {
  let description: String
}

/// A run of one case of the model check.
///
/// A case runs in virtual time, whose executor runs one job at a time.
final class ModelRun: Sendable {
  let configuration: ModelCase
  let time: VirtualTime
  let ledger: SharedLedger
  /// The store that the queue uses.
  ///
  /// It wraps `base`, which never fails.
  let store: ModelStore
  let base: any Persistence
  let fault: FaultPlan?
  let isInterrupted: Bool
  let state: Mutex<State>

  /// The current queue, its runs and its calls.
  struct State {
    var queue: TaskQueue
    /// The second queue on the store, if there is one.
    var side: TaskQueue?
    var events: [TaskEvents]
    var eventTasks: [Task<Void, Never>] = []
    /// The calls of `run()` that have not ended.
    var runs: [Int: Run] = [:]
    var cancelledRuns: Set<Int> = []
    var runCount = 0
    var isShutDown = false
    var isPaused = false
    var conditions: Set<TaskCondition> = []
    var handlesStray = false
    var handles: [TaskID: EnqueuedTask] = [:]
    var pendingOutcomes: [TaskID: Int] = [:]
    var callsInFlight = 0
    /// All calls, so that the calls that have not ended can be cancelled.
    var calls: [Task<Void, Never>] = []
    var wereCallsCancelled = false
    /// The time of the last change of the date, and the earlier of the dates before and after it.
    var lastStep: (instant: VirtualClock.Instant, date: Date)?
    var queueCount = 1
    var valueCount = 0

    struct Run {
      let queue: String
      let task: Task<Void, Never>
    }

    func hasRun(_ queue: String) -> Bool { runs.values.contains { $0.queue == queue } }

    /// Whether a call of `run()` is in progress in a queue and was not cancelled.
    func isRunning(_ queue: String) -> Bool {
      runs.contains { $0.value.queue == queue && !cancelledRuns.contains($0.key) }
    }

    /// The queues, each with its name in the store.
    var queues: [(name: String, queue: TaskQueue)] {
      [("", queue)] + (side.map { [(ModelRun.sideName, $0)] } ?? [])
    }
  }

  static let sideName = "side"

  init(
    _ configuration: ModelCase,
    _ time: VirtualTime,
    _ storage: ModelStorage,
    file: URL?,
    fault: FaultPlan?,
    isInterrupted: Bool
  ) {
    self.configuration = configuration
    self.isInterrupted = isInterrupted
    self.fault = fault
    self.time = time
    ledger = SharedLedger(ModelLedger(configuration))
    let plain = storage.store(at: file)
    base = storage == .sealed ? plain.sealingPayloads(with: TestSeal().payloadSeal) : plain
    store = ModelStore(
      base,
      ledger,
      appliesAtOnce: storage == .memory || storage == .sealed || storage == .suspendingAtOnce,
      suspends: storage == .suspending || storage == .suspendingAtOnce,
      claimBatch: storage == .suspending ? 5 : 0,
      turns: file == nil ? nil : Turns(),
      fault: fault
    )
    // Faults and interruptions are tested with a single queue.
    let hasSide = configuration.hasSideQueue && fault == nil && !isInterrupted
    let (queue, side) = Self.queues(configuration, store, time, number: 1, hasSide: hasSide)
    state = Mutex(
      State(queue: queue, side: side, events: [queue.events] + (side.map { [$0.events] } ?? []))
    )
  }

  private static func queues(
    _ configuration: ModelCase,
    _ store: ModelStore,
    _ time: VirtualTime,
    number: UInt64,
    hasSide: Bool
  ) -> (TaskQueue, TaskQueue?) {
    var settings = configuration.configuration
    settings.randomness = .seeded(configuration.seed &* 1000 &+ number)
    guard hasSide else {
      return (TaskQueue(persistence: store, configuration: settings, clock: time.clock), nil)
    }
    // The queues are made in the same way as a group's.
    let members = GroupMembers(group: "model", on: store)
    func member(_ name: String) -> TaskQueue {
      let queue = TaskQueue(
        name: name,
        persistence: GroupStore(store, queue: name, members: members),
        configuration: settings,
        clock: time.clock
      )
      members.add(queue.core)
      return queue
    }
    let queue = member("default")
    settings.randomness = .seeded(configuration.seed &* 1000 &+ number &+ 500)
    return (queue, member(sideName))
  }

  /// Performs a case until all of its tasks have ended.
  ///
  /// - Throws: a ``ModelViolation``; a `VirtualTimeError` if the case hangs.
  static func perform(
    _ configuration: ModelCase,
    _ storage: ModelStorage,
    file: URL? = nil,
    fault: FaultPlan? = nil,
    interruption: Interruption? = nil
  ) async throws {
    try await withVirtualTime(.manual, order: .shuffled(seed: configuration.seed)) { time in
      let run = ModelRun(
        configuration,
        time,
        storage,
        file: file,
        fault: fault,
        isInterrupted: interruption != nil
      )
      do {
        await run.setUp()
        if let interruption {
          run.store.onSuspension.withLock {
            $0 = { [unowned run] in interruption.countSuspensionPoint(in: run) }
          }
        }
        for operation in configuration.operations {
          run.store.reportSuspensionPoint()
          try await run.perform(operation)
        }
        try await run.settle()
        fault?.mend()
        try await run.finish()
      } catch {
        await run.endRemainingTasks()
        throw error
      }
      await run.endRemainingTasks()
    }
  }

  // MARK: The queue

  var queue: TaskQueue { state.withLock { $0.queue } }
  var queues: [TaskQueue] { state.withLock { $0.queues.map(\.queue) } }

  func queue(of id: TaskID) -> TaskQueue {
    let name = ledger.update { $0.entries[id]?.queue ?? "" }
    return queue(named: name)
  }

  func queue(named name: String) -> TaskQueue {
    state.withLock { state in name == Self.sideName ? state.side ?? state.queue : state.queue }
  }

  func setUp() async {
    let (events, handlesStray) = state.withLock { ($0.events, $0.handlesStray) }
    for queue in queues { await register(on: queue) }
    if handlesStray { await registerStray() }
    let ledger = ledger
    let eventTasks = events.map { events in
      Task(executorPreference: time.executor) {
        for await event in events { ledger.update { $0.recordEvent(event) } }
      }
    }
    state.withLock { $0.eventTasks = eventTasks }
  }

  private func register(on queue: TaskQueue) async {
    await queue.register(PlainJob.self) { [unowned self] job, context in
      try await self.perform(job.work, context)
    }
    await queue.register(LimitedJob.self, maxConcurrentTasks: 1) { [unowned self] job, context in
      try await self.perform(job.work, context)
    }
  }

  func registerStray() async {
    for queue in queues {
      await queue.register(StrayJob.self) { [unowned self] job, context in
        try await self.perform(job.work, context)
      }
    }
    state.withLock { $0.handlesStray = true }
  }

  /// Ends the queue and makes another on the same store.
  func restart() async throws {
    let old = queues
    let count = Mutex(0)
    for queue in old {
      start {
        await queue.shutDown(within: .zero)
        count.withLock { $0 += 1 }
      }
    }
    state.withLock { $0.isShutDown = true }
    ledger.update { ledger in
      ledger.runsWereCut = true
      ledger.beginShutDown()
    }
    // Handlers may ignore their cancellation for some time.
    while count.withLock(\.self) < old.count { await time.advance(by: .seconds(1)) }
    try await settle()
    state.withLock { state in
      for task in state.eventTasks { task.cancel() }
      state.queueCount += 1
      (state.queue, state.side) = Self.queues(
        configuration,
        store,
        time,
        number: UInt64(state.queueCount),
        hasSide: state.side != nil
      )
      state.events = state.queues.map(\.queue.events)
      state.handles = [:]
      (state.isShutDown, state.isPaused) = (false, false)
      state.conditions = []
    }
    ledger.update { ledger in
      ledger.tallies = [:]
      ledger.isShutDown = false
    }
    await setUp()
  }

  /// Starts a call concurrently with the other calls.
  func start(_ call: @escaping @Sendable () async -> Void) {
    state.withLock { state in
      state.callsInFlight += 1
      state.calls.append(
        Task(executorPreference: time.executor) {
          await call()
          self.state.withLock { $0.callsInFlight -= 1 }
        }
      )
    }
  }

  func recordViolation(_ text: String) { ledger.update { $0.require(false, text) } }

  /// Checks that an error of a call was caused by the store's fault.
  func checkError(of call: String, _ error: any Error) {
    let reason = (error as? TaskQueueError).flatMap { error in
      error.code == .storeFailed ? error.underlying : nil
    }
    let isFault = (reason ?? error) is Refusal && "\(error)".contains("the disk is on fire")
    if error is CancellationError, state.withLock(\.wereCallsCancelled) { return }
    if fault?.wasMet != true || !isFault { recordViolation("\(call) throws \(error)") }
  }

  /// Ends all remaining tasks, so that `withVirtualTime` can return.
  private func endRemainingTasks() async {
    fault?.mend()
    let (runs, eventTasks) = state.withLock { ($0.runs, $0.eventTasks) }
    for run in runs.values { run.task.cancel() }
    for _ in 0..<10 { await time.advance(by: .seconds(10)) }
    for task in eventTasks { task.cancel() }
    await time.advance(by: .zero)
    try? await store.close()
  }
}
