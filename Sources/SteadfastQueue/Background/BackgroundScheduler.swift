public import SystemFoundation

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
/// An app that the system wakes in the background has a few seconds, and often has more work than
/// fits. Each call of ``run(within:)`` is a pass: it ranks the tasks by their priority × the time
/// since their last run, and runs those whose average duration fits into the remaining time. So
/// every task runs sooner or later, and important ones more often. The rule comes from Selene,
/// which took it from the scheduler of Linux.
///
/// The scheduler stores when tasks have run, and how long they took, so that the ranking survives a
/// restart. A ``TaskQueue`` may use the same store.
public actor BackgroundScheduler {
  struct Registration: Sendable {
    let name: String
    let priority: BackgroundPriority
    let expectedDuration: Duration
    /// The number of runs in the average duration.
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

  /// What the scheduler is doing: running a pass, or something else, such as a reset.
  enum Activity { case pass, other }

  /// The scheduler's name; schedulers on one store with different names are independent.
  public nonisolated let name: String
  /// The minimum time from the beginning of a pass to the beginning of the next one.
  public nonisolated let minimumInterval: Duration
  nonisolated let store: any Persistence
  nonisolated let time: QueueTime

  /// The tasks, in the order of registration.
  var tasks: [Registration] = []
  var activity: Activity?
  /// The calls that wait for the result of the current pass, and return the same result.
  nonisolated let passEnd = Waiters<BackgroundResult>()
  /// The calls that wait until the current activity ends.
  nonisolated let activityEnd = Waiters<Void>()
  /// The errors of the tasks whose last run in this process failed, by name.
  var errors: [String: any Error] = [:]
  private var argumentError: TaskQueueError?

  /// Makes a scheduler without tasks.
  ///
  /// Nothing is opened or run yet.
  ///
  /// - Parameters:
  ///   - name: the name under which the scheduler's history is stored: 1 to 512 bytes of UTF-8
  ///     without NUL.
  ///   - persistence: the store; by default in memory, so that nothing outlasts the process.
  ///   - minimumInterval: the minimum time from the beginning of a pass to the beginning of the
  ///     next one; zero or more. A call of ``run(within:)`` before that runs nothing.
  ///   - clock: the clock on which the scheduler sleeps, and from which it reads dates.
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
    if let problem = Self.problem(withName: name) {
      argumentError = Self.invalidArgumentError("the name of a background scheduler \(problem)")
    } else if minimumInterval < .zero {
      argumentError = Self.invalidArgumentError(
        "minimumInterval is \(minimumInterval); give 0 or more"
      )
    }
  }

  /// Registers a task, which replaces any task with the same name.
  ///
  /// The closure returns its result, or throws if it could not do its work. The closure runs on the
  /// concurrent executor unless it is isolated to an actor. When the time is up, the closure's
  /// Swift task is cancelled, and the closure should end soon.
  ///
  /// If the name is empty, too long or contains NUL, if the duration is negative, or if the average
  /// is of less than one or more than 100 runs, the task is not registered. Then each later call
  /// that can throw throws a ``TaskQueueError`` that says what is wrong.
  ///
  /// The history of all tasks has at most 64 KiB. If it would have more, because averages of many
  /// runs are stored for dozens of tasks, it stores averages of fewer runs.
  ///
  /// - Parameters:
  ///   - name: the task's name, under which its history is stored: 1 to 512 bytes of UTF-8 without
  ///     NUL.
  ///   - priority: how important the task is.
  ///   - expectedDuration: the duration to assume until a run has been measured; zero or more.
  ///   - count: the number of runs in the average duration; by default the last 3.
  ///   - perform: the closure that does the work.
  public func register(
    _ name: String,
    priority: BackgroundPriority = .normal,
    expectedDuration: Duration,
    averaging count: Int = 3,
    perform: @escaping @Sendable () async throws -> BackgroundResult
  ) {
    if let problem = Self.problem(withName: name) {
      return recordInvalidArgument("the name of a background task \(problem)")
    }
    if expectedDuration < .zero {
      return recordInvalidArgument(
        "the expectedDuration of '\(name)' is \(expectedDuration); give 0 or more"
      )
    }
    if !(1...100).contains(count) {
      return recordInvalidArgument(
        "the average duration of '\(name)' is over \(count) runs; give 1 to 100"
      )
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

  /// The maximum length of the name of a scheduler or a task, in bytes of UTF-8.
  ///
  /// The scheduler's name becomes part of the name of a stored value, which may have at most 1,024
  /// bytes.
  private static let maxNameLength = 512

  /// Returns what is wrong with the name of a scheduler or of a task, as the end of a sentence;
  /// `nil` if the name is valid.
  private static func problem(withName name: String) -> String? {
    if name.isEmpty { return "is empty; give a name of 1 to \(maxNameLength) bytes of UTF-8" }
    if name.hasNUL { return "has a NUL (U+0000), which a database can't store; remove the NUL" }
    guard name.utf8.count > maxNameLength else { return nil }
    return "has \(name.utf8.count) bytes of UTF-8; give a name of at most \(maxNameLength)"
  }

  private func recordInvalidArgument(_ message: String) {
    argumentError = argumentError ?? Self.invalidArgumentError(message)
  }

  private static func invalidArgumentError(_ message: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, message)
  }

  /// Throws if the scheduler was made, or a task was registered, with invalid arguments, or if the
  /// call is cancelled.
  func checkCanRun() throws {
    if let argumentError { throw argumentError }
    try Task.checkCancellation()
  }

  /// The state of the tasks, in the order in which a pass would run them now.
  public var status: [BackgroundTaskStatus] {
    get async throws {
      if let argumentError { throw argumentError }
      let history = try await readHistory()
      let ranking = ranking(from: history, now: time.now)
      return ranking.order.map { index in
        BackgroundTaskStatus(
          name: tasks[index].name,
          priority: tasks[index].priority,
          averageDuration: averageDuration(of: tasks[index], in: history),
          lastRunDate: history.lastRun(of: tasks[index].name),
          lastError: errors[tasks[index].name].map { String(describing: $0) }
        )
      }
    }
  }

  /// Waits until no task runs, and then clears the history: when tasks have run, and how long they
  /// took.
  ///
  /// The tasks stay registered.
  ///
  /// - Throws: `CancellationError` if the call is cancelled while it waits; any error of the store.
  public func reset() async throws {
    try await runAlone(as: .other) {
      errors = [:]
      try await changeHistory { $0 = nil }
    }
  }
}

/// The state of a background task.
public struct BackgroundTaskStatus: Sendable, Hashable {
  /// The task's name.
  public let name: String
  /// How important the task is.
  public let priority: BackgroundPriority
  /// How long the task's last runs took on average; before the first run, the expected duration.
  public let averageDuration: Duration
  /// When the task's last run began; `nil` if it has never run.
  public let lastRunDate: Date?
  /// Why the task's last run failed, if it ran in this process and failed.
  public let lastError: String?
}

/// The passes of a scheduler.
extension BackgroundScheduler {
  /// Runs the tasks that rank first and fit into the time, all at the same time.
  ///
  /// A task's score is the product of two fractions: its priority divided by the highest priority,
  /// and the time since its last run divided by the longest such time. A task that has never run
  /// ranks as if it had waited longest. Of tasks with equal scores, those that have never run come
  /// first, then those that were registered first. In this order, each task runs if its average
  /// duration fits into the remaining budget. A task that takes longer than the whole budget runs
  /// alone when it comes first, and is cancelled at the end of the budget.
  ///
  /// The tasks are child tasks of the call: they are cancelled when the call is cancelled, and at
  /// the end of the budget. The call returns when all of them have ended, so a closure that ignores
  /// cancellation makes the pass longer. A run that takes longer than the budget, or fails, counts
  /// for the average like any other. A run that is cut short because the call is cancelled does not
  /// count.
  ///
  /// A call during a pass starts nothing, and returns the result of that pass. If the call that
  /// started the pass is cancelled, the other calls get the result so far.
  ///
  /// - Parameter budget: how long the tasks may run; with zero or less, no task runs. The budget
  ///   includes the time to read the store before the tasks run, but not the time to store their
  ///   durations afterwards.
  /// - Returns: ``BackgroundResult/newData`` if any task had new data, else
  ///   ``BackgroundResult/failed`` if any task has failed, else ``BackgroundResult/noData``, even
  ///   if no task ran.
  /// - Throws: `CancellationError` when the call is cancelled; a ``TaskQueueError`` if the
  ///   scheduler was made, or a task was registered, with invalid arguments; any error of the
  ///   store. If the store throws after the tasks have run, the next pass does not know their
  ///   durations.
  public func run(within budget: Duration) async throws -> BackgroundResult {
    try checkCanRun()
    let end = time.deadline(after: budget)
    while activity == .other { try await activityEnd.wait { nil } }
    if activity == .pass { return try await passEnd.wait { nil } }
    return try await runAlone(as: .pass) { try await runPass(until: end) }
  }

  /// Runs one task now, whatever its rank and the minimum interval.
  ///
  /// If a pass is running, the call waits until the pass has ended. The task may run for the time
  /// that then remains, and its run is stored as in a pass.
  ///
  /// - Parameters:
  ///   - name: the name of a registered task.
  ///   - budget: how long the call may take.
  /// - Returns: The task's result; ``BackgroundResult/failed`` if it has thrown.
  /// - Throws: A ``TaskQueueError`` with the code ``TaskQueueError/Code/unknownTask`` if no task of
  ///   this name is registered; the same errors as ``run(within:)``.
  public func run(_ name: String, within budget: Duration) async throws -> BackgroundResult {
    try checkCanRun()
    guard let task = tasks.first(where: { $0.name == name }) else {
      throw TaskQueueError(
        .unknownTask,
        "no background task with the name '\(name)' is registered with the scheduler '\(self.name)'; "
          + "register it first, or check the name"
      )
    }
    let end = time.deadline(after: budget)
    return try await runAlone(as: .other) {
      try await store.open()
      return try await run([task], until: end, isPass: false)
    }
  }

  /// Waits until the scheduler does nothing else, and performs the body.
  func runAlone<Result: Sendable>(
    as activity: Activity,
    _ body: () async throws -> Result
  ) async throws -> Result {
    while self.activity != nil { try await activityEnd.wait { nil } }
    self.activity = activity
    defer {
      self.activity = nil
      activityEnd.resumeAll(with: .success(()))
    }
    return try await body()
  }

  /// Runs a pass, and also gives its result to the calls that were made during the pass.
  private func runPass(until end: Duration) async throws -> BackgroundResult {
    let result: BackgroundResult
    do {
      let history = try await readHistory()
      let now = time.now
      if let next = history.earliestNextPass(interval: minimumInterval, now: now), now < next {
        result = .noData
      } else {
        let left = end - time.stopwatch()
        let chosen = ranking(from: history, now: now).selection(within: left).map { tasks[$0] }
        result = try await run(chosen, until: end, isPass: true)
      }
    } catch {
      passEnd.resumeAll(with: .failure(error))
      throw error
    }
    passEnd.resumeAll(with: .success(result))
    try Task.checkCancellation()
    return result
  }

  func ranking(from history: BackgroundHistory, now: Date) -> BackgroundRanking {
    BackgroundRanking(
      tasks.map { task in
        BackgroundRanking.Candidate(
          priority: task.priority,
          averageDuration: averageDuration(of: task, in: history),
          lastRun: history.lastRun(of: task.name),
          since: history.firstPass(with: task.name)
        )
      },
      now: now
    )
  }

  func averageDuration(of task: Registration, in history: BackgroundHistory) -> Duration {
    history.averageDuration(of: task.name) ?? task.expectedDuration
  }

  // MARK: Running

  private struct EndedRun: Sendable {
    let index: Int
    let result: Result<BackgroundResult, any Error>
    let duration: Duration
    let wasCancelled: Bool
  }

  /// Runs tasks at the same time, and stores when they began and how long they took.
  private func run(
    _ chosen: [Registration],
    until end: Duration,
    isPass: Bool
  ) async throws -> BackgroundResult {
    let left = end - time.stopwatch()
    guard !chosen.isEmpty, left > .zero else { return .noData }
    let begin = time.now
    try await changeHistory { history in
      history?.recordStart(
        of: chosen.map(\.name),
        registered: Set(tasks.map(\.name)),
        at: begin,
        isPass: isPass
      )
    }
    let (ends, isOver) = await runTogether(chosen, within: end - time.stopwatch())
    var result = BackgroundResult.noData
    for end in ends {
      switch end.result {
      case .success(let one):
        result = result.combined(with: one)
        errors[chosen[end.index].name] = nil
      case .failure(let error):
        result = result.combined(with: .failed)
        errors[chosen[end.index].name] = error
      }
    }
    // The duration of a run is not known if the run was cut short because the call was cancelled.
    let measured = ends.filter { !$0.wasCancelled || isOver }
    if !measured.isEmpty {
      try await changeHistory { history in
        for end in measured {
          let task = chosen[end.index]
          history?.recordRun(of: task.name, lasting: end.duration, averaging: task.averaging)
        }
      }
    }
    return result
  }

  /// Runs tasks, and cancels them when the time is up.
  ///
  /// - Returns: The ended runs, and whether the time was up before all of them had ended.
  private nonisolated func runTogether(
    _ chosen: [Registration],
    within time: Duration
  ) async -> (ends: [EndedRun], isOver: Bool) {
    let (clock, stopwatch) = (self.time.clock, self.time.stopwatch)
    return await withTaskGroup(of: EndedRun?.self) { group in
      let start = stopwatch()
      for (index, task) in chosen.enumerated() {
        group.addTask {
          let result = await task.result()
          let (duration, wasCancelled) = (stopwatch() - start, Task.isCancelled)
          return EndedRun(
            index: index,
            result: result,
            duration: duration,
            wasCancelled: wasCancelled
          )
        }
      }
      group.addTask {
        // This wait is cancelled when the call is cancelled, or when all tasks have ended.
        try? await clock.wait(for: max(time, .nanoseconds(1)))
        return nil
      }
      var (ends, isOver): ([EndedRun], Bool) = ([], false)
      while ends.count < chosen.count, let end = await group.next() {
        if let end {
          ends.append(end)
        } else if !Task.isCancelled {
          isOver = true
          group.cancelAll()
        }
      }
      group.cancelAll()
      return (ends, isOver)
    }
  }

  // MARK: The store

  private nonisolated var valueName: String { "steadfast.background.\(name)" }

  func readHistory() async throws -> BackgroundHistory {
    try await store.open()
    return BackgroundHistory(try await store.value(named: valueName))
  }

  /// Changes the stored history; if `change` sets it to `nil`, the history is removed from the
  /// store.
  func changeHistory(_ change: (inout BackgroundHistory?) -> Void) async throws {
    try await store.open()
    let names = Set(tasks.map(\.name))
    for _ in 0..<QueueStore.maxConflictRetries {
      let old = try await store.value(named: valueName)
      var history: BackgroundHistory? = BackgroundHistory(old)
      change(&history)
      let new = try history?.bytes(keeping: names)
      let outcomes = try await store.apply(
        [.setValue(named: valueName, from: old, to: new)],
        durability: .relaxed
      )
      if outcomes.first?.isDone == true { return }
    }
    throw TaskQueueError.endlessConflictError(in: store, over: "the value '\(valueName)'")
  }
}

/// The result of a background task, or of a whole pass.
public enum BackgroundResult: Sendable, Hashable {
  /// The task has fetched or produced something new for the user.
  case newData
  /// The work is done, and nothing is new.
  case noData
  /// Some of the work could not be done.
  case failed

  /// Returns the combined result: new data if either result is new data, else a failure if either
  /// is a failure, else no data.
  func combined(with other: BackgroundResult) -> BackgroundResult {
    switch (self, other) {
    case (.newData, _), (_, .newData): .newData
    case (.failed, _), (_, .failed): .failed
    case (.noData, .noData): .noData
    }
  }
}

/// How important a background task is among the others of its scheduler.
///
/// The raw value is the factor for the priority in the score by which tasks are ranked.
public enum BackgroundPriority: Int, Sendable, Hashable, CaseIterable {
  /// A fifth of the weight of ``veryHigh``.
  case veryLow = 1
  /// Two fifths of the weight of ``veryHigh``.
  case low
  /// Three fifths of the weight of ``veryHigh``.
  case normal
  /// Four fifths of the weight of ``veryHigh``.
  case high
  /// The highest priority.
  case veryHigh
}
