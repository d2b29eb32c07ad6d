/// A number that identifies one attempt of a queue in this process.
typealias AttemptNumber = UInt64

/// The attempt of a worker.
struct Attempt: Sendable, Equatable {
  let lease: Lease
  let name: String
  let number: AttemptNumber
  var command: TaskCommand?
  /// Whether the handler has ended, or was not called because of a command.
  var isOver = false
  /// Whether its Swift task was cancelled for the command.
  var isCutShort = false

  var id: TaskID { lease.id }
}

/// Requests for tasks that are leased.
///
/// ``requests`` contains only tasks that this queue leases but does not perform: tasks that have
/// not started, that are being released, or whose end is being stored. The code that ends the lease
/// of such a task carries out the task's request. Until then, later requests for the task wait.
/// If the store fails to carry out the request, the request stays, and its task is added to
/// ``failedCommands``.
extension WorkMachine {
  /// What happens to a request.
  enum RequestOutcome: Equatable {
    /// The request cuts this attempt of this worker short.
    case interrupt(worker: Int, AttemptNumber)
    /// The queue keeps the request, and carries it out instead of the next attempt, or when the
    /// task is released or its end is stored. The request replaces an earlier one that could not be
    /// carried out.
    case kept
    /// The request fails: the task is being performed, or an earlier request makes this one
    /// pointless.
    case refused
    /// The request can't wait: the task was prefetched, and it may take long until a worker is
    /// idle.
    case prefetched
    /// The request must wait: an earlier request for the task is being carried out.
    case afterAnother
    /// The caller carries out its request instead of this earlier one, because no run does. It then
    /// calls ``endCommand(for:)``.
    case insteadOf(TaskCommand)
    /// The queue does not lease the task.
    case notLeased
  }

  /// Decides how a request for a task is carried out.
  ///
  /// If `wasPending`, the request was pending until now, and its caller is carrying it out.
  mutating func request(
    _ command: TaskCommand,
    of id: TaskID,
    wasPending: Bool = false
  ) -> RequestOutcome {
    if !wasPending, isCarryingOut(id) { return .afterAnother }
    for (worker, attempt) in attempts.enumerated() {
      guard let attempt, attempt.id == id, !attempt.isOver else { continue }
      guard command.cutsShort else { return .refused }
      // A request that failed and was restored during the attempt counts as an earlier one, too.
      let earlier = [attempt.command, pendingCommands[id]?.command].compactMap(\.self)
      if earlier.contains(where: command.isPointless(after:)) { return .refused }
      pendingCommands[id] = nil
      attempts[worker]?.command = command
      return .interrupt(worker: worker, attempt.number)
    }
    let isReady = ready.contains { $0.record.id == id }
    if isReady && hasExcessTasks { return .prefetched }
    let isHeld = isReady || isUnsettled(id) || isBeingReleased(id)
    guard isHeld || hasFailedCommand(for: id) else { return .notLeased }
    if let asked = pendingCommands[id]?.command, command.isPointless(after: asked) {
      return .refused
    }
    // There may be no further run.
    if !isHeld, mode == nil, let earlier = takeCommand(for: id) {
      return .insteadOf(earlier.command)
    }
    pendingCommands[id] = PendingCommand(
      id: id,
      command: command,
      inDoubtChange: pendingCommands[id]?.inDoubtChange
    )
    return .kept
  }

  /// Marks all attempts whose tasks require a condition as to be interrupted.
  ///
  /// - Returns: The workers of these attempts.
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

  /// The result of withdrawing the request to pause a task.
  enum Withdrawal {
    /// The task will not be paused.
    case done
    /// The request is withdrawn, but the store, which failed, may have paused the task already.
    case inDoubt(PendingCommand)
    /// The caller must wait: an earlier request for the task is being carried out.
    case afterAnother
    /// There is no such request.
    case notRequested
  }

  /// Withdraws the request to pause a task.
  mutating func withdrawPause(of id: TaskID) -> Withdrawal {
    if isCarryingOut(id) { return .afterAnother }
    if let asked = pendingCommands[id], asked.command == .pause {
      pendingCommands[id] = nil
      return asked.inDoubtChange == nil ? .done : .inDoubt(asked)
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

  /// Restores a request that could not be carried out, unless a later request replaces it.
  ///
  /// If it is in doubt whether the store has carried out the request, the doubt remains.
  mutating func restoreCommand(_ command: TaskCommand, for id: TaskID) {
    let inDoubtChange = inDoubtChange(for: id)
    if let later = pendingCommands[id]?.command, !later.isPointless(after: command) {
      pendingCommands[id]?.inDoubtChange = inDoubtChange
      return
    }
    pendingCommands[id] = PendingCommand(id: id, command: command, inDoubtChange: inDoubtChange)
    failedCommands.append(id)
  }

  /// Restores a withdrawn request, because the request for which it was withdrawn has failed.
  ///
  /// If a later request for the task exists, that one stays instead. If it is in doubt whether the
  /// store has carried out the withdrawn request, the doubt remains.
  mutating func restoreCommand(_ request: PendingCommand) {
    guard pendingCommands[request.id] == nil else {
      if pendingCommands[request.id]?.inDoubtChange == nil {
        pendingCommands[request.id]?.inDoubtChange = request.inDoubtChange
      }
      return
    }
    pendingCommands[request.id] = request
    failedCommands.append(request.id)
  }

  private func hasFailedCommand(for id: TaskID) -> Bool {
    pendingCommands[id] != nil && failedCommands.contains(id)
  }

  /// Ends the attempt of a worker, whose handler has ended.
  ///
  /// From now on the attempt reports nothing more. A later request for its task is carried out when
  /// the end of the attempt is stored.
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

  /// Returns whether the attempt of a worker is to be cut short.
  func mustInterrupt(_ worker: Int) -> Bool {
    guard let attempt = attempts[worker], !attempt.isOver else { return false }
    return cutsShort || attempt.command != nil
  }

  /// Records that the Swift task of a worker was cancelled.
  mutating func markInterrupted(_ worker: Int) { attempts[worker]?.isCutShort = true }

  /// Returns whether an attempt goes on although it is to be cut short.
  func isWaitingForInterruption(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker], attempt.number == number else { return false }
    return !attempt.isOver && !attempt.isCutShort
  }

  /// Returns whether a worker performs this attempt, and no command is to cut the attempt short.
  func isUnderWay(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver && attempt.command == nil
  }

  /// Returns whether a worker's handler performs this attempt.
  func isHandlerRunning(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver
  }

  /// The number of busy workers.
  var performing: Int { attempts.count - idle }

  /// Returns whether a task has an attempt whose end is not stored and reported yet.
  func isUnsettled(_ id: TaskID) -> Bool {
    attempts.contains { $0?.id == id } || outbox.contains(id)
  }

  /// The leases of all claimed tasks whose end is not stored yet.
  ///
  /// Each task has only one lease here, even if the task was claimed again before the end of its
  /// previous attempt was reported.
  var leases: [Lease] {
    let all =
      attempts.compactMap { $0?.lease } + ready.map(\.lease)
      + outbox.all.compactMap(\.change.lease)
    var ids: Set<TaskID> = []
    return all.filter { ids.insert($0.id).inserted }
  }

  /// Drops the lease of a task that another queue has claimed since.
  ///
  /// If this queue performs the task, the store refuses the end of that attempt as stale.
  ///
  /// - Returns: The worker whose attempt is to be cut short, if there is one.
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
  fileprivate var isPause: Bool { if case .pause = change { true } else { false } }
}

/// Ending leases: settlements to store, and claimed tasks that have not started.
extension WorkMachine {
  /// Makes a worker idle, and adds the settlement of its attempt to the outbox, to be stored.
  ///
  /// - Returns: Whether to wake the finisher.
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

  /// Ends the storing of settlements, which are now stored or back in the outbox.
  ///
  /// - Returns: Whether a worker waited for capacity, and the requests that arrived for the tasks
  ///   while their settlements were being stored.
  mutating func finishStoring() -> (wakesWorkers: Bool, commands: [PendingCommand]) {
    let (settlements, wakesWorkers) = outbox.finishStoring()
    // A retry may be due at once. In a pass, it is not due before the next pass, and
    // `reportStored(_:)` reports other new work.
    if mode == .untilStopped { claims.markResultOutdated() }
    guard !pendingCommands.isEmpty else { return (wakesWorkers, []) }
    return (wakesWorkers, settlements.compactMap { takeCommand(for: $0.record.id) })
  }

  /// Puts settlements that could not be stored back into the outbox.
  mutating func returnToOutbox(_ settlements: [Settlement]) {
    outbox.putBack(settlements)
  }

  // MARK: Claimed tasks that were not begun

  /// Removes and returns the next task.
  mutating func takeReady() -> ClaimedTask? {
    // Take a single task without changing the array, which the caller that claimed it still holds.
    guard ready.count == 1 else { return ready.popLast() }
    defer { ready = [] }
    return ready[0]
  }

  /// Removes and returns the claimed tasks that a pause keeps from starting.
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

  /// Removes and returns the claimed tasks that match `isIncluded` and have not started.
  ///
  /// The caller releases the tasks, and then calls ``finishRelease(of:)``. Until that call, the
  /// tasks count as leased by the queue, so that requests for them are not lost.
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

  /// Whether the claimed tasks that have not started outnumber the idle workers.
  var hasExcessTasks: Bool { ready.count > idle }

  /// Removes and returns the tasks that were prefetched together with an interrupted task.
  mutating func takeExcessPrefetched() -> [ClaimedTask] {
    guard hasExcessTasks && prefetch.isCareful else { return [] }
    // The next task is the last element.
    let tooMany = Set(ready.prefix(ready.count - idle).map(\.record.id))
    return takeUnstarted { tooMany.contains($0.id) }
  }

  /// Removes and returns the prefetched tasks of this claim that no worker has started in time.
  ///
  /// Attempts take longer than expected, so the queue then prefetches fewer tasks.
  mutating func takeOverdue(ofClaim number: Int) -> [ClaimedTask] {
    guard claims.count == number, !claims.isInFlight, hasExcessTasks else { return [] }
    prefetch.noteLongWait()
    return takeUnstarted()
  }

  /// Ends the release of tasks that had not started.
  ///
  /// The tasks are released now, or wait in the outbox because the store has failed.
  ///
  /// - Returns: The requests that arrived for released tasks during the release.
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

  // MARK: Requests

  /// Returns whether the request for a task stays when a run ends.
  ///
  /// At the end of a run, only tasks in the outbox, and tasks that a pause is releasing, are still
  /// leased.
  func commandOutlastsRun(for id: TaskID) -> Bool {
    outbox.isWaiting(id) || isBeingReleased(id) || failedCommands.contains(id)
  }

  /// Removes and returns the requests that could not be carried out, so that the caller retries
  /// them, and then calls ``endCommand(for:)`` for each.
  ///
  /// - Returns: The requests; none if the store has failed.
  mutating func takeFailedCommands() -> [PendingCommand] {
    guard failure == nil, !failedCommands.isEmpty else { return [] }
    let ids = failedCommands
    failedCommands = []
    return ids.compactMap { takeCommand(for: $0) }
  }

  /// Removes and returns the request for a task that the queue no longer leases.
  ///
  /// The caller carries out the request, and then calls ``endCommand(for:)``.
  mutating func takeCommand(for id: TaskID) -> PendingCommand? {
    guard !pendingCommands.isEmpty, let request = pendingCommands.removeValue(forKey: id) else {
      return nil
    }
    commandsUnderWay.append(request)
    return request
  }

  /// Records that the request for a task is no longer being carried out: it is done or restored.
  mutating func endCommand(for id: TaskID) {
    if let index = commandsUnderWay.firstIndex(where: { $0.id == id }) {
      commandsUnderWay.remove(at: index)
    }
    claims.markResultOutdated()
  }

  /// Returns whether a task has a request that is not done yet.
  func hasCommand(for id: TaskID) -> Bool { pendingCommands[id] != nil || isCarryingOut(id) }

  /// Returns whether a request for a task is being carried out.
  func isCarryingOut(_ id: TaskID) -> Bool { commandsUnderWay.contains { $0.id == id } }

  /// Returns the doubt whether the store has already made the change for a request that is being
  /// carried out; `nil` if there is no doubt.
  func inDoubtChange(for id: TaskID) -> PendingCommand.InDoubtChange? {
    commandsUnderWay.first { $0.id == id }?.inDoubtChange
  }

  mutating func setInDoubtChange(_ inDoubtChange: PendingCommand.InDoubtChange?, for id: TaskID) {
    guard let index = commandsUnderWay.firstIndex(where: { $0.id == id }) else { return }
    commandsUnderWay[index].inDoubtChange = inDoubtChange
  }
}
