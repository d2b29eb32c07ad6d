package import SteadfastDatabases
package import SteadfastQueue
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A database into which a store or the statements of another program insert tasks.
package protocol InsertionSide {
  /// Applies a change as the store does.
  func apply(_ change: PreparedChange) throws -> ChangeOutcome
  func claim(_ request: ClaimRequest) throws -> [ClaimedTask]
  func statement(for record: TaskRecord, _ policy: UniquePolicy) throws -> InsertStatement
  /// Executes a statement as another program would.
  func execute(_ statement: InsertStatement) throws -> StatementResult
  /// Returns all rows of all tables in a fixed order, without random values.
  func rows() throws -> [String]
}

/// The result of a statement that inserts a task.
package enum StatementResult {
  /// Whether the task exists now, because this statement or an earlier statement has added it.
  case isThere(Bool)
  /// The statement failed with this text.
  case failed(String)
}

/// A difference between two databases.
private struct Difference: Error { let text: String }

/// Two databases with the same tasks: a store inserts the tasks of one database, and statements
/// insert the tasks of the other.
package final class InsertionPair<Side: InsertionSide> {
  private let own: Side
  private let other: Side
  private let dice: Dice
  private var records: [TaskRecord] = []
  private var leases: [(own: Lease, other: Lease)] = []
  private var now = Date(timeIntervalSince1970: 1_800_000_000)
  /// The number of times that each kind of outcome occurred.
  package private(set) var outcomes: [String: Int] = [:]

  /// Creates a pair of two empty sides.
  package init(_ own: Side, _ other: Side, _ dice: Dice) {
    self.own = own
    self.other = other
    self.dice = dice
  }

  /// Applies one random change to both sides, and compares the rows of the two sides.
  ///
  /// - Throws: The difference between the rows, if they differ.
  package func step() throws {
    now += Double(dice.number(0...2))
    switch dice.number(1...10) {
    case 1...6:
      let repeated = dice.happens(1, in: 12) ? records.last : nil
      try insertIntoBoth(repeated ?? randomRecord())
    case 7: try claimFromBoth()
    case 8...9: try endRandomClaim()
    default: try changeRandomTask()
    }
    let rows = try (own: own.rows(), other: other.rows())
    let differences = Set(rows.own).symmetricDifference(rows.other).sorted()
    if rows.own != rows.other { throw Difference(text: differences.joined(separator: "\n")) }
  }

  // MARK: Insertions

  private static func id(_ number: UInt64) -> TaskID {
    TaskID(high: 0x0190_0000_0000_7000, low: 0x8000_0000_0000_0000 | number)
  }

  private func randomRecord() -> TaskRecord {
    let number = UInt64(dice.number(max(1, records.count - 20)...records.count + 20))
    let id = Self.id(number)
    var named = Set(
      (0..<dice.pick([0, 0, 0, 1, 2])).map { _ in
        records.isEmpty || dice.happens(1, in: 9)
          ? Self.id(9_999) : dice.pick(records).id
      }
    )
    named.remove(id)
    let key = dice.pick([nil, "k", "k", "l", "e\u{301}"])
    return TaskRecord(
      id: id,
      name: dice.pick(["A", "B"]),
      payload: StoredPayload(
        Array(
          repeating: UInt8(truncatingIfNeeded: number),
          count: dice.pick([0, 9, 2_048, 2_049])
        ),
        format: dice.pick([.json, .binary, .sealedJSON]),
        version: dice.number(1...3)
      ),
      priority: TaskQueue.Priority(rawValue: dice.number(-1...1)),
      createdDate: now,
      maxRetries: dice.pick([.atMost(0), .atMost(7), .alwaysRetry]),
      usesBackoff: dice.happens(1, in: 2),
      uniqueKey: key,
      uniqueUntil: key == nil ? nil : dice.pick([nil, now + 2, now + 50]),
      latestDate: key == nil ? nil : dice.pick([nil, now + 3]),
      orderKey: dice.pick([nil, nil, "o", "o", "p"]),
      blocksOrderOnFailure: dice.happens(1, in: 2),
      conditions: dice.pick([[], [.network]]),
      dependencies: TaskDependencies(on: named, rule: dice.pick([.allSucceeded, .allEnded])),
      queue: dice.pick(["", "", "q"]),
      tags: dice.pick([[], ["x", "\"y"]]),
      metadata: number % 3 == 0 ? ["tenant": "\(number)", "\"k": "it's \\ é\n"] : [:],
      timeLimit: dice.pick([nil, .milliseconds(1_500)]),
      expiryDate: dice.pick([nil, now, now + 4, now + 100]),
      availableDate: now + dice.pick([-1, 0, 0, 1, 5])
    )
  }

  private func insertIntoBoth(_ record: TaskRecord) throws {
    let replacing = record.dependencies.tasks.isEmpty ? [UniquePolicy.replace] : []
    let policy = dice.pick([UniquePolicy.keep, .reject, .join] + replacing + replacing)
    let change = try PreparedChange(.insert(record, onDuplicate: policy))
    let outcome = try own.apply(change)
    let statement = try other.statement(for: record, policy)
    #expect(statement.id == record.id)
    let (isThere, failure): (Bool, String?) =
      switch try other.execute(statement) {
      case .isThere(let isThere): (isThere, nil)
      case .failed(let text): (false, text)
      }
    let wasThere = records.contains { $0.id == record.id }
    switch outcome {
    case .done: #expect(failure == nil && isThere)
    case .replaced: #expect(failure == nil && !isThere)
    case .duplicate where policy == .reject:
      #expect(failure == "a task with the unique key of the new one is there already")
    case .duplicate: #expect(failure == nil && !isThere)
    case .unmetDependency:
      #expect(
        failure
          == "the new task would wait without end for a task that is not in the queue, or has "
          + "ended without success"
      )
    case .identityTaken:
      #expect(failure == "the queue has another task with the ID of the new one")
    default: Issue.record("\(outcome)")
    }
    outcomes["\(policy) \(outcome)".prefix { $0 != "(" }.description, default: 0] += 1
    if outcome.isDone, !wasThere { records.append(record) }
  }

  // MARK: Other changes

  private func applyToBoth(_ change: (own: TaskChange, other: TaskChange)) throws {
    let outcomes = try (
      own.apply(PreparedChange(change.own)), other.apply(PreparedChange(change.other))
    )
    #expect(outcomes.0 == outcomes.1)
  }

  private func claimFromBoth() throws {
    let request = ClaimRequest(
      limit: dice.number(1...3),
      queue: dice.pick(["", "", "q"]),
      names: ["A": 3, "B": 3],
      now: now,
      conditions: [.network],
      leaseDuration: .seconds(60)
    )
    let claims = try (own.claim(request), other.claim(request))
    #expect(claims.0.map(\.record.id) == claims.1.map(\.record.id))
    leases += zip(claims.0, claims.1).map { ($0.lease, $1.lease) }
  }

  private func endRandomClaim() throws {
    guard !leases.isEmpty else { return }
    let leases = leases.remove(at: dice.number(0...leases.count - 1))
    let failure = TaskFailure(reason: "no", date: now)
    let make: (Lease) -> TaskChange =
      switch dice.number(1...6) {
      case 1: { .succeed($0, at: self.now, retains: true) }
      case 2: { .succeed($0, at: self.now, retains: false) }
      case 3: { .abandon($0, failure: failure, retains: true) }
      case 4:
        {
          .retry($0, availableDate: self.now + 4, retryCount: 1, failure: failure)
        }
      case 5: { .park($0, failure: failure) }
      default: { .suspend($0, until: self.now + 9, awaiting: ["reply"]) }
      }
    if dice.happens(1, in: 3) {
      let (own, other) = (leases.own, leases.other)
      try applyToBoth(
        (.remember(own, named: "a", value: [1]), .remember(other, named: "a", value: [1]))
      )
    }
    try applyToBoth((make(leases.own), make(leases.other)))
  }

  private func changeRandomTask() throws {
    guard !records.isEmpty else { return }
    let id = dice.pick(records).id
    let change: TaskChange =
      switch dice.number(1...6) {
      case 1: .cancel(.unclaimed(id), at: now, retains: true)
      case 2: .pause(.unclaimed(id))
      case 3: .resume(id)
      default: .restart(.unclaimed(id), availableDate: now)
      }
    try applyToBoth((change, change))
  }
}

extension InsertionPair {
  /// Applies random changes to one pair for each seed, and returns the number of each outcome.
  ///
  /// Records an issue at the first difference.
  package static func outcomes(
    ofSeeds seeds: [UInt64],
    steps: Int,
    _ withSides: ((Side, Side) throws -> Void) async throws -> Void
  ) async throws -> [String: Int] {
    var outcomes: [String: Int] = [:]
    for seed in seeds {
      try await withSides { own, other in
        let pair = InsertionPair(own, other, Dice(seed: seed))
        for step in 1...steps {
          do {
            try pair.step()
          } catch {
            Issue.record("seed \(seed), step \(step): \(error)")
            return
          }
        }
        outcomes.merge(pair.outcomes, uniquingKeysWith: +)
      }
    }
    return outcomes
  }

  /// The outcomes that a test expects at least once, including rare outcomes.
  package static var rareOutcomes: [String] {
    [
      "keep done", "keep duplicate", "join duplicate", "reject duplicate", "replace done",
      "replace replaced", "keep unmetDependency", "keep identityTaken",
    ]
  }
}
