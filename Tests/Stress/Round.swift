#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
import SteadfastQueue
import SteadfastRetry
import SteadfastTesting
import TestSupport

/// A store, and several queues that use the store one after another.
///
/// All queues except the last have random handlers, runs and controls. The last queue performs the
/// remaining tasks without any faults, so that every task has an end that can be checked.
struct Round: Sendable {
  private let dice: Dice
  private let clock: any WallClock
  private let makeStore: @Sendable () -> any Persistence
  private let ledger = Ledger()

  init(seed: UInt64, clock: any WallClock, makeStore: @escaping @Sendable () -> any Persistence) {
    dice = Dice(seed: seed)
    self.clock = clock
    self.makeStore = makeStore
  }

  func run() async throws -> Tally {
    let queueCount = dice.number(1...3)
    for _ in 0..<queueCount {
      try await withQueue { queue in try await useRandomly(queue) }
    }
    let deadLetters = try await withQueue { queue in try await performRemainingTasks(of: queue) }
    return try ledger.checkRound(deadLetters: deadLetters, queues: queueCount + 1)
  }

  /// Calls `body` with a new queue on the store, and checks that the queue is freed afterwards.
  private func withQueue<Result: Sendable>(
    _ body: (TaskQueue) async throws -> Result
  ) async throws -> Result {
    let store = makeStore()
    weak var freed: TaskQueue?
    let result: Result
    do {
      let queue = TaskQueue(
        persistence: store,
        configuration: randomConfiguration(),
        clock: clock
      )
      freed = queue
      result = try await body(queue)
    }
    if freed != nil { throw Violation("a queue that was shut down is still retained") }
    // The next queue uses the same store in memory.
    if !(store is InMemoryStore) { try await store.close() }
    return result
  }

  private func randomConfiguration() -> TaskQueueConfiguration {
    TaskQueueConfiguration(
      maxConcurrentTasks: dice.pick([1, 2, 4, 16]),
      backoff: .constant(.milliseconds(1)).jittered(.full),
      maxInterruptions: .alwaysRetry,
      abandonedRetention: .forever,
      eventBufferSize: 1_000_000,
      randomness: .seeded(dice.next())
    )
  }

  // MARK: The queues with random load

  private func useRandomly(_ queue: TaskQueue) async throws {
    await Crew(ledger: ledger, clock: clock, dice: dice.split()).registerHandler(on: queue)
    let events = queue.events
    let (waits, continuation) = AsyncStream.makeStream(of: Wait.self)
    try await withThrowingTaskGroup { group in
      group.addTask { for await event in events { ledger.recordEvent(event) } }
      group.addTask { try await runRepeatedly(queue, dice.split()) }
      group.addTask { try await awaitOutcomes(of: waits, dice.split()) }
      try await withThrowingTaskGroup { load in
        for _ in 0..<dice.number(1...4) {
          load.addTask { try await addTasks(to: queue, dice.split(), waits: continuation) }
        }
        for _ in 0..<dice.number(0...2) {
          load.addTask { try await callRandomControls(of: queue, dice.split()) }
        }
        try await load.waitForAll()
      }
      // Shutting the queue down also ends the remaining waits.
      continuation.finish()
      await queue.resume()
      await shutDown(queue)
      try await group.waitForAll()
    }
  }

  /// Runs the queue until the queue is shut down, in single passes and in runs that are cancelled.
  private func runRepeatedly(_ queue: TaskQueue, _ dice: Dice) async throws {
    while true {
      do {
        switch dice.number(0...3) {
        case 0: try await queue.runAvailable()
        case 1:
          try await queue.run()
          return
        default:
          await withTaskGroup { group in
            group.addTask { try? await queue.run() }
            group.addTask { try? await sleepRandomly(dice, upTo: .milliseconds(5)) }
            await group.next()
            group.cancelAll()
          }
        }
        try await sleepRandomly(dice, upTo: .microseconds(200))
      } catch let error as TaskQueueError where error.code == .shutDown {
        return
      }
    }
  }

  private func shutDown(_ queue: TaskQueue) async {
    switch dice.number(0...3) {
    case 0: await queue.shutDown(within: .zero)
    case 1: await queue.shutDown(within: .milliseconds(1))
    case 2: queue.beginShutDown()
    default: await queue.shutDown()
    }
  }

  /// Adds tasks, and sends some of them to the stream of tasks whose outcomes are awaited.
  private func addTasks(
    to queue: TaskQueue,
    _ dice: Dice,
    waits: AsyncStream<Wait>.Continuation
  ) async throws {
    for _ in 0..<dice.number(1...40) {
      let number = ledger.recordSubmission()
      let chore = Chore(number: number, kind: dice.pick(Chore.Kind.allCases))
      let task: EnqueuedTask
      do {
        task = try await queue.enqueue(chore, options: chore.randomOptions(dice, clock))
      } catch let error as TaskQueueError
        where error.code == .invalidArgument && chore.kind == .expires
      {
        ledger.recordRefusal(of: number)
        continue
      }
      ledger.recordID(task.id, of: number)
      if dice.happens(1, in: 3) { waits.yield(Wait(task: task, number: number)) }
      if dice.happens(1, in: 4) { try await sleepRandomly(dice, upTo: .microseconds(100)) }
    }
  }

  /// Waits for the outcomes of tasks, and cancels some of these waits.
  private func awaitOutcomes(of waits: AsyncStream<Wait>, _ dice: Dice) async throws {
    try await withThrowingDiscardingTaskGroup { group in
      for await wait in waits {
        let (isWatched, givesUp) = (dice.happens(1, in: 3), dice.happens(1, in: 4))
        if isWatched { group.addTask { for await _ in wait.task.progress {} } }
        group.addTask {
          guard givesUp else { return try await awaitOutcome(of: wait) }
          try await withThrowingTaskGroup { race in
            race.addTask { try await awaitOutcome(of: wait) }
            race.addTask { try? await sleepRandomly(dice, upTo: .milliseconds(1)) }
            try await race.next()
            race.cancelAll()
          }
        }
      }
    }
  }

  private func awaitOutcome(of wait: Wait) async throws {
    do {
      ledger.recordOutcome(try await wait.task.outcome(), of: wait.number)
    } catch is CancellationError {
    } catch let error as TaskQueueError
      where error.code == .shutDown || error.code == .unknownTask
    {
    }
  }

  /// Calls randomly chosen controls of tasks and of the queue.
  private func callRandomControls(of queue: TaskQueue, _ dice: Dice) async throws {
    for _ in 0..<dice.number(1...30) {
      try await sleepRandomly(dice, upTo: .microseconds(300))
      ledger.countControl()
      guard let (number, id) = ledger.randomTask(dice.next()) else { continue }
      switch dice.number(0...13) {
      case 0:
        ledger.recordCancelRequest(for: number)
        try await queue.cancel(id)
      case 1: try await queue.pause(id)
      case 2: try await queue.resume(id)
      case 3: try await queue.retry(id)
      case 4: try await queue.performNow(id)
      case 5:
        ledger.recordRemoveRequest(for: number)
        ledger.recordCancelRequest(for: number)
        try await queue.remove(id)
      case 6: try await queue.retry(matching: .deadLetters)
      case 7: try await queue.performNow(matching: TaskFilter(names: [Chore.taskName]))
      case 8:
        await queue.pause()
        try await sleepRandomly(dice, upTo: .milliseconds(2))
        await queue.resume()
      case 9:
        guard dice.happens(1, in: 10) else { continue }
        try await ledger.makeCallThatCancelsAny {
          _ = try await queue.cancel(matching: TaskFilter(tags: ["red"]))
        }
      case 10: _ = try await queue.tasks(limit: 20)
      case 11: _ = try await queue.statistics
      case 12:
        await queue.pause(name: Chore.taskName)
        try await sleepRandomly(dice, upTo: .milliseconds(2))
        await queue.resume(name: Chore.taskName)
      default: _ = try await queue.count
      }
    }
  }

  private func sleepRandomly(_ dice: Dice, upTo limit: Duration) async throws {
    try await clock.sleep(for: limit * Double(dice.number(0...100)) / 100)
  }

  // MARK: The last queue

  /// Performs all remaining tasks, and returns the dead letters.
  private func performRemainingTasks(of queue: TaskQueue) async throws -> Set<TaskID> {
    await Crew(ledger: ledger, clock: clock, dice: dice.split(), isCalm: true)
      .registerHandler(on: queue)
    let events = queue.events
    return try await withThrowingTaskGroup { group in
      group.addTask { for await event in events { ledger.recordEvent(event) } }
      for record in try await queue.tasks(matching: TaskFilter(states: [.paused]), limit: .max) {
        try await queue.resume(record.id)
      }
      var passes = 0
      while try await queue.count > 0 {
        try await queue.performNow(matching: .unfinished)
        try await queue.runAvailable()
        passes += 1
        guard passes < 100 else {
          throw Violation("tasks remain after 100 passes: \(try await queue.tasks(limit: 5))")
        }
      }
      let dead = try await queue.tasks(matching: .deadLetters, limit: .max)
      await queue.shutDown()
      try await group.waitForAll()
      return Set(dead.map(\.id))
    }
  }
}

/// A wait for the end of a task.
private struct Wait: Sendable {
  let task: EnqueuedTask
  let number: Int
}

extension Chore {
  fileprivate func randomOptions(_ dice: Dice, _ clock: any WallClock) -> TaskOptions {
    var options = TaskOptions(
      maxRetries: kind == .failsAlways ? 2 : .alwaysRetry,
      priority: dice.pick([.low, .normal, .high]),
      tags: dice.happens(1, in: 3) ? ["red"] : []
    )
    if dice.happens(1, in: 5) { options.delay = .microseconds(dice.number(0...2000)) }
    if kind == .isSlow {
      options.timeLimit = .milliseconds(1)
      options.maxRetries = 1
    }
    if kind == .expires { options.expiryDate = clock.date.advanced(by: 0.004) }
    return options
  }
}
