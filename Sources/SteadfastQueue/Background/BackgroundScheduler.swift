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
/// An app that the system wakes in the background has a few seconds, and often more work than fits.
/// Each call of ``run(within:)`` is a pass: it ranks the tasks by their priority × the time since
/// their last run, and runs those whose average duration fits into the remaining time. So all of
/// them run sooner or later, the important ones more often. The rule is that of Selene, which took
/// it from the scheduler of Linux.
///
/// The scheduler stores when tasks have run, and how long they took, so this outlasts the process.
/// The store may be that of a ``TaskQueue``.
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

  /// What runs: a pass, a run of a single task, or a reset, one at a time.
  enum Activity { case pass, other }

  /// The scheduler's name; schedulers on one store with different names are independent.
  public nonisolated let name: String
  /// The minimum time from the beginning of a pass to the beginning of the next one.
  public nonisolated let minimumInterval: Duration
  nonisolated let store: any Persistence
  nonisolated let time: QueueTime

  /// In the order of registration.
  var tasks: [Registration] = []
  var activity: Activity?
  /// Calls that share the result of the current pass.
  nonisolated let passEnd = Waiters<BackgroundResult>()
  /// Calls that wait until the current activity ends.
  nonisolated let turnEnd = Waiters<Void>()
  /// Why the last run of a task failed in this process.
  var errors: [String: any Error] = [:]
  private var refusal: TaskQueueError?

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

  /// Registers a task, which replaces the one with the same name if there is one.
  ///
  /// The closure returns its result, or throws if it could not do its work. It runs on the
  /// concurrent executor unless it is isolated to an actor. When the time is up, its Swift task is
  /// cancelled, and the closure should end soon.
  ///
  /// An empty name, a name that is too long, a negative duration, and an average of less than one
  /// or more than 100 runs are mistakes. The task is then not registered, and each later call that
  /// can throw throws a ``TaskQueueError`` that says why.
  ///
  /// The history of all tasks has at most 64 KiB. If it has more, because averages of many runs are
  /// stored for dozens of tasks, they become averages of fewer runs.
  ///
  /// - Parameters:
  ///   - name: the task's name, under which its history is stored: 1 to 512 bytes of UTF-8 without
  ///     NUL.
  ///   - priority: how important it is.
  ///   - expectedDuration: the duration of a run until one was measured; zero or more.
  ///   - count: the number of runs in the average duration; by default the last 3.
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
      return refuse("the average duration of '\(name)' is over \(count) runs; give 1 to 100")
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

  /// The maximum length of both names.
  ///
  /// The scheduler's name is part of the name of a value, which has at most 1,024 bytes.
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

  /// Throws if the scheduler, or a task, has arguments that make no sense.
  func checkCanRun() throws {
    if let refusal { throw refusal }
    try Task.checkCancellation()
  }

  /// The state of the tasks, in the order in which a pass would run them now.
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

  /// Clears when tasks have run and how long they took, after everything that runs has ended.
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

/// The state of a background task.
public struct BackgroundTaskStatus: Sendable, Hashable {
  /// The task's name.
  public let name: String
  /// How important it is.
  public let priority: BackgroundPriority
  /// How long its last runs took on average, or how long it was expected to take.
  public let averageDuration: Duration
  /// When it last began; `nil` if it never has.
  public let lastRunDate: Date?
  /// Why its last run failed, if it has failed in this process.
  public let lastError: String?
}

/// The passes of a scheduler.
extension BackgroundScheduler {
  /// Runs the tasks that rank first and fit into the time, all at the same time.
  ///
  /// A task's score is the product of two fractions: its priority divided by the highest one, and
  /// the time since its last run divided by the longest such time. A task that has never run ranks
  /// as if it had waited longest. Of equal scores, a task that has never run comes first, then the
  /// one that was registered first. In this order, each task runs if its average duration fits into
  /// the remaining budget. A task that takes longer than the whole budget runs alone when it is the
  /// first, and is cancelled.
  ///
  /// The tasks are children of the call: cancelling it cancels them, and so does the end of the
  /// budget. The call returns when all of them have ended, so a closure that ignores cancellation
  /// makes the pass longer. A run that takes longer, or fails, counts for the average like any
  /// other. A run that is cut short because the call is cancelled does not count.
  ///
  /// A call during a pass starts nothing, and returns the result of the pass. If the pass's own
  /// call is cancelled, the calls that have joined it get the result so far.
  ///
  /// - Parameter budget: how long the tasks may run; with zero or less, none does. It includes the
  ///   time to read the store before they run, but not the time to store their ends.
  /// - Returns: ``BackgroundResult/newData`` if a task had some, else ``BackgroundResult/failed``
  ///   if one has failed, else ``BackgroundResult/noData``, even if no task ran.
  /// - Throws: `CancellationError` when the call is cancelled; a ``TaskQueueError`` if a task was
  ///   registered in a way that makes no sense; what the store throws. If it throws after the tasks
  ///   have run, the next pass does not know their durations.
  public func run(within budget: Duration) async throws -> BackgroundResult {
    try checkCanRun()
    let end = time.deadline(after: budget)
    while activity == .other { try await turnEnd.wait { nil } }
    if activity == .pass { return try await passEnd.wait { nil } }
    return try await inTurn(.pass) { try await pass(until: end) }
  }

  /// Runs one task now, whatever its rank and the minimum interval.
  ///
  /// It waits for the current pass. The task then has the remaining time, and its history is stored
  /// as in a pass.
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
    return try await inTurn(.other) {
      try await store.open()
      return try await run([task], until: end, isPass: false)
    }
  }

  /// Performs the body when nothing else runs.
  func inTurn<Result: Sendable>(
    _ activity: Activity,
    _ body: () async throws -> Result
  ) async throws -> Result {
    while self.activity != nil { try await turnEnd.wait { nil } }
    self.activity = activity
    defer {
      self.activity = nil
      turnEnd.resumeAll(with: .success(()))
    }
    return try await body()
  }

  /// Makes a pass, and resumes the calls that have joined it with its result.
  private func pass(until end: Duration) async throws -> BackgroundResult {
    let result: BackgroundResult
    do {
      let history = try await history()
      let now = time.now
      if let next = history.nextPass(after: minimumInterval, now: now), now < next {
        result = .noData
      } else {
        let left = end - time.stopwatch()
        let chosen = ranking(history, now: now).selection(within: left).map { tasks[$0] }
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

  func ranking(_ history: BackgroundHistory, now: Date) -> BackgroundRanking {
    BackgroundRanking(
      tasks.map { task in
        BackgroundRanking.Candidate(
          priority: task.priority,
          averageDuration: averageDuration(of: task, history),
          lastRun: history.lastRun(of: task.name),
          since: history.since(task.name)
        )
      },
      now: now
    )
  }

  func averageDuration(of task: Registration, _ history: BackgroundHistory) -> Duration {
    history.averageDuration(of: task.name) ?? task.expectedDuration
  }

  // MARK: Running

  private struct End: Sendable {
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
      history?.begin(chosen.map(\.name), of: Set(tasks.map(\.name)), at: begin, isPass: isPass)
    }
    let (ends, isOver) = await ends(of: chosen, within: end - time.stopwatch())
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
    // A run that was cut short because the call was cancelled says nothing about its duration.
    let measured = ends.filter { !$0.wasCancelled || isOver }
    if !measured.isEmpty {
      try await changeHistory { history in
        for end in measured {
          let task = chosen[end.index]
          history?.end(task.name, after: end.duration, averaging: task.averaging)
        }
      }
    }
    return result
  }

  /// Runs tasks, and cancels them when the time is up.
  ///
  /// - Returns: How each of them ended, and whether the time was up before that.
  private nonisolated func ends(
    of chosen: [Registration],
    within time: Duration
  ) async -> (ends: [End], isOver: Bool) {
    let (clock, stopwatch) = (self.time.clock, self.time.stopwatch)
    return await withTaskGroup(of: End?.self) { group in
      let start = stopwatch()
      for (index, task) in chosen.enumerated() {
        group.addTask {
          let result = await task.result()
          let (duration, wasCancelled) = (stopwatch() - start, Task.isCancelled)
          return End(
            index: index,
            result: result,
            duration: duration,
            wasCancelled: wasCancelled
          )
        }
      }
      group.addTask {
        // This is cancelled when the pass is cancelled, or when its tasks have ended.
        try? await clock.wait(for: max(time, .nanoseconds(1)))
        return nil
      }
      var (ends, isOver): ([End], Bool) = ([], false)
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

  func history() async throws -> BackgroundHistory {
    try await store.open()
    return BackgroundHistory(try await store.value(named: valueName))
  }

  /// Stores the changed history; a change to `nil` removes it.
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
    throw TaskQueueError.endlessConflict(in: store, over: "the value '\(valueName)'")
  }
}

/// The result of a background task, or of a whole pass.
public enum BackgroundResult: Sendable, Hashable {
  /// There is something new for the user.
  case newData
  /// The work is done, and nothing is new.
  case noData
  /// Something could not be done.
  case failed

  /// Returns the combined result: new data if one of them has some, else a failure if there was
  /// one.
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
/// The raw value is the weight in the score by which tasks are ranked.
public enum BackgroundPriority: Int, Sendable, Hashable, CaseIterable {
  /// A fifth of the highest.
  case veryLow = 1
  /// Two fifths of the highest.
  case low
  /// Three fifths of the highest.
  case normal
  /// Four fifths of the highest.
  case high
  /// The highest.
  case veryHigh
}
