/// Jobs, and whose turn it is to do them: a value, for threads of which one at a time has its turn.
///
/// Some jobs need no turn: whichever thread is free does them, beside the one that has it.
///
/// A thread that has done a job and finds no other watches for one for a moment before it sleeps: to
/// be woken takes as long as a good part of a flush, and whoever stores one thing after another comes
/// back at once. Where nobody does, it seldom tries; beside a flush it never does.
struct IOTurns<Thread: Equatable & Sendable>: Sendable {
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

  private var jobs: [Job] = []
  /// Those that need no turn.
  private var jobsBeside: [Job] = []
  private var delayedJobs: [(instant: Instant, job: Job)] = []
  /// The thread whose turn it is.
  private var owner: Thread?
  /// Those that do something beside the one whose turn it is.
  private var handedOn: [Thread] = []
  /// The thread that watches, and need not be woken.
  private var watcher: Thread?
  private var sleepers: [Thread] = []
  /// How many sleepers were woken and have not asked yet.
  private var wakingCount = 0
  /// How many watches are left out after the next one that is in vain.
  private var penalty = 1
  private var skippedWatches = 0
  private var isEnding = false

  /// Whether a job is there for the thread that watches.
  var endsWatch: Bool {
    watcher != nil && (owner == nil && !jobs.isEmpty || !jobsBeside.isEmpty)
  }

  mutating func add(_ job: @escaping Job) { jobs.append(job) }

  mutating func add(_ job: @escaping Job, at instant: Instant) {
    delayedJobs.append((instant, job))
  }

  /// Adds a job that needs no turn.
  mutating func addBeside(_ job: @escaping Job) { jobsBeside.append(job) }

  /// The turn of a thread is over, if it has it, and what it does next it does beside the others.
  mutating func handOn(_ thread: Thread) {
    guard owner == thread else { return }
    owner = nil
    handedOn.append(thread)
  }

  /// A thread that has handed its turn on takes the next one; whether it is nobody's.
  mutating func takeTurn(_ thread: Thread) -> Bool {
    guard owner == nil else { return false }
    handedOn.removeAll { $0 == thread }
    owner = thread
    return true
  }

  /// The threads end when all jobs are done.
  mutating func end() { isEnding = true }

  /// Whether to wake a thread: more are needed than watch, or were woken.
  ///
  /// One is needed if there are jobs, now or later, and it is nobody's turn, and one for each job
  /// that needs no turn.
  mutating func takeWakeUp() -> Bool {
    let isIdle = owner != nil || jobs.isEmpty && delayedJobs.isEmpty
    let neededCount = (isIdle ? 0 : 1) + jobsBeside.count
    let awakeCount = wakingCount + (watcher == nil ? 0 : 1)
    guard neededCount > awakeCount, sleepers.count > wakingCount else { return false }
    wakingCount += 1
    return true
  }

  /// What a thread does next, which may just have done a job; its turn is over if it had it.
  mutating func next(for thread: Thread, _ now: Instant) -> Step {
    if let sleeper = sleepers.firstIndex(of: thread) {
      sleepers.remove(at: sleeper)
      wakingCount = max(0, wakingCount - 1)
    }
    let hasWorked = owner == thread || handedOn.contains(thread)
    if owner == thread { owner = nil }
    handedOn.removeAll { $0 == thread }
    let jobBeside = jobsBeside.isEmpty ? nil : jobsBeside.removeFirst()
    let job = jobBeside == nil && owner == nil ? takeJob(now) : nil
    if watcher == thread { endWatch(wasInVain: jobBeside == nil && job == nil) }
    if let jobBeside {
      handedOn.append(thread)
      return .perform(jobBeside)
    }
    if let job {
      owner = thread
      return .perform(job)
    }
    if isEnding { return .end }
    if hasWorked, owner == nil, watcher == nil, handedOn.isEmpty, beginsWatch() {
      watcher = thread
      return .watch
    }
    sleepers.append(thread)
    // Whoever has the turn looks after the delayed jobs.
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

  /// A delayed job that is due comes first: there may always be others.
  private mutating func takeJob(_ now: Instant) -> Job? {
    let next = delayedJobs.indices.min { delayedJobs[$0].instant < delayedJobs[$1].instant }
    if let next, delayedJobs[next].instant <= now { return delayedJobs.remove(at: next).job }
    return jobs.isEmpty ? nil : jobs.removeFirst()
  }
}
