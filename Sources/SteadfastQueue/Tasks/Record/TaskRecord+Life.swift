#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension TaskRecord {
  /// Makes the task wait as it did when it was enqueued, but from another date on.
  ///
  /// Stores call this on ``TaskChange/restart(_:availableDate:forgets:)``. This clears the task's
  /// retries, interruptions, failures, end date and ``isPostponed``, and the task because of which
  /// it was cancelled. The date is the present one by the clock (``countedFrom``). This also drops
  /// an expiry date that has come by `availableDate`: otherwise the task would be abandoned again
  /// at once. The store itself changes the task's lease, if it has one, and moves the task behind
  /// its equals in line.
  public mutating func restart(availableDate: Date) {
    state = .waiting
    self.availableDate = availableDate
    finishedDate = nil
    forgetFailures()
    countedFrom = availableDate
    if presentDependencies?.cause != nil { dependencies.cause = nil }
    if hasExpired(by: availableDate) { dropExpiry() }
  }

  /// Suspends the task until a date.
  ///
  /// Stores call this on ``TaskChange/suspend(_:until:awaiting:countedFrom:)``, unless what the
  /// task awaits has come: then they call ``wake()`` as well. It clears the interruptions and
  /// ``isPostponed``. Retries and failures stay.
  public mutating func suspend(until date: Date, countedFrom origin: Date?) {
    state = .suspended
    availableDate = date
    countedFrom = origin
    if interruptionCount > 0 { interruptionCount = 0 }
    if isPostponed { isPostponed = false }
  }

  /// Whether its date ever comes; it does not for a task that is suspended without one.
  var hasDueDate: Bool { availableDate < .distantFuture }

  /// Makes a suspended task wait, available at once.
  ///
  /// Stores call this on ``TaskChange/complete(_:named:value:)``, and before they pause or replace
  /// a suspended task. The date becomes ``createdDate``.
  public mutating func wake() {
    state = .waiting
    availableDate = createdDate
    countedFrom = createdDate
    if isPostponed { isPostponed = false }
  }

  /// Counts from `now` what was counted from a later date, by a clock that was ahead.
  ///
  /// Stores call this on ``TaskChange/rebase(_:)``, for tasks in any state. If ``createdDate`` is
  /// later than `now`, it becomes `now`, and ``uniqueUntil`` and ``latestDate`` keep their distance
  /// from it. Nothing else of a task changes that has ended. If ``failedDate`` is later, it becomes
  /// `now`, too.
  ///
  /// If ``countedFrom`` is later than `now`, it becomes `now`, and ``availableDate`` keeps its
  /// distance from it. A suspended task wakes instead (``wake()``): its handler counts again what
  /// it waits for. A date that was chosen stays.
  /// - Returns: Whether ``availableDate`` has become another one. If the task waits, it goes behind
  ///   its equals then.
  public mutating func rebase(to now: Date) -> Bool {
    let origin = countedFrom
    if createdDate > now { setCreatedDate(now) }
    if state.isFinished { return false }
    if let failedDate, failedDate > now { self.failedDate = now }
    guard let origin, origin > now else { return false }
    if state == .suspended {
      wake()
    } else {
      availableDate = availableDate.moved(from: origin, to: now)
      countedFrom = now
    }
    return true
  }

  /// Changes the date on which the task was enqueued, and those that were counted from it.
  private mutating func setCreatedDate(_ date: Date) {
    var definition = shared.value
    let old = definition.createdDate
    definition.createdDate = date
    if var extras = definition.extras.present {
      // What is earlier was counted from another date, by a task that this one has taken over.
      if let end = extras.uniqueUntil, end >= old {
        extras.uniqueUntil = end.moved(from: old, to: date)
      }
      if let end = extras.latestDate, end >= old {
        extras.latestDate = end.moved(from: old, to: date)
      }
      definition.extras.value = extras
    }
    shared = SharedDefinition(definition)
  }

  /// Returns whether new tasks with the unique key count as this one on a date.
  func standsForOthers(on date: Date) -> Bool { uniqueUntil.map { $0 > date } ?? false }

  /// Whether it expired before a later task was added, which has taken its unique key.
  ///
  /// No attempt at it begins, whatever a clock says by then.
  var isDisplaced: Bool {
    keyRole == nil && uniqueKey != nil && expiryDate != nil && !state.isFinished
  }

  /// Whether later tasks with its order key wait for it, although it has ended.
  public var holdsUpOthers: Bool { mayHoldUpOthers && (state == .abandoned || state == .cancelled) }

  /// Whether later tasks with its order key wait if it ends without success.
  var mayHoldUpOthers: Bool { holdsOrder && orderKey != nil }

  /// How the task ended; `nil` if it has not.
  var outcome: TaskOutcome? {
    switch state {
    case .waiting, .running, .suspended, .parked, .paused: nil
    case .succeeded: .succeeded
    case .abandoned: .abandoned(reason: lastError ?? "")
    case .cancelled: .cancelled
    }
  }
}

extension Date {
  /// Returns the date that is as far from another date as this one is from its origin.
  fileprivate func moved(from origin: Date, to now: Date) -> Date {
    // What is equal stays equal. The rest is rounded as it is when it is read from a file.
    if self == origin { return now }
    let seconds = (now + timeIntervalSince(origin)).timeIntervalSince1970
    // If no finite date is that far ahead, it can't be stored either, and the date stays.
    return seconds.isFinite ? Date(timeIntervalSince1970: seconds) : self
  }
}

// A count may come from a file that anyone wrote. At the end of its range it stays as it is, so
// that it does not end the process.
extension TaskRecord {
  /// The number of failed attempts, once the current one has failed.
  var nextRetryCount: Int { Self.next(retryCount) }

  /// Counts that a process ended while it performed the task.
  mutating func countInterruption() { interruptionCount = Self.next(interruptionCount) }

  private static func next(_ count: Int) -> Int { count < .max ? count + 1 : count }
}
