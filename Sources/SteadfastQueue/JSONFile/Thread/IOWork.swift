import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The jobs of two threads, of which one at a time has its turn.
final class IOWork: Sendable {
  typealias Job = IOTurns<ThreadIdentity>.Job

  /// How long a thread watches for a job before it sleeps: about what it takes to wake two, for
  /// whoever comes back at once is woken first.
  private static let watch = Duration.microseconds(100)

  private let turns = Mutex(IOTurns<ThreadIdentity>())
  private let changed = DispatchSemaphore(value: 0)
  /// Whether a job has come for the thread that watches.
  private let endsWatch = Atomic(false)

  func add(_ job: @escaping Job) { change { $0.add(job) } }

  func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
    change { $0.add(job, at: instant) }
  }

  func addBeside(_ job: @escaping Job) { change { $0.addBeside(job) } }

  func takeTurn() -> Bool { turns.withLock { $0.takeTurn(.current) } }

  /// The turn of the calling thread is over, if it has it.
  func handOn() { change { $0.handOn(.current) } }

  func end() {
    turns.withLock { $0.end() }
    for _ in 0..<2 { changed.signal() }
  }

  /// Leaves the signals that are sent to the process to its other threads, as one that came here would
  /// interrupt a flush; and lets a write beyond the process's limit for the size of a file fail, and
  /// not end the process.
  ///
  /// Linux sends the signal for that to the thread that writes, so that the program's other threads
  /// keep what they have chosen. Signals that tell of a mistake of the program itself stay as they are.
  private func blockSignals() {
    var signals = sigset_t()
    _ = unsafe sigfillset(&signals)
    for signal in [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP] {
      _ = unsafe sigdelset(&signals, signal)
    }
    _ = unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  /// What one of the threads does.
  func doAll() {
    blockSignals()
    while true {
      let step = turns.withLock { turns in
        endsWatch.store(false, ordering: .relaxed)
        return turns.next(for: .current, .now)
      }
      switch step {
      case .perform(let job): job()
      case .watch: watch()
      case .sleep(let instant): sleep(until: instant)
      case .end: return
      }
    }
  }

  /// Changes the jobs or the turns, and wakes a thread if that is needed.
  private func change(_ body: (inout IOTurns<ThreadIdentity>) -> Void) {
    let wakes = turns.withLock { turns in
      body(&turns)
      if turns.endsWatch { endsWatch.store(true, ordering: .relaxed) }
      return turns.takeWakeUp()
    }
    if wakes { changed.signal() }
  }

  /// Lets others have the processor meanwhile, if they want it.
  private func watch() {
    let end = ContinuousClock.now + Self.watch
    while !endsWatch.load(ordering: .relaxed), ContinuousClock.now < end { sched_yield() }
  }

  private func sleep(until instant: ContinuousClock.Instant?) {
    guard let instant else { return changed.wait() }
    let (seconds, attoseconds) = ContinuousClock.now.duration(to: instant).components
    let nanoseconds = seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    _ = changed.wait(timeout: .now() + .nanoseconds(Int(max(0, nanoseconds)) + 1))
  }
}
