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

@Suite struct OrderedLineTests {
  /// One time in so many an element is out of order.
  @Test(arguments: [1, 2, 10, 100_000])
  func `in a line of 100,000, one step costs a few comparisons`(regularity: Int) {
    let count = Counted.Count()
    var line = OrderedLine<Counted>()
    for index in 0..<100_000 {
      let number = index % regularity == 0 ? index * 7919 % 100_003 : index
      line.insert(Counted(number: number, count: count))
    }
    for _ in 0..<100 {
      let before = count.value.load(ordering: .relaxed)
      line.insert(Counted(number: -1, count: count))
      #expect(line.first?.number == -1)
      line.popFirst()
      // Twice the height of a heap, for the way up and the way down.
      #expect(count.value.load(ordering: .relaxed) - before <= 4 * 17)
    }
  }
}
