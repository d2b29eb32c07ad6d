import Synchronization

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
  /// The outcomes that became known only when the changes were committed, by their places.
  private let laterOutcomes = Mutex<[Int: ChangeOutcome]>([:])

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
    for (index, change) in staged.enumerated() {
      let outcome = table.commit(change)
      guard outcome != change.outcome else { continue }
      laterOutcomes.withLock { $0[index] = outcome }
    }
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
      var outcomes = staged.count == 1 ? staged[0].outcome.answer : staged.map(\.outcome)
      for (index, outcome) in laterOutcomes.withLock(\.self) { outcomes[index] = outcome }
      continuation.resume(returning: outcomes)
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
