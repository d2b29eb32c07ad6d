import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The jobs of two threads, of which one at a time has the turn.
final class IOQueue: Sendable {
  typealias Job = IOScheduler<ThreadIdentity>.Job

  /// How long a thread watches for a job before it sleeps.
  ///
  /// This is about the time that waking two threads takes, because a caller that comes back at once
  /// has to be woken first.
  private static let watch = Duration.microseconds(100)

  private let turns = Mutex(IOScheduler<ThreadIdentity>())
  private let changed = DispatchSemaphore(value: 0)
  /// Whether there is a job for the thread that watches.
  private let endsWatch = Atomic(false)

  func add(_ job: @escaping Job) { change { $0.add(job) } }

  func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
    change { $0.add(job, at: instant) }
  }

  func takeTurn() -> Bool { turns.withLock { $0.takeTurn(.current) } }

  /// Performs a job on the calling thread, which is none of the two, if the turn is free.
  ///
  /// - Returns: Whether it has performed the job.
  func performNow(_ job: () -> Void) -> Bool {
    guard turns.withLock({ $0.beginGuestTurn(.now) }) else { return false }
    job()
    wakeIfNeeded { turns in turns.endGuestTurn() }
    return true
  }

  /// Ends the turn of the calling thread, if it has the turn.
  func yieldTurn() { change { $0.yieldTurn(.current) } }

  func end() {
    turns.withLock { $0.end() }
    for _ in 0..<2 { changed.signal() }
  }

  /// Does jobs until the end, on each of the two threads.
  func doAll() {
    while true {
      let step = turns.withLock { turns in
        endsWatch.store(false, ordering: .relaxed)
        return turns.next(for: .current, .now)
      }
      switch step {
      case .perform(let job): job()
      case .watch: watch()
      case .sleep(let instant): changed.wait(until: instant)
      case .end: return
      }
    }
  }

  /// Changes the jobs or the turn, and wakes a thread if one is needed.
  private func change(_ body: (inout IOScheduler<ThreadIdentity>) -> Void) {
    wakeIfNeeded { turns in
      body(&turns)
      return turns.takeWakeUp()
    }
  }

  /// Makes a change, and wakes a thread if the change returns that one is needed.
  private func wakeIfNeeded(after change: (inout IOScheduler<ThreadIdentity>) -> Bool) {
    let wakes = turns.withLock { turns in
      let wakes = change(&turns)
      if turns.endsWatch { endsWatch.store(true, ordering: .relaxed) }
      return wakes
    }
    if wakes { changed.signal() }
  }

  /// Watches for a job, and yields the processor to other threads that need it.
  private func watch() {
    let end = ContinuousClock.now + Self.watch
    while !endsWatch.load(ordering: .relaxed), ContinuousClock.now < end { sched_yield() }
  }
}
