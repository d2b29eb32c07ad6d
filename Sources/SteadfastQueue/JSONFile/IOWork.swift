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
  typealias Job = @Sendable () -> Void

  fileprivate struct State {
    var jobs: [Job] = []
    var delayedJobs: [(instant: ContinuousClock.Instant, job: Job)] = []
    /// The thread whose turn it is.
    var owner: ThreadIdentity?
    /// A thread was woken and has not looked yet.
    var isWaking = false
    var isEnding = false
  }

  fileprivate enum Step {
    case perform(Job)
    case wait(until: ContinuousClock.Instant?)
    case end
  }

  private let state = Mutex(State())
  private let changed = DispatchSemaphore(value: 0)

  func add(_ job: @escaping Job) {
    wake { $0.jobs.append(job) }
  }

  func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
    wake { $0.delayedJobs.append((instant, job)) }
  }

  /// The turn of the calling thread is over, if it has it.
  func handOn() {
    wake { state in
      if state.owner == .current { state.owner = nil }
    }
  }

  func end() {
    state.withLock { $0.isEnding = true }
    for _ in 0..<2 { changed.signal() }
  }

  /// Lets a write beyond the process's limit for the size of a file fail, and not end the process.
  ///
  /// Linux sends the signal to the thread that writes, so that the program's other threads keep
  /// what they have chosen.
  private func refuseLimitSignal() {
    var signals = sigset_t()
    _ = unsafe sigemptyset(&signals)
    _ = unsafe sigaddset(&signals, SIGXFSZ)
    _ = unsafe pthread_sigmask(SIG_BLOCK, &signals, nil)
  }

  /// What one of the threads does.
  func doAll() {
    refuseLimitSignal()
    while true {
      switch state.withLock({ $0.next(for: .current, .now) }) {
      case .perform(let job): job()
      case .wait(let instant): wait(until: instant)
      case .end: return
      }
    }
  }

  /// Wakes a thread if there are jobs, now or later, and it is nobody's turn.
  private func wake(_ body: (inout State) -> Void) {
    let wakes = state.withLock { state in
      body(&state)
      let isIdle = state.jobs.isEmpty && state.delayedJobs.isEmpty
      guard !isIdle, state.owner == nil, !state.isWaking else { return false }
      state.isWaking = true
      return true
    }
    if wakes { changed.signal() }
  }

  private func wait(until instant: ContinuousClock.Instant?) {
    guard let instant else { return changed.wait() }
    let (seconds, attoseconds) = ContinuousClock.now.duration(to: instant).components
    let nanoseconds = seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    _ = changed.wait(timeout: .now() + .nanoseconds(Int(max(0, nanoseconds)) + 1))
  }
}

extension IOWork.State {
  /// What a thread does next, whose turn is over if it had it.
  fileprivate mutating func next(
    for thread: ThreadIdentity,
    _ now: ContinuousClock.Instant
  ) -> IOWork.Step {
    isWaking = false
    if owner == thread { owner = nil }
    if owner == nil, let job = takeJob(now) {
      owner = thread
      return .perform(job)
    }
    if isEnding { return .end }
    // Whoever has the turn looks after the delayed jobs.
    return .wait(until: owner == nil ? delayedJobs.lazy.map(\.instant).min() : nil)
  }

  private mutating func takeJob(_ now: ContinuousClock.Instant) -> IOWork.Job? {
    if !jobs.isEmpty { return jobs.removeFirst() }
    guard
      let next = delayedJobs.indices.min(by: {
        delayedJobs[$0].instant < delayedJobs[$1].instant
      }), delayedJobs[next].instant <= now
    else { return nil }
    return delayedJobs.remove(at: next).job
  }
}
