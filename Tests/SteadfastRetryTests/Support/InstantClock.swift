import SteadfastTesting
import Synchronization

/// A clock on which every sleep ends at once, and advances the time to the deadline of the sleep.
///
/// The clock counts how often it is read, records its sleeps, and ignores cancellation. With an
/// `oversleep`, each sleep lasts that much longer than requested, as if the computer had slept.
final class InstantClock: Clock {
  private struct State {
    var now = VirtualClock.Instant()
    var readings = 0
    var sleeps: [Duration] = []
  }

  private let state = Mutex(State())
  private let oversleep: Duration

  init(oversleep: Duration = .zero) { self.oversleep = oversleep }

  var now: VirtualClock.Instant {
    state.withLock { state in
      state.readings += 1
      return state.now
    }
  }

  var minimumResolution: Duration { .nanoseconds(1) }

  /// The number of times that the time was read.
  var readings: Int { state.withLock { $0.readings } }

  /// The durations of all sleeps.
  var sleeps: [Duration] { state.withLock { $0.sleeps } }

  /// Advances the time, as a slow operation does.
  func advance(by duration: Duration) {
    state.withLock { $0.now = $0.now.advanced(by: duration) }
  }

  func sleep(until deadline: VirtualClock.Instant, tolerance: Duration?) {
    state.withLock { state in
      state.sleeps.append(state.now.duration(to: deadline))
      state.now = max(state.now, deadline).advanced(by: oversleep)
    }
  }
}
