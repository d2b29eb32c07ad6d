package import SteadfastQueue

/// A call that waits for a thread of the store.
package struct StoreJob: Sendable {
  package enum Call: Sendable {
    case open
    case apply([PreparedChange], isDurable: Bool)
    case claim(ClaimRequest)
    case close
    case destroy
    // These are for the threads that read.
    case tasks(TaskFilter, after: TaskID?, limit: Int)
    case count(TaskFilter)
    case contains(TaskFilter)
    case value(named: String)
    case memory(of: TaskID)

    /// Whether no other call comes after this one.
    package var isLast: Bool {
      switch self {
      case .close, .destroy: true
      case .open, .apply, .claim, .tasks, .count, .contains, .value, .memory: false
      }
    }

    /// Whether the call only looks.
    package var reads: Bool {
      switch self {
      case .tasks, .count, .contains, .value, .memory: true
      case .open, .apply, .claim, .close, .destroy: false
      }
    }
  }

  package enum Answer: Sendable {
    case nothing
    case outcomes([ChangeOutcome])
    case claim(Claim)
    case tasks([TaskRecord])
    case count(Int)
    case isThere(Bool)
    case value([UInt8]?)
    case memory(TaskMemory)
  }

  package let call: Call
  package let continuation: CheckedContinuation<Answer, any Error>

  package init(call: Call, continuation: CheckedContinuation<Answer, any Error>) {
    self.call = call
    self.continuation = continuation
  }

  /// Whether the call begins or ends the use of the tables, and is part of no transaction.
  package var isAlone: Bool {
    switch call {
    case .open, .close, .destroy: true
    case .apply, .claim, .tasks, .count, .contains, .value, .memory: false
    }
  }

  package var isDurable: Bool {
    if case .apply(_, let isDurable) = call { isDurable } else { false }
  }
}

extension StoreJob {
  /// The result of a call that was undone because of an error.
  package static func result(of error: any Error) -> Result<Answer, any Error> {
    guard let refusal = error as? BatchRefusal else { return .failure(error) }
    return .success(.outcomes(refusal.outcomes))
  }
}
