import Dispatch
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// A serial executor with its own thread.
private final class OneThread: TaskExecutor {
  private let queue = DispatchQueue(label: "one thread")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { [self] in unsafe job.runSynchronously(on: asUnownedTaskExecutor()) }
  }
}

/// Tests signals and locks that are passed from one thread to another.
@Suite struct HandOverTests {
  /// Runs two Swift tasks, each on its own thread, that repeatedly wait for each other.
  ///
  /// A wait may end early, so in round n, each closure waits until the other has made n moves.
  private func playPingPong(
    _ ping: @escaping @Sendable (_ round: Int) async -> Void,
    _ pong: @escaping @Sendable (_ round: Int) async -> Void
  ) async {
    let rounds = Soak.runs(short: 20_000)
    await withTaskGroup { group in
      for play in [ping, pong] {
        group.addTask(executorPreference: OneThread()) {
          for round in 1...rounds where !Task.isCancelled { await play(round) }
        }
      }
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `a signal sent between checking a condition and waiting ends the wait`() async {
    let (ball, answer) = (AsyncSignal(), AsyncSignal())
    let (balls, answers) = (Counter(), Counter())
    await playPingPong { round in
      balls.add(1)
      ball.signal()
      while answers.value < round, !Task.isCancelled { await answer.wait() }
    } _: { round in
      while balls.value < round, !Task.isCancelled { await ball.wait() }
      answers.add(1)
      answer.signal()
    }
    #expect(balls.value == answers.value)
  }

  @Test(.timeLimit(.minutes(5)))
  func `an event posted just before its observer waits is delivered`() async {
    let (subscription, answer) = (EventSubscription(capacity: 4), AsyncSignal())
    let answers = Counter()
    await playPingPong { round in
      subscription.post(.cancelled(.numbered(round)))
      while answers.value < round, !Task.isCancelled { await answer.wait() }
    } _: { round in
      let event = await subscription.next()
      if case .cancelled(let id) = event {
        #expect(id == .numbered(round))
      } else {
        #expect(Task.isCancelled)
      }
      answers.add(1)
      answer.signal()
    }
  }

  @Test
  func `a requested change of a task stays in flight after the task's result is reported`()
    async throws
  {
    let changes = InFlightChanges(StoreAvailability())
    try await changes.beginRequestedChanges(of: [.numbered(1)])
    await changes.beginAttemptResults(of: [.numbered(1)])
    changes.markAttemptResultsReported(of: [.numbered(1)])
    #expect(changes.count == 1)
    changes.markRequestedChangesReported(of: [.numbered(1)])
    #expect(changes.count == 0)
  }

  @Test func `a call locks several keys one after the other, in order`() async throws {
    let (turns, executor) = (KeyedMutex(StoreAvailability()), ManualExecutor { 0 })
    let keys = Set((0..<26).map { "key \($0)" })
    try await turns.lock(["key 0"])
    let waiting = Task(executorPreference: executor) { try await turns.lock(keys) }
    executor.runTasks()
    // The task waits for the first key, and has locked no others.
    #expect(turns.count == 1)
    turns.unlock(["key 0"])
    executor.runTasks()
    try await waiting.value
    #expect(turns.count == 26)
    turns.unlock(keys)
    #expect(turns.count == 0)
  }

  @Test func `a caller that waits for a key's current lock to end doesn't wait for later locks`()
    async throws
  {
    let (turns, executor) = (KeyedMutex(StoreAvailability()), ManualExecutor { 0 })
    try await turns.waitForCurrentHolder(of: "k")
    try await turns.lock(["k", "other"])
    let next = Task(executorPreference: executor) { try await turns.lock(["k"]) }
    let ended = Counter()
    let watching = Task(executorPreference: executor) {
      try await turns.waitForCurrentHolder(of: "k")
      ended.add(1)
    }
    executor.runTasks()
    turns.unlock(["other"])
    executor.runTasks()
    #expect(ended.value == 0)
    turns.unlock(["k"])
    executor.runTasks()
    #expect(ended.value == 1)
    try await watching.value
    try await next.value
    #expect(turns.count == 1)
    turns.unlock(["k"])
    try await turns.waitForCurrentHolder(of: "k")
  }
}
