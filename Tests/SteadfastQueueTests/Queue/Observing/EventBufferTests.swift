import SteadfastRetry
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite struct EventBufferTests {
  @Test func `a buffer retains the latest events, even after long use`() async {
    var buffer = EventBuffer(capacity: 4)
    for number in 0..<1000 {
      buffer.append(.missed(count: number))
      guard case .missed(let found)? = buffer.popFirst() else { return #expect(Bool(false)) }
      #expect(found == number)
    }
    #expect(buffer.isEmpty)
    for number in 0..<10 { buffer.append(.missed(count: number)) }
    var found: [Int] = []
    while case .missed(let number)? = buffer.popFirst() { found.append(number) }
    #expect(found == [6, 6, 7, 8, 9])
  }
  @Test(arguments: [1, 2, 7, 64])
  func `under random additions and removals, a buffer behaves like a queue of limited capacity`(
    capacity: Int
  ) {
    var buffer = EventBuffer(capacity: capacity)
    var expected: [Int] = []
    var (missed, next) = (0, 0)
    var generator = SplitMix64(seed: UInt64(capacity))
    for _ in 0..<5_000 {
      if UInt64.random(in: 0..<5, using: &generator) < 3 {
        buffer.append(.rescheduled(.numbered(next), to: .distantPast))
        expected.append(next)
        next += 1
        if expected.count > capacity {
          expected.removeFirst()
          missed += 1
        }
      } else if missed > 0 {
        guard case .missed(missed)? = buffer.popFirst() else { return #expect(Bool(false)) }
        missed = 0
      } else if let first = expected.first {
        guard case .rescheduled(let id, _)? = buffer.popFirst() else {
          return #expect(Bool(false))
        }
        #expect(id == .numbered(first))
        expected.removeFirst()
      } else {
        let event = buffer.popFirst()
        #expect(event == nil)
      }
      #expect(buffer.isEmpty == (expected.isEmpty))
    }
  }

  @Test func `a buffer releases events that were dropped or removed`() throws {
    final class Cargo: TaskPayload {
      let text: String
      init(_ text: String) { self.text = text }
    }
    var buffer = EventBuffer(capacity: 2)
    weak var last: Cargo?
    for _ in 0..<5 {
      let cargo = Cargo("x")
      last = cargo
      let record = TaskRecord(
        id: .numbered(1),
        name: "Cargo",
        payload: StoredPayload(cargo),
        createdDate: .seconds(0),
        availableDate: .seconds(0)
      )
      buffer.append(.started(record))
    }
    #expect(last != nil)
    while buffer.popFirst() != nil {}
    #expect(last == nil)
  }
}
