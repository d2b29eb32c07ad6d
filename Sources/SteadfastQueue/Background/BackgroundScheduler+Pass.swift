#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The passes of a scheduler.
extension BackgroundScheduler {
  /// Runs the tasks that rank first and fit into the time, all at the same time.
  ///
  /// A task's score is its priority, divided by the highest, × the time since its last run, divided
  /// by the longest of all tasks. One that has never run ranks as if it had waited longest. Of
  /// equal scores, one that has never run comes first, then the one that was registered first. In
  /// this order, each task runs whose average duration fits into what the others before it have
  /// left of the budget. A task that takes longer than the whole budget runs alone when it is the
  /// first, and is cancelled.
  ///
  /// The tasks are children of the call: cancelling it cancels them, and so does the end of the
  /// budget. The call returns when all of them have ended, so a closure that does not heed
  /// cancellation makes the pass longer. A run that takes longer, or fails, counts for the average
  /// like any other, but one that is cut short because the call is cancelled does not.
  ///
  /// A call while a pass runs starts nothing, and has its result. If the pass's own call is
  /// cancelled, the calls that have joined it get what there was until then.
  ///
  /// - Parameter budget: how long the tasks may run; with zero or less, none does. It includes the
  ///   time in which the store is read before them, not the one in which their end is stored.
  /// - Returns: ``BackgroundResult/newData`` if a task had some, else ``BackgroundResult/failed``
  ///   if one has failed, else ``BackgroundResult/noData``, also if nothing was to run.
  /// - Throws: `CancellationError` when the call is cancelled; a ``TaskQueueError`` if a task was
  ///   registered in a way that makes no sense; what the store throws. If it throws after the tasks
  ///   have run, their durations are not known to the next pass.
  public func run(within budget: Duration) async throws -> BackgroundResult {
    try checkCanRun()
    let end = time.deadline(after: budget)
    while activity == .other { try await turnEnd.wait { nil } }
    if activity == .pass { return try await passEnd.wait { nil } }
    return try await inTurn(.pass) { try await pass(until: end) }
  }

  /// Runs one task now, whatever its rank and the minimum interval.
  ///
  /// It waits for a pass under way. The task then has the time that is left, and its history is
  /// stored as in a pass.
  ///
  /// - Parameters:
  ///   - name: the name of a registered task.
  ///   - budget: how long the call may take.
  /// - Returns: What the task has brought; ``BackgroundResult/failed`` if it has thrown.
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

  /// Performs the body when nothing else has the turn.
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

  /// Makes a pass, and tells the calls that have joined it how it ended.
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
    // What is cut short because the call was cancelled says nothing about how long it takes.
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
  /// - Returns: How each of them ended, and whether the time was up before.
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
        // If this is cancelled, the pass is, or its tasks have ended.
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

  /// Stores what the function makes of the present history; with `nil`, none.
  func changeHistory(_ change: (inout BackgroundHistory?) -> Void) async throws {
    try await store.open()
    let names = Set(tasks.map(\.name))
    for _ in 0..<TaskQueue.mostRefusals {
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
    throw TaskQueueError.comparesWrongly(store, "the value '\(valueName)'")
  }
}
