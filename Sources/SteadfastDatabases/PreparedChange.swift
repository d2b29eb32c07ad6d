package import SteadfastQueue

/// An insertion refuses its batch, of which a part was made.
package struct BatchRefusal: Error {
  package let outcomes: [ChangeOutcome]

  package init(outcomes: [ChangeOutcome]) { self.outcomes = outcomes }
}

/// A change is of a kind that this version does not know.
package struct UnknownChange: Error {
  package init() {}
}

/// A change whose bytes were made before the transaction.
package struct PreparedChange: Sendable {
  package let change: TaskChange
  /// The bytes of the payload, if the change has one.
  package let payload: [UInt8]

  package init(_ change: TaskChange) throws {
    try change.checkForm()
    self.change = change
    switch change {
    case .insert(let record, _): payload = try record.payload.bytes()
    case .update(_, let update): payload = try update.payload?.bytes() ?? []
    default: payload = []
    }
  }

  /// Whether an outcome of the change refuses its whole batch.
  package func refusesBatch(_ outcome: ChangeOutcome) -> Bool {
    switch (change, outcome) {
    case (_, .identityTaken), (_, .unmetDependency), (.insert(_, .reject), .duplicate): true
    default: false
    }
  }
}

extension ChangeOutcome {
  /// The outcome if the batch was refused; one that had no effect anyway stays.
  package var ofRefusedBatch: ChangeOutcome {
    switch self {
    case .done, .doneWithConsequences, .replaced, .superseded: .batchRefused
    case .duplicate, .unmetDependency, .identityTaken, .stale, .batchRefused, .valueDiffers: self
    @unknown default: .batchRefused
    }
  }
}
