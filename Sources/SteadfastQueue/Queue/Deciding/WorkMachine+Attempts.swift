/// A number that identifies one attempt of a queue in this process.
typealias AttemptNumber = UInt64

/// An attempt that a worker makes, or that has ended and whose result is not stored yet.
struct Attempt: Sendable, Equatable {
  let lease: Lease
  let name: String
  let number: AttemptNumber
  /// The command that arrived for the task before or during the attempt.
  var command: TaskCommand?
  /// Whether the handler has ended, or was not called because of a command.
  var isOver = false
  /// Whether the handler's Swift task was cancelled because of the command.
  var isCutShort = false

  var id: TaskID { lease.id }
}

/// Commands for leased tasks.
///
/// A command for a task that is being performed is added to the ``Attempt``. A command for another
/// leased task is added to ``pendingCommands``: that task has not started, is being released, or
/// has ended an attempt whose result is being stored. When the lease ends, the code that ends the
/// lease carries out the command. If the store then fails, the command becomes pending again, and
/// the task is added to ``failedCommands``.
extension WorkMachine {
  /// What happens to a command that a caller requests.
  enum RequestOutcome: Equatable {
    /// The command cancels this attempt of this worker.
    case interrupt(worker: Int, AttemptNumber)
    /// The queue keeps the command, and carries it out instead of the next attempt, when the task
    /// is released, or when the result of its attempt is stored.
    ///
    /// The command replaces an earlier one that could not be carried out.
    case kept
    /// The command has no effect on a task that is being performed, or after an earlier command.
    case refused
    /// The task was prefetched, and it may take long until a worker is idle. So the caller releases
    /// the task, and requests the command again.
    case prefetched
    /// The caller must wait while an earlier command for the task is being carried out.
    case afterAnother
    /// The caller carries out its command instead of this earlier one, because there is no run that
    /// would do so, and then calls ``endCommand(for:)``.
    case insteadOf(TaskCommand)
    /// The queue does not lease the task.
    case notLeased
  }

  /// Decides how a command for a task is carried out.
  ///
  /// If `wasPending`, the command was pending until now, and the caller is carrying it out.
  mutating func request(
    _ command: TaskCommand,
    of id: TaskID,
    wasPending: Bool = false
  ) -> RequestOutcome {
    if !wasPending, isCarryingOut(id) { return .afterAnother }
    for (worker, attempt) in attempts.enumerated() {
      guard let attempt, attempt.id == id, !attempt.isOver else { continue }
      guard command.cutsShort else { return .refused }
      // A command that failed, and was restored during the attempt, also counts as an earlier one.
      let earlier = [attempt.command, pendingCommands[id]?.command].compactMap(\.self)
      if earlier.contains(where: command.isPointless(after:)) { return .refused }
      pendingCommands[id] = nil
      attempts[worker]?.command = command
      return .interrupt(worker: worker, attempt.number)
    }
    let isReady = ready.contains { $0.record.id == id }
    if isReady && hasExcessTasks { return .prefetched }
    let isHeld = isLeased(id)
    guard isHeld || hasFailedCommand(for: id) else { return .notLeased }
    if let earlier = pendingCommands[id]?.command, command.isPointless(after: earlier) {
      return .refused
    }
    // There is no run now, and there may be none later.
    if !isHeld, mode == nil, let earlier = takeCommand(for: id) {
      return .insteadOf(earlier.command)
    }
    pendingCommands[id] = PendingCommand(id: id, command: command)
    return .kept
  }

  /// Adds the command for a task that another process has stored with the task.
  ///
  /// A claimed task that has not started gets no attempt. If an attempt has ended already, the
  /// store refuses its result (``ChangeOutcome/commanded(_:)``).
  ///
  /// The command replaces an earlier one of the attempt, unless it has no effect after that one.
  ///
  /// - Returns: The worker whose attempt the command cancels; `nil` if there is none, or if another
  ///   command cancels it already.
  mutating func add(_ stored: StoredCommand, of id: TaskID) -> Int? {
    if let index = ready.firstIndex(where: { $0.record.id == id }) {
      ready[index].record.command = stored
      return nil
    }
    guard let worker = attempts.firstIndex(where: { $0?.id == id }),
      let attempt = attempts[worker], !attempt.isOver
    else { return nil }
    let command = TaskCommand(stored)
    if let earlier = attempt.command, command.isPointless(after: earlier) { return nil }
    // If the pause that is withdrawn has not come here, the attempt goes on.
    guard command != .release || attempt.command == .pause else { return nil }
    attempts[worker]?.command = command
    return attempt.command == nil ? worker : nil
  }

  /// Adds a command to all attempts whose tasks require a condition, so that they are released.
  ///
  /// - Returns: The workers that make these attempts.
  mutating func interruptAttempts(requiring condition: TaskCondition) -> [Int] {
    attempts.indices.filter { worker in
      guard let attempt = attempts[worker],
        requiredConditions[attempt.number]?.contains(condition) == true,
        !attempt.isOver, attempt.command == nil
      else { return false }
      attempts[worker]?.command = .release
      return true
    }
  }

  /// The result of withdrawing the command to pause a task.
  enum Withdrawal {
    /// The task will not be paused.
    case done
    /// The caller must wait while an earlier command for the task is being carried out.
    case afterAnother
    /// There is no command to pause the task.
    case notRequested
  }

  /// Withdraws the command to pause a task.
  mutating func withdrawPause(of id: TaskID) -> Withdrawal {
    if isCarryingOut(id) { return .afterAnother }
    if pendingCommands[id]?.command == .pause {
      pendingCommands[id] = nil
      return .done
    }
    if let worker = attempts.firstIndex(where: { $0?.id == id }),
      attempts[worker]?.command == .pause
    {
      if attempts[worker]?.isOver == true {
        pendingCommands[id] = PendingCommand(id: id, command: .release)
      } else {
        // The attempt may have been cut short already, and must end.
        attempts[worker]?.command = .release
      }
      return .done
    }
    guard outbox.all.contains(where: { $0.record.id == id && $0.isPause }) else {
      return .notRequested
    }
    pendingCommands[id] = PendingCommand(id: id, command: .release)
    return .done
  }

  /// Makes a command that could not be carried out pending again, unless a later one replaces it.
  mutating func restoreCommand(_ command: TaskCommand, for id: TaskID) {
    if let later = pendingCommands[id]?.command, !later.isPointless(after: command) { return }
    pendingCommands[id] = PendingCommand(id: id, command: command)
    failedCommands.append(id)
  }

  private func hasFailedCommand(for id: TaskID) -> Bool {
    pendingCommands[id] != nil && failedCommands.contains(id)
  }

  /// Ends the attempt of a worker.
  ///
  /// From now on, the attempt reports nothing. A later command for its task is carried out when the
  /// result of the attempt is stored.
  ///
  /// - Parameters:
  ///   - worker: the worker.
  ///   - duration: how long the handler took, if it was called.
  /// - Returns: The command for the task, if one arrived during the attempt.
  mutating func endAttempt(of worker: Int, after duration: Duration? = nil) -> TaskCommand? {
    if let duration { prefetch.addDuration(duration) }
    defer { attempts[worker]?.isOver = true }
    return attempts[worker]?.command
  }

  /// Returns whether the handler that a worker calls must be cancelled.
  func mustInterrupt(_ worker: Int) -> Bool {
    guard let attempt = attempts[worker], !attempt.isOver else { return false }
    return cutsShort || attempt.command != nil
  }

  /// Records that the handler that a worker calls was cancelled.
  mutating func markInterrupted(_ worker: Int) { attempts[worker]?.isCutShort = true }

  /// Returns whether a worker makes an attempt that has neither ended nor been cancelled yet.
  func isWaitingForInterruption(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker], attempt.number == number else { return false }
    return !attempt.isOver && !attempt.isCutShort
  }

  /// Returns whether a worker makes this attempt, and no command cancels it.
  func isUnderWay(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver && attempt.command == nil
  }

  /// Returns whether the handler of this attempt, which the worker calls, has not ended yet.
  func isHandlerRunning(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver
  }

  /// The number of busy workers.
  var performing: Int { attempts.count - idle }

  /// Returns whether the queue has claimed a task, and its lease has not ended yet.
  func isLeased(_ id: TaskID) -> Bool {
    isUnsettled(id) || isBeingReleased(id) || ready.contains { $0.record.id == id }
  }

  /// Returns whether a task has an attempt whose result is not stored and reported yet.
  func isUnsettled(_ id: TaskID) -> Bool {
    attempts.contains { $0?.id == id } || outbox.contains(id)
  }

  /// The leases of all claimed tasks, until the results of their attempts are stored.
  ///
  /// There is only one lease for each task, even if the task was claimed again before the result of
  /// its previous attempt was reported.
  var leases: [Lease] {
    let all =
      attempts.compactMap { $0?.lease } + ready.map(\.lease)
      + outbox.all.compactMap(\.change.lease)
    var ids: Set<TaskID> = []
    return all.filter { ids.insert($0.id).inserted }
  }

  /// Removes the lease of a task that another queue has claimed since.
  ///
  /// - Returns: The worker whose attempt at the task must be cancelled; `nil` if there is none. The
  ///   store will refuse the result of that attempt as stale.
  mutating func dropLease(_ lease: Lease) -> Int? {
    for task in ready where task.lease == lease {
      concurrencyLimits.removeLeased(named: task.record.name)
      pendingCommands[task.record.id] = nil
    }
    ready.removeAll { $0.lease == lease }
    guard let worker = attempts.firstIndex(where: { $0?.lease == lease }),
      attempts[worker]?.isOver == false
    else { return nil }
    attempts[worker]?.command = .release
    return worker
  }
}

extension Settlement {
  fileprivate var isPause: Bool { change.move?.kind == .pause }
}

/// Ends leases, by storing settlements and by releasing claimed tasks that have not started.
extension WorkMachine {
  /// Makes a worker idle, and adds the settlement of its attempt to the outbox, to be stored.
  ///
  /// - Returns: Whether the caller must wake the finisher, the Swift task that stores settlements.
  mutating func freeWorker(
    _ worker: Int,
    with settlement: Settlement,
    countsAsAttempt: Bool
  ) -> Bool {
    let wakesFinisher = outbox.add(settlement)
    freeWorker(worker, countsAsAttempt: countsAsAttempt)
    return wakesFinisher
  }

  /// Starts storing the settlements in the outbox.
  ///
  /// - Returns: The settlements; `nil` if there are none, if the store has failed, or if another
  ///   caller is still storing some. That caller then stores the rest.
  mutating func takeOutbox() -> [Settlement]? { failure == nil ? outbox.takeWaiting() : nil }

  /// Records that the store has answered: each settlement is stored, or is back in the outbox.
  ///
  /// - Returns: Whether a worker was waiting for that, and the commands that arrived for the tasks
  ///   while their settlements were being stored.
  mutating func finishStoring() -> (wakesWorkers: Bool, commands: [PendingCommand]) {
    let (settlements, wakesWorkers) = outbox.finishStoring()
    // A retry may be due at once, but not in a pass, which leaves its retries to the next pass.
    // `reportStored(_:)` reports other tasks that have become available.
    if mode == .untilStopped { claims.markResultOutdated() }
    guard !pendingCommands.isEmpty else { return (wakesWorkers, []) }
    return (wakesWorkers, settlements.compactMap { takeCommand(for: $0.record.id) })
  }

  /// Puts settlements that could not be stored back into the outbox.
  mutating func returnToOutbox(_ settlements: [Settlement]) {
    outbox.putBack(settlements)
  }

  // MARK: Claimed tasks that have not started

  /// Removes and returns the claimed task that starts next.
  mutating func takeReady() -> ClaimedTask? {
    // Popping the only element would copy the array, which the caller of the claim still
    // references.
    guard ready.count == 1 else { return ready.popLast() }
    defer { ready = [] }
    return ready[0]
  }

  /// Removes and returns the claimed tasks that can't start because the queue is paused.
  mutating func takeUnstartedDuringPause() -> [ClaimedTask] {
    guard isPaused, !guaranteesProgress, !ready.isEmpty else { return [] }
    guaranteesProgress = true
    return takeUnstarted()
  }

  /// Whether an attempt may begin although the queue is paused.
  var admitsAttempts: Bool {
    isPaused && guaranteesProgress && mode != nil && !isStopping
      && (claims.isInFlight || !ready.isEmpty)
  }

  /// Removes and returns the claimed tasks that have not started and satisfy a predicate.
  ///
  /// The caller releases the tasks, and then calls ``finishRelease(of:)``. Until that call, the
  /// tasks count as leased by the queue, so that commands for them are not lost.
  mutating func takeUnstarted(
    where isIncluded: (TaskRecord) -> Bool = { _ in true }
  ) -> [ClaimedTask] {
    let taken = ready.filter { isIncluded($0.record) }
    ready.removeAll { isIncluded($0.record) }
    for task in taken {
      concurrencyLimits.removeLeased(named: task.record.name)
      beingReleased.insert(task.lease)
    }
    return taken.reversed()
  }

  /// Whether more claimed tasks wait to start than there are idle workers.
  var hasExcessTasks: Bool { ready.count > idle }

  /// Removes and returns the tasks for which no worker is idle, if an interrupted task was claimed
  /// with them.
  mutating func takeExcessPrefetched() -> [ClaimedTask] {
    guard hasExcessTasks && prefetch.isCareful else { return [] }
    // The next task is the last element.
    let tooMany = Set(ready.prefix(ready.count - idle).map(\.record.id))
    return takeUnstarted { tooMany.contains($0.id) }
  }

  /// Removes and returns the prefetched tasks of a claim that no worker has started in time.
  ///
  /// This also makes the queue prefetch fewer tasks, because attempts take longer than expected.
  mutating func takeOverdue(ofClaim number: Int) -> [ClaimedTask] {
    guard claims.count == number, !claims.isInFlight, hasExcessTasks else { return [] }
    prefetch.noteLongWait()
    return takeUnstarted()
  }

  /// Records that tasks are released, or that their releases wait in the outbox because the store
  /// has failed.
  ///
  /// - Returns: The commands that arrived for the released tasks during the release.
  mutating func finishRelease(of tasks: [ClaimedTask]) -> [PendingCommand] {
    for task in tasks { beingReleased.remove(task.lease) }
    claims.markResultOutdated()
    guard !pendingCommands.isEmpty else { return [] }
    return tasks.compactMap { isUnsettled($0.record.id) ? nil : takeCommand(for: $0.record.id) }
  }

  /// Returns whether a task is being released.
  func isBeingReleased(_ id: TaskID) -> Bool { beingReleased.contains { $0.id == id } }

  /// Whether the finisher can wait for a store that is temporarily unavailable.
  var finisherCanWait: Bool { mode != nil && !wasCancelled && !cutsShort }

  // MARK: Commands

  /// Returns whether the command for a task stays pending when a run ends.
  ///
  /// It does if the task is still leased, because its settlement is in the outbox or a pause is
  /// releasing it, or if the command could not be carried out.
  func commandOutlastsRun(for id: TaskID) -> Bool {
    outbox.isWaiting(id) || isBeingReleased(id) || failedCommands.contains(id)
  }

  /// Removes and returns the commands that could not be carried out; none if the store has failed.
  ///
  /// The caller retries the commands, and calls ``endCommand(for:)`` for each.
  mutating func takeFailedCommands() -> [PendingCommand] {
    guard failure == nil, !failedCommands.isEmpty else { return [] }
    let ids = failedCommands
    failedCommands = []
    return ids.compactMap { takeCommand(for: $0) }
  }

  /// Removes and returns the command for a task that the queue no longer leases.
  ///
  /// The caller carries out the command, and then calls ``endCommand(for:)``.
  mutating func takeCommand(for id: TaskID) -> PendingCommand? {
    guard !pendingCommands.isEmpty, let request = pendingCommands.removeValue(forKey: id) else {
      return nil
    }
    commandsUnderWay.append(request)
    return request
  }

  /// Records that the command for a task has been carried out, or is pending again.
  mutating func endCommand(for id: TaskID) {
    if let index = commandsUnderWay.firstIndex(where: { $0.id == id }) {
      commandsUnderWay.remove(at: index)
    }
    claims.markResultOutdated()
  }

  /// Returns whether a command for a task is pending or being carried out.
  func hasCommand(for id: TaskID) -> Bool { pendingCommands[id] != nil || isCarryingOut(id) }

  /// Returns whether a command for a task is being carried out.
  func isCarryingOut(_ id: TaskID) -> Bool { commandsUnderWay.contains { $0.id == id } }
}
