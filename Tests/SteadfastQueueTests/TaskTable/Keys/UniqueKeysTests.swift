import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the roles of tasks with the same key and different names, such as holder and successor.
@Suite struct UniqueKeysTests {
  @Test(arguments: 0..<UInt64(Soak.runs(short: 10)))
  func `roles set at random are found by their key and name`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    func pick(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }
    var (keys, expected) = (UniqueKeys(), [String: [Int: [Int?]]]())
    for _ in 0..<500 {
      let (key, lane, slot) = (["k", "l"][pick(2)], pick(6), pick(2) == 0 ? pick(100) : nil)
      let role = pick(3)
      switch role {
      case 0: keys[key, lane].holder = slot
      case 1: keys[key, lane].successor = slot
      default: keys[key, lane].recent = slot
      }
      expected[key, default: [:]][lane, default: [nil, nil, nil]][role] = slot
      for (key, lanes) in expected {
        let found = keys.roles(of: key)
        let present = lanes.filter { $0.value.contains { $0 != nil } }
        #expect(found.map(\.lane).sorted() == present.keys.sorted())
        #expect(keys.keys.contains(key) == !present.isEmpty)
        for lane in 0..<6 {
          let roles = keys[key, lane]
          #expect([roles.holder, roles.successor, roles.recent] == lanes[lane] ?? [nil, nil, nil])
          #expect(roles.lane == lane)
        }
      }
    }
    let successors = keys.successorsWithoutHolder.map { "\($0.key) \($0.slot)" }
    let alone = expected.flatMap { key, lanes in
      lanes.values.compactMap { $0[0] == nil ? $0[1].map { "\(key) \($0)" } : nil }
    }
    #expect(successors.sorted() == alone.sorted())
  }

  @Test
  func `after an ended task is removed, duplicates are found by another ended task with its name`()
    throws
  {
    var table = TaskTable()
    let windows = [("A", 60.0), ("B", 99), ("A", 90), ("A", 80)]
    for (index, (name, window)) in windows.enumerated() {
      let record = TaskRecord.make(index + 1, name: name, key: "k", uniqueFor: window)
      table.insert(record, onDuplicate: .replace)
      let request = ClaimRequest(limit: 1, names: [name: 1], now: .seconds(0))
      let lease = try #require(table.claim(request).tasks.first).lease
      _ = table.apply([.succeed(lease, at: .seconds(1), retains: true)])
    }
    func outcome(_ name: String, at date: Double = 50) -> ChangeOutcome {
      var table = table
      return table.insert(.make(9, name: name, key: "k", created: date))
    }
    for number in [3, 4, 1] {
      #expect(outcome("A") == .duplicate(of: .numbered(number)))
      #expect(outcome("B", at: 98) == .duplicate(of: .numbered(2)))
      _ = table.apply([.remove(.numbered(number))])
      #expect(table.brokenInvariants() == [])
    }
    #expect(outcome("A") == .done)
    #expect(outcome("B") == .duplicate(of: .numbered(2)))
  }
}
