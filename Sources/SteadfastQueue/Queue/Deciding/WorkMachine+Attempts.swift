#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A number that identifies one attempt of a queue in this process.
typealias AttemptNumber = UInt64

/// What a caller asks of a task, for example while the task is being performed.
enum Directive: Sendable, Equatable {
  case cancel, pause, remove
  /// Perform the task as if it were new, with or without what it remembers.
  case restart(forgets: Bool)
  /// Perform the task from this date on, or from now on if the date is past or `nil`.
  ///
  /// It is refused for a task that is being performed.
  case reschedule(to: Date?)
  /// Release the task: it was to be paused, and then was not.
  case release
}

extension Directive {
  /// Whether it cuts an attempt short.
  var cutsShort: Bool {
    switch self {
    case .cancel, .pause, .restart, .remove, .release: true
    case .reschedule: false
    }
  }

  /// Returns whether an earlier directive leaves nothing to do for this one.
  fileprivate func yields(to asked: Directive) -> Bool {
    switch (self, asked) {
    case (.pause, .cancel), (.pause, .remove), (.cancel, .remove): true
    case (.reschedule, _): asked.cutsShort
    case (.cancel, _), (.pause, _), (.restart, _), (.remove, _), (.release, _): false
    }
  }
}

/// A request that is carried out when the queue has let go of its task.
struct KeptRequest: Sendable {
  /// A change that the store has failed to store, and may have stored all the same.
  struct Doubt: Sendable {
    /// What the change was to carry out.
    let directive: Directive
    let settlement: Settlement
  }

  let id: TaskID
  let directive: Directive
  /// The doubt that is left of this request, or of one whose place it has taken.
  var doubt: Doubt?
}

/// The attempt of a worker.
struct Attempt: Sendable, Equatable {
  let lease: Lease
  let name: String
  let number: AttemptNumber
  var directive: Directive?
  /// Whether the handler has ended, or was not called because of a directive.
  var isOver = false
  /// Whether its Swift task was cancelled for the directive.
  var isCutShort = false

  var id: TaskID { lease.id }
}

/// Requests for tasks that are leased.
///
/// ``requests`` names only tasks that this queue holds: tasks that are claimed but not begun, tasks
/// that are being released, and tasks whose end is being stored. The code that lets go of such a
/// task carries out the request, and later ones wait until that is done. If the store fails then,
/// the request stays, and the task is one of ``unobeyed``.
extension WorkMachine {
  /// What happens to a request.
  enum RequestAnswer: Equatable {
    /// This attempt of this worker is to be cut short for it.
    case interrupt(worker: Int, AttemptNumber)
    /// It is carried out instead of the next attempt, or when the task is released or its end is
    /// stored. If an earlier request could not be carried out, it takes the place of that one.
    case kept
    /// It can't be done: the task is being performed, or an earlier request leaves nothing to do.
    case refused
    /// It can't wait: the task was claimed ahead, and it may take long until a worker is idle.
    case claimedAhead
    /// It must wait: an earlier request for the task is being carried out.
    case afterAnother
    /// The caller carries it out in place of this earlier one, which no run does now;
    /// ``obeyed(_:)`` follows.
    case insteadOf(Directive)
    /// The queue does not hold the task.
    case notHeld
  }

  /// Takes a request for a task, and returns what happens to it.
  ///
  /// If `isObeying`, the request was kept until now, and is being carried out.
  mutating func request(
    _ directive: Directive,
    of id: TaskID,
    isObeying: Bool = false
  ) -> RequestAnswer {
    if !isObeying, self.isObeying(id) { return .afterAnother }
    for (worker, attempt) in attempts.enumerated() {
      guard let attempt, attempt.id == id, !attempt.isOver else { continue }
      guard directive.cutsShort else { return .refused }
      // A request that was put back during the attempt is the earlier one, too.
      let earlier = [attempt.directive, requests[id]?.directive].compactMap(\.self)
      if earlier.contains(where: directive.yields(to:)) { return .refused }
      requests[id] = nil
      attempts[worker]?.directive = directive
      return .interrupt(worker: worker, attempt.number)
    }
    let isReady = ready.contains { $0.record.id == id }
    if isReady && isAhead { return .claimedAhead }
    let isHeld = isReady || isUnsettled(id) || isReturning(id)
    guard isHeld || isUnobeyed(id) else { return .notHeld }
    if let asked = requests[id]?.directive, directive.yields(to: asked) { return .refused }
    // There may be no further run.
    if !isHeld, mode == nil, let earlier = takeRequest(of: id) {
      return .insteadOf(earlier.directive)
    }
    requests[id] = KeptRequest(id: id, directive: directive, doubt: requests[id]?.doubt)
    return .kept
  }

  /// Asks all attempts to be cut short whose tasks require a condition.
  ///
  /// - Returns: Their workers.
  mutating func releaseAttempts(requiring condition: TaskCondition) -> [Int] {
    attempts.indices.filter { worker in
      guard let attempt = attempts[worker],
        requiredConditions[attempt.number]?.contains(condition) == true,
        !attempt.isOver, attempt.directive == nil
      else { return false }
      attempts[worker]?.directive = .release
      return true
    }
  }

  /// What becomes of the request to pause a task when it is withdrawn.
  enum Withdrawal {
    /// The task will not be paused.
    case done
    /// The task will not be paused, but the store may have paused it already, though it failed.
    case inDoubt(KeptRequest)
    /// The caller must wait: an earlier request for the task is being carried out.
    case afterAnother
    /// There is none.
    case notAsked
  }

  /// Withdraws the request to pause a task.
  mutating func withdrawPause(of id: TaskID) -> Withdrawal {
    if isObeying(id) { return .afterAnother }
    if let asked = requests[id], asked.directive == .pause {
      requests[id] = nil
      return asked.doubt == nil ? .done : .inDoubt(asked)
    }
    if let worker = attempts.firstIndex(where: { $0?.id == id }),
      attempts[worker]?.directive == .pause
    {
      if attempts[worker]?.isOver == true {
        requests[id] = KeptRequest(id: id, directive: .release)
      } else {
        // The attempt may have been cut short already, and must end.
        attempts[worker]?.directive = .release
      }
      return .done
    }
    guard outbox.all.contains(where: { $0.record.id == id && $0.isPause }) else {
      return .notAsked
    }
    requests[id] = KeptRequest(id: id, directive: .release)
    return .done
  }

  /// Keeps a request that could not be carried out, unless a later one takes its place.
  ///
  /// What is in doubt stays so.
  mutating func putBack(_ directive: Directive, of id: TaskID) {
    let doubt = doubt(about: id)
    if let later = requests[id]?.directive, !later.yields(to: directive) {
      requests[id]?.doubt = doubt
      return
    }
    requests[id] = KeptRequest(id: id, directive: directive, doubt: doubt)
    unobeyed.append(id)
  }

  /// Keeps a request that was withdrawn for one that has failed, unless a later one takes its
  /// place.
  ///
  /// What is in doubt stays so.
  mutating func putBack(_ request: KeptRequest) {
    guard requests[request.id] == nil else {
      if requests[request.id]?.doubt == nil { requests[request.id]?.doubt = request.doubt }
      return
    }
    requests[request.id] = request
    unobeyed.append(request.id)
  }

  private func isUnobeyed(_ id: TaskID) -> Bool { requests[id] != nil && unobeyed.contains(id) }

  /// Ends the attempt of a worker, whose handler has ended.
  ///
  /// From now on the attempt reports nothing more. A later request for its task is carried out when
  /// the end of the attempt is stored.
  ///
  /// - Parameters:
  ///   - worker: the worker.
  ///   - duration: how long the handler took, if it was called.
  /// - Returns: What was asked of the task during the attempt.
  mutating func endAttempt(of worker: Int, after duration: Duration? = nil) -> Directive? {
    if let duration { ahead.note(duration) }
    defer { attempts[worker]?.isOver = true }
    return attempts[worker]?.directive
  }

  /// Returns whether the attempt of a worker is to be cut short.
  func isInterrupted(_ worker: Int) -> Bool {
    guard let attempt = attempts[worker], !attempt.isOver else { return false }
    return cutsShort || attempt.directive != nil
  }

  /// Notes that the Swift task of a worker was cancelled.
  mutating func wasInterrupted(_ worker: Int) { attempts[worker]?.isCutShort = true }

  /// Returns whether an attempt is still to be cut short.
  func isWaitingForInterruption(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker], attempt.number == number else { return false }
    return !attempt.isOver && !attempt.isCutShort
  }

  /// Returns whether a worker performs this attempt, and was not asked to cut it short.
  func isUnderWay(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver && attempt.directive == nil
  }

  /// Returns whether a worker's handler performs this attempt.
  func holds(_ number: AttemptNumber, _ worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver
  }

  /// How many workers are busy.
  var performing: Int { attempts.count - idle }

  /// Returns whether a task has an attempt whose end is not stored and reported yet.
  func isUnsettled(_ id: TaskID) -> Bool {
    attempts.contains { $0?.id == id } || outbox.contains(id)
  }

  /// The leases of all tasks that are claimed and whose end is not stored yet.
  ///
  /// There is one for each task, which may have been claimed again before its last end is reported.
  var leases: [Lease] {
    let all =
      attempts.compactMap { $0?.lease } + ready.map(\.lease)
      + outbox.all.compactMap(\.change.lease)
    var ids: Set<TaskID> = []
    return all.filter { ids.insert($0.id).inserted }
  }

  /// Gives up the lease of a task that another queue has claimed.
  ///
  /// The change that ends the attempt is stale by then, whatever it is.
  ///
  /// - Returns: The worker whose attempt is to be cut short, if there is one.
  mutating func lose(_ lease: Lease) -> Int? {
    for task in ready where task.lease == lease {
      concurrencyLimits.leave(task.record.name)
      requests[task.record.id] = nil
    }
    ready.removeAll { $0.lease == lease }
    guard let worker = attempts.firstIndex(where: { $0?.lease == lease }),
      attempts[worker]?.isOver == false
    else { return nil }
    attempts[worker]?.directive = .release
    return worker
  }
}

extension Settlement {
  fileprivate var isPause: Bool { if case .pause = change { true } else { false } }
}
