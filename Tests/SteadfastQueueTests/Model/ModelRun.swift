import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

/// What a case of the model check broke.
struct ModelViolation: Error, CustomStringConvertible {
  let description: String
}

/// Where the tasks of a case rest.
enum ModelStorage: Sendable, CaseIterable {
  case memory, suspending, suspendingAtOnce, sealed
  case file
}

/// One case of the model check as it is carried out.
///
/// All of it happens in one virtual time: its parts take turns, and need no locks of their own.
final class ModelRun: Sendable {
  let configuration: ModelCase
  let time: VirtualTime
  let ledger: SharedLedger
  /// The store that the queue uses, and the one behind it, which never fails.
  let store: ModelStore
  let base: any Persistence
  let fault: FaultPlan?
  let isInterrupted: Bool
  let state: Mutex<State>

  /// The queue at present, and what was begun with it.
  struct State {
    var queue: TaskQueue
    var events: TaskEvents
    var eventTask: Task<Void, Never>?
    /// The calls of `run()` that have not ended.
    var runs: [Int: Task<Void, Never>] = [:]
    var cancelledRuns: Set<Int> = []
    var runCount = 0
    var isShutDown = false
    var isPaused = false
    var conditions: Set<TaskCondition> = []
    var handlesStray = false
    var handles: [TaskID: EnqueuedTask] = [:]
    var pendingOutcomes: [TaskID: Int] = [:]
    var callsInFlight = 0
    /// The calls that were begun, to cancel those that have not ended.
    var calls: [Task<Void, Never>] = []
    var wereCallsCancelled = false
    /// When the date was last stepped, and the earlier of the two dates.
    var lastStep: (instant: VirtualClock.Instant, date: Date)?
    var queueCount = 1
  }

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
    let plain: any Persistence = file.map { JSONFileStore(at: $0) } ?? InMemoryStore()
    base = storage == .sealed ? plain.sealingPayloads(with: TestSeal().payloadSeal) : plain
    store = ModelStore(
      base,
      ledger,
      appliesAtOnce: storage == .memory || storage == .sealed || storage == .suspendingAtOnce,
      suspends: storage == .suspending || storage == .suspendingAtOnce,
      turns: storage == .file ? Turns() : nil,
      fault: fault
    )
    let queue = Self.queue(configuration, store, time, number: 1)
    state = Mutex(State(queue: queue, events: queue.events))
  }

  private static func queue(
    _ configuration: ModelCase,
    _ store: any Persistence,
    _ time: VirtualTime,
    number: UInt64
  ) -> TaskQueue {
    var settings = configuration.configuration
    settings.randomness = .seeded(configuration.seed &* 1000 &+ number)
    return TaskQueue(persistence: store, configuration: settings, clock: time.clock)
  }

  /// Carries a case out, to the end of all its tasks.
  ///
  /// - Throws: a ``ModelViolation``; a `VirtualTimeError` if it is stuck.
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
          run.store.onSuspension.withLock { $0 = { [unowned run] in interruption.passed(in: run) } }
        }
        for operation in configuration.operations {
          run.store.passSuspension()
          try await run.perform(operation)
        }
        try await run.settle()
        fault?.mend()
        try await run.finish()
      } catch {
        await run.abandon()
        throw error
      }
      await run.abandon()
    }
  }

  // MARK: The queue

  var queue: TaskQueue { state.withLock { $0.queue } }

  func setUp() async {
    let (queue, events, handlesStray) = state.withLock { ($0.queue, $0.events, $0.handlesStray) }
    await queue.register(PlainJob.self) { [unowned self] job, context in
      try await self.perform(job.work, context)
    }
    await queue.register(LimitedJob.self, maxConcurrentTasks: 1) { [unowned self] job, context in
      try await self.perform(job.work, context)
    }
    if handlesStray { await registerStray(queue) }
    let ledger = ledger
    let eventTask = Task(executorPreference: time.executor) {
      for await event in events { ledger.update { $0.saw(event) } }
    }
    state.withLock { $0.eventTask = eventTask }
  }

  func registerStray(_ queue: TaskQueue) async {
    await queue.register(StrayJob.self) { [unowned self] job, context in
      try await self.perform(job.work, context)
    }
    state.withLock { $0.handlesStray = true }
  }

  /// Ends the queue and makes another on the same store.
  func restart() async throws {
    let old = queue
    let isDone = Mutex(false)
    start {
      await old.shutDown(within: .zero)
      isDone.withLock { $0 = true }
    }
    state.withLock { $0.isShutDown = true }
    ledger.update { ledger in
      ledger.runsWereCut = true
      ledger.beginShutDown()
    }
    // Handlers may be deaf for some time.
    while !isDone.withLock(\.self) { await time.advance(by: .seconds(1)) }
    try await settle()
    state.withLock { state in
      state.eventTask?.cancel()
      state.queueCount += 1
      state.queue = Self.queue(configuration, store, time, number: UInt64(state.queueCount))
      state.events = state.queue.events
      state.handles = [:]
      (state.isShutDown, state.isPaused) = (false, false)
      state.conditions = []
    }
    ledger.update { ledger in
      ledger.tally = ModelLedger.Tally()
      ledger.isShutDown = false
    }
    await setUp()
  }

  /// Begins a call beside the others.
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

  func violate(_ text: String) { ledger.update { $0.require(false, text) } }

  /// A call has thrown what it may throw only because the store does.
  func failed(_ call: String, _ error: any Error) {
    let reason = (error as? TaskQueueError).flatMap { error in
      error.code == .storeFailed ? error.underlying : nil
    }
    let isToldWhy = (reason ?? error) is Refusal && "\(error)".contains("the disk is on fire")
    if error is CancellationError, state.withLock(\.wereCallsCancelled) { return }
    if fault?.wasMet != true || !isToldWhy { violate("\(call) throws \(error)") }
  }

  /// Ends what is left, so that the virtual time can be left.
  private func abandon() async {
    fault?.mend()
    let (runs, eventTask) = state.withLock { ($0.runs, $0.eventTask) }
    for run in runs.values { run.cancel() }
    for _ in 0..<10 { await time.advance(by: .seconds(10)) }
    eventTask?.cancel()
    await time.advance(by: .zero)
    try? await store.close()
  }
}
