import Synchronization

@testable import SteadfastQueue

/// Runs Swift tasks and a store's jobs on the thread that asks for it, one at a time, so that a run
/// is the same each time.
final class ManualExecutor: TaskExecutor, JobThread {
  private struct State {
    var tasks: [(job: UnownedJob, moment: Int)] = []
    var jobs: [@Sendable () -> Void] = []
    /// Jobs for when time has passed.
    var delayedJobs: [@Sendable () -> Void] = []
    /// Whether what runs now has the turn.
    var hasTurn = false
    /// Whether a job that asks for the turn again is refused, as if another job had it.
    var refusesTurns = false
    /// Whether callers must leave all jobs to the thread.
    var refusesGuests = false
    /// Whether a caller has the turn.
    var isGuest = false
    /// What happens before a caller does its own job.
    var beforeGuest: (@Sendable () -> Void)?
    /// What happens while a job yields its turn.
    var meanwhile: (@Sendable () -> Void)?
    /// The moment at which what runs now became able to run.
    var presentMoment = 0
  }

  private let state = Mutex(State())
  /// Tells the moment.
  private let now: @Sendable () -> Int

  init(now: @escaping @Sendable () -> Int) { self.now = now }

  /// The moment at which the task that runs now was resumed.
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

  /// Does a job at once, unless another has the turn or waits for it, or callers are refused.
  func performNow(_ job: () -> Void) -> Bool {
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
      // The caller has its answer now, and is not suspended in between.
      state.presentMoment = moment
    }
    return true
  }

  /// Whether a caller has the turn, which does its own job.
  var isGuest: Bool { state.withLock { $0.isGuest } }

  /// Sets what happens before a caller does its own job.
  func beforeGuests(_ body: @escaping @Sendable () -> Void) {
    state.withLock { $0.beforeGuest = body }
  }

  /// From now on, all jobs are left to the thread.
  func refuseGuests() { state.withLock { $0.refusesGuests = true } }

  /// Takes the turn again, unless turns are refused.
  ///
  /// What happened while the job had yielded its turn has ended by then.
  func takeTurn() -> Bool {
    state.withLock { state in
      if !state.refusesTurns { state.hasTurn = true }
      return state.hasTurn
    }
  }

  /// Whether what runs now may write to the file.
  var hasTurn: Bool { state.withLock { $0.hasTurn } }

  /// From now on, refuses the turn to jobs that ask for it again, as if another job had it.
  func refuseTurns() { state.withLock { $0.refusesTurns = true } }

  /// Does the body and then, if there is something, what happens during it.
  ///
  /// The end of the body is seen only after that.
  func yieldTurn<Result, Failure: Error>(
    during body: () throws(Failure) -> Result
  ) throws(Failure) -> Result {
    state.withLock { $0.hasTurn = false }
    defer { state.withLock { $0.meanwhile }?() }
    return try body()
  }

  /// Sets what happens while a job yields its turn.
  func whileHandedOn(_ body: @escaping @Sendable () -> Void) {
    state.withLock { $0.meanwhile = body }
  }

  /// The time of the delayed jobs has come.
  func letTimePass() {
    state.withLock { state in
      state.jobs += state.delayedJobs
      state.delayedJobs = []
    }
  }

  /// Ends the process: its remaining jobs are not done.
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

  /// Performs the body and all jobs that follow from it.
  func run<Value: Sendable>(
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let task = Task(executorPreference: self) { try await body() }
    runAll()
    return try await task.value
  }

  /// Performs the body as `run(_:)` does, and then everything that is left to do.
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
