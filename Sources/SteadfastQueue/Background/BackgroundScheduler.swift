#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Runs the most important of several recurring tasks within the time that the system grants.
///
/// ```swift
/// let scheduler = BackgroundScheduler(persistence: .jsonFile(at: url))
/// await scheduler.register(
///   "inbox",
///   priority: .veryHigh,
///   expectedDuration: .seconds(5)
/// ) {
///   try await inbox.fetch() ? .newData : .noData
/// }
/// let result = try await scheduler.run(within: .seconds(25))
/// ```
///
/// An app that is woken in the background has some seconds, and more to do than fits. Each call of
/// ``run(within:)`` is a pass: it ranks the tasks by their priority × the time since their last
/// run, and runs those whose average duration fits into what is left of the time. So all of them
/// have their turn, the important ones more often. The rule is that of Selene, which took it from
/// the scheduler of Linux.
///
/// When tasks have run, and how long they took, is a value of the store, and so outlasts the
/// process. The store may be that of a ``TaskQueue``.
public actor BackgroundScheduler {
  struct Registration: Sendable {
    let name: String
    let priority: BackgroundPriority
    let expectedDuration: Duration
    /// Of how many runs the average duration is the mean.
    let averaging: Int
    let perform: @Sendable () async throws -> BackgroundResult

    func result() async -> Result<BackgroundResult, any Error> {
      do {
        return .success(try await perform())
      } catch {
        return .failure(error)
      }
    }
  }

  /// What has the turn: one pass, one run of a single task, or one reset at a time.
  enum Activity { case pass, other }

  /// The scheduler's name: schedulers on one store with different names know nothing of each other.
  public nonisolated let name: String
  /// How long after the beginning of a pass the next one may begin.
  public nonisolated let minimumInterval: Duration
  nonisolated let store: any Persistence
  nonisolated let time: QueueTime

  /// In the order of registration.
  var tasks: [Registration] = []
  var activity: Activity?
  /// Calls that share the result of the pass under way.
  nonisolated let passEnd = Waiters<BackgroundResult>()
  /// Calls that wait for a turn of their own.
  nonisolated let turnEnd = Waiters<Void>()
  /// Why the last run of a task failed in this process.
  var errors: [String: any Error] = [:]
  private var refusal: TaskQueueError?

  /// Makes a scheduler without tasks.
  ///
  /// Nothing is opened or run yet.
  ///
  /// - Parameters:
  ///   - name: the name under which the store has what the scheduler knows: 1 to 512 bytes of UTF-8
  ///     without NUL.
  ///   - persistence: the store; by default in memory, so that nothing outlasts the process.
  ///   - minimumInterval: how long after the beginning of a pass the next one may begin; zero or
  ///     more. A call of ``run(within:)`` before that runs nothing.
  ///   - clock: the clock that it sleeps on and reads dates from.
  public init(
    name: String = "default",
    persistence: some Persistence = InMemoryStore(),
    minimumInterval: Duration = .zero,
    clock: some WallClock = ContinuousClock()
  ) {
    self.name = name
    self.minimumInterval = minimumInterval
    store = persistence
    time = QueueTime(clock)
    if let fault = Self.fault(inName: name) {
      refusal = Self.refusal("the name of a background scheduler \(fault)")
    } else if minimumInterval < .zero {
      refusal = Self.refusal("minimumInterval is \(minimumInterval); give 0 or more")
    }
  }

  /// Registers a task, in place of the one with the same name if there is one.
  ///
  /// The closure returns what it has brought, or throws if it could not do its work. It runs on the
  /// concurrent executor unless it is isolated to an actor. When the time is up, its Swift task is
  /// cancelled; let it end soon then.
  ///
  /// It is a mistake to give an empty name or one that is too long, a duration below zero, or to
  /// average less than one or more than 100 runs. The task is then not registered, and each later
  /// call that can throw throws a ``TaskQueueError`` that says why.
  ///
  /// What the scheduler knows of all its tasks has at most 64 KiB. If it has more, because averages
  /// of many runs are kept for dozens of tasks, they become averages of fewer runs.
  ///
  /// - Parameters:
  ///   - name: the task's name, under which the store has its history: 1 to 512 bytes of UTF-8
  ///     without NUL.
  ///   - priority: how important it is.
  ///   - expectedDuration: how long a run takes, as long as none was measured; from zero on.
  ///   - count: of how many runs the average duration is the mean; by default of the last 3.
  ///   - perform: the closure that does the work.
  public func register(
    _ name: String,
    priority: BackgroundPriority = .normal,
    expectedDuration: Duration,
    averaging count: Int = 3,
    perform: @escaping @Sendable () async throws -> BackgroundResult
  ) {
    if let fault = Self.fault(inName: name) {
      return refuse("the name of a background task \(fault)")
    }
    if expectedDuration < .zero {
      return refuse("the expectedDuration of '\(name)' is \(expectedDuration); give 0 or more")
    }
    if !(1...100).contains(count) {
      return refuse("the average duration of '\(name)' is that of \(count) runs; give 1 to 100")
    }
    let task = Registration(
      name: name,
      priority: priority,
      expectedDuration: expectedDuration,
      averaging: count,
      perform: perform
    )
    if let index = tasks.firstIndex(where: { $0.name == name }) {
      tasks[index] = task
    } else {
      tasks.append(task)
    }
  }

  /// The store has both names: that of the scheduler as a part of a value's name, which has at most
  /// 1,024 bytes.
  private static let longestName = 512

  /// Returns what is wrong with the name of a scheduler or of a task.
  private static func fault(inName name: String) -> String? {
    if name.isEmpty { return "is empty; give it a name" }
    if name.hasNUL { return "has a NUL (U+0000), which a database can't store; leave it out" }
    guard name.utf8.count > longestName else { return nil }
    return "has \(name.utf8.count) bytes of UTF-8; give it at most \(longestName)"
  }

  private func refuse(_ message: String) { refusal = refusal ?? Self.refusal(message) }

  private static func refusal(_ message: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, message)
  }

  /// Throws if the scheduler was made, or a task registered, in a way that makes no sense.
  func checkCanRun() throws {
    if let refusal { throw refusal }
    try Task.checkCancellation()
  }

  /// What the scheduler knows of its tasks, in the order in which a pass would take them now.
  public var status: [BackgroundTaskStatus] {
    get async throws {
      if let refusal { throw refusal }
      let history = try await history()
      let ranking = ranking(history, now: time.now)
      return ranking.order.map { index in
        BackgroundTaskStatus(
          name: tasks[index].name,
          priority: tasks[index].priority,
          averageDuration: averageDuration(of: tasks[index], history),
          lastRunDate: history.lastRun(of: tasks[index].name),
          lastError: errors[tasks[index].name].map { String(describing: $0) }
        )
      }
    }
  }

  /// Forgets when tasks have run and how long they took, once nothing runs any more.
  ///
  /// The tasks stay registered.
  ///
  /// - Throws: `CancellationError` if it is cancelled while it waits; what the store throws.
  public func reset() async throws {
    try await inTurn(.other) {
      errors = [:]
      try await changeHistory { $0 = nil }
    }
  }
}

/// What a scheduler knows of a background task.
public struct BackgroundTaskStatus: Sendable, Hashable {
  /// The task's name.
  public let name: String
  /// How important it is.
  public let priority: BackgroundPriority
  /// How long its last runs took on average, or how long it was expected to take.
  public let averageDuration: Duration
  /// When it has begun last; `nil` if it never has.
  public let lastRunDate: Date?
  /// Why its last run failed, if it has failed in this process.
  public let lastError: String?
}
