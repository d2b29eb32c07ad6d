import Synchronization

@testable import SteadfastQueue

/// Runs Swift tasks and a store's jobs one at a time on the calling thread, deterministically.
final class ManualExecutor: TaskExecutor, JobThread {
  private struct State {
    var tasks: [(job: UnownedJob, moment: Int)] = []
    var jobs: [@Sendable () -> Void] = []
    /// Jobs that were added with a delay.
    var delayedJobs: [@Sendable () -> Void] = []
    /// Whether the current job has the turn: exclusive access to the file.
    var hasTurn = false
    /// Whether a job that has yielded the turn can't take it again, as if another job had the turn.
    var refusesTurns = false
    /// Whether callers may not do their own jobs at once.
    var refusesGuests = false
    /// Whether a guest has the turn: a caller that does its own job at once.
    var isGuest = false
    /// A closure to call before a guest does its job.
    var beforeGuest: (@Sendable () -> Void)?
    /// A closure to call while a job yields its turn.
    var duringYield: (@Sendable () -> Void)?
    /// The moment at which the current Swift task became ready to run.
    var presentMoment = 0
  }

  private let state = Mutex(State())
  private let now: @Sendable () -> Int

  init(now: @escaping @Sendable () -> Int) { self.now = now }

  /// The moment at which the current Swift task was resumed.
  var resumptionMoment: Int { state.withLock { $0.presentMoment } }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let moment = now()
    state.withLock { $0.tasks.append((job, moment)) }
  }

  func add(_ job: @escaping @Sendable () -> Void) {
    state.withLock { $0.jobs.append(job) }
  }

  func add(after delay: Duration, _ job: @escaping @Sendable () -> Void) {
    state.withLock { $0.delayedJobs.append(job) }
  }

  /// Does the job at once, unless another job has the turn or is waiting, or guests are refused.
  func performOnCallerIfIdle(_ job: () -> Void) -> Bool {
    let isFree = state.withLock { state in
      guard !state.hasTurn, state.jobs.isEmpty, !state.refusesGuests else { return false }
      (state.hasTurn, state.isGuest) = (true, true)
      return true
    }
    guard isFree else { return false }
    state.withLock { $0.beforeGuest }?()
    job()
    let moment = now()
    state.withLock { state in
      (state.hasTurn, state.isGuest) = (false, false)
      // The caller gets its result now, without being suspended.
      state.presentMoment = moment
    }
    return true
  }

  var isGuest: Bool { state.withLock { $0.isGuest } }

  /// Sets a closure to call before a guest does its job.
  func beforeGuests(_ body: @escaping @Sendable () -> Void) {
    state.withLock { $0.beforeGuest = body }
  }

  /// Makes callers leave all jobs to the thread from now on.
  func refuseGuests() { state.withLock { $0.refusesGuests = true } }

  /// Takes the turn for the current job again, and returns whether that succeeded.
  ///
  /// This fails after ``refuseTurns()``.
  func tryToExcludeOtherJobs() -> Bool {
    state.withLock { state in
      if !state.refusesTurns { state.hasTurn = true }
      return state.hasTurn
    }
  }

  /// Whether the current job has the turn, and so may write to the file.
  var hasTurn: Bool { state.withLock { $0.hasTurn } }

  /// Makes ``tryToExcludeOtherJobs()`` fail from now on, as if another job had the turn.
  func refuseTurns() { state.withLock { $0.refusesTurns = true } }

  /// Runs the body and then the closure of ``onYield(_:)``, as if they ran concurrently.
  ///
  /// The job continues only after both have returned.
  func performBesideOtherJobs<Result, Failure: Error>(
    _ body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    state.withLock { $0.hasTurn = false }
    defer { state.withLock { $0.duringYield }?() }
    return try body()
  }

  /// Sets a closure to call while a job yields its turn.
  func onYield(_ body: @escaping @Sendable () -> Void) {
    state.withLock { $0.duringYield = body }
  }

  /// Makes all delayed jobs due.
  func letTimePass() {
    state.withLock { state in
      state.jobs += state.delayedJobs
      state.delayedJobs = []
    }
  }

  /// Drops the remaining jobs, as if the process had ended.
  func dropJobs() {
    state.withLock { state in
      state.jobs = []
      state.delayedJobs = []
    }
  }

  /// Runs all tasks until each of them waits for a job.
  func runTasks() {
    while true {
      let next = state.withLock { state -> UnownedJob? in
        guard !state.tasks.isEmpty else { return nil }
        let first = state.tasks.removeFirst()
        state.presentMoment = first.moment
        return first.job
      }
      guard let next else { return }
      unsafe next.runSynchronously(on: asUnownedTaskExecutor())
    }
  }

  /// Runs the body and all jobs that the body causes.
  func run<Value: Sendable>(
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let task = Task(executorPreference: self) { try await body() }
    runAll()
    return try await task.value
  }

  /// Runs the body, and then all remaining Swift tasks and jobs.
  func runToEnd(_ body: @escaping @Sendable () async throws -> Void) async throws {
    try await run(body)
    runAll()
  }

  /// Runs all tasks and does all jobs, until nothing is left to do.
  func runAll() {
    repeat { runTasks() } while doJob()
  }

  /// Does the first job, and returns whether there was one.
  func doJob() -> Bool {
    let (job, hadTurn) = state.withLock { state -> ((@Sendable () -> Void)?, Bool) in
      guard !state.jobs.isEmpty else { return (nil, state.hasTurn) }
      defer { state.hasTurn = true }
      return (state.jobs.removeFirst(), state.hasTurn)
    }
    job?()
    state.withLock { $0.hasTurn = hadTurn }
    return job != nil
  }
}
