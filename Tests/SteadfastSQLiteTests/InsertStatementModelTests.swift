#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastSQLite

/// A statement that inserts a task does what the store's own insertion does.
struct InsertStatementModelTests {
  /// Two databases with the same tasks: one store inserts by itself, the other one by statements.
  private struct Difference: Error { let text: String }

  private final class Pair {
    let own: Tables
    let other: Tables
    private let dice: Dice
    private var records: [TaskRecord] = []
    private var leases: [(own: Lease, other: Lease)] = []
    private var now = Date(timeIntervalSince1970: 1_800_000_000)
    /// How often each kind of outcome was met.
    private(set) var outcomes: [String: Int] = [:]

    init(in folder: URL, _ dice: Dice) throws {
      self.dice = dice
      func tables(_ name: String) throws -> Tables {
        let connection = try database(at: folder.appending(path: name))
        try connection.execute("pragma journal_mode = wal; pragma synchronous = off")
        try Schema().migrate(connection, prefix: "steadfast")
        return Tables(connection, isShared: true) { 0 }
      }
      own = try tables("own")
      other = try tables("other")
    }

    func step() throws {
      now += Double(dice.number(0...2))
      switch dice.number(1...10) {
      case 1...6: try insert(dice.happens(1, in: 12) ? records.last ?? record() : record())
      case 7: try claim()
      case 8...9: try finish()
      default: try change()
      }
      let rows = try (own: Self.rows(own.database), other: Self.rows(other.database))
      let differences = Set(rows.own).symmetricDifference(rows.other).sorted()
      if rows.own != rows.other { throw Difference(text: differences.joined(separator: "\n")) }
    }

    // MARK: Insertions

    private func record() -> TaskRecord {
      let number = UInt64(dice.number(max(1, records.count - 20)...records.count + 20))
      let id = TaskRecord.make(number).id
      var named = Set(
        (0..<dice.pick([0, 0, 0, 1, 2])).map { _ in
          records.isEmpty || dice.happens(1, in: 9)
            ? TaskRecord.make(9_999).id : dice.pick(records).id
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
        holdsOrder: dice.happens(1, in: 2),
        conditions: dice.pick([[], [.network]]),
        dependencies: TaskDependencies(on: named, rule: dice.pick([.allSucceeded, .allEnded])),
        queue: dice.pick(["", "", "q"]),
        tags: dice.pick([[], ["x", "\"y"]]),
        timeLimit: dice.pick([nil, .milliseconds(1_500)]),
        expiryDate: dice.pick([nil, now + 100]),
        availableDate: now + dice.pick([-1, 0, 0, 1, 5])
      )
    }

    private func insert(_ record: TaskRecord) throws {
      let replacing = record.dependencies.tasks.isEmpty ? [UniquePolicy.replace] : []
      let policy = dice.pick([UniquePolicy.keep, .reject, .join] + replacing + replacing)
      let change = try PreparedChange(.insert(record, onDuplicate: policy))
      let outcome = try apply(change, to: own)
      let statement = try InsertStatement(record, policy, prefix: "steadfast")
      #expect(statement.id == record.id)
      let failure = try execute(statement)
      let isThere = try other.database.has(
        "select 1 from steadfast_insertion where id = ?1",
        .id(record.id)
      )
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

    /// Executes a statement as another program does, and returns the text of an error.
    private func execute(_ statement: InsertStatement) throws -> String? {
      do {
        try other.database.run(statement)
        return nil
      } catch let failure as SQLiteFailure {
        return failure.text
      }
    }

    // MARK: Other changes

    private func apply(_ change: PreparedChange, to tables: Tables) throws -> ChangeOutcome {
      try tables.database.execute("begin immediate")
      do {
        let outcome = try tables.apply([change])[0]
        try tables.database.execute("commit")
        return outcome
      } catch let refusal as BatchRefusal {
        try tables.database.execute("rollback")
        return refusal.outcomes[0]
      }
    }

    private func apply(_ change: (own: TaskChange, other: TaskChange)) throws {
      let outcomes = try (
        apply(PreparedChange(change.own), to: own), apply(PreparedChange(change.other), to: other)
      )
      #expect(outcomes.0 == outcomes.1)
    }

    private func claim() throws {
      let request = ClaimRequest(
        limit: dice.number(1...3),
        queue: dice.pick(["", "", "q"]),
        names: ["A": 3, "B": 3],
        now: now,
        conditions: [.network],
        leaseDuration: .seconds(60)
      )
      let claims = try (own.claim(request).tasks, other.claim(request).tasks)
      #expect(claims.0.map(\.record.id) == claims.1.map(\.record.id))
      leases += zip(claims.0, claims.1).map { ($0.lease, $1.lease) }
    }

    private func finish() throws {
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
        try apply(
          (.remember(own, named: "a", value: [1]), .remember(other, named: "a", value: [1]))
        )
      }
      try apply((make(leases.own), make(leases.other)))
    }

    private func change() throws {
      guard !records.isEmpty else { return }
      let id = dice.pick(records).id
      let change: TaskChange =
        switch dice.number(1...6) {
        case 1: .cancel(.unclaimed(id), at: now, retains: true)
        case 2: .pause(.unclaimed(id))
        case 3: .resume(id)
        default: .restart(.unclaimed(id), availableDate: now)
        }
      try apply((change, change))
    }

    /// All rows of all tables, without the tokens of claims, which are random, and the earlier
    /// failures, whose JSON has no order.
    private static func rows(_ database: Connection) throws -> [String] {
      try Schema.tables.flatMap { table in
        let columns = try database.rows(
          ofOnce: "select name from pragma_table_info('steadfast_\(table)')",
          []
        ) { $0.text(0) }
        let texts = columns.filter { $0 != "lease_token" && $0 != "earlier_failures" }.map {
          "quote(\($0))"
        }
        let row = texts.joined(separator: " || ' ' || ")
        return try database.rows(
          ofOnce: "select \(row) from steadfast_\(table) order by 1",
          []
        ) { "\(table) \($0.text(0))" }
      }
    }
  }

  @Test func `a random insertion by a statement leaves the rows that the store's own leaves`()
    async throws
  {
    var outcomes: [String: Int] = [:]
    let seeds = Soak.seed.map { [$0] } ?? (0..<Soak.runs(short: 30)).map(UInt64.init)
    for seed in seeds {
      try await withTemporaryFolder { folder in
        let pair = try Pair(in: folder, Dice(seed: seed))
        for step in 1...60 {
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
    // The rare ones were met.
    for outcome in [
      "keep done", "keep duplicate", "join duplicate", "reject duplicate", "replace done",
      "replace replaced", "keep unmetDependency", "keep identityTaken",
    ] where seeds.count >= 30 {
      #expect((outcomes[outcome] ?? 0) > 5, "\(outcome) in \(outcomes)")
    }
  }
}
#endif
