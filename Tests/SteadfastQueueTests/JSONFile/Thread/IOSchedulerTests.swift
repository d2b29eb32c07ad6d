import SteadfastRetry
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct IOSchedulerTests {
  private let now = ContinuousClock.now

  /// What a thread does next.
  ///
  /// Unlike the scheduler's own type, it is comparable.
  private enum Move: Equatable {
    case perform, watch, sleep, end
    case sleepUntil(ContinuousClock.Instant)
  }

  private func move(_ step: IOScheduler<Int>.Step) -> Move {
    switch step {
    case .perform: .perform
    case .poll: .watch
    case .sleep(nil): .sleep
    case .sleep(let instant?): .sleepUntil(instant)
    case .end: .end
    }
  }

  /// Counts a wake-up if a sleeping thread must be woken, and returns whether it must be.
  private func mustWakeThread(_ turns: inout IOScheduler<Int>) -> Bool {
    turns.countWakeUpIfNeeded()
  }

  /// Tries to take the turn for the first thread, and returns whether that succeeded.
  private func firstThreadTakesTurn(_ turns: inout IOScheduler<Int>) -> Bool {
    turns.tryToActivate(1)
  }

  @Test func `a job wakes one of the sleeping threads, once`() {
    var turns = IOScheduler<Int>()
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleep)
    #expect(!mustWakeThread(&turns))
    turns.add {}
    #expect(mustWakeThread(&turns))
    turns.add {}
    #expect(!mustWakeThread(&turns))
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleep)
    #expect(!mustWakeThread(&turns))
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
  }

  @Test
  func `a thread that has done a job polls for the next job, which then wakes no other thread`() {
    var turns = IOScheduler<Int>()
    turns.add {}
    _ = turns.nextStep(for: 1, at: now)
    #expect(move(turns.nextStep(for: 1, at: now)) == .watch)
    #expect(!turns.mustEndPolling)
    turns.add {}
    #expect(turns.mustEndPolling)
    #expect(!mustWakeThread(&turns))
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
    #expect(!turns.mustEndPolling)
  }

  @Test func `no thread polls for jobs while another thread works outside its turn`() {
    var turns = IOScheduler<Int>()
    _ = turns.nextStep(for: 2, at: now)
    turns.add {}
    _ = turns.nextStep(for: 1, at: now)
    turns.deactivate(1)
    turns.add {}
    #expect(mustWakeThread(&turns))
    _ = turns.nextStep(for: 2, at: now)
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleep)
    turns.add {}
    #expect(mustWakeThread(&turns))
    _ = turns.nextStep(for: 2, at: now)
    // The second thread has the turn, and takes the next job itself.
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleep)
    #expect(move(turns.nextStep(for: 2, at: now)) == .watch)
    // A thread that wakes late takes the job. Then it sleeps, because the other thread polls.
    turns.add {}
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleep)
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleep)
    turns.add {}
    #expect(mustWakeThread(&turns))
  }

  @Test func `a thread that keeps finding no job polls less and less often`() {
    var turns = IOScheduler<Int>()
    // The numbers of jobs after which the thread slept without polling.
    var skipped: [Int] = []
    var count = 0
    while skipped.count < 10 {
      turns.add {}
      _ = turns.nextStep(for: 1, at: now)
      if move(turns.nextStep(for: 1, at: now)) == .watch {
        skipped.append(count)
        count = 0
        #expect(move(turns.nextStep(for: 1, at: now)) == .sleep)
      } else {
        count += 1
      }
    }
    #expect(skipped == [0, 1, 2, 4, 8, 16, 32, 64, 64, 64])
    // After polling finds a job, the thread polls after each job again.
    while true {
      turns.add {}
      _ = turns.nextStep(for: 1, at: now)
      if move(turns.nextStep(for: 1, at: now)) == .watch { break }
    }
    turns.add {}
    _ = turns.nextStep(for: 1, at: now)
    #expect(move(turns.nextStep(for: 1, at: now)) == .watch)
  }

  @Test func `a thread sleeps until a delayed job is due, and then performs it`() {
    var turns = IOScheduler<Int>()
    turns.add({}, at: now + .seconds(2))
    turns.add({}, at: now + .seconds(1))
    // No thread sleeps yet.
    #expect(!mustWakeThread(&turns))
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleepUntil(now + .seconds(1)))
    #expect(move(turns.nextStep(for: 1, at: now + .seconds(1))) == .perform)
    // The thread that has the turn will perform the other job, too.
    #expect(move(turns.nextStep(for: 2, at: now + .seconds(1))) == .sleep)
    #expect(move(turns.nextStep(for: 1, at: now + .seconds(1))) == .watch)
    #expect(
      move(turns.nextStep(for: 1, at: now + .seconds(1)))
        == .sleepUntil(now + .seconds(2))
    )
  }

  @Test func `a delayed job that is due runs even if there are always other jobs`() {
    var turns = IOScheduler<Int>()
    let done = Log<String>()
    turns.add({ done.add("delayed") }, at: now + .seconds(1))
    for second in 0...2 {
      turns.add { done.add("\(second)") }
      turns.add { done.add("more") }
      guard case .perform(let job) = turns.nextStep(for: 1, at: now + .seconds(second)) else {
        Issue.record("there is nothing to do")
        continue
      }
      job()
    }
    #expect(done.entries == ["0", "delayed", "more"])
  }

  @Test func `a caller gets the turn if it is free, and jobs wait until the caller's turn ends`() {
    var turns = IOScheduler<Int>()
    _ = turns.nextStep(for: 1, at: now)
    #expect(turns.beginOutsideJob(at: now) == true)
    #expect(turns.beginOutsideJob(at: now) == false)
    turns.add {}
    #expect(!mustWakeThread(&turns))
    #expect(!firstThreadTakesTurn(&turns))
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleep)
    #expect(turns.endOutsideJob() == true)
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
  }

  @Test func `a caller doesn't get the turn while a job has the turn or waits for it`() {
    var turns = IOScheduler<Int>()
    turns.add {}
    #expect(turns.beginOutsideJob(at: now) == false)
    _ = turns.nextStep(for: 1, at: now)
    #expect(turns.beginOutsideJob(at: now) == false)
    // While a job has yielded its turn, a guest may have it.
    turns.deactivate(1)
    #expect(turns.beginOutsideJob(at: now) == true)
    #expect(turns.endOutsideJob() == false)
  }

  @Test
  func `a thread stops polling at the end of a caller's turn if a job was added during the turn`() {
    var turns = IOScheduler<Int>()
    turns.add {}
    _ = turns.nextStep(for: 1, at: now)
    #expect(move(turns.nextStep(for: 1, at: now)) == .watch)
    #expect(turns.beginOutsideJob(at: now) == true)
    turns.add {}
    #expect(!turns.mustEndPolling)
    #expect(turns.endOutsideJob() == false)
    #expect(turns.mustEndPolling)
  }

  @Test
  func `a caller wakes a thread for delayed jobs only if no thread sleeps until the jobs are due`()
  {
    var turns = IOScheduler<Int>()
    turns.add({}, at: now + .seconds(1))
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleepUntil(now + .seconds(1)))
    #expect(turns.beginOutsideJob(at: now) == true)
    #expect(turns.endOutsideJob() == false)
    #expect(turns.beginOutsideJob(at: now) == true)
    // The thread can't know how long the guest's turn lasts.
    #expect(move(turns.nextStep(for: 1, at: now + .seconds(1))) == .sleep)
    #expect(turns.endOutsideJob() == true)
    // Now the job is due, and a guest waits for it.
    #expect(turns.beginOutsideJob(at: now + .seconds(1)) == false)
    #expect(move(turns.nextStep(for: 1, at: now + .seconds(1))) == .perform)
  }

  @Test
  func `after a caller's turn, a thread sleeps until a delayed job added during the turn is due`() {
    var turns = IOScheduler<Int>()
    for thread in 1...2 { #expect(move(turns.nextStep(for: thread, at: now)) == .sleep) }
    #expect(turns.beginOutsideJob(at: now) == true)
    turns.add({}, at: now + .seconds(1))
    #expect(!mustWakeThread(&turns))
    #expect(turns.endOutsideJob() == true)
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleepUntil(now + .seconds(1)))
  }

  @Test
  func `a thread that has yielded its turn gets it back, unless another thread has it`() {
    var turns = IOScheduler<Int>()
    for _ in 0..<3 { turns.add {} }
    _ = turns.nextStep(for: 1, at: now)
    turns.deactivate(1)
    #expect(firstThreadTakesTurn(&turns))
    // Now the other threads wait again.
    #expect(move(turns.nextStep(for: 2, at: now)) == .sleep)
    turns.deactivate(1)
    #expect(move(turns.nextStep(for: 2, at: now)) == .perform)
    #expect(!firstThreadTakesTurn(&turns))
    #expect(move(turns.nextStep(for: 1, at: now)) == .sleep)
  }

  @Test func `the threads end when all jobs are done`() {
    var turns = IOScheduler<Int>()
    turns.add {}
    turns.endWhenIdle()
    #expect(move(turns.nextStep(for: 1, at: now)) == .perform)
    #expect(move(turns.nextStep(for: 2, at: now)) == .end)
    #expect(move(turns.nextStep(for: 1, at: now)) == .end)
  }

  @Test(arguments: 0..<50 as Range<UInt64>)
  func `the threads never all sleep while a job is left, and never share the turn`(_ seed: UInt64) {
    var generator = SplitMix64(seed: seed)
    var model = ThreadsModel()
    for _ in 0..<2_000 { model.takeStep(using: &generator) }
    while model.takeStepWithoutNewJob(using: &generator) {}
    #expect(model.performed == model.added)
    #expect(model.added > 100)
    #expect(!model.hasOverlapped)
  }
}
