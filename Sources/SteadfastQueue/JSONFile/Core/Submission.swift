/// The lines of a call that waits until they are stored, and its caller.
///
/// It is an object because it goes from list to list, and has many parts to copy.
final class Submission: PipelineItem {
  enum Caller: Sendable {
    case changes(
      [StagedChange],
      Durability,
      CheckedContinuation<[ChangeOutcome], any Error>
    )
    case claim(Claim, CheckedContinuation<Claim, any Error>)
  }

  let lines: [JournalBody]
  let caller: Caller

  init(lines: [JournalBody], caller: Caller) {
    self.lines = lines
    self.caller = caller
  }

  var isClaim: Bool {
    switch caller {
    case .changes: false
    case .claim: true
    }
  }

  /// Whether the lines must be flushed before the caller goes on.
  var needsFlush: Bool {
    switch caller {
    case .changes(_, let durability, _): durability == .durable
    case .claim: false
    }
  }

  /// Commits the changes, because the lines are stored.
  func commit(to table: inout TaskTable) {
    guard case .changes(let staged, _, _) = caller else { return }
    for change in staged { table.commit(change) }
  }

  /// Rolls back the changes or the claim, because the lines are not stored.
  func rollBack(_ table: inout TaskTable) {
    switch caller {
    case .changes(let staged, _, _): for change in staged.reversed() { table.rollBack(change) }
    case .claim(let claim, _): table.unclaim(claim)
    }
  }

  func succeed() {
    switch caller {
    case .changes(let staged, _, let continuation):
      continuation.resume(returning: staged.map(\.outcome))
    case .claim(let claim, let continuation):
      continuation.resume(returning: claim)
    }
  }

  func fail(_ error: any Error) {
    switch caller {
    case .changes(_, _, let continuation): continuation.resume(throwing: error)
    case .claim(_, let continuation): continuation.resume(throwing: error)
    }
  }
}
