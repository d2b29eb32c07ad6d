import SteadfastQueue

extension TaskRecord {
  /// Returns a copy of the task that waits for the tasks with these numbers.
  func after(_ numbers: Int..., rule: DependencyRule = .allSucceeded) -> TaskRecord {
    with { record in
      record.dependencies.tasks = Set(numbers.map(TaskID.numbered))
      record.dependencies.rule = rule
    }
  }

  /// Returns a copy of the task that is a member of the batch whose follower has this number.
  func before(_ follower: Int) -> TaskRecord {
    with { $0.dependencies.follower = .numbered(follower) }
  }

  /// Returns a copy of the task that records how the tasks with these numbers ended.
  func withFailures(_ failed: [Int: TaskState], batch: BatchProgress? = nil) -> TaskRecord {
    with { record in
      record.dependencies.failed = Dictionary(
        uniqueKeysWithValues: failed.map { (TaskID.numbered($0.key), $0.value) }
      )
      record.dependencies.batch = batch
    }
  }

  /// Returns a copy of the task, cancelled because of the task with this number.
  func cancelled(at seconds: Double, because cause: Int?) -> TaskRecord {
    with { record in
      record.state = .cancelled
      record.finishedDate = .second(seconds)
      record.dependencies.cause = cause.map(TaskID.numbered)
    }
  }
}

extension ChangeOutcome {
  /// Returns the outcome of a change that cascaded to the tasks with these numbers.
  static func cascading(to numbers: Int..., batch: BatchProgress? = nil) -> ChangeOutcome {
    .doneWithConsequences(Consequences(tasks: numbers.map(TaskID.numbered), batch: batch))
  }
}

extension TaskChange {
  /// Returns a change that cancels the unclaimed task with this number.
  static func cancel(_ number: Int, at seconds: Double = 1, retains: Bool = true) -> TaskChange {
    .cancel(.unclaimed(.numbered(number)), at: .second(seconds), retains: retains)
  }

  /// Returns a change that restarts the unclaimed task with this number.
  static func restart(_ number: Int, at seconds: Double = 0) -> TaskChange {
    .restart(.unclaimed(.numbered(number)), availableDate: .second(seconds))
  }
}

extension StoreProbe {
  /// Claims tasks, expects those with these numbers, in order, and returns their leases.
  func claimExactly(_ numbers: Int..., at seconds: Double = 0) async throws -> [Lease] {
    let claim = try await claim(at: seconds)
    try expect(claim, numbers)
    return claim.tasks.map(\.lease)
  }

  /// Claims tasks, expects those with these numbers, and lets each of them succeed.
  func perform(_ numbers: Int..., at seconds: Double = 0) async throws {
    let claim = try await claim(at: seconds)
    try expect(claim, numbers)
    for task in claim.tasks {
      let outcomes = try await apply([.succeed(task.lease, at: .second(seconds), retains: true)])
      try expect("whether the success is stored", outcomes.allSatisfy(\.isDone), true)
    }
  }
}
