import SteadfastRetry
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The queue's one timer: sleeps until the earliest date it was asked for, then rings.
///
/// A later date than the one it sleeps on costs a lock; only an earlier one cuts the sleep short.
/// A date whose task has gone rings once in vain. It looks at the clock at least once a minute, and
/// rings too when the date has gone back: whoever it wakes sees to that.
final class Alarm: Sendable {
  /// What the loop does at the moment.
  private enum Activity {
    /// It is about to look at the date.
    case looking
    case sleeping(until: Date)
    case waitingForDate
  }

  /// How many seconds to sleep at most before it looks at the date.
  private static let longestSleep = 60.0

  private struct State {
    var wanted: Date?
    /// The date when it last looked.
    var lastLook: Date?
    var activity = Activity.looking
  }

  private enum Step {
    case ring
    case sleep(seconds: Double)
    case waitForDate
  }

  private let state = Mutex(State())
  private let changed = WakeUp()

  func set(_ date: Date) {
    let mustLook = state.withLock { state in
      state.wanted = state.wanted.map { min($0, date) } ?? date
      switch state.activity {
      case .looking: return false
      case .sleeping(let end) where end <= date: return false
      case .sleeping, .waitingForDate:
        state.activity = .looking
        return true
      }
    }
    if mustLook { changed.fire() }
  }

  /// Rings for each date until cancelled.
  func run(on clock: any WallClock, ring: @escaping @Sendable () -> Void) async {
    defer { state.withLock { $0.activity = .looking } }
    while !Task.isCancelled {
      // A change that came as the last sleep ended must not cut the next one short.
      changed.takeDown()
      switch next(at: clock.date) {
      case .ring: ring()
      case .waitForDate: await changed.wait()
      case .sleep(let seconds): await sleep(for: seconds, on: clock, ring: ring)
      }
    }
  }

  private func next(at now: Date) -> Step {
    state.withLock { state in
      guard let wanted = state.wanted else {
        state.activity = .waitingForDate
        return .waitForDate
      }
      let wentBack = state.lastLook.map { now < $0 } ?? false
      state.lastLook = now
      if wentBack {
        state.activity = .looking
        return .ring
      }
      guard wanted > now else {
        state.wanted = nil
        state.activity = .looking
        return .ring
      }
      state.activity = .sleeping(until: wanted)
      return .sleep(seconds: min(wanted.timeIntervalSince(now), Self.longestSleep))
    }
  }

  /// Sleeps, and goes on ringing and sleeping, until no date is wanted or an earlier one is.
  ///
  /// One group lasts for all the minutes until then: a long wait costs a sleep each minute.
  private func sleep(
    for seconds: Double,
    on clock: any WallClock,
    ring: @escaping @Sendable () -> Void
  ) async {
    await withTaskGroup { group in
      group.addTask {
        var step = Step.sleep(seconds: seconds)
        while true {
          switch step {
          // Cancelled or not: nobody else rings for a date that was taken.
          case .ring: ring()
          case .waitForDate: return
          case .sleep(let seconds): try? await clock.wait(for: .seconds(max(seconds, 1e-9)))
          }
          // Cancelled: the loop around looks at the date again.
          if Task.isCancelled { return }
          step = self.next(at: clock.date)
        }
      }
      group.addTask { await self.changed.wait() }
      await group.next()
      group.cancelAll()
    }
  }
}
