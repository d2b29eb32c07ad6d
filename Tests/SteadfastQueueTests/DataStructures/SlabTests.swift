import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct SlabTests {
  private static let pageSize = Slab<Int>.pageSize

  /// A slab of `count` numbers, each at its own slot.
  private func filledSlab(count: Int) -> Slab<Int> {
    var slab = Slab(filler: -1)
    for number in 0..<count { #expect(slab.insert(number) == number) }
    return slab
  }

  private func usedSlots(of slab: Slab<Int>) -> [Int] {
    var slots: [Int] = []
    while let slot = slab.firstUsedSlot(from: (slots.last ?? -1) + 1) { slots.append(slot) }
    return slots
  }

  /// The memory addresses of a slab's pages.
  ///
  /// The addresses are private to the slab, so they are read by reflection.
  private func addresses(of slab: Slab<Int>) throws -> [Int] {
    let pages = try #require(Mirror(reflecting: slab).descendant("pages") as? [[Int]])
    return pages.map { page in
      unsafe page.withUnsafeBufferPointer { Int(bitPattern: $0.baseAddress) }
    }
  }

  @Test func `while a copy exists, a change copies one page and leaves the copy unchanged`() throws
  {
    let count = 4 * Self.pageSize
    var slab = filledSlab(count: count)
    let copy = slab
    #expect(try addresses(of: slab) == addresses(of: copy))
    slab[Self.pageSize] = 1_000_000
    slab.remove(Self.pageSize + 1)
    #expect(slab.insert(2_000_000) == Self.pageSize + 1)
    let pairs = zip(try addresses(of: slab), try addresses(of: copy))
    #expect(pairs.map { $0 == $1 } == [true, false, true, true])
    #expect((0..<count).allSatisfy { copy[$0] == $0 })
    #expect(usedSlots(of: copy) == Array(0..<count))
    #expect(slab[Self.pageSize] == 1_000_000)
    #expect(slab[Self.pageSize + 1] == 2_000_000)
  }

  @Test func `growing leaves existing pages where they are`() throws {
    var slab = filledSlab(count: 2 * Self.pageSize)
    let before = try addresses(of: slab)
    for _ in 0..<50 * Self.pageSize { _ = slab.insert(0) }
    #expect(try addresses(of: slab).starts(with: before))
  }

  @Test func `freed slots are reused before new slots are added`() {
    let count = 3 * Self.pageSize
    var slab = filledSlab(count: count)
    let freed = stride(from: 5, to: count, by: 7)
    for slot in freed { slab.remove(slot) }
    #expect(freed.allSatisfy { slab[$0] == -1 })
    #expect(usedSlots(of: slab) == (0..<count).filter { $0 % 7 != 5 })
    var used: [Int] = []
    for slot in freed { used.append(slab.insert(slot)) }
    #expect(used.sorted() == Array(freed))
    #expect(slab.endSlot == count)
    #expect(slab.insert(0) == count)
  }

  @Test func `empty pages, except the last one emptied, use no memory`() throws {
    let count = 10 * Self.pageSize
    var slab = filledSlab(count: count)
    for slot in 0..<count where slot != 4 * Self.pageSize { slab.remove(slot) }
    // The page in use, the page that was emptied last, and the page that stands for all empty ones.
    #expect(Set(try addresses(of: slab)).count == 3)
    #expect((0..<count).allSatisfy { slab[$0] == ($0 == 4 * Self.pageSize ? $0 : -1) })
    for number in 0..<count - 1 { slab[slab.insert(number)] += 1 }
    #expect(slab.endSlot == count)
    #expect(Set(usedSlots(of: slab).map { slab[$0] }) == Set(1..<count).union([4 * Self.pageSize]))
  }

  @Test func `alternating insertions and removals reuse the same memory`() throws {
    var slab = filledSlab(count: 1)
    let before = try addresses(of: slab)
    for number in 0..<1000 {
      slab.remove(0)
      #expect(try addresses(of: slab) == before)
      #expect(slab.insert(number) == 0)
    }
  }

  @Test func `removing a whole page of a slab doesn't change a copy of the slab`() throws {
    let count = 3 * Self.pageSize
    var slab = filledSlab(count: count)
    slab.remove(Self.pageSize)
    let copy = slab
    slab.removePage(1)
    #expect(usedSlots(of: slab) == (0..<count).filter { $0 / Self.pageSize != 1 })
    #expect(slab[Self.pageSize + 1] == -1)
    #expect(copy[Self.pageSize + 1] == Self.pageSize + 1)
    let slots = (0..<Self.pageSize).map { slab.insert($0) }
    #expect(slots.sorted() == Array(Self.pageSize..<2 * Self.pageSize))
    #expect(slab.insert(0) == count)
  }

  /// Performs random operations on a slab and a dictionary, and compares the two.
  @Test(arguments: 0..<20)
  func `a slab stores the inserted elements that weren't removed`(seed: UInt64) {
    var random = SplitMix64(seed: seed)
    var slab = Slab(filler: -1)
    var expected: [Int: Int] = [:]
    var slots: [Int] = []
    for number in 0..<5000 {
      // The slab grows and shrinks in turn.
      let grows = Int.random(in: 0..<10, using: &random) < (number / 1000 % 2 == 0 ? 8 : 2)
      if grows || slots.isEmpty {
        let slot = slab.insert(number)
        #expect(expected.updateValue(number, forKey: slot) == nil)
        slots.append(slot)
      } else {
        slots.swapAt(Int.random(in: slots.indices, using: &random), slots.count - 1)
        let slot = slots.removeLast()
        slab.remove(slot)
        expected[slot] = nil
      }
    }
    #expect(usedSlots(of: slab) == expected.keys.sorted())
    #expect((0..<slab.endSlot).allSatisfy { slab[$0] == expected[$0] ?? -1 })
  }
}
