import SteadfastRetry
import SteadfastTesting

@testable import SteadfastQueue

/// A test case of the model check: a queue's configuration, and operations to perform on the queue.
struct ModelCase: Sendable {
  var seed: UInt64
  var workers: Int
  var backoffSeconds: Int
  var retention: Retention
  /// Whether a second queue uses the same store, as in a group.
  var hasSideQueue = false
  var operations: [ModelOperation]

  var configuration: TaskQueueConfiguration {
    TaskQueueConfiguration(
      maxConcurrentTasks: workers,
      backoff: .linear(from: .seconds(backoffSeconds), by: .seconds(1)),
      succeededRetention: retention,
      abandonedRetention: .forever,
      cancelledRetention: retention,
      eventBufferSize: 100_000
    )
  }
}

extension ModelCase: CustomStringConvertible {
  var description: String {
    let list = operations.enumerated().map { "  \($0). \($1)" }.joined(separator: "\n")
    return """
      seed \(seed), \(workers) workers, backoff from \(backoffSeconds) s, retention \(retention)\
      \(hasSideQueue ? ", two queues" : "")
      \(list)
      """
  }
}

// MARK: - Drawing

extension ModelCase {
  /// Draws a case of `count` operations at random.
  init(seed: UInt64, operations count: Int) {
    var random = ModelRandom(seed: seed)
    self.seed = seed
    workers = random.draw([1, 1, 2, 3])
    backoffSeconds = random.draw([0, 1, 5])
    retention = random.draw([.none, .none, .forever, Retention(maxCount: 2)])
    hasSideQueue = random.once(in: 2)
    operations = (0..<count).map { _ in random.operation() }
  }
}

/// Draws operations and their arguments at random.
struct ModelRandom {
  private var generator: SplitMix64

  init(seed: UInt64) { generator = Randomness.seeded(seed).makeGenerator() }

  mutating func draw<Choice>(_ choices: [Choice]) -> Choice {
    choices[below(choices.count)]
  }

  mutating func below(_ bound: Int) -> Int { Int(generator.next(upperBound: UInt64(bound))) }

  /// Returns `true` once in `count` draws, on average.
  mutating func once(in count: Int) -> Bool { below(count) == 0 }

  mutating func operation() -> ModelOperation {
    switch below(100) {
    case 0..<26: .enqueue(newTask())
    case 26..<40: .ask(draw(ModelOperation.Request.allCases), task: below(40))
    case 40: .setCondition(draw([true, true, false]))
    case 87..<91: .complete(task: below(40))
    case 41..<43:
      .askTagged(draw([.cancel, .restart, .reschedule, .remove]), tag: draw(["red", "blue"]))
    case 43..<49: .outcome(task: below(40))
    case 49..<51: .pauseQueue
    case 51..<54: .resumeQueue
    case 54..<61: .run
    case 61..<63: .runAvailable
    case 63..<66: .cancelRun
    case 66: .shutDown(within: draw([0, 1, 3]))
    case 67: .restartQueue
    case 68: .registerStray
    case 69..<82: .advance(seconds: draw([0, 1, 1, 2, 5, 30, 90]))
    case 82..<84: .step(seconds: draw([-3600, -30, -1, 1, 30, 3600]))
    case 84: .pauseStore
    case 85..<87: .resumeStore
    case 91: .setValue(below(3))
    default: .settle
    }
  }

  private mutating func newTask() -> ModelOperation.NewTask {
    var task = ModelOperation.NewTask(acts: (0...below(3)).map { _ in act() })
    task.name = draw([.plain, .plain, .plain, .limited, .limited, .stray])
    if once(in: 3) { task.delay = draw([-5, 1, 2, 10, 100]) }
    task.maxRetries = draw([0, 1, 2, 2])
    task.usesBackoff = !once(in: 3)
    task.priority = draw([-1, 0, 0, 0, 1])
    if once(in: 5) { task.timeLimit = draw([1, 2]) }
    if once(in: 6) { task.lifetime = max(0, task.delay ?? 0) + draw([1, 3, 20]) }
    if once(in: 3) { task.tag = draw(["red", "blue"]) }
    if once(in: 3) { task.key = draw(["x", "y"]) }
    task.policy = draw([.keep, .replace, .reject, .join])
    if task.key != nil, once(in: 4) { task.uniqueFor = draw([0, 2, 40]) }
    if task.key != nil, once(in: 4) { task.maxDelay = draw([0, 5, 60]) }
    if once(in: 4) { task.order = draw(["m", "n"]) }
    task.blocksOrderOnFailure = once(in: 4)
    task.requiresCondition = once(in: 8)
    if once(in: 6) { task.count = 2 + below(3) }
    switch below(8) {
    case 0, 1: task.after = (0...below(2)).map { _ in below(40) }
    case 2: makeBatch(&task)
    default: break
    }
    if once(in: 3) { task.rule = .allEnded }
    task.isAside = once(in: 3)
    return task
  }

  private mutating func makeBatch(_ task: inout ModelOperation.NewTask) {
    task.hasFollower = true
    task.count = below(4)
    // The tasks of a batch get unique keys only from their payloads, and these payloads have none.
    (task.key, task.uniqueFor, task.maxDelay) = (nil, nil, nil)
    for act in task.acts.indices where once(in: 3) { task.acts[act].joinsBatch = true }
  }

  private mutating func act() -> Act {
    var act = Act(
      end: draw([
        .succeed, .succeed, .succeed, .fail, .fail, .abandon, .snooze(seconds: draw([0, 1, 7])),
        .retryAfter(seconds: draw([0, 2])),
      ])
    )
    act.seconds = draw([0, 0, 0, 1, 1, 3])
    act.ignoresCancellation = once(in: 5)
    act.reportsProgress = once(in: 5)
    act.enqueues = once(in: 10)
    if once(in: 4) { act.steps = 1 + below(3) }
    act.savesCheckpoints = once(in: 8)
    if once(in: 8) { act.nap = draw([0, 1, 5, 40]) }
    if once(in: 8) { act.reply = draw([.whenever, .within(seconds: 2), .within(seconds: 40)]) }
    act.hidesSuspension = once(in: 4)
    return act
  }
}

// MARK: - Shrinking

extension ModelCase {
  /// Removes operations while the case still fails.
  ///
  /// - Returns: The smallest failing case that was found, and its failure.
  func shrunk(
    failing failure: any Error,
    by failureOf: (ModelCase) async -> (any Error)?
  ) async -> (ModelCase, any Error) {
    let (smallest, reason) = await SteadfastTesting.shrunk(operations, failing: failure) {
      await failureOf(with($0))
    }
    return (with(smallest), reason)
  }

  private func with(_ operations: [ModelOperation]) -> ModelCase {
    var copy = self
    copy.operations = operations
    return copy
  }
}
