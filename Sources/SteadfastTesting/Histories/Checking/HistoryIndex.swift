import SteadfastQueue

/// An index of a history by task.
struct HistoryIndex: Sendable {
  /// A call that has been announced and not answered yet.
  private struct Call {
    let asked: HistoryPlace
    var changes: [HistoryChange] = []
    var isClaim = false
    var seconds: Double?
  }

  /// The identity of a call.
  ///
  /// It includes the file, because processes on two machines may have the same name.
  private struct CallName: Hashable {
    let source: Int
    let process: String
    let number: Int
  }

  private(set) var lives: [TaskID: TaskLife] = [:]
  /// Unanswered calls that may have claimed tasks without any process receiving them.
  private(set) var lostClaims: [(asked: HistoryPlace, seconds: Double?)] = []
  private(set) var openings: [HistoryPlace] = []
  private(set) var faultsEnd: HistoryPlace?
  private(set) var remainingTasks: HistoryPlace?
  private var pending: [CallName: Call] = [:]
  private var attempts: [CallName: (task: TaskID, index: Int)] = [:]

  init(_ history: History) {
    for (source, lines) in history.sources.map(\.lines).enumerated() {
      for (line, value) in lines.enumerated() {
        add(value, at: HistoryPlace(date: value.date, source: source, line: line))
      }
    }
    for call in pending.values { recordEnd(of: call, at: nil, outcomes: nil, isRefused: false) }
    pending = [:]
    for id in lives.keys {
      lives[id]?.claims.sort { $0.answered < $1.answered }
      lives[id]?.attempts.sort { $0.began < $1.began }
    }
  }

  /// The lives of all tasks, in the order of their IDs.
  var tasks: [TaskLife] { lives.values.sorted { $0.id < $1.id } }

  private mutating func add(_ line: HistoryLine, at place: HistoryPlace) {
    func name(_ number: Int) -> CallName {
      CallName(source: place.source, process: line.process, number: number)
    }
    switch line.event {
    case .opening: openings.append(place)
    case .asked(let call, let changes): pending[name(call)] = Call(asked: place, changes: changes)
    case .claiming(let call, let seconds):
      pending[name(call)] = Call(asked: place, isClaim: true, seconds: seconds)
    case .answered(let call, let outcomes):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: place, outcomes: outcomes, isRefused: false)
    case .granted(let call, let tasks):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      for task in tasks {
        lives[task.task, default: TaskLife(task.task)].claims.append(
          HistoryClaim(grant: task, asked: asked.asked, answered: place, seconds: asked.seconds)
        )
      }
    case .refused(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: place, outcomes: nil, isRefused: true)
    case .unanswered(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      recordEnd(of: asked, at: nil, outcomes: nil, isRefused: false)
    case .attemptBegan(let attempt, let task, let lease):
      let index = lives[task, default: TaskLife(task)].attempts.count
      attempts[name(attempt)] = (task, index)
      lives[task, default: TaskLife(task)].attempts.append(
        HistoryAttempt(lease: lease, began: place, ended: nil)
      )
    case .attemptEnded(let attempt):
      guard let (task, index) = attempts[name(attempt)] else { return }
      lives[task]?.attempts[index].ended = place
    case .faultsEnded: faultsEnd = place
    case .remaining(let tasks):
      remainingTasks = place
      for task in tasks {
        lives[task.id, default: TaskLife(task.id)].remaining = task.state ?? ""
      }
    }
  }

  /// Records the changes that a call made or may have made.
  private mutating func recordEnd(
    of call: Call,
    at answered: HistoryPlace?,
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
        case .stale, .replaced, .duplicate, .identityTaken, .unmetDependency, .batchRefused,
          .valueDiffers, .other:
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

  /// Records a cascade of a step to another task.
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
        .update, .extend, .prune, .rebase, .remember, .complete, .setValue, .other:
        break
      }
    case .replaced, .superseded:
      lives[id, default: TaskLife(id)].takenOver.append(step.asked)
    case nil, .stale, .duplicate, .identityTaken, .unmetDependency, .batchRefused, .valueDiffers,
      .other:
      break
    }
  }
}

/// A change in a history, with its outcome as far as it is known.
struct HistoryStep: Sendable {
  enum Result: Sendable { case done, skipped, unknown }

  let kind: HistoryChange.Kind
  let lease: UInt64?
  let asked: HistoryPlace
  /// The place of the answer; `nil` if there is none.
  ///
  /// A call without an answer may take effect at any later time.
  let answered: HistoryPlace?
  let result: Result
  /// The change's index in its call.
  var index = 0
  var retryCount: Int?
  var seconds: Double?
  var outcome: HistoryOutcome?

  /// Whether the change may have been made.
  var mayBeDone: Bool { result != .skipped }
  var isDone: Bool { result == .done }

  /// Returns whether the change was certainly made before a place.
  func isCertainlyBefore(_ place: HistoryPlace) -> Bool {
    answered?.isCertainlyBefore(place) ?? false
  }

  /// Whether the change ends the claim that it names.
  var endsClaim: Bool {
    switch kind {
    case .succeed, .retry, .abandon, .release, .park, .suspend, .cancel, .pause, .restart,
      .reschedule:
      lease != nil
    case .insert, .unpark, .resume, .update, .remove, .extend, .prune, .rebase, .remember,
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
      .update, .remove, .extend, .prune, .rebase, .remember, .complete, .setValue, .other:
      false
    }
  }
}

/// A claim of a task in a history.
struct HistoryClaim: Sendable {
  let grant: HistoryGrant
  let asked: HistoryPlace
  let answered: HistoryPlace
  /// The claim's duration unless it is extended; `nil` in a store with one queue.
  let seconds: Double?

  /// Returns whether this claim was certainly made before the other claim.
  func isCertainlyBefore(_ other: HistoryClaim) -> Bool {
    answered.isCertainlyBefore(other.asked)
  }
}

/// An attempt that a handler has recorded.
struct HistoryAttempt: Sendable {
  let lease: UInt64?
  let began: HistoryPlace
  /// The place where the attempt ended; `nil` if its process ended first.
  var ended: HistoryPlace?
}

/// Everything in a history that concerns a task.
struct TaskLife: Sendable {
  let id: TaskID
  var insertions: [HistoryStep] = []
  var description: HistoryTask?
  /// The other changes that concern the task, in the order of their requests.
  var steps: [HistoryStep] = []
  /// The task's claims, in the order of their answers; the requests may have another order.
  var claims: [HistoryClaim] = []
  var attempts: [HistoryAttempt] = []
  /// The state of the task if it remained in the store.
  var remaining: String?
  /// The places where another task with the key, superseded or replacing, may have changed the
  /// counts.
  var takenOver: [HistoryPlace] = []

  init(_ id: TaskID) { self.id = id }

  /// Returns the claim with a lease.
  func claim(with lease: UInt64?) -> HistoryClaim? { claims.first { $0.grant.lease == lease } }

  var ends: [HistoryStep] { steps.filter { $0.endsTask && $0.isDone } }
  var restarts: [HistoryStep] { steps.filter { $0.kind == .restart && $0.mayBeDone } }

  /// Returns whether the task may have ended or been removed before a place.
  func mayHaveEnded(by place: HistoryPlace) -> Bool {
    steps.contains { step in
      (step.endsTask || step.kind == .remove) && step.mayBeDone
        && !place.isCertainlyBefore(step.asked)
    }
  }
}
