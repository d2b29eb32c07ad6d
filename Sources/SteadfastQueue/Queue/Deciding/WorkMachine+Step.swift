#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a worker is told to do.
extension WorkMachine {
  enum Mode: Sendable, Equatable {
    /// Perform tasks until told to stop.
    case untilStopped
    /// Perform tasks until none is left that was available at the cutoff.
    case pass(cutoff: Date)
  }

  enum Step: Sendable {
    case perform(ClaimedTask, AttemptNumber, wakesAnother: Bool)
    /// Carry out what was asked of the task, instead of performing it.
    case obey(Directive, ClaimedTask, wakesAnother: Bool)
    case claim(limit: Int, unparking: ParkedNames)
    /// Release these tasks, whose claim has run out; ``hasPutBack()`` follows.
    case putBack([ClaimedTask])
    case wait
    case stop
  }

  /// Names whose parked tasks may be performed now.
  struct ParkedNames: Sendable, Equatable {
    var names: Set<String> = []
    /// Whether names that have no handler of their own are meant, too.
    var others = false

    var isEmpty: Bool { names.isEmpty && !others }
  }
}

/// Handlers that are registered, and the parked tasks that they make available.
extension WorkMachine {
  /// Notes that a handler was registered: tasks of these names may be performed now.
  mutating func registered(_ names: [String], areLimited: Bool = false) {
    toUnpark.names.formUnion(names)
    workArrived()
    guard areLimited else { return }
    // Tasks that were claimed before count, too.
    for name in names {
      let count =
        attempts.count { $0?.name == name } + ready.count { $0.record.name == name }
      concurrencyLimits.add(name, leasedCount: count)
    }
  }

  /// Notes that a handler was registered for all names that no other handler has.
  mutating func registeredFallback() {
    toUnpark.others = true
    workArrived()
  }
}
