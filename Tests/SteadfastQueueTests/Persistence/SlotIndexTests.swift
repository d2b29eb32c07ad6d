import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct SlotIndexTests {
  /// As this package makes them, in a row; as others do, with one half that is always the same.
  static let makers: [@Sendable (UInt64) -> TaskID] = [
    { TaskID(high: 0x0199_0000_0000_7000 + $0, low: SplitMix64(seed: $0).first) },
    { TaskID(high: 0x0199_0000_0000_7000 + $0, low: 0x8000_0000_0000_0001) },
    { TaskID(high: 0x0199_0000_0000_7000, low: $0) },
    { TaskID(high: $0 << 32 | 0x11EE, low: 0x8000_0000_0000_0001) },
  ]

  @Test(arguments: makers.indices)
  func `no part of it is much larger than others, so that none takes long to grow`(maker: Int)
    throws
  {
    var index = SlotIndex()
    for number in 0..<100_000 { index[Self.makers[maker](UInt64(number))] = number }
    #expect(index.count == 100_000)
    let parts = try #require(Mirror(reflecting: index).descendant("parts") as? [[TaskID: Int]])
    let largest = parts.map(\.count).max() ?? 0
    #expect(largest < 3 * 100_000 / parts.count)
    #expect(parts.count >= 256)
  }

  @Test func `it tells what a dictionary would`() {
    var random = SplitMix64(seed: 1)
    var index = SlotIndex()
    var expected: [TaskID: Int] = [:]
    for number in 0..<5000 {
      let id = TaskID(high: 7, low: UInt64.random(in: 0..<1000, using: &random))
      if Bool.random(using: &random) {
        #expect(index.updateValue(number, forKey: id) == expected.updateValue(number, forKey: id))
      } else {
        #expect(index[id] == expected[id])
        index[id] = nil
        expected[id] = nil
      }
    }
    #expect(index.count == expected.count)
    #expect(index.keys.sorted() == expected.keys.sorted())
    #expect(index.values.sorted() == expected.values.sorted())
    #expect(index.allSatisfy { expected[$0.key] == $0.value })
  }
}

extension SplitMix64 {
  fileprivate var first: UInt64 {
    var generator = self
    return generator.next()
  }
}
