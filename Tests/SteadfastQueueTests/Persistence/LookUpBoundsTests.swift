import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests filters and claims with dates and strings that stores can't represent.
struct LookUpBoundsTests {
  /// The first and the last date that every store can represent, and two between them.
  private static let storable: [Double] = [-62_135_769_600, 0, 10, 253_402_300_799]
  /// Bounds for filters.
  ///
  /// Each can be represented by all stores, by some or by none.
  private static let bounds = [
    -Double.infinity, -1e300, -9.3e12, -2.2e11, -7e10, 0, 5, 10, 3e11, 9.3e12, 1e300, .infinity,
    .nan,
  ]

  @Test(arguments: StoreKind.allCases)
  func `a range of dates may have bounds that no store can represent`(kind: StoreKind) async throws
  {
    try await kind.withStore { store in
      let records = Self.storable.enumerated().map { number, date in
        TaskRecord.make(number + 1, available: date)
      }
      let insertions = records.map { TaskChange.insert($0, onDuplicate: .keep) }
      _ = try await store.apply(insertions, durability: .durable)
      for lower in Self.bounds {
        for upper in Self.bounds where !(upper < lower) {
          let filter = TaskFilter(availableDates: .seconds(lower)..<(.seconds(upper)))
          let expected = records.filter(filter.matches).map(\.id)
          let found = try await store.tasks(matching: filter, after: nil, limit: 9)
          #expect(found.map(\.id) == expected, "\(lower) to \(upper)")
          #expect(try await store.count(matching: filter) == expected.count)
          #expect(try await store.contains(filter) == !expected.isEmpty)
        }
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a claim may have any date`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let insertion = TaskChange.insert(.make(1, available: 10), onDuplicate: .keep)
      _ = try await store.apply([insertion], durability: .durable)
      for (date, count) in [(-Double.infinity, 0), (-1e300, 0), (1e300, 1), (.infinity, 0)] {
        let request = ClaimRequest(
          limit: .max,
          names: ["Note": .max],
          now: .seconds(date),
          leaseDuration: store.sharing?.leaseDuration
        )
        let claim = try await store.claim(request)
        #expect(claim.tasks.count == count, "\(date)")
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a string with a NUL matches nothing, not even the part before the NUL`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      var record = TaskRecord.make(1, name: "a", key: "a", order: "a", requires: ["a"])
      record.apply(TaskUpdate(tags: ["a"], metadata: ["a": "a"]))
      let changes: [TaskChange] = [
        .insert(record, onDuplicate: .keep), .setValue(named: "a", from: nil, to: [1]),
      ]
      _ = try await store.apply(changes, durability: .durable)
      let filters: [(TaskFilter, Int)] = [
        (TaskFilter(queue: "\0"), 0), (TaskFilter(queue: "\0", uniqueKeys: ["a"]), 0),
        (TaskFilter(names: ["a\0b"]), 0), (TaskFilter(names: ["a\0b", "a"]), 1),
        (TaskFilter(excludedNames: ["a\0b"]), 1), (TaskFilter(excludedNames: ["a\0b", "a"]), 0),
        (TaskFilter(uniqueKeys: ["a\0b"]), 0), (TaskFilter(queue: nil, uniqueKeys: ["a\0b"]), 0),
        (TaskFilter(orderKeys: ["a\0b"]), 0), (TaskFilter(queue: nil, orderKeys: ["a\0b"]), 0),
        (TaskFilter(unmetBy: ["a\0b"]), 1), (TaskFilter(unmetBy: ["a\0b", "a"]), 0),
        (TaskFilter(tags: ["a\0b"]), 0), (TaskFilter(tags: ["a\0b", "a"]), 1),
        (TaskFilter(metadata: ["a": "a\0b"]), 0), (TaskFilter(metadata: ["a\0b": "a"]), 0),
        (TaskFilter(metadata: ["a": "a", "b": "\0"]), 0), (TaskFilter(metadata: ["a": "a"]), 1),
      ]
      for (filter, count) in filters {
        let found = try await store.tasks(matching: filter, after: nil, limit: 9)
        #expect(found.count == count, "\(filter)")
        #expect(try await store.count(matching: filter) == count, "\(filter)")
        #expect(try await store.contains(filter) == (count > 0), "\(filter)")
      }
      for (name, value) in [("a", [1]), ("a\0b", nil), ("\0", nil)] as [(String, [UInt8]?)] {
        let found = try await store.value(named: name)
        #expect(found == value, "\(name)")
      }
    }
  }
}
