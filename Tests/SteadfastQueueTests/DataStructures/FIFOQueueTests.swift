import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct FIFOQueueTests {
  @Test(arguments: [0, 1, 3, 64]) func `elements leave in the order in which they were appended`(
    capacity: Int
  ) {
    var queue = capacity == 0 ? FIFOQueue<Int>() : FIFOQueue(minimumCapacity: capacity)
    var expected: [Int] = []
    var longest = capacity
    var generator = SplitMix64(seed: 1)
    for number in 0..<10_000 {
      // For 500 steps at a time, the queue mostly grows or mostly shrinks.
      if UInt64.random(in: 0..<10, using: &generator) < (number / 500 % 2 == 0 ? 6 : 4) {
        queue.append(number)
        expected.append(number)
        longest = max(longest, expected.count)
      } else {
        #expect(queue.popFirst() == (expected.isEmpty ? nil : expected.removeFirst()))
      }
      #expect(queue.count == expected.count && queue.first == expected.first)
      #expect(queue.isEmpty == expected.isEmpty)
    }
    #expect(longest > 20)
    #expect(queue.capacity < max(4, 2 * longest) + 1)
  }

  @Test func `an element moves to the front, even across the end of the ring`() {
    var queue = FIFOQueue<Int>()
    for number in 0..<4 { queue.append(number) }
    for _ in 0..<3 { _ = queue.popFirst() }
    for number in 4..<7 { queue.append(number) }
    #expect(queue.capacity == 4)
    queue.bringToFront(2)
    #expect((0..<4).map { _ in queue.popFirst() } == [5, 4, 3, 6])
    #expect(queue.popFirst() == nil)
  }

  @Test func `an element that was removed from the queue is released`() {
    final class Cargo {}
    var queue = FIFOQueue<Cargo>()
    var cargo: Cargo? = Cargo()
    weak let last = cargo
    queue.append(Cargo())
    queue.append(cargo ?? Cargo())
    cargo = nil
    #expect(last != nil)
    _ = queue.popFirst()
    _ = queue.popFirst()
    #expect(last == nil)
    #expect(queue.capacity > 0)
  }
}
