/// The jobs of several threads, and which thread has the turn to do them.
///
/// This is a value. One thread at a time has the turn. Some jobs need no turn: any free thread does
/// them, while another one may have the turn.
///
/// A thread that has done a job and finds no other watches for one for a moment before it sleeps.
/// Waking a thread takes a good part of the time of a flush, and a caller that stores one change
/// after another comes back at once. If no caller comes back, threads seldom watch. During a flush
/// they never do.
struct IOScheduler<Thread: Equatable & Sendable>: Sendable {
  typealias Job = @Sendable () -> Void
  typealias Instant = ContinuousClock.Instant

  enum Step {
    case perform(Job)
    /// Ask again when a job has come, or a moment has passed.
    case watch
    /// Ask again when woken, or at this instant.
    case sleep(until: Instant?)
    case end
  }

  private static var mostSkippedWatches: Int { 64 }

  private var jobs = FIFOQueue<Job>()
  /// The jobs that need no turn.
  private var concurrentJobs = FIFOQueue<Job>()
  private var delayedJobs: [(instant: Instant, job: Job)] = []
  /// The thread that has the turn.
  private var owner: Thread?
  /// The threads that do something without having the turn.
  private var yielded: [Thread] = []
  /// The thread that watches, and need not be woken.
  private var watcher: Thread?
  private var sleepers: [Thread] = []
  /// How many sleepers were woken and have not asked yet.
  private var wakingCount = 0
  /// How many watches are left out after the next one that finds no job.
  private var penalty = 1
  private var skippedWatches = 0
  private var isEnding = false

  /// Whether there is a job for the thread that watches.
  var endsWatch: Bool {
    watcher != nil && (owner == nil && !jobs.isEmpty || !concurrentJobs.isEmpty)
  }

  mutating func add(_ job: @escaping Job) { jobs.append(job) }

  mutating func add(_ job: @escaping Job, at instant: Instant) {
    delayedJobs.append((instant, job))
  }

  /// Adds a job that needs no turn.
  mutating func addConcurrent(_ job: @escaping Job) { concurrentJobs.append(job) }

  /// Ends the turn of a thread, if it has the turn.
  ///
  /// What the thread does next, it does while another thread may have the turn.
  mutating func yieldTurn(_ thread: Thread) {
    guard owner == thread else { return }
    owner = nil
    yielded.append(thread)
  }

  /// Gives the turn to a thread that has handed it on, unless another thread has it.
  ///
  /// - Returns: Whether the thread has the turn.
  mutating func takeTurn(_ thread: Thread) -> Bool {
    guard owner == nil else { return false }
    yielded.removeAll { $0 == thread }
    owner = thread
    return true
  }

  /// Lets the threads end when all jobs are done.
  mutating func end() { isEnding = true }

  /// Returns whether to wake a thread, and counts it as woken.
  ///
  /// A thread is to be woken if more are needed than watch or were woken. One is needed if there
  /// are jobs, now or later, and no thread has the turn. One more is needed for each job that needs
  /// no turn.
  mutating func takeWakeUp() -> Bool {
    let isIdle = owner != nil || jobs.isEmpty && delayedJobs.isEmpty
    let neededCount = (isIdle ? 0 : 1) + concurrentJobs.count
    let awakeCount = wakingCount + (watcher == nil ? 0 : 1)
    guard neededCount > awakeCount, sleepers.count > wakingCount else { return false }
    wakingCount += 1
    return true
  }

  /// Returns what a thread does next.
  ///
  /// The thread may just have done a job. If it had the turn, its turn is over.
  mutating func next(for thread: Thread, _ now: Instant) -> Step {
    if let sleeper = sleepers.firstIndex(of: thread) {
      sleepers.remove(at: sleeper)
      wakingCount = max(0, wakingCount - 1)
    }
    let hasWorked = owner == thread || yielded.contains(thread)
    if owner == thread { owner = nil }
    yielded.removeAll { $0 == thread }
    let concurrentJob = concurrentJobs.popFirst()
    let job = concurrentJob == nil && owner == nil ? takeJob(now) : nil
    if watcher == thread { endWatch(wasInVain: concurrentJob == nil && job == nil) }
    if let concurrentJob {
      yielded.append(thread)
      return .perform(concurrentJob)
    }
    if let job {
      owner = thread
      return .perform(job)
    }
    if isEnding { return .end }
    if hasWorked, owner == nil, watcher == nil, yielded.isEmpty, beginsWatch() {
      watcher = thread
      return .watch
    }
    sleepers.append(thread)
    // If a thread has the turn, that one looks after the delayed jobs.
    return .sleep(until: owner == nil ? delayedJobs.lazy.map(\.instant).min() : nil)
  }

  private mutating func beginsWatch() -> Bool {
    guard skippedWatches > 0 else { return true }
    skippedWatches -= 1
    return false
  }

  private mutating func endWatch(wasInVain: Bool) {
    watcher = nil
    skippedWatches = wasInVain ? penalty : 0
    penalty = wasInVain ? min(2 * penalty, Self.mostSkippedWatches) : 1
  }

  /// Takes the next job.
  ///
  /// A delayed job that is due comes first, because the others may never run out.
  private mutating func takeJob(_ now: Instant) -> Job? {
    let next = delayedJobs.indices.min { delayedJobs[$0].instant < delayedJobs[$1].instant }
    if let next, delayedJobs[next].instant <= now { return delayedJobs.remove(at: next).job }
    return jobs.popFirst()
  }
}
