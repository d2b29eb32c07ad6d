import SteadfastQueue

extension HistoryChange {
  init(recording change: TaskChange) {
    switch change {
    case .insert(let record, _):
      self.init(.insert, task: record.id, new: HistoryTask(recording: record, state: nil))
    case .succeed(let lease, _, _): self.init(.succeed, lease)
    case .retry(let lease, _, let retryCount, _, _):
      self.init(.retry, lease, retryCount: retryCount)
    case .abandon(let lease, _, _): self.init(.abandon, lease)
    case .release(let lease): self.init(.release, lease)
    case .park(let lease, _): self.init(.park, lease)
    case .extend(let lease, let duration):
      self.init(.extend, lease, seconds: duration / .seconds(1))
    case .remember(let lease, _, _): self.init(.remember, lease)
    case .suspend(let lease, _, _, _): self.init(.suspend, lease)
    case .cancel(let target, _, _): self.init(.cancel, target)
    case .pause(let target): self.init(.pause, target)
    case .restart(let target, _, _): self.init(.restart, target)
    case .reschedule(let target, _, _): self.init(.reschedule, target)
    case .resume(let id): self.init(.resume, task: id)
    case .update(let id, _): self.init(.update, task: id)
    case .remove(let id): self.init(.remove, task: id)
    case .complete(let id, _, _): self.init(.complete, task: id)
    case .unpark: self.init(.unpark)
    case .prune: self.init(.prune)
    case .rebase: self.init(.rebase)
    case .setValue: self.init(.setValue)
    @unknown default: self.init(.other)
    }
  }

  private init(_ kind: Kind, _ lease: Lease, seconds: Double? = nil, retryCount: Int? = nil) {
    self.init(kind, task: lease.id, lease: lease.token, seconds: seconds, retryCount: retryCount)
  }

  private init(_ kind: Kind, _ target: TaskTarget) {
    switch target {
    case .claimed(let lease): self.init(kind, lease)
    case .unclaimed(let id): self.init(kind, task: id)
    }
  }
}

extension HistoryTask {
  /// Leaves out what few tasks have.
  init(recording record: TaskRecord, state: TaskState?) {
    let dependencies = record.dependencies
    self.init(
      id: record.id,
      state: state?.rawValue,
      queue: record.queue.isEmpty ? nil : record.queue,
      orderKey: record.orderKey,
      follower: dependencies.follower,
      after: dependencies.tasks.isEmpty ? nil : dependencies.tasks.sorted()
    )
  }
}

extension HistoryOutcome {
  init(recording outcome: ChangeOutcome) {
    switch outcome {
    case .done: self.init(.done)
    case .doneWithConsequences(let consequences):
      self.init(.done, tasks: consequences.tasks.isEmpty ? nil : consequences.tasks)
    case .replaced(let id): self.init(.replaced, tasks: [id])
    case .superseded(let id): self.init(.superseded, tasks: [id])
    case .duplicate(let id): self.init(.duplicate, tasks: [id])
    case .unmetDependency(let id): self.init(.unmetDependency, tasks: [id])
    case .identityTaken: self.init(.identityTaken)
    case .stale: self.init(.stale)
    case .batchRefused: self.init(.batchRefused)
    case .valueDiffers: self.init(.valueDiffers)
    @unknown default: self.init(.other)
    }
  }
}

extension HistoryGrant {
  init(recording task: ClaimedTask) {
    self.init(
      task: task.lease.id,
      lease: task.lease.token,
      name: task.record.name,
      retryCount: task.record.retryCount,
      interruptionCount: task.record.interruptionCount
    )
  }
}
