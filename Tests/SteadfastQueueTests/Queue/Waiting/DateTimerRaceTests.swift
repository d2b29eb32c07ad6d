import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests a race condition, which requires several threads.
@Suite struct DateTimerRaceTests {
  @Test(.timeLimit(.minutes(5)))
  func `a due date fires even if an earlier date is set just as the sleep ends`() async {
    let timer = DateTimer()
    let start = Date.seconds(1_000)
    let clock = CrossingClock(start: start) {
      timer.set(start + 5)
      // The timer cancels the sleep because of the earlier date, but the sleep has already ended.
      while !Task.isCancelled {}
    }
    let (hasRung, rings) = (AsyncSignal(), Counter())
    timer.set(start + 10)
    await withTaskGroup { group in
      // The sleep blocks its thread until another thread cancels it.
      group.addTask(executorPreference: ThreadForEachJob()) {
        await timer.run(on: clock) {
          rings.add(1)
          hasRung.signal()
        }
      }
      await hasRung.wait()
      group.cancelAll()
    }
    #expect(rings.value > 0)
  }
}

/// A clock whose sleeps end at once.
///
/// Before it returns its second date, it runs an action.
private final class CrossingClock: WallClock {
  private let start: Date
  private let crossing: @Sendable () -> Void
  private let looks = Atomic(0)

  init(start: Date, _ crossing: @escaping @Sendable () -> Void) {
    self.start = start
    self.crossing = crossing
  }

  var now: ContinuousClock.Instant { ContinuousClock().now }
  var minimumResolution: Duration { .nanoseconds(1) }

  var date: Date {
    let look = looks.add(1, ordering: .relaxed).newValue
    guard look > 1 else { return start }
    if look == 2 { crossing() }
    return start + 20
  }

  func sleep(until deadline: ContinuousClock.Instant, tolerance: Duration?) async throws {}
}
