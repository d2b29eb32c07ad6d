import Dispatch
import SteadfastRetry
import Synchronization
import SystemC

/// The jobs of several threads, and which thread performs them.
///
/// This is a value. One thread at a time *has the turn*: it performs jobs. A guest is a thread of
/// the program that performs no queued jobs. It may take the turn for one short job of its own if
/// no queued job needs it.
///
/// A thread that has performed a job and finds no other one watches for a job for a moment before
/// it sleeps. Waking a thread takes a considerable part of the time of a flush, and a caller that
/// stores one change after another comes back at once. If no caller comes back, threads seldom
/// watch. During a flush they never do. Without watching, one producer enqueues 0.45 times for each
/// flush that the disk could make in the same time; with it, 0.59 times.
struct IOScheduler<Thread: Equatable & Sendable>: Sendable {
  typealias Job = @Sendable () -> Void
  typealias Instant = ContinuousClock.Instant

  enum Step {
    case perform(Job)
    /// The thread calls again when a job was added, or a moment has passed.
    case poll
    /// The thread calls again when it is woken, or at this instant.
    case sleep(until: Instant?)
    case end
  }

  private static var maxSkippedPolls: Int { 64 }

  private var jobs = FIFOQueue<Job>()
  private var delayedJobs: [(instant: Instant, job: Job)] = []
  /// The thread that has the turn.
  private var activeThread: Thread?
  /// Whether a guest has the turn.
  private var isPerformingOutsideJob = false
  /// Whether a thread must check the delayed jobs after the guest's turn.
  private var mustCheckDelayedJobs = false
  /// The threads that are still busy after they yielded the turn.
  private var besideThreads: [Thread] = []
  /// The thread that watches, and need not be woken.
  private var pollingThread: Thread?
  private var sleepers: [Thread] = []
  /// The number of sleepers that were woken and have not called again yet.
  private var wakingCount = 0
  /// The number of watches to skip after the next one that finds no job.
  private var pollsToSkipNext = 1
  private var pollsToSkip = 0
  private var isEnding = false

  /// Whether the turn can be taken.
  private var canBeginJob: Bool { activeThread == nil && !isPerformingOutsideJob }

  /// Whether there is a job for the watching thread.
  var mustEndPolling: Bool {
    pollingThread != nil && canBeginJob && !jobs.isEmpty
  }

  mutating func add(_ job: @escaping Job) { jobs.append(job) }

  mutating func add(_ job: @escaping Job, at instant: Instant) {
    delayedJobs.append((instant, job))
    mustCheckDelayedJobs = mustCheckDelayedJobs || isPerformingOutsideJob
  }

  /// Ends the turn of a thread, if it has the turn.
  ///
  /// The thread continues its job while another thread may have the turn.
  mutating func deactivate(_ thread: Thread) {
    guard activeThread == thread else { return }
    activeThread = nil
    besideThreads.append(thread)
  }

  /// Gives the turn back to a thread that yielded it, unless another thread has it.
  ///
  /// - Returns: Whether the thread has the turn now.
  mutating func tryToActivate(_ thread: Thread) -> Bool {
    guard canBeginJob else { return false }
    besideThreads.removeAll { $0 == thread }
    activeThread = thread
    return true
  }

  /// Gives the turn to a guest, unless a thread has it, a job is waiting, or a delayed job is due.
  ///
  /// - Returns: Whether the guest has the turn.
  mutating func beginOutsideJob(at now: @autoclosure () -> Instant) -> Bool {
    guard canBeginJob, jobs.isEmpty else { return false }
    if !delayedJobs.isEmpty {
      let now = now()
      guard delayedJobs.allSatisfy({ $0.instant > now }) else { return false }
    }
    isPerformingOutsideJob = true
    return true
  }

  /// Ends a guest's turn.
  ///
  /// - Returns: Whether to wake a thread; that thread already counts as woken.
  mutating func endOutsideJob() -> Bool {
    isPerformingOutsideJob = false
    defer { mustCheckDelayedJobs = false }
    return (!jobs.isEmpty || mustCheckDelayedJobs) && countWakeUpIfNeeded()
  }

  /// Lets the threads end when all jobs are done.
  mutating func endWhenIdle() { isEnding = true }

  /// Returns whether to wake a thread, and counts it as woken.
  ///
  /// A thread must be woken if there are jobs, now or later, and no thread has the turn, watches,
  /// or was already woken.
  mutating func countWakeUpIfNeeded() -> Bool {
    guard canBeginJob, !jobs.isEmpty || !delayedJobs.isEmpty, pollingThread == nil,
      wakingCount == 0,
      !sleepers.isEmpty
    else { return false }
    wakingCount += 1
    return true
  }

  /// Returns the next step of a thread.
  ///
  /// The thread may just have performed a job. If it had the turn, its turn is over.
  mutating func nextStep(for thread: Thread, at now: Instant) -> Step {
    if let sleeper = sleepers.firstIndex(of: thread) {
      sleepers.remove(at: sleeper)
      wakingCount = max(0, wakingCount - 1)
    }
    let hasWorked = activeThread == thread || besideThreads.contains(thread)
    if activeThread == thread { activeThread = nil }
    besideThreads.removeAll { $0 == thread }
    let job = canBeginJob ? takeJob(at: now) : nil
    if pollingThread == thread { endPoll(wasUseless: job == nil) }
    if let job {
      activeThread = thread
      return .perform(job)
    }
    if isEnding { return .end }
    if hasWorked, canBeginJob, pollingThread == nil, besideThreads.isEmpty, beginPollUnlessSkipped()
    {
      pollingThread = thread
      return .poll
    }
    sleepers.append(thread)
    if isPerformingOutsideJob { mustCheckDelayedJobs = !delayedJobs.isEmpty }
    // If a thread has the turn, that thread checks the delayed jobs.
    return .sleep(until: canBeginJob ? delayedJobs.lazy.map(\.instant).min() : nil)
  }

  private mutating func beginPollUnlessSkipped() -> Bool {
    guard pollsToSkip > 0 else { return true }
    pollsToSkip -= 1
    return false
  }

  private mutating func endPoll(wasUseless: Bool) {
    pollingThread = nil
    pollsToSkip = wasUseless ? pollsToSkipNext : 0
    pollsToSkipNext = wasUseless ? min(2 * pollsToSkipNext, Self.maxSkippedPolls) : 1
  }

  /// Removes and returns the next job.
  ///
  /// A delayed job that is due comes first, because the others may never run out.
  private mutating func takeJob(at now: Instant) -> Job? {
    let next = delayedJobs.indices.min { delayedJobs[$0].instant < delayedJobs[$1].instant }
    if let next, delayedJobs[next].instant <= now { return delayedJobs.remove(at: next).job }
    return jobs.popFirst()
  }
}

/// A thread that performs a store's jobs, one after another, in order.
protocol JobThread: AnyObject, Sendable {
  func add(_ job: @escaping @Sendable () -> Void)
  /// Adds a job to perform after `delay`.
  ///
  /// The job is not performed if the thread ends before that.
  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void)
  /// Performs a short job on the calling thread, which is not this one, if the turn is free.
  ///
  /// - Returns: Whether the job was performed. If not, another job has the turn or is waiting for
  ///   it.
  func performOnCallerIfIdle(_ job: () -> Void) -> Bool
  /// Ends the turn of the calling job, and performs `body`.
  ///
  /// From then on, another thread performs the jobs behind the calling one, in order. They run at
  /// the same time as `body`, and must not wait for it.
  func performBesideOtherJobs<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result
  /// Requests the turn again, for a job that has yielded it.
  ///
  /// - Returns: Whether the calling job has the turn. It doesn't get it while another job has it.
  func tryToExcludeOtherJobs() -> Bool
}

/// Two threads for blocking work, so that the work does not delay Swift's shared threads.
///
/// One of the two threads performs the jobs one after another, in order. When a job yields its
/// turn, the other thread takes over. The threads end when the last reference to this object is
/// released and all jobs are done.
///
/// With one thread, claims waited for the flush before them: 64 producers and 8 workers finished
/// 10,500 tasks a second. With two, they finish 31,000 to 38,000 (flushes of 0.1 ms).
final class IOThread: JobThread {
  private let work = IOQueue()

  /// Starts the threads.
  init() throws(SystemCallError) {
    for _ in 0..<2 {
      do throws(SystemCallError) {
        try SystemThread.start { [work] in work.performJobs() }
      } catch {
        work.end()
        throw error
      }
    }
  }

  deinit { work.end() }

  func add(_ job: @escaping @Sendable () -> Void) { work.add(job) }

  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
    work.add(job, at: .now + delay.sleepable)
  }

  func performOnCallerIfIdle(_ job: () -> Void) -> Bool { work.performOnCallerIfIdle(job) }

  func tryToExcludeOtherJobs() -> Bool { work.tryToExcludeOtherJobs() }

  func performBesideOtherJobs<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    work.allowOtherJobs()
    return try body()
  }
}

/// The jobs of two threads, only one of which has the turn at a time.
final class IOQueue: Sendable {
  typealias Job = IOScheduler<ThreadIdentity>.Job

  /// How long a thread watches for a job before it sleeps.
  ///
  /// This is approximately the time to wake two threads, because a caller that comes back at once
  /// has to be woken first.
  private static let pollingTime = Duration.microseconds(100)

  private let scheduler = Mutex(IOScheduler<ThreadIdentity>())
  private let changed = DispatchSemaphore(value: 0)
  /// Whether there is a job for the watching thread.
  private let mustEndPolling = Atomic(false)

  func add(_ job: @escaping Job) { changeScheduler { $0.add(job) } }

  func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
    changeScheduler { $0.add(job, at: instant) }
  }

  func tryToExcludeOtherJobs() -> Bool { scheduler.withLock { $0.tryToActivate(.current) } }

  /// Performs a job on the calling thread, which is neither of the two, if the turn is free.
  ///
  /// - Returns: Whether the job was performed.
  func performOnCallerIfIdle(_ job: () -> Void) -> Bool {
    guard scheduler.withLock({ $0.beginOutsideJob(at: .now) }) else { return false }
    job()
    wakeIfNeeded { scheduler in scheduler.endOutsideJob() }
    return true
  }

  /// Ends the turn of the calling thread, if it has the turn.
  func allowOtherJobs() { changeScheduler { $0.deactivate(.current) } }

  func end() {
    scheduler.withLock { $0.endWhenIdle() }
    for _ in 0..<2 { changed.signal() }
  }

  /// Performs jobs until the end, on each of the two threads.
  func performJobs() {
    while true {
      let step = scheduler.withLock { scheduler in
        mustEndPolling.store(false, ordering: .relaxed)
        return scheduler.nextStep(for: .current, at: .now)
      }
      switch step {
      case .perform(let job): job()
      case .poll: pollForJob()
      case .sleep(let instant): changed.wait(until: instant)
      case .end: return
      }
    }
  }

  /// Changes the jobs or the turn, and wakes a thread if one is needed.
  private func changeScheduler(_ body: (inout IOScheduler<ThreadIdentity>) -> Void) {
    wakeIfNeeded { scheduler in
      body(&scheduler)
      return scheduler.countWakeUpIfNeeded()
    }
  }

  /// Makes a change, and wakes a thread if the change returns `true`.
  private func wakeIfNeeded(after change: (inout IOScheduler<ThreadIdentity>) -> Bool) {
    let wakes = scheduler.withLock { scheduler in
      let wakes = change(&scheduler)
      if scheduler.mustEndPolling { mustEndPolling.store(true, ordering: .relaxed) }
      return wakes
    }
    if wakes { changed.signal() }
  }

  /// Watches for a job, and yields the processor to other threads that need it.
  private func pollForJob() {
    let end = ContinuousClock.now + Self.pollingTime
    while !mustEndPolling.load(ordering: .relaxed), ContinuousClock.now < end { sched_yield() }
  }
}
