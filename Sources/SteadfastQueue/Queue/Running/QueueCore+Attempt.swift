import SteadfastRetry
import Synchronization
import SystemFoundation

extension QueueCore {
  /// Makes an attempt at a claimed task, and stores its result, or lets another Swift task store
  /// it.
  ///
  /// - Returns: Whether the attempt was to be cut short. If so, the current Swift task is
  ///   cancelled, or will be, so the worker must continue in another one.
  func perform(
    _ task: ClaimedTask,
    _ worker: Int,
    _ number: AttemptNumber,
    _ memory: WorkerMemory
  ) async -> Bool {
    let record = task.record
    var context = TaskContext(task, self, worker, number, memory)
    guard let handler = handlers[record.name] else {
      dispatch.fail(UnrequestedTask(name: record.name), to: "hand out tasks")
      return await settleWithoutAttempt(task, worker, .release(task.lease))
    }
    let begin = now
    if record.id.isOccurrence {
      switch await occurrences.begin(record, at: begin) {
      case .perform(let occurrence): context.setOccurrence(occurrence)
      case .skip(let change):
        return await settleWithoutAttempt(task, worker, change(task.lease))
      }
    }
    let ruling = record.interruptionCount > 0 ? ruling(on: record) : .attempt
    defer { if record.interruptionCount > 0 { services.suspects.endAttempt(of: record.id) } }
    if case .postpone(let delay) = ruling {
      let moment = moment
      let change = TaskChange.reschedule(
        .claimed(task.lease),
        availableDate: moment.date(after: delay),
        countedFrom: moment.now
      )
      return await settleWithoutAttempt(task, worker, change)
    }
    context.setStart(begin)
    if let failure = judge.failurePreventingAttempt(of: record, now: begin) {
      let (command, isCutShort) = dispatch.endAttempt(of: worker)
      let verdict = command.map { Verdict.carryOut($0) } ?? .abandon(failure)
      await settle(task, verdict, nil, handler, context, worker, nil)
      return isCutShort
    }
    let waited = context.waited
    observers.reportStart(of: record, afterWaiting: waited)
    let start = time.stopwatch()
    let end = await callHandler(handler, record, context)
    let timing = TaskTiming(waited: waited, ran: time.stopwatch() - start)
    observers.recordRunTime(timing.ran, of: record.name)
    upkeep.recordRunTime(timing.ran, of: record.name)
    if rateLimiting != nil { await claimer.pauseLimits(of: record, after: end) }
    let usedMemory = memory.isInUse
    if usedMemory { await storeLastCheckpoint(context, after: end) }
    let (command, isCutShort) = dispatch.endAttempt(of: worker, after: timing.ran)
    let verdict = verdict(on: record, after: end, command, memory.take(number), timing.ran)
    await settle(task, verdict, end, handler, context, worker, timing, usedMemory)
    return isCutShort
  }

  /// Decides whether to attempt a task that was interrupted.
  private func ruling(on record: TaskRecord) -> Suspects.Ruling {
    // A process is proven when it has performed another task, or has run for a while. A process
    // that makes only a pass may always end earlier, and would never abandon the task. So it counts
    // as proven from the start.
    let isProven = dispatch.machine.withLock { $0.attemptCount > 0 || $0.mode != .untilStopped }
    return services.suspects.ruling(
      on: record,
      exceedsLimit: !judge.maxInterruptions.allows(retryCount: record.interruptionCount),
      abandonsAtOnce: isProven,
      at: time.stopwatch()
    )
  }

  private func verdict(
    on record: TaskRecord,
    after end: AttemptEnd,
    _ command: TaskCommand?,
    _ memory: AttemptMemory?,
    _ ran: Duration
  ) -> Verdict {
    if let ending = memory?.ending {
      return judge.verdict(on: record, after: ending, command: command, at: moment(after: ran))
    }
    // Most attempts succeed. So avoid making a random generator and reading the clock for these.
    if case .returned = end { return .succeed }
    var generator = generators.makeGenerator()
    return judge.verdict(
      on: memory?.hasProgressed == true ? judge.recordWithRenewedRetries(record) : record,
      after: end,
      command: command,
      at: moment(after: ran),
      using: &generator
    )
  }

  /// Stores the last checkpoint that the handler has saved, unless the task has succeeded.
  private func storeLastCheckpoint(_ context: TaskContext, after end: AttemptEnd) async {
    if case .returned = end, context.memory.with(context.number, { $0.ending }) == nil { return }
    // Ignore an error: if the store fails, `writeCheckpoint` stops the queue, and the task is
    // released.
    try? await context.writeCheckpoint(.relaxed, isDue: true)
  }

  /// Stores a change to a claimed task that gets no attempt.
  ///
  /// If the change is a release, and a caller has requested a command for the task, this carries
  /// out the command instead.
  ///
  /// - Returns: The same as ``perform(_:_:_:_:)``.
  private func settleWithoutAttempt(
    _ task: ClaimedTask,
    _ worker: Int,
    _ change: TaskChange
  ) async -> Bool {
    let (command, isCutShort) = dispatch.endAttempt(of: worker)
    var settlement = Settlement(change: change, record: task.record, wasBegun: false)
    if change.move?.kind == .release, let command, command != .release {
      settlement = judge.settlement(.carryOut(command), of: task, now: now)
    }
    await results.finishWork(of: worker, with: settlement, countsAsAttempt: false)
    return isCutShort
  }

  private var moment: AttemptJudge.Moment { moment(after: nil) }

  /// Returns the moment at which a handler has run for this long; `nil` if it was not called.
  private func moment(after ran: Duration?) -> AttemptJudge.Moment {
    let now = self.now
    let cutoff = dispatch.machine.withLock { machine in
      // A pass does not schedule retries before its cutoff. If the clock was set back since the
      // last claim, the cutoff is in the future, and retries would be late.
      machine.moveCutoffBack(to: now)
      return machine.cutoff
    }
    return AttemptJudge.Moment(now: now, cutoff: cutoff, ran: ran)
  }

  /// Calls the handler, through the middleware.
  private func callHandler(
    _ handler: AnyHandler,
    _ record: TaskRecord,
    _ context: TaskContext
  ) async -> AttemptEnd {
    let middleware = configuration.middleware
    guard !middleware.isEmpty else {
      return await callHandlerWithinLimit(handler, record, context)
    }
    return await AttemptChain.perform(context, through: middleware) {
      await self.callHandlerWithinLimit(handler, record, context)
    }
  }

  /// Calls the handler, within the task's time limit if it has one.
  private func callHandlerWithinLimit(
    _ handler: AnyHandler,
    _ record: TaskRecord,
    _ context: TaskContext
  ) async -> AttemptEnd {
    guard let limit = record.timeLimit else { return await handler.perform(record, context) }
    let hasBegun = AsyncSignal()
    let end = await withTaskGroup(of: AttemptEnd?.self) { group in
      group.addTask {
        hasBegun.signal()
        return await handler.perform(record, context)
      }
      // On this executor, the limit ends the attempt even if handlers occupy all of Swift's
      // threads.
      return await withTaskExecutorPreference(time.deadlineExecutor) {
        group.addTask {
          await hasBegun.wait()
          do { try await self.time.wait(for: limit) } catch { return nil }
          return .threw(TimeoutError(limit: limit))
        }
        var first: AttemptEnd?
        for await end in group {
          first = first ?? end
          group.cancelAll()
        }
        return first
      }
    }
    return end ?? .cancelled
  }

  /// Calls the handler's hooks, and stores the result of the attempt, or lets another Swift task
  /// store it.
  @inline(__always)
  private func settle(
    _ task: ClaimedTask,
    _ verdict: Verdict,
    _ end: AttemptEnd?,
    _ handler: AnyHandler,
    _ context: TaskContext,
    _ worker: Int,
    _ timing: TaskTiming?,
    _ usedMemory: Bool = false
  ) async {
    var verdict = verdict
    if let hooks = handler.hooks {
      verdict = await verdictAfterAsking(hooks, about: verdict, task.record, end, context)
    }
    var value: (any Sendable)?
    if case .returned(let returned)? = end { value = returned }
    let isParked = if case .park = verdict { true } else { false }
    let settlement = judge.settlement(
      verdict,
      of: task,
      value: value,
      timing: timing,
      handler: isParked ? handler : nil,
      usedMemory: usedMemory,
      now: now
    )
    if let hooks = handler.hooks, let outcome = settlement.outcome {
      await hooks.willEnd(task.record, context, outcome)
    }
    await results.finishWork(of: worker, with: settlement, countsAsAttempt: timing != nil)
  }

  private func verdictAfterAsking(
    _ hooks: AnyHandler.Hooks,
    about verdict: Verdict,
    _ record: TaskRecord,
    _ end: AttemptEnd?,
    _ context: TaskContext
  ) async -> Verdict {
    guard case .threw(let error)? = end else { return verdict }
    var verdict = verdict
    if case .exhausted(let failure) = verdict,
      await hooks.shouldRestart(record, context, error)
    {
      var generator = generators.makeGenerator()
      verdict = judge.verdictForRestart(of: record, after: failure, at: moment, using: &generator)
    }
    guard case .retry(let date, let retryCount, let failure, isByBackoff: true) = verdict else {
      return verdict
    }
    var chosen = await hooks.retryDate(record, context, error, date)
    if !chosen.timeIntervalSince1970.isFinite { chosen = date }
    // Don't allow a past date, which would put the task ahead of other waiting tasks.
    chosen = moment.afterCutoff(max(chosen.storable, now))
    // If the task will have expired by the retry's date, abandon it now instead of waiting.
    if record.hasExpired(by: chosen) { return .abandon(failure) }
    return .retry(at: chosen, retryCount: retryCount, failure: failure, isByBackoff: true)
  }

  /// Reports a handler's progress to observers, unless its attempt has ended or is to be cut short.
  func reportProgress(
    _ fraction: Double,
    of record: TaskRecord,
    by worker: Int,
    _ number: AttemptNumber
  ) {
    guard !fraction.isNaN, !Task.isCancelled,
      dispatch.machine.withLock({ $0.isUnderWay(number, of: worker) })
    else { return }
    observers.reportProgress(min(max(fraction, 0), 1), of: record)
  }
}

/// The error for a store that returns a task whose name the claim did not ask for.
private struct UnrequestedTask: Error, CustomStringConvertible {
  let name: String
  var description: String {
    "it returned a task named '\(name)', which the claim did not ask for; fix the store's claim(_:)"
  }
}
