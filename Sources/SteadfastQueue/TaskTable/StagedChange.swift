/// A change that was checked and holds what it needs until it is committed or rolled back.
struct StagedChange: Sendable {
  let change: TaskChange
  let outcome: ChangeOutcome
  /// The task that the change concerns; `nil` if it concerns none or several.
  let slot: Int?
  /// The task that an insertion takes the unique key from.
  var twin: TaskTable.Node?
  /// Whether that task is removed, one that had ended without a word.
  var removesTwin = false

  /// Whether the change is to be kept, and then committed.
  var isKept: Bool {
    switch outcome {
    case .done, .replaced: true
    case .duplicate, .identityTaken, .stale, .batchRefused: false
    }
  }

  /// Whether nothing of the batch is kept either.
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
