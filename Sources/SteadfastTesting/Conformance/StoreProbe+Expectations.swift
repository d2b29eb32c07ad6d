import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a check expects of a store.
extension StoreProbe {
  func expect<Value: Equatable>(_ what: String, _ found: Value, _ expected: Value) throws {
    guard found != expected else { return }
    throw ConformanceMismatch(expected: "\(what) is \(expected)", found: "\(found)")
  }

  func expect(_ what: String, _ found: Date?, _ expected: Date?) throws {
    guard !TaskRecord.isSame(found, expected) else { return }
    throw ConformanceMismatch(
      expected: "\(what) is \(expected?.step ?? "none")",
      found: found?.step ?? "none"
    )
  }

  /// Expects a claim of the tasks with these numbers, in order.
  func expect(_ claim: Claim, _ numbers: [Int]) throws {
    try expect("the claimed tasks", claim.tasks.map(\.record.id.number), numbers)
  }

  /// Expects that a claim says to claim again at a date, or earlier.
  ///
  /// - Parameters:
  ///   - claim: a claim whose limit has left nothing.
  ///   - seconds: when another claim can find tasks; `nil` if none will.
  ///   - now: the date of the claim.
  /// - Throws: a ``ConformanceMismatch`` if it does not.
  func expectNextDate(_ claim: Claim, by seconds: Double?, at now: Double) throws {
    if let seconds {
      let isInTime = claim.nextDate.map { $0 <= .second(seconds) + 1e-6 } ?? false
      guard isInTime else {
        throw ConformanceMismatch(
          expected: "the claim's next date is not later than \(seconds) s",
          found: claim.nextDate?.step ?? "none"
        )
      }
    }
    // A store that has handed out tasks need not look for the date.
    guard claim.tasks.isEmpty, let date = claim.nextDate, date <= .second(now) else { return }
    throw ConformanceMismatch(
      expected: "the next date of a claim that finds nothing is after \(now) s",
      found: date.step
    )
  }

  /// Looks the task with this number up, and expects that it equals the record.
  func expect(_ number: Int, is expected: TaskRecord) async throws {
    try expect(try await task(number), is: expected)
  }

  func expect(_ found: TaskRecord, is expected: TaskRecord) throws {
    var expected = expected
    // The store gives the role. Where a check says nothing else, the task is the holder.
    if expected.uniqueKey != nil {
      expected.keyRole = expected.state.isFinished ? nil : expected.keyRole ?? .holder
    }
    try expect(found, equals: expected)
  }

  /// Expects that two tasks are the same, with the same role.
  func expect(_ found: TaskRecord, equals expected: TaskRecord) throws {
    guard let difference = found.difference(from: expected) else { return }
    throw ConformanceMismatch(
      expected: "\(difference.field) of task \(found.id.number) is \(difference.expected)",
      found: difference.found
    )
  }

  /// Expects that the store holds these bytes under a name; `nil` for none.
  func expectValue(_ name: String, _ expected: [UInt8]?) async throws {
    let found = try await value(name)
    guard found != expected else { return }
    throw ConformanceMismatch(
      expected: "the value '\(name.prefix(80))' is \(expected.step)",
      found: found.step
    )
  }

  /// Expects that exactly these tasks match the filter.
  func expectTasks(_ numbers: [Int], _ filter: TaskFilter = TaskFilter()) async throws {
    try expect("the tasks", try await tasks(filter).map(\.id.number), numbers)
  }

  /// Expects that the body throws an error that passes `check`.
  func expectError(
    _ what: String,
    _ check: (any Error) -> Bool = { _ in true },
    _ body: () async throws -> Void
  ) async throws {
    do {
      try await body()
    } catch {
      note("\(what) throws \(error)")
      guard !check(error) else { return }
      throw ConformanceMismatch(expected: "\(what) throws another error", found: "\(error)")
    }
    throw ConformanceMismatch(expected: "\(what) throws", found: "it returned")
  }
}
