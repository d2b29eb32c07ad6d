import SteadfastRetry
import Synchronization
import SystemFoundation

/// The queue's only timer: it sleeps until the earliest requested date, then rings.
///
/// A request for a date after the end of the current sleep costs only a lock; an earlier date cuts
/// the sleep short. A date whose task was removed still rings once. The timer reads the clock at
/// least once a minute. It also rings if the clock was set back: the worker that it wakes handles
/// that.
final class DateTimer: Sendable {
  /// What the loop is doing.
  private enum Activity {
    /// The loop is about to look at the date.
    case bestEffort
    case sleeping(until: Date)
    case waitingForDate
  }

  /// The maximum sleep, in seconds, before the loop reads the clock again.
  private static let longestSleep = 60.0

  private struct State {
    var wanted: Date?
    /// The date that the loop last read from the clock.
    var lastLook: Date?
    var activity = Activity.bestEffort
  }

  private enum Step {
    case ring
    case sleep(seconds: Double)
    case waitForDate
  }

  private let state = Mutex(State())
  private let changed = AsyncSignal()

  /// Requests a ring at a date, counted from `now`, when the clock may have been ahead.
  func set(_ date: Date, from now: Date = .distantPast) {
    let mustLook = state.withLock { state in
      // The loop may have read the clock a moment earlier, and not stored the date yet.
      state.lastLook = max(state.lastLook ?? .distantPast, now - 1)
      state.wanted = state.wanted.map { min($0, date) } ?? date
      switch state.activity {
      case .bestEffort: return false
      case .sleeping(let end) where end <= date: return false
      case .sleeping, .waitingForDate:
        state.activity = .bestEffort
        return true
      }
    }
    if mustLook { changed.signal() }
  }

  /// Calls `ring` at each requested date, until the Swift task is cancelled.
  func run(on clock: any WallClock, ring: @escaping @Sendable () -> Void) async {
    defer { state.withLock { $0.activity = .bestEffort } }
    while !Task.isCancelled {
      // A change that arrived as the last sleep ended must not cut the next one short.
      changed.reset()
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
        state.activity = .bestEffort
        return .ring
      }
      guard wanted > now else {
        state.wanted = nil
        state.activity = .bestEffort
        return .ring
      }
      state.activity = .sleeping(until: wanted)
      return .sleep(seconds: min(wanted.timeIntervalSince(now), Self.longestSleep))
    }
  }

  /// Sleeps and rings repeatedly, until no date is requested, or an earlier one is.
  ///
  /// One task group serves the whole wait, so a long wait costs one sleep each minute.
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
          // Ring even if cancelled: the requested date was removed, so nothing else rings for it.
          case .ring: ring()
          case .waitForDate: return
          case .sleep(let seconds): try? await clock.wait(for: .seconds(max(seconds, 1e-9)))
          }
          // If this is cancelled, the outer loop looks at the date again.
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
