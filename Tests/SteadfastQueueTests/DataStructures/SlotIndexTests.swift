import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct SlotIndexTests {
  @Test func `the index finds the same slots as a dictionary`() {
    for seed in 0..<20 as Range<UInt64> {
      var generator = SplitMix64(seed: seed)
      var slots = SlotIndex()
      var ids = Slab(filler: TaskID(high: 0, low: 0))
      var expected: [TaskID: Int] = [:]
      for _ in 0..<4000 {
        // There are so few IDs that most are inserted and removed many times.
        let id = TaskID(high: generator.next() % 4, low: generator.next() % 500)
        let found = slots.slot(of: id) { ids[$0] == id }
        #expect(found == expected[id])
        if let found {
          slots.remove(found, of: id)
          ids.remove(found)
          expected[id] = nil
        } else {
          let slot = ids.insert(id)
          slots.insert(slot, for: id)
          expected[id] = slot
        }
        #expect(slots.count == expected.count)
      }
      #expect(slots.all.sorted() == expected.values.sorted())
      for (id, slot) in expected { #expect(slots.slot(of: id) { ids[$0] == id } == slot) }
    }
  }

  @Test(
    arguments: [
      // Consecutive IDs, as this package makes them, and IDs that have one half in common.
      { TaskID(high: 0x0199_0000_0000_7000 + $0, low: SplitMix64(seed: $0).first) },
      { TaskID(high: 0x0199_0000_0000_7000 + $0, low: 0x8000_0000_0000_0001) },
      { TaskID(high: 0x0199_0000_0000_7000, low: $0) },
      { TaskID(high: $0 << 32 | 0x11EE, low: 0x8000_0000_0000_0001) },
    ] as [@Sendable (UInt64) -> TaskID],
    // With these seeds, a hash of a single multiplication spreads one of the kinds of IDs badly.
    [
      nil, (0x094e_9404_c926_36d1, 0x4ccc_d31c_f2fa_aa76),
      (0x9c10_db3e_b57a_1dfc, 0x5b75_5396_7059_1b99),
    ] as [(UInt64, UInt64)?]
  )
  func `no shard of a large index is much larger than the others, so no shard is slow to grow`(
    id: @Sendable (UInt64) -> TaskID,
    seeds: (UInt64, UInt64)?
  ) {
    var slots = seeds.map(SlotIndex.init) ?? SlotIndex()
    for number in 0..<10_000 { slots.insert(number, for: id(UInt64(number))) }
    #expect(slots.shardCounts == [10_000])
    for number in 10_000..<40_000 { slots.insert(number, for: id(UInt64(number))) }
    #expect(slots.shardCounts.reduce(0, +) == 40_000)
    #expect((slots.shardCounts.max() ?? 0) < 3 * 40_000 / slots.shardCounts.count)
    #expect(slots.all.sorted() == Array(0..<40_000))
    for number in 0..<40_000 {
      let found = slots.slot(of: id(UInt64(number))) { $0 == number }
      if found != number { Issue.record("\(number) is not found") }
      slots.remove(number, of: id(UInt64(number)))
    }
    #expect(slots.count == 0)
  }

  @Test(arguments: [0, 1, 12, 13, 1000, 100_000])
  func `reserving capacity does not change lookups`(capacity: Int) {
    var slots = SlotIndex()
    let ids = (0..<100).map { TaskID(high: 1, low: UInt64($0)) }
    for slot in 0..<50 { slots.insert(slot, for: ids[slot]) }
    slots.reserveCapacity(capacity)
    for slot in 50..<100 { slots.insert(slot, for: ids[slot]) }
    #expect(slots.all.sorted() == Array(0..<100))
    for slot in 0..<100 { #expect(slots.slot(of: ids[slot]) { $0 == slot } == slot) }
  }

  @Test func `entries with the same hash are distinguished by their slots`() {
    var slots = SlotIndex()
    let id = TaskID(high: 1, low: 2)
    for slot in 0..<8 { slots.insert(slot, for: id) }
    for slot in 0..<8 { #expect(slots.slot(of: id) { $0 == slot } == slot) }
    for slot in [3, 0, 7, 1] { slots.remove(slot, of: id) }
    #expect(slots.all.sorted() == [2, 4, 5, 6])
    for slot in 0..<8 {
      #expect(slots.slot(of: id) { $0 == slot } == ([2, 4, 5, 6].contains(slot) ? slot : nil))
    }
  }

  @Test(
    arguments: [
      { TaskID(high: 7, low: $0) }, { TaskID(high: $0, low: 7) }, { TaskID(high: $0, low: ~$0) },
      { TaskID(high: $0 << 40, low: $0 << 40) },
    ] as [@Sendable (UInt64) -> TaskID]
  )
  func `similar IDs are found with few comparisons`(
    id: @Sendable (UInt64) -> TaskID
  ) {
    var slots = SlotIndex()
    let count = 20_000
    for number in 0..<count { slots.insert(number, for: id(UInt64(number))) }
    // Only entries with the same 32 bits of the hash are compared, so almost none.
    var looks = 0
    for number in 0..<count {
      let found = slots.slot(of: id(UInt64(number))) { slot in
        looks += 1
        return slot == number
      }
      #expect(found == number)
    }
    #expect(looks < count + 100)
  }
}

extension SplitMix64 {
  fileprivate var first: UInt64 {
    var generator = self
    return generator.next()
  }
}
