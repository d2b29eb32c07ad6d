import SteadfastQueue

/// The events of a history, sorted by task.
struct HistoryIndex: Sendable {
  /// A call whose result has not been found in the history yet.
  private struct Call {
    let asked: HistoryPosition
    var changes: [HistoryChange] = []
    var isClaim = false
    var seconds: Double?
  }

  /// Identifies a call by its file, its process and its number.
  ///
  /// The file is needed because processes on two machines may have the same name.
  private struct CallName: Hashable {
    let source: Int
    let process: String
    let number: Int
  }

  private(set) var lives: [TaskID: TaskLife] = [:]
  /// Claims without a result: the store may have claimed tasks that no process received.
  private(set) var lostClaims: [(asked: HistoryPosition, seconds: Double?)] = []
  private(set) var openings: [HistoryPosition] = []
  private(set) var faultsEnd: HistoryPosition?
  private(set) var remainingTasks: HistoryPosition?
  private var pending: [CallName: Call] = [:]
  private var attempts: [CallName: (task: TaskID, index: Int)] = [:]

  init(_ history: History) {
    for (source, lines) in history.sources.map(\.lines).enumerated() {
      for (line, value) in lines.enumerated() {
        add(value, at: HistoryPosition(date: value.date, source: source, line: line))
      }
    }
    for call in pending.values { recordEnd(of: call, at: nil, outcomes: nil, isRefused: false) }
    pending = [:]
    for id in lives.keys {
      lives[id]?.claims.sort { $0.answered < $1.answered }
      lives[id]?.attempts.sort { $0.began < $1.began }
    }
  }

  /// The events of each task, in the order of the tasks' IDs.
  var tasks: [TaskLife] { lives.values.sorted { $0.id < $1.id } }

  private mutating func add(_ line: HistoryLine, at position: HistoryPosition) {
    func name(_ number: Int) -> CallName {
      CallName(source: position.source, process: line.process, number: number)
    }
    switch line.event {
    case .opening: openings.append(position)
    case .asked(let call, let changes):
      pending[name(call)] = Call(asked: position, changes: changes)
    case .claiming(let call, let seconds):
      pending[name(call)] = Call(asked: position, isClaim: true, seconds: seconds)
    case .answered(let call, let outcomes):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: position, outcomes: outcomes, isRefused: false)
    case .granted(let call, let tasks):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      for task in tasks {
        lives[task.task, default: TaskLife(task.task)].claims.append(
          HistoryClaim(grant: task, asked: asked.asked, answered: position, seconds: asked.seconds)
        )
      }
    case .refused(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: position, outcomes: nil, isRefused: true)
    case .unanswered(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: nil, outcomes: nil, isRefused: false)
    case .attemptBegan(let attempt, let task, let lease):
      let index = lives[task, default: TaskLife(task)].attempts.count
      attempts[name(attempt)] = (task, index)
      lives[task, default: TaskLife(task)].attempts.append(
        HistoryAttempt(lease: lease, began: position, ended: nil)
      )
    case .attemptEnded(let attempt):
      guard let (task, index) = attempts[name(attempt)] else { return }
      lives[task]?.attempts[index].ended = position
    case .faultsEnded: faultsEnd = position
    case .remaining(let tasks):
      remainingTasks = position
      for task in tasks {
        lives[task.id, default: TaskLife(task.id)].remaining = task.state ?? ""
      }
    }
  }

  /// Records the changes that a call made or may have made.
  private mutating func recordEnd(
    of call: Call,
    at answered: HistoryPosition?,
    outcomes: [HistoryOutcome]?,
    isRefused: Bool
  ) {
    if call.isClaim {
      if !isRefused { lostClaims.append((call.asked, call.seconds)) }
      return
    }
    for (index, change) in call.changes.enumerated() {
      let outcome = outcomes.flatMap { $0.indices.contains(index) ? $0[index] : nil }
      let result: HistoryStep.Result =
        switch outcome?.kind {
        case nil: isRefused ? .skipped : .unknown
        case .done, .superseded: .done
        case .stale, .commanded, .replaced, .duplicate, .identityTaken, .unmetDependency,
          .batchRefused, .valueDiffers, .other:
          .skipped
        }
      let step = HistoryStep(
        kind: change.kind,
        lease: change.lease,
        asked: call.asked,
        answered: answered,
        result: result,
        index: index,
        retryCount: change.retryCount,
        seconds: change.seconds,
        outcome: outcome
      )
      addStep(step, of: change)
    }
  }

  private mutating func addStep(_ step: HistoryStep, of change: HistoryChange) {
    for id in step.outcome?.tasks ?? [] {
      recordCascade(of: step, to: id)
    }
    guard let id = change.task else { return }
    if change.kind == .insert {
      lives[id, default: TaskLife(id)].insertions.append(step)
      lives[id]?.description = change.new
    } else {
      lives[id, default: TaskLife(id)].steps.append(step)
    }
  }

  /// Records how a change of one task affected another task, which the outcome names.
  private mutating func recordCascade(of step: HistoryStep, to id: TaskID) {
    func cascade(_ kind: HistoryChange.Kind) -> HistoryStep {
      HistoryStep(
        kind: kind,
        lease: nil,
        asked: step.asked,
        answered: step.answered,
        result: step.result
      )
    }
    switch step.outcome?.kind {
    case .done:
      switch step.kind {
      case .succeed, .abandon, .cancel:
        lives[id, default: TaskLife(id)].steps.append(cascade(.cancel))
      case .restart: lives[id, default: TaskLife(id)].steps.append(cascade(.restart))
      case .remove: lives[id, default: TaskLife(id)].steps.append(cascade(.remove))
      case .insert, .retry, .release, .park, .suspend, .pause, .reschedule, .unpark, .resume,
        .update, .extend, .command, .prune, .rebase, .remember, .complete, .setValue, .other:
        break
      }
    case .replaced, .superseded:
      lives[id, default: TaskLife(id)].takenOver.append(step.asked)
    case nil, .stale, .commanded, .duplicate, .identityTaken, .unmetDependency, .batchRefused,
      .valueDiffers, .other:
      break
    }
  }
}

/// A change in a history, with its outcome as far as it is known.
struct HistoryStep: Sendable {
  enum Result: Sendable { case done, skipped, unknown }

  let kind: HistoryChange.Kind
  let lease: UInt64?
  /// The position of the request.
  let asked: HistoryPosition
  /// The position of the response; `nil` if there is none.
  ///
  /// A call without a response may take effect at any later time.
  let answered: HistoryPosition?
  let result: Result
  /// The change's index in its call.
  var index = 0
  var retryCount: Int?
  var seconds: Double?
  var outcome: HistoryOutcome?

  /// Whether the change may have been made.
  var mayBeDone: Bool { result != .skipped }
  var isDone: Bool { result == .done }

  /// Returns whether the change was certainly made before the line at a position was written.
  func isCertainlyBefore(_ position: HistoryPosition) -> Bool {
    answered?.isCertainlyBefore(position) ?? false
  }

  /// Whether the change ends the claim whose lease it has.
  var endsClaim: Bool {
    switch kind {
    case .succeed, .retry, .abandon, .release, .park, .suspend, .cancel, .pause, .restart,
      .reschedule:
      lease != nil
    case .insert, .unpark, .resume, .update, .remove, .extend, .command, .prune, .rebase, .remember,
      .complete, .setValue, .other:
      false
    }
  }

  /// Whether the change ends the task.
  var endsTask: Bool {
    switch kind {
    case .succeed, .abandon, .cancel: true
    case .retry: outcome?.kind == .superseded
    case .insert, .release, .park, .suspend, .pause, .restart, .reschedule, .unpark, .resume,
      .update, .remove, .extend, .command, .prune, .rebase, .remember, .complete, .setValue, .other:
      false
    }
  }
}

/// A claim of a task in a history.
struct HistoryClaim: Sendable {
  let grant: HistoryGrant
  /// The position of the request.
  let asked: HistoryPosition
  /// The position of the response.
  let answered: HistoryPosition
  /// The requested duration of the claim; `nil` in a store with one queue.
  let seconds: Double?

  /// Returns whether this claim was certainly made before the other claim.
  func isCertainlyBefore(_ other: HistoryClaim) -> Bool {
    answered.isCertainlyBefore(other.asked)
  }
}

/// An attempt that a handler has recorded in a history.
struct HistoryAttempt: Sendable {
  let lease: UInt64?
  let began: HistoryPosition
  /// The position of the line about the end; `nil` if the process ended first.
  var ended: HistoryPosition?
}

/// The events of one task in a history.
struct TaskLife: Sendable {
  let id: TaskID
  var insertions: [HistoryStep] = []
  var description: HistoryTask?
  /// The changes of the task other than insertions, in the order of their requests.
  var steps: [HistoryStep] = []
  /// The task's claims, in the order of their responses; the requests may have another order.
  var claims: [HistoryClaim] = []
  var attempts: [HistoryAttempt] = []
  /// The task's state at the end; `nil` if the task was no longer in the store.
  var remaining: String?
  /// The positions of requests that may have changed the task's counts: an insertion that replaced
  /// this task, or a retry of a task that this task superseded.
  var takenOver: [HistoryPosition] = []

  init(_ id: TaskID) { self.id = id }

  /// Returns the claim that has this lease.
  func claim(with lease: UInt64?) -> HistoryClaim? { claims.first { $0.grant.lease == lease } }

  var ends: [HistoryStep] { steps.filter { $0.endsTask && $0.isDone } }
  var restarts: [HistoryStep] { steps.filter { $0.kind == .restart && $0.mayBeDone } }

  /// Returns whether the task may have ended or been removed before a position.
  func mayHaveEnded(by position: HistoryPosition) -> Bool {
    steps.contains { step in
      (step.endsTask || step.kind == .remove) && step.mayBeDone
        && !position.isCertainlyBefore(step.asked)
    }
  }
}
