#if SQLite
import TestSupport
import Testing

@testable import SteadfastSQLite

struct CheckScheduleTests {
  private static func milliseconds(_ numbers: [Int]) -> [Duration] {
    numbers.map { .milliseconds($0) }
  }

  /// Makes the next checks, and returns their times if nothing writes to the file.
  private func timesOfNextChecks(_ count: Int, of schedule: inout CheckSchedule) -> [Duration] {
    (0..<count).map { _ in
      let time = schedule.nextCheck
      schedule.recordCheck(at: time)
      return time
    }
  }

  @Test func `without writes to the file, the checks are far apart`() {
    var schedule = CheckSchedule(longest: .seconds(1), now: .seconds(5))
    #expect(timesOfNextChecks(3, of: &schedule) == [.seconds(5), .seconds(6), .seconds(7)])
    #expect(schedule.isSlow)
    #expect(schedule.awaitsFile)
  }

  @Test func `after a write to the file, checks follow at doubling intervals`() {
    var schedule = CheckSchedule(longest: .milliseconds(100), now: .zero)
    _ = timesOfNextChecks(1, of: &schedule)
    schedule.recordWrite(at: .milliseconds(40))
    #expect(!schedule.isSlow)
    let times = Self.milliseconds([40, 41, 43, 47, 55, 71, 103, 167, 267, 367])
    #expect(timesOfNextChecks(10, of: &schedule) == times)
    #expect(schedule.isSlow)
  }

  @Test func `many writes to the file cause at most one check per millisecond`() {
    var schedule = CheckSchedule(longest: .seconds(1), now: .zero)
    _ = timesOfNextChecks(1, of: &schedule)
    var times: [Duration] = []
    for number in 1...1_000 {
      let now = Duration.microseconds(10 * number)
      if now >= schedule.nextCheck {
        schedule.recordCheck(at: now)
        times.append(now)
      }
      schedule.recordWrite(at: now)
      // Until the check is due, further writes do not matter.
      #expect(!schedule.awaitsFile)
    }
    #expect(times == Self.milliseconds(Array(1...10)))
  }

  @Test func `a new interval applies from the next check on`() {
    var schedule = CheckSchedule(longest: .milliseconds(10), now: .zero)
    schedule.longest = .milliseconds(35)
    #expect(timesOfNextChecks(5, of: &schedule) == Self.milliseconds([0, 10, 30, 65, 100]))
    schedule.longest = .milliseconds(10)
    #expect(timesOfNextChecks(3, of: &schedule) == Self.milliseconds([135, 170, 180]))
  }

  /// A commit becomes visible after its flush, which may be some time after the write to the file.
  ///
  /// A check finds the commit within about twice that time after the write.
  @Test func `a commit that becomes visible late is found soon, despite other writes`() {
    let dice = Dice(seed: Soak.seed ?? 1)
    for _ in 0..<Soak.runs(short: 2_000) {
      var schedule = CheckSchedule(longest: .seconds(1), now: .zero)
      _ = timesOfNextChecks(1, of: &schedule)
      let write = Duration.microseconds(dice.number(0...2_000_000))
      let delay = Duration.microseconds(
        dice.pick([dice.number(0...900), dice.number(0...400_000)])
      )
      var writes =
        [write]
        + (0..<dice.number(0...5)).map { _ in
          Duration.microseconds(dice.number(0...2_500_000))
        }
      writes.sort()
      var seen: Duration?
      while seen == nil {
        if let next = writes.first, next <= schedule.nextCheck {
          writes.removeFirst()
          schedule.recordWrite(at: next)
        } else {
          let now = schedule.nextCheck
          schedule.recordCheck(at: now)
          if now >= write + delay { seen = now }
        }
      }
      #expect((seen ?? .zero) - write <= delay * 2 + .milliseconds(2), "\(write), \(delay)")
    }
  }
}
#endif
