import SteadfastRetry
import Synchronization
import Testing

@testable import SteadfastQueue

/// An element that counts how often it is compared.
private struct Counted: Comparable, Sendable {
  final class Count: Sendable {
    let value = Atomic(0)
  }

  let number: Int
  let count: Count

  static func < (left: Counted, right: Counted) -> Bool {
    left.count.value.add(1, ordering: .relaxed)
    return left.number < right.number
  }

  static func == (left: Counted, right: Counted) -> Bool { left.number == right.number }
}

@Suite struct SortedListTests {
  /// - Parameter regularity: Elements with multiples of `regularity` as indices are out of order.
  @Test(arguments: [1, 2, 10, 100_000])
  func `in an ordered line of 100,000 elements, an insertion and a removal need few comparisons`(
    regularity: Int
  ) {
    let count = Counted.Count()
    var line = SortedList<Counted>()
    for index in 0..<100_000 {
      let number = index % regularity == 0 ? index * 7919 % 100_003 : index
      line.insert(Counted(number: number, count: count))
    }
    for _ in 0..<100 {
      let before = count.value.load(ordering: .relaxed)
      line.insert(Counted(number: -1, count: count))
      #expect(line.first?.number == -1)
      line.popFirst()
      // The insertion and the removal may each compare twice as often as a balanced tree is high.
      #expect(count.value.load(ordering: .relaxed) - before <= 4 * 17)
    }
  }

  /// The order in which elements are inserted.
  enum Habit: CaseIterable {
    case inOrder, nearlyInOrder, inAnyOrder, backwards

    func number(_ index: Int, _ random: inout SplitMix64) -> Int {
      switch self {
      case .inOrder: index * 8
      case .nearlyInOrder: index * 8 - Int(random.next() % 100)
      case .inAnyOrder: Int(random.next() % 1_000_000)
      case .backwards: -index * 8
      }
    }
  }

  @Test(arguments: Habit.allCases, [1, 3, 5] as [UInt64])
  func `an ordered line that grows and shrinks equals a sorted array`(
    habit: Habit,
    removals: UInt64
  ) {
    var random = SplitMix64(seed: removals)
    var line = SortedList<Int>()
    var model: [Int] = []
    for index in 0..<6_000 {
      // The line grows, and then it shrinks.
      let isRemoval = random.next() % 6 < (index < 3_000 ? removals - 1 : removals)
      if !isRemoval {
        let number = habit.number(index, &random)
        let place = model.firstIndex { $0 >= number } ?? model.count
        guard place == model.count || model[place] != number else { continue }
        line.insert(number)
        model.insert(number, at: place)
      } else if random.next() % 2 == 0 {
        let first = line.popFirst()
        #expect(first == (model.isEmpty ? nil : model.removeFirst()))
      } else if !model.isEmpty {
        let place = Int(random.next() % UInt64(model.count))
        let wasThere = line.remove(model.remove(at: place))
        #expect(wasThere)
      }
      #expect(line.first == model.first && line.count == model.count)
      guard index.isMultiple(of: 97) else { continue }
      #expect(line.elements() == model)
      let start = model.randomElement(using: &random).map { $0 - Int(random.next() % 2) } ?? 0
      let rest = model.filter { $0 > start }
      #expect(line.elements(after: start) == rest)
      #expect(line.elements(after: start, limit: 300) == Array(rest.prefix(300)))
      #expect(line.elements(limit: 5) == Array(model.prefix(5)))
      let before = Array(model.filter { $0 < start }.reversed())
      #expect(line.reversedElements() == model.reversed())
      #expect(line.reversedElements(before: start) == before)
      #expect(line.reversedElements(before: start, limit: 300) == Array(before.prefix(300)))
      #expect(line.reversedElements(limit: 5) == Array(model.suffix(5).reversed()))
      #expect(line.count(upTo: start) == model.count - rest.count)
      #expect(line.contains(start) == model.contains(start))
      let wasThere = line.remove(start)
      #expect(wasThere == model.contains(start))
      model.removeAll { $0 == start }
    }
  }

  @Test func `a line that has shrunk frees memory`() {
    var line = SortedList<Int>()
    for number in 0..<20_000 { line.insert(number) }
    for number in 0..<20_000 where !number.isMultiple(of: 100) { line.remove(number) }
    #expect(line.elements() == Array(stride(from: 0, to: 20_000, by: 100)))
    #expect(line.pieceCount <= 10)
  }
}
