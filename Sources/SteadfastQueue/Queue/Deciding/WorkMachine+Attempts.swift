#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tells one attempt of this process from all others.
typealias AttemptNumber = UInt64

/// What somebody asked of a task that is being performed, or about to be.
enum Directive: Sendable, Equatable {
  case cancel, pause, restart, remove
  /// To be performed from this date on, or now if it is ahead of that; not asked of a task that is
  /// being performed.
  case reschedule(to: Date?)
  /// To be paused, and then not: it is put back.
  case release
}

extension Directive {
  /// Whether an attempt is cut short for it.
  var cutsShort: Bool {
    switch self {
    case .cancel, .pause, .restart, .remove, .release: true
    case .reschedule: false
    }
  }

  /// Whether what was asked before leaves nothing to do this to.
  fileprivate func yields(to asked: Directive) -> Bool {
    switch (self, asked) {
    case (.pause, .cancel), (.pause, .remove), (.cancel, .remove): true
    case (.reschedule, _): asked.cutsShort
    case (.cancel, _), (.pause, _), (.restart, _), (.remove, _), (.release, _): false
    }
  }
}

/// What a worker performs.
struct Attempt: Sendable, Equatable {
  let lease: Lease
  let name: String
  let number: AttemptNumber
  var directive: Directive?
  /// The handler has ended.
  var isOver = false
  /// Its Swift task was cancelled for the directive.
  var isCutShort = false

  var id: TaskID { lease.id }
}

/// What others ask of the tasks that are leased.
///
/// ``requests`` names only tasks that this queue holds: claimed and not begun, being put back, or
/// whose end is being kept. Whoever lets go of such a task does what was asked of it.
extension WorkMachine {
  /// What becomes of a request.
  enum RequestAnswer: Equatable {
    /// This attempt of this worker is to be cut short for it.
    case interrupt(worker: Int, AttemptNumber)
    /// It is done when the task is begun, or its end is kept.
    case kept
    /// It can't be done to a task that is being performed, or that is to end or to be set aside.
    case refused
    /// The queue does not hold the task.
    case notHeld
  }

  /// Somebody asks something of a task.
  mutating func request(_ directive: Directive, of id: TaskID) -> RequestAnswer {
    for (worker, attempt) in attempts.enumerated() {
      guard let attempt, attempt.id == id, !attempt.isOver else { continue }
      guard directive.cutsShort else { return .refused }
      if let asked = attempt.directive, directive.yields(to: asked) { return .refused }
      attempts[worker]?.directive = directive
      return .interrupt(worker: worker, attempt.number)
    }
    guard isUnsettled(id) || isReturning(id) || ready.contains(where: { $0.record.id == id })
    else { return .notHeld }
    if let asked = requests[id], directive.yields(to: asked) { return .refused }
    requests[id] = directive
    return .kept
  }

  /// Takes back that a task is to be paused.
  ///
  /// Whether it was to be.
  mutating func withdrawPause(of id: TaskID) -> Bool {
    if requests[id] == .pause {
      requests[id] = nil
      return true
    }
    if let worker = attempts.firstIndex(where: { $0?.id == id }),
      attempts[worker]?.directive == .pause
    {
      if attempts[worker]?.isOver == true {
        requests[id] = .release
      } else {
        // Its attempt may have been cut short by now, and must be ended.
        attempts[worker]?.directive = .release
      }
      return true
    }
    guard outbox.all.contains(where: { $0.record.id == id && $0.isPause }) else {
      return false
    }
    requests[id] = .release
    return true
  }

  /// Takes what was asked of a task that is let go.
  mutating func takeRequest(of id: TaskID) -> Directive? {
    requests.isEmpty ? nil : requests.removeValue(forKey: id)
  }

  /// The handler of a worker's attempt has ended.
  ///
  /// Returns what was asked of the task meanwhile. From now on the attempt reports nothing more, and
  /// what is asked of its task is done when its end is kept.
  mutating func endAttempt(of worker: Int) -> Directive? {
    defer { attempts[worker]?.isOver = true }
    return attempts[worker]?.directive
  }

  /// Whether the attempt that the worker performs is to be cut short.
  func isInterrupted(_ worker: Int) -> Bool {
    guard let attempt = attempts[worker], !attempt.isOver else { return false }
    return cutsShort || attempt.directive != nil
  }

  /// The Swift task of a worker was cancelled.
  mutating func wasInterrupted(_ worker: Int) { attempts[worker]?.isCutShort = true }

  /// Whether an attempt is still to be cut short.
  func isWaitingForInterruption(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker], attempt.number == number else { return false }
    return !attempt.isOver && !attempt.isCutShort
  }

  /// Whether a worker performs this attempt, and has not been asked to cut it short.
  func isUnderWay(_ number: AttemptNumber, of worker: Int) -> Bool {
    guard let attempt = attempts[worker] else { return false }
    return attempt.number == number && !attempt.isOver && attempt.directive == nil
  }

  /// Whether what ended the last attempt of a task is still to be kept or told.
  func isUnsettled(_ id: TaskID) -> Bool {
    attempts.contains { $0?.id == id } || outbox.contains(id)
  }

  /// The leases of the tasks that wait to be performed, or are, or whose end is still to be kept.
  ///
  /// One for each task: it may have been claimed again before its last end is told.
  var leases: [Lease] {
    let all =
      attempts.compactMap { $0?.lease } + ready.map(\.lease)
      + outbox.all.compactMap(\.change.lease)
    var ids: Set<TaskID> = []
    return all.filter { ids.insert($0.id).inserted }
  }

  /// Somebody else has claimed a task.
  ///
  /// Returns the worker whose attempt is to be cut short for it. The change that ends the attempt
  /// is stale by then, whatever it is.
  mutating func lose(_ lease: Lease) -> Int? {
    for task in ready where task.lease == lease {
      limitedNames.leave(task.record.name)
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

extension WorkMachine {
  /// Names whose parked tasks may be performed now.
  struct ParkedNames: Sendable, Equatable {
    var names: Set<String> = []
    /// Those that have no handler of their own too.
    var others = false

    var isEmpty: Bool { names.isEmpty && !others }
  }
}
