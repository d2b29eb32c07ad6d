import Dispatch
import SteadfastRetry
import Synchronization
import SystemC

/// Decides which of several threads performs the next job.
///
/// Jobs are performed one after another. The thread that performs a job is the active thread. The
/// active thread can become inactive during a job, for example to flush a file. Then another thread
/// performs the next jobs at the same time. If no job is waiting, a thread outside the scheduler
/// may perform an outside job: a short job of its own.
///
/// A thread that finds no further job polls for one for a short time before it sleeps, because
/// waking a thread takes long compared with a flush, and a caller that stores one change after
/// another adds a job very soon. Threads poll less often if polling finds no jobs, and never during
/// a flush. A producer that enqueues tasks one by one reached 59 % of the disk's flushes per second
/// with polling, and 45 % without.
struct IOScheduler<Thread: Equatable & Sendable>: Sendable {
  typealias Job = @Sendable () -> Void
  typealias Instant = ContinuousClock.Instant

  enum Step {
    case perform(Job)
    /// Poll: call `nextStep` again when `mustEndPolling` is `true`, or a short time has passed.
    case poll
    /// Sleep: call `nextStep` again when the thread is woken, or at the instant.
    case sleep(until: Instant?)
    case end
  }

  private static var maxSkippedPolls: Int { 64 }

  private var jobs = FIFOQueue<Job>()
  private var delayedJobs: [(instant: Instant, job: Job)] = []
  /// The thread that performs the current job, if it has not become inactive.
  private var activeThread: Thread?
  /// Whether a thread outside the scheduler performs a job.
  private var isPerformingOutsideJob = false
  /// Whether a thread must check the delayed jobs after the outside job.
  private var mustCheckDelayedJobs = false
  /// The threads that became inactive during a job, and are still performing it.
  private var deactivatedThreads: [Thread] = []
  /// The thread that polls for a job, and need not be woken.
  private var pollingThread: Thread?
  private var sleepers: [Thread] = []
  /// The number of sleeping threads that were woken, and have not called `nextStep` yet.
  private var wakingCount = 0
  /// The number of times to sleep without polling, after polling finds no job the next time.
  private var pollsToSkipNext = 1
  private var pollsToSkip = 0
  private var isEnding = false

  /// Whether no job is being performed, except by threads that became inactive.
  private var canBeginJob: Bool { activeThread == nil && !isPerformingOutsideJob }

  /// Whether the polling thread must stop polling, because it can perform a job.
  var mustEndPolling: Bool {
    pollingThread != nil && canBeginJob && !jobs.isEmpty
  }

  mutating func add(_ job: @escaping Job) { jobs.append(job) }

  mutating func add(_ job: @escaping Job, at instant: Instant) {
    delayedJobs.append((instant, job))
    mustCheckDelayedJobs = mustCheckDelayedJobs || isPerformingOutsideJob
  }

  /// Makes a thread inactive, so that another thread can perform the next job.
  ///
  /// The thread continues its current job. If it is not the active thread, this does nothing.
  mutating func deactivate(_ thread: Thread) {
    guard activeThread == thread else { return }
    activeThread = nil
    deactivatedThreads.append(thread)
  }

  /// Makes a thread the active one again, unless another job is being performed.
  ///
  /// - Returns: Whether the thread is active now.
  mutating func tryToActivate(_ thread: Thread) -> Bool {
    guard canBeginJob else { return false }
    deactivatedThreads.removeAll { $0 == thread }
    activeThread = thread
    return true
  }

  /// Starts an outside job, unless a job is being performed or is waiting, or a delayed job is due.
  ///
  /// - Returns: Whether the caller may perform its job. If so, it must call ``endOutsideJob()``
  ///   afterwards.
  mutating func beginOutsideJob(at now: @autoclosure () -> Instant) -> Bool {
    guard canBeginJob, jobs.isEmpty else { return false }
    if !delayedJobs.isEmpty {
      let now = now()
      guard delayedJobs.allSatisfy({ $0.instant > now }) else { return false }
    }
    isPerformingOutsideJob = true
    return true
  }

  /// Ends an outside job.
  ///
  /// - Returns: Whether the caller must wake a thread. The thread already counts as woken.
  mutating func endOutsideJob() -> Bool {
    isPerformingOutsideJob = false
    defer { mustCheckDelayedJobs = false }
    return (!jobs.isEmpty || mustCheckDelayedJobs) && countWakeUpIfNeeded()
  }

  /// Lets the threads end when all jobs have been performed.
  mutating func endWhenIdle() { isEnding = true }

  /// Returns whether the caller must wake a thread; if so, counts the thread as woken.
  ///
  /// A thread must be woken if there is a job, even a delayed one, and no thread is active, polls,
  /// or was already woken.
  mutating func countWakeUpIfNeeded() -> Bool {
    guard canBeginJob, !jobs.isEmpty || !delayedJobs.isEmpty, pollingThread == nil,
      wakingCount == 0, !sleepers.isEmpty
    else { return false }
    wakingCount += 1
    return true
  }

  /// Returns what a thread must do next.
  ///
  /// If the thread was performing a job, the job is over.
  mutating func nextStep(for thread: Thread, at now: Instant) -> Step {
    if let sleeper = sleepers.firstIndex(of: thread) {
      sleepers.remove(at: sleeper)
      wakingCount = max(0, wakingCount - 1)
    }
    let hasWorked = activeThread == thread || deactivatedThreads.contains(thread)
    if activeThread == thread { activeThread = nil }
    deactivatedThreads.removeAll { $0 == thread }
    let job = canBeginJob ? takeJob(at: now) : nil
    if pollingThread == thread { endPoll(wasUseless: job == nil) }
    if let job {
      activeThread = thread
      return .perform(job)
    }
    if isEnding { return .end }
    if hasWorked, canBeginJob, pollingThread == nil, deactivatedThreads.isEmpty,
      beginPollUnlessSkipped()
    {
      pollingThread = thread
      return .poll
    }
    sleepers.append(thread)
    if isPerformingOutsideJob { mustCheckDelayedJobs = !delayedJobs.isEmpty }
    // If another thread is active, that thread checks the delayed jobs after its job.
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
  /// A delayed job that is due comes first. Otherwise it might never be performed, if other jobs
  /// are added all the time.
  private mutating func takeJob(at now: Instant) -> Job? {
    let next = delayedJobs.indices.min { delayedJobs[$0].instant < delayedJobs[$1].instant }
    if let next, delayedJobs[next].instant <= now { return delayedJobs.remove(at: next).job }
    return jobs.popFirst()
  }
}

/// A thread that performs a store's jobs one after another, in the order in which they were added.
protocol JobThread: AnyObject, Sendable {
  func add(_ job: @escaping @Sendable () -> Void)
  /// Adds a job to perform after `delay`.
  ///
  /// The job is not performed if the thread ends before that.
  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void)
  /// Performs a short job on the calling thread, if no other job is being performed or is waiting.
  ///
  /// - Returns: Whether the job was performed.
  func performOnCallerIfIdle(_ job: () -> Void) -> Bool
  /// Performs `body`, and lets the next jobs run at the same time.
  ///
  /// Call this only in a job. Another thread performs the next jobs, even after `body` has
  /// returned, until ``tryToExcludeOtherJobs()`` succeeds or the calling job ends. These jobs must
  /// not wait for `body`.
  func performBesideOtherJobs<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result
  /// Stops further jobs from running at the same time as the calling job, unless one is running
  /// now.
  ///
  /// - Returns: Whether the calling job is now the only one that runs.
  func tryToExcludeOtherJobs() -> Bool
}

/// Two threads for blocking work, so that the work does not block the threads of Swift's shared
/// thread pool.
///
/// One of the threads performs the jobs one after another. When a job lets others run at the same
/// time, the other thread performs the next jobs. The threads end when the last reference to this
/// object is released and all jobs have been performed.
///
/// With one thread, claims had to wait for the current flush: 64 producers and 8 workers finished
/// 10,500 tasks a second, with flushes of 0.1 ms. With two threads, they finished 31,000 to 38,000.
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

/// The queue of jobs that two threads perform.
final class IOQueue: Sendable {
  typealias Job = IOScheduler<ThreadIdentity>.Job

  /// How long a thread polls for a job before it sleeps.
  ///
  /// This is approximately the time to wake two threads: before a caller adds its next job, the
  /// caller itself must be woken.
  private static let pollingTime = Duration.microseconds(100)

  private let scheduler = Mutex(IOScheduler<ThreadIdentity>())
  private let changed = DispatchSemaphore(value: 0)
  /// Whether the polling thread must stop polling.
  private let mustEndPolling = Atomic(false)

  func add(_ job: @escaping Job) { changeScheduler { $0.add(job) } }

  func add(_ job: @escaping Job, at instant: ContinuousClock.Instant) {
    changeScheduler { $0.add(job, at: instant) }
  }

  func tryToExcludeOtherJobs() -> Bool { scheduler.withLock { $0.tryToActivate(.current) } }

  /// Performs a job on the calling thread, if no other job is being performed or is waiting.
  ///
  /// - Returns: Whether the job was performed.
  func performOnCallerIfIdle(_ job: () -> Void) -> Bool {
    guard scheduler.withLock({ $0.beginOutsideJob(at: .now) }) else { return false }
    job()
    wakeIfNeeded { scheduler in scheduler.endOutsideJob() }
    return true
  }

  /// Lets the other thread perform the next jobs, while the calling thread continues its job.
  func allowOtherJobs() { changeScheduler { $0.deactivate(.current) } }

  func end() {
    scheduler.withLock { $0.endWhenIdle() }
    for _ in 0..<2 { changed.signal() }
  }

  /// Performs jobs on the calling thread, until ``end()`` was called and no jobs are left.
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

  /// Changes the scheduler, and wakes a thread if the change makes that necessary.
  private func changeScheduler(_ body: (inout IOScheduler<ThreadIdentity>) -> Void) {
    wakeIfNeeded { scheduler in
      body(&scheduler)
      return scheduler.countWakeUpIfNeeded()
    }
  }

  /// Changes the scheduler, and wakes a thread if `change` returns `true`.
  private func wakeIfNeeded(after change: (inout IOScheduler<ThreadIdentity>) -> Bool) {
    let wakes = scheduler.withLock { scheduler in
      let wakes = change(&scheduler)
      if scheduler.mustEndPolling { mustEndPolling.store(true, ordering: .relaxed) }
      return wakes
    }
    if wakes { changed.signal() }
  }

  /// Waits for a job without sleeping, but lets other threads use the processor.
  private func pollForJob() {
    let end = ContinuousClock.now + Self.pollingTime
    while !mustEndPolling.load(ordering: .relaxed), ContinuousClock.now < end { sched_yield() }
  }
}
