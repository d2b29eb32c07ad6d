import SteadfastRetry
import SteadfastTesting

@testable import SteadfastQueue

extension ModelRun {
  func perform(_ work: ModelWork, _ context: TaskContext) async throws {
    let act = ledger.update { $0.recordBeginning(of: context.id, work, at: time.clock.now) }
    store.reportSuspensionPoint()
    let error = await carryOut(act, context)
    store.reportSuspensionPoint()
    let end: ModelLedger.End =
      switch (error, act.end) {
      case (is TaskSuspended, _): .suspended
      case (nil, _): .returned
      case (is CancellationError, _): .cancelled
      case (is CompletionFailed, _): .abandoned
      case (_, .succeed): .returned
      case (_, .fail): .failed
      case (_, .abandon): .abandoned
      case (_, .snooze(let seconds)): .snoozed(seconds)
      case (_, .retryAfter(let seconds)): .retryAfter(seconds)
      }
    // If the store fails during a step, the attempt ends like a cancelled one.
    let wasCancelled = Task.isCancelled || error is CancellationError
    ledger.update {
      $0.recordEnd(of: context.id, end, wasCancelled: wasCancelled, at: time.clock.now)
    }
    if error is TaskSuspended, act.hidesSuspension { return }
    if let error { throw error }
  }

  /// Performs an act, and returns the error to throw.
  private func carryOut(_ act: Act, _ context: TaskContext) async -> (any Error)? {
    if act.reportsProgress { context.report(progress: 0.5) }
    if act.enqueues { await enqueueChild() }
    if act.joinsBatch { await addToBatch(context) }
    if act.seconds > 0, let error = await sleep(act) { return error }
    if let error = await remember(act, context) { return error }
    switch act.end {
    case .succeed: return nil
    case .fail: return Refusal()
    case .abandon: return TaskAbandoned("it is hopeless")
    case .snooze(let seconds): return TaskSnoozed(for: .seconds(seconds))
    case .retryAfter(let seconds): return Later(retryDecision: .retry(after: .seconds(seconds)))
    }
  }

  private func sleep(_ act: Act) async -> (any Error)? {
    let clock = time.clock
    guard act.ignoresCancellation else {
      do {
        try await clock.sleep(for: .seconds(act.seconds))
        return nil
      } catch {
        return error
      }
    }
    // An unstructured task isn't cancelled with the handler's Swift task.
    await Task(executorPreference: time.executor) {
      try? await clock.sleep(for: .seconds(act.seconds))
    }.value
    return nil
  }

  private func addToBatch(_ context: TaskContext) async {
    let child = ModelOperation.NewTask(acts: [Act(end: .succeed)])
    let options = options(of: child, [], time.clock.date)
    let queue = ledger.update { $0.entries[context.id]?.queue ?? "" }
    await enqueue(child, on: queue, isMember: true) { works in
      try await context.enqueueInBatch(contentsOf: works.map(PlainJob.init), options: options)
    }
  }

  private func enqueueChild() async {
    var child = ModelOperation.NewTask(acts: [Act(end: .succeed)])
    child.tag = "red"
    await enqueue(child)
  }
}

private struct Later: RetryAwareError {
  let retryDecision: RetryDecision
}
