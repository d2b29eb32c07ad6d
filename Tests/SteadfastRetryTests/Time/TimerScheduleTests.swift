import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastRetry

@Suite struct TimerScheduleTests {
  private let timer = Timer()

  /// Adds a waiter, and returns the end of the sleep that starts for this waiter, in seconds; `nil`
  /// if no sleep starts.
  private func addWaiter(_ name: String, until moment: Double, at now: Double = 0) -> Double? {
    timer.schedule.add(name, until: .seconds(moment), now: .seconds(now)).sleep.map {
      $0 / .seconds(1)
    }
  }

  /// Ends a sleep; returns the waiters that are due, and the end of the next sleep, in seconds.
  private func finishSleep(scheduledFor end: Double, at now: Double? = nil) -> SleepResult {
    let (due, next) = timer.schedule.finishSleep(
      scheduledFor: .seconds(end),
      now: .seconds(now ?? end)
    )
    return SleepResult(due: due, next: next.map { $0 / .seconds(1) })
  }

  @Test func `the first waiter starts a sleep, which later waiters share`() {
    #expect(addWaiter("a", until: 5) == 5)
    #expect(addWaiter("b", until: 5) == nil)
    #expect(addWaiter("c", until: 7) == nil)
    #expect(finishSleep(scheduledFor: 5) == SleepResult(due: ["a", "b"], next: 7))
    #expect(finishSleep(scheduledFor: 7) == SleepResult(due: ["c"], next: nil))
    #expect(timer.schedule.count == 0)
    #expect(timer.schedule.sleepCount == 0)
  }

  @Test func `an earlier deadline starts another sleep`() {
    #expect(addWaiter("late", until: 60) == 60)
    #expect(addWaiter("early", until: 5) == 5)
    #expect(addWaiter("between", until: 30) == nil)
    // The sleep until 60 is too long for the waiter at 30.
    #expect(finishSleep(scheduledFor: 5) == SleepResult(due: ["early"], next: 30))
    // The sleep until 60 covers the remaining waiter, so no other sleep follows.
    #expect(finishSleep(scheduledFor: 30) == SleepResult(due: ["between"], next: nil))
    #expect(finishSleep(scheduledFor: 60) == SleepResult(due: ["late"], next: nil))
  }

  @Test func `an additional sleep lasts at most half as long as the sleep that is under way`() {
    #expect(addWaiter("late", until: 60) == 60)
    #expect(addWaiter("a moment earlier", until: 59) == 30)
    #expect(finishSleep(scheduledFor: 30) == SleepResult(due: [], next: 59))
    #expect(finishSleep(scheduledFor: 59) == SleepResult(due: ["a moment earlier"], next: nil))
  }

  @Test func `a sleep lasts at most a minute`() {
    #expect(addWaiter("in an hour", until: 3_600) == 60)
    var end = 60.0
    while end < 3_600 {
      #expect(finishSleep(scheduledFor: end) == SleepResult(due: [], next: end + 60))
      end += 60
    }
    #expect(finishSleep(scheduledFor: end) == SleepResult(due: ["in an hour"], next: nil))
  }

  @Test func `after its waiter is removed, a sleep still ends, but without effect`() {
    let ticket = timer.schedule.add("a", until: .seconds(5), now: .zero).ticket
    #expect(timer.schedule.remove(ticket) == "a")
    #expect(timer.schedule.remove(ticket) == nil)
    #expect(timer.schedule.count == 0)
    #expect(finishSleep(scheduledFor: 5) == SleepResult(due: [], next: nil))
    #expect(timer.schedule.sleepCount == 0)
  }

  @Test func `a new waiter shares the sleep that a removed waiter has started`() {
    let ticket = timer.schedule.add("a", until: .seconds(5), now: .zero).ticket
    _ = timer.schedule.remove(ticket)
    #expect(addWaiter("b", until: 9, at: 4) == nil)
    #expect(finishSleep(scheduledFor: 5) == SleepResult(due: [], next: 9))
  }

  @Test func `a sleep that ends early counts as having reached its deadline`() {
    #expect(addWaiter("a", until: 5) == 5)
    #expect(finishSleep(scheduledFor: 5, at: 4.999) == SleepResult(due: ["a"], next: nil))
  }

  @Test func `a sleep that ends late returns all due waiters in order`() {
    #expect(addWaiter("a", until: 5) == 5)
    #expect(addWaiter("c", until: 8) == nil)
    #expect(addWaiter("b", until: 7) == nil)
    #expect(addWaiter("d", until: 9) == nil)
    #expect(finishSleep(scheduledFor: 5, at: 8) == SleepResult(due: ["a", "b", "c"], next: 9))
  }

  @Test func `waiters with earlier and earlier deadlines start at most 64 sleeps`() {
    for count in 0..<100_000 {
      _ = timer.schedule.add("", until: .seconds(50) - .microseconds(500 * count), now: .zero)
    }
    #expect(timer.schedule.count == 100_000)
    #expect(timer.schedule.sleepCount <= 64)
  }

  @Test(arguments: 0..<UInt64(Soak.runs(short: 20)))
  func `after random changes, the waiters become due at their deadlines, in order`(seed: UInt64)
    throws
  {
    var random = Randomness.seeded(seed).makeGenerator()
    var schedule = TimerSchedule<Int>()
    var now = Duration.zero
    var ends: [Duration] = []
    var waiting: [(name: Int, moment: Duration, ticket: TimerSchedule<Int>.Ticket)] = []
    for name in 0..<2_000 {
      switch Int.random(in: 0..<4, using: &random) {
      case 0, 1:
        let moment = now + .microseconds(Int.random(in: 1...100_000_000, using: &random))
        let (ticket, end) = schedule.add(name, until: moment, now: now)
        waiting.append((name, moment, ticket))
        if let end { ends.append(end) }
      case 2:
        guard let index = waiting.indices.randomElement(using: &random) else { continue }
        #expect(schedule.remove(waiting[index].ticket) == waiting[index].name)
        waiting.remove(at: index)
      default:
        guard let end = ends.min() else { continue }
        ends.removeAll { $0 == end }
        now = end
        let (due, next) = schedule.finishSleep(scheduledFor: end, now: now)
        let expected = waiting.filter { $0.moment <= now }.sorted {
          $0.moment == $1.moment ? $0.name < $1.name : $0.moment < $1.moment
        }
        #expect(due == expected.map(\.name))
        waiting.removeAll { $0.moment <= now }
        if let next { ends.append(next) }
      }
      #expect(schedule.count == waiting.count)
      #expect(schedule.sleepCount == ends.count)
      // A sleep ends by the earliest deadline, and no two sleeps end at the same time.
      if let first = waiting.map(\.moment).min() { #expect(try #require(ends.min()) <= first) }
      #expect(Set(ends).count == ends.count)
    }
  }
}

/// A schedule in a class, so that a test can change the schedule within an expectation.
private final class Timer {
  var schedule = TimerSchedule<String>()
}

/// The waiters that are due after a sleep, and the next sleep.
private struct SleepResult: Equatable {
  let due: [String]
  /// The end of the next sleep, in seconds.
  let next: Double?
}
