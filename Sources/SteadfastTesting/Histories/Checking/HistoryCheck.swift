import SteadfastQueue

extension History {
  /// Looks for answers that show a broken promise.
  ///
  /// The cost grows with the number of lines, and with the square of the number of tasks that share
  /// an order key.
  /// - Parameter expectations: what is taken into account besides the history.
  /// - Returns: The report.
  public func check(_ expectations: Expectations = Expectations()) -> Report {
    var check = HistoryCheck(self, expectations)
    check.checkPresence()
    check.checkOrigins()
    check.checkEnds()
    check.checkHolders()
    check.checkCounts()
    check.checkKeys()
    check.checkWaitingTasks()
    check.checkLimits()
    check.checkBound()
    check.countRarePaths()
    return check.report
  }
}

/// A check of one history, in parts that each check some promises.
struct HistoryCheck {
  let history: History
  let expectations: History.Expectations
  let index: HistoryIndex
  /// The lives of all tasks, in the order of their IDs.
  let tasks: [TaskLife]
  /// The tasks that wait for all of a batch, each with the tasks of the batch.
  let members: [TaskID: [TaskLife]]
  /// In microseconds.
  let tolerance: Int64
  var report = History.Report()

  init(_ history: History, _ expectations: History.Expectations) {
    self.history = history
    self.expectations = expectations
    index = HistoryIndex(history)
    tasks = index.tasks
    members = Dictionary(grouping: tasks.filter { $0.description?.follower != nil }) {
      $0.description?.follower ?? $0.id
    }
    tolerance = expectations.clockTolerance.microseconds
    report.taskCount = tasks.count
  }

  /// The tasks that a task waits for, by name or as the follower of their batch.
  func awaited(by life: TaskLife) -> [TaskLife] {
    let named = life.description?.after?.compactMap { index.lives[$0] } ?? []
    return named + (members[life.id] ?? [])
  }

  mutating func report(
    _ promise: History.Promise,
    _ found: String,
    _ tasks: [TaskID],
    _ places: [HistoryPlace?]
  ) {
    let lines = places.compactMap { $0 }.map(history.text)
    report.violations.append(
      History.Violation(promise: promise, found: found, tasks: tasks, lines: lines)
    )
  }

  mutating func skip(_ promise: History.Promise, _ reason: String) {
    report.skipped.append((promise, reason))
  }
}
