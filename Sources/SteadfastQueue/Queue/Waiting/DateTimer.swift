import SteadfastRetry
import Synchronization
import SystemFoundation

/// A queue's only timer: it sleeps until the earliest requested date, and then calls a closure.
///
/// A request costs only a lock, unless its date is earlier than those of all other requests. Then
/// it cuts the current sleep short. A request can't be withdrawn: it wakes a worker even if its
/// task was removed. The timer reads the clock at least once a minute. If the clock was set back,
/// the timer calls the closure at once, so that a worker notices the wrong dates.
final class DateTimer: Sendable {
  /// What the loop in ``run(on:ring:)`` is doing.
  private enum Activity {
    /// It is about to read the clock and the requested date.
    case checking
    case sleeping(until: Date)
    case waitingForRequest
  }

  /// The maximum sleep, in seconds, before the loop reads the clock again.
  private static let longestSleep = 60.0

  private struct State {
    /// The earliest requested date.
    var wanted: Date?
    /// The latest date that was read from the clock.
    var lastRead: Date?
    var activity = Activity.checking
  }

  private enum Step {
    case ring
    case sleep(seconds: Double)
    case waitForRequest
  }

  private let state = Mutex(State())
  private let changed = AsyncSignal()

  /// Requests a call of the closure at a date.
  ///
  /// `now` is the current date if the caller has calculated the date from it. If the clock turns
  /// out to be behind `now` later, it was set back.
  func set(_ date: Date, from now: Date = .distantPast) {
    let wakesLoop = state.withLock { state in
      // Subtract a second: the loop may have read the clock a moment earlier, and compares that
      // date with this one.
      state.lastRead = max(state.lastRead ?? .distantPast, now - 1)
      state.wanted = state.wanted.map { min($0, date) } ?? date
      switch state.activity {
      case .checking: return false
      case .sleeping(let end) where end <= date: return false
      case .sleeping, .waitingForRequest:
        state.activity = .checking
        return true
      }
    }
    if wakesLoop { changed.signal() }
  }

  /// Calls `ring` at each requested date, until the Swift task is cancelled.
  func run(on clock: any WallClock, ring: @escaping @Sendable () -> Void) async {
    defer { state.withLock { $0.activity = .checking } }
    while !Task.isCancelled {
      // Discard a signal that arrived when the last sleep had just ended. Otherwise, it would cut
      // the next sleep short.
      changed.reset()
      switch nextStep(at: clock.date) {
      case .ring: ring()
      case .waitForRequest: await changed.wait()
      case .sleep(let seconds): await sleep(for: seconds, on: clock, ring: ring)
      }
    }
  }

  private func nextStep(at now: Date) -> Step {
    state.withLock { state in
      guard let wanted = state.wanted else {
        state.activity = .waitingForRequest
        return .waitForRequest
      }
      let wentBack = state.lastRead.map { now < $0 } ?? false
      state.lastRead = now
      if wentBack {
        state.activity = .checking
        return .ring
      }
      guard wanted > now else {
        state.wanted = nil
        state.activity = .checking
        return .ring
      }
      state.activity = .sleeping(until: wanted)
      return .sleep(seconds: min(wanted.timeIntervalSince(now), Self.longestSleep))
    }
  }

  /// Sleeps until the requested date, and calls `ring`; repeats this until no date is requested, or
  /// an earlier date than the current one is requested.
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
          // Ring even if this is cancelled. The requested date is no longer stored, so no later
          // step rings for it.
          case .ring: ring()
          case .waitForRequest: return
          case .sleep(let seconds): try? await clock.wait(for: .seconds(max(seconds, 1e-9)))
          }
          // This is cancelled if an earlier date was requested. Then the loop in `run` continues.
          if Task.isCancelled { return }
          step = self.nextStep(at: clock.date)
        }
      }
      group.addTask { await self.changed.wait() }
      await group.next()
      group.cancelAll()
    }
  }
}
