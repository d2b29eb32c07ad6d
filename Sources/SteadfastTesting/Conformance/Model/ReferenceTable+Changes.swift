package import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Applies changes to the reference, as to a store.
extension ReferenceTable {
  /// Applies all changes, or none if a value differs or an insertion refuses the batch.
  package mutating func apply(_ batch: [TaskChange]) -> [ChangeOutcome] {
    guard batch.allSatisfy(isMet) else { return batch.map { _ in .valueDiffers } }
    let before = self
    defer { earlyBatches = [:] }
    let outcomes = batch.map { change in
      let outcome = applyWithConsequences(change)
      promoteSuccessors()
      return outcome
    }
    guard Self.firstRefusal(of: batch, outcomes) != nil else { return outcomes }
    self = before
    return outcomes.map { outcome in
      switch outcome {
      case .done, .doneWithConsequences, .replaced, .superseded: .batchRefused
      case .duplicate, .unmetDependency, .identityTaken, .stale, .batchRefused, .valueDiffers:
        outcome
      @unknown default: outcome
      }
    }
  }

  /// The index of the first insertion that refuses its batch.
  static func firstRefusal(of batch: [TaskChange], _ outcomes: [ChangeOutcome]) -> Int? {
    zip(batch, outcomes).enumerated().first { _, pair in
      switch pair {
      case (_, .identityTaken), (_, .unmetDependency), (.insert(_, .reject), .duplicate): true
      default: false
      }
    }?.offset
  }

  private mutating func applyWithConsequences(_ change: TaskChange) -> ChangeOutcome {
    guard let before = change.taskID.flatMap(record), concernsOthers(before) else {
      return apply(change)
    }
    let outcome = apply(change)
    guard outcome == .done, let consequences = consequences(of: change, before: before) else {
      return outcome
    }
    return .doneWithConsequences(consequences)
  }

  private mutating func apply(_ change: TaskChange) -> ChangeOutcome {
    switch change {
    case .insert(let record, let policy): return insert(record, onDuplicate: policy)
    case .succeed(let lease, let date, let retains):
      let outcome = self.change(lease, to: .succeeded, retains: retains, at: date)
      if outcome == .done { forget(lease.id) }
      return outcome
    case .retry(let lease, let date, let retryCount, let failure, let origin):
      let outcome = self.change(lease, to: .waiting) { record in
        record.availableDate = date
        record.countedFrom = failure?.date ?? origin
        record.retryCount = retryCount
        record.interruptionCount = 0
        record.isPostponed = true
        record.note(failure)
      }
      guard outcome == .done, record(of: lease.id).map(concernsOthers) == false,
        memory(of: lease.id).isEmpty,
        let successor = supersede(lease.id)
      else { return outcome }
      return .superseded(by: successor)
    case .abandon(let lease, let failure, let retains):
      return self.change(lease, to: .abandoned, retains: retains, at: failure.date) {
        $0.note(failure)
      }
    case .release(let lease): return self.change(lease, to: .waiting, keepsPlace: true)
    case .park(let lease, let failure):
      return self.change(lease, to: .parked) { $0.note(failure) }
    case .cancel(let target, let date, let retains):
      return control(
        target,
        [.waiting, .suspended, .parked, .paused],
        to: .cancelled,
        retains: retains,
        at: date
      )
    case .pause(let target):
      // What is claimed is not suspended, and a stale lease wakes nothing.
      if case .unclaimed(let id) = target, record(of: id)?.state == .suspended { wake(id) }
      return control(target, [.waiting, .parked], to: .paused)
    case .resume(let id): return control(.unclaimed(id), [.paused], to: .waiting)
    case .restart(let target, let date, let forgets):
      if isConcerned(by: target), let record = record(of: target.id), record.uniqueKey != nil {
        if let holder = holder(insteadOf: record) { return .duplicate(of: holder) }
        if record.keyRole == nil { setHolder(record.id) }
      }
      let outcome = control(target, Self.atRest, to: .waiting) { $0.restart(availableDate: date) }
      if outcome == .done, forgets { forget(target.id) }
      return outcome
    case .reschedule(let target, let date, let origin):
      let state = record(of: target.id)?.state ?? .waiting
      let waitsAgain = state == .running || state == .suspended
      return control(target, Self.unclaimed, to: waitsAgain ? .waiting : state) {
        $0.availableDate = date
        $0.countedFrom = origin
        $0.isPostponed = false
      }
    case .update(let id, let update): return self.update(id, update)
    case .remove(let id):
      return control(.unclaimed(id), Self.ended, to: .waiting, retains: false)
    case .unpark(let name, let queue): unpark(name, in: queue)
    case .prune(let state, let date, let count, let now, let queue):
      prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .rebase(let date): rebase(to: date)
    case .extend(let lease, let duration): return extend(lease, for: duration)
    case .setValue(let name, _, let bytes): values[ExactText(name)] = bytes
    case .remember(let lease, let name, let value): return remember(lease, name, value)
    case .suspend(let lease, let date, let names, let origin):
      return suspend(lease, until: date, awaiting: names, countedFrom: origin)
    case .complete(let id, let name, let value): return complete(id, name, value)
    @unknown default: break
    }
    return .done
  }

  /// Returns whether the value that a change names is the present one, if the change names any.
  private func isMet(_ change: TaskChange) -> Bool {
    guard case .setValue(let name, let bytes, _) = change else { return true }
    return values[ExactText(name)] == bytes
  }

  private func isConcerned(by target: TaskTarget) -> Bool {
    switch target {
    case .claimed(let lease): entries.contains { $0.lease == lease }
    case .unclaimed(let id): record(of: id).map { $0.state != .running } ?? false
    }
  }

  private static let unclaimed: Set<TaskState> = [.waiting, .suspended, .parked, .paused]
  private static let ended = Set(TaskState.allCases.filter(\.isFinished))
  private static let atRest = Set(TaskState.allCases.filter { $0 != .running })

  private mutating func control(
    _ target: TaskTarget,
    _ states: Set<TaskState>,
    to state: TaskState,
    retains: Bool = true,
    at date: Date? = nil,
    _ note: (inout TaskRecord) -> Void = { _ in }
  ) -> ChangeOutcome {
    switch target {
    case .claimed(let lease): change(lease, to: state, retains: retains, at: date, note)
    case .unclaimed(let id):
      change(id, in: states, to: state, retains: retains, at: date, note)
    }
  }
}

extension ReferenceTable {
  private mutating func update(_ id: TaskID, _ update: TaskUpdate) -> ChangeOutcome {
    guard let index = entries.firstIndex(where: { $0.record.id == id }),
      Self.unclaimed.contains(entries[index].record.state),
      entries[index].record.uniqueKey == nil || entries[index].record.keyRole != nil
    else { return .stale }
    let old = entries[index].record
    entries[index].record = old.updated(by: update)
    if entries[index].record.priority != old.priority { entries[index].place = nextPlace() }
    return .done
  }
}

extension TaskRecord {
  /// Returns the same task with the update, made from each of its fields.
  fileprivate func updated(by update: TaskUpdate) -> TaskRecord {
    TaskRecord(
      id: id,
      name: name,
      payload: update.payload ?? payload,
      priority: update.priority ?? priority,
      createdDate: createdDate,
      maxRetries: update.maxRetries ?? maxRetries,
      usesBackoff: update.usesBackoff ?? usesBackoff,
      uniqueKey: uniqueKey,
      keyRole: keyRole,
      uniqueUntil: uniqueUntil,
      latestDate: latestDate,
      orderKey: orderKey,
      holdsOrder: holdsOrder,
      conditions: conditions,
      dependencies: dependencies,
      queue: queue,
      tags: update.tags ?? tags,
      timeLimit: update.timeLimit ?? timeLimit,
      expiryDate: update.expiryDate ?? expiryDate,
      memorySize: memorySize,
      state: state,
      availableDate: availableDate,
      countedFrom: countedFrom,
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: lastError,
      failedDate: failedDate,
      earlierFailures: earlierFailures,
      isPostponed: isPostponed,
      finishedDate: finishedDate
    )
  }

  fileprivate mutating func note(_ failure: TaskFailure?) {
    guard let failure else { return }
    // The texts are cut by Unicode scalars, which other systems count as characters.
    earlierFailures = failures.suffix(4).map { earlier in
      let scalars = Array(earlier.reason.unicodeScalars).prefix(500)
      var reason = String.UnicodeScalarView()
      reason.append(contentsOf: scalars)
      return TaskFailure(reason: String(reason), date: earlier.date)
    }
    lastError = failure.reason
    failedDate = failure.date
  }
}
