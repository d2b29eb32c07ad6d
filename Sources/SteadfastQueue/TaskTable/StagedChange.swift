/// A change that was checked, and holds what it needs until it is committed or rolled back.
struct StagedChange: Sendable {
  let change: TaskChange
  let outcome: ChangeOutcome
  /// The task that the change concerns; `nil` if it concerns none or several.
  let slot: Int?
  /// The task whose unique key an insertion takes.
  var twin: TaskTable.Node?
  /// Whether the commit removes that task; if it had ended, the outcome does not name it.
  var removesTwin = false

  /// Whether the change is to be written, and then committed.
  var isKept: Bool {
    switch outcome {
    case .done, .replaced: true
    case .duplicate, .identityTaken, .stale, .batchRefused: false
    }
  }

  /// Whether, because of this change, no change of the batch is written either.
  var refusesBatch: Bool {
    switch (outcome, change) {
    case (.identityTaken, _), (.duplicate, .insert(_, onDuplicate: .reject)),
      (.duplicate, .insert(_, onDuplicate: .replace)):
      true
    default: false
    }
  }

  func refused() -> StagedChange {
    let outcome = isKept ? ChangeOutcome.batchRefused : outcome
    return StagedChange(change: change, outcome: outcome, slot: nil)
  }
}
