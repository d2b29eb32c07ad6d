import SteadfastQueue

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
