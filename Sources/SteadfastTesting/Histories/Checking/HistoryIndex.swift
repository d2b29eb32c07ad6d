import SteadfastQueue

/// A history, ordered by the tasks that it concerns.
struct HistoryIndex: Sendable {
  /// A call, from the line that announces it on.
  private struct Call {
    let asked: HistoryPlace
    var changes: [HistoryChange] = []
    var isClaim = false
    var seconds: Double?
  }

  /// Two files may be those of processes with one name, which ran on two machines.
  private struct CallName: Hashable {
    let source: Int
    let process: String
    let number: Int
  }

  private(set) var lives: [TaskID: TaskLife] = [:]
  /// Claims that may have handed out tasks to no process.
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
    for call in pending.values { end(call, at: nil, outcomes: nil, isRefused: false) }
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
      end(asked, at: place, outcomes: outcomes, isRefused: false)
    case .granted(let call, let tasks):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      for task in tasks {
        lives[task.task, default: TaskLife(task.task)].claims.append(
          HistoryClaim(grant: task, asked: asked.asked, answered: place, seconds: asked.seconds)
        )
      }
    case .refused(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      end(asked, at: place, outcomes: nil, isRefused: true)
    case .unanswered(let call, _):
      guard let asked = pending.removeValue(forKey: name(call)) else { return }
      end(asked, at: nil, outcomes: nil, isRefused: false)
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

  /// Notes what a call has done, or may have done.
  private mutating func end(
    _ call: Call,
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
      note(step, of: change)
    }
  }

  private mutating func note(_ step: HistoryStep, of change: HistoryChange) {
    for id in step.outcome?.tasks ?? [] {
      noteAlong(id, step)
    }
    guard let id = change.task else { return }
    if change.kind == .insert {
      lives[id, default: TaskLife(id)].insertions.append(step)
      lives[id]?.description = change.new
    } else {
      lives[id, default: TaskLife(id)].steps.append(step)
    }
  }

  /// Notes what a step means for another task.
  private mutating func noteAlong(_ id: TaskID, _ step: HistoryStep) {
    func along(_ kind: HistoryChange.Kind) -> HistoryStep {
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
        lives[id, default: TaskLife(id)].steps.append(along(.cancel))
      case .restart: lives[id, default: TaskLife(id)].steps.append(along(.restart))
      case .remove: lives[id, default: TaskLife(id)].steps.append(along(.remove))
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

/// A change that a history shows, and what is known of its outcome.
struct HistoryStep: Sendable {
  enum Result: Sendable { case done, skipped, unknown }

  let kind: HistoryChange.Kind
  let lease: UInt64?
  let asked: HistoryPlace
  /// Where the answer is; `nil` if there is none.
  ///
  /// A call without an answer may be carried out at any time.
  let answered: HistoryPlace?
  let result: Result
  /// Its place among the changes of its call.
  var index = 0
  var retryCount: Int?
  var seconds: Double?
  var outcome: HistoryOutcome?

  /// Whether it may have been carried out.
  var mayBeDone: Bool { result != .skipped }
  var isDone: Bool { result == .done }

  /// Whether it is certain to have happened earlier than what is at a place.
  func isCertainlyBefore(_ place: HistoryPlace) -> Bool {
    answered?.isCertainlyBefore(place) ?? false
  }

  /// Whether it ends the claim that it names.
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

  /// Whether it ends the task.
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

/// A claim that a history shows.
struct HistoryClaim: Sendable {
  let grant: HistoryGrant
  let asked: HistoryPlace
  let answered: HistoryPlace
  /// How long it lasts unless it is extended; `nil` in a store that one queue uses.
  let seconds: Double?

  /// Whether it is certain to have been made earlier; two calls may overlap.
  func isCertainlyBefore(_ other: HistoryClaim) -> Bool {
    answered.isCertainlyBefore(other.asked)
  }
}

/// An attempt that a handler has recorded.
struct HistoryAttempt: Sendable {
  let lease: UInt64?
  let began: HistoryPlace
  /// `nil` if its process has ended first.
  var ended: HistoryPlace?
}

/// All that a history knows of a task.
struct TaskLife: Sendable {
  let id: TaskID
  var insertions: [HistoryStep] = []
  var description: HistoryTask?
  /// The other changes that concern it, in the order in which they were asked for.
  var steps: [HistoryStep] = []
  /// Its claims, in the order of their answers, which need not be the one in which they were made.
  var claims: [HistoryClaim] = []
  var attempts: [HistoryAttempt] = []
  /// The state in which it remained in the store.
  var remaining: String?
  /// Where its counts became those of another task with its unique key.
  var takenOver: [HistoryPlace] = []

  init(_ id: TaskID) { self.id = id }

  /// The claim with a lease.
  func claim(with lease: UInt64?) -> HistoryClaim? { claims.first { $0.grant.lease == lease } }

  var ends: [HistoryStep] { steps.filter { $0.endsTask && $0.isDone } }
  var restarts: [HistoryStep] { steps.filter { $0.kind == .restart && $0.mayBeDone } }

  /// Whether it may have ended by what is at a place.
  func mayHaveEnded(by place: HistoryPlace) -> Bool {
    steps.contains { step in
      (step.endsTask || step.kind == .remove) && step.mayBeDone
        && !place.isCertainlyBefore(step.asked)
    }
  }
}
