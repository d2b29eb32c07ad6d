import SteadfastRetry
import Testing

@testable import SteadfastQueue

@Suite struct DependencyEdgesTests {
  private func id(_ number: Int) -> TaskID { TaskID(high: 7, low: UInt64(number)) }

  @Test func `the dependents of a task are in the order in which they were added`() {
    var edges = DependencyEdges()
    for slot in [5, 900, 2] { edges.addEdge(from: slot, to: id(1)) }
    edges.addEdge(from: 2, to: id(2))
    #expect(edges.slots(naming: id(1)) == [5, 900, 2])
    edges.removeEdges(from: 900)
    #expect(edges.slots(naming: id(1)) == [5, 2])
    edges.removeEdges(from: 2)
    #expect(edges.slots(naming: id(1)) == [5])
    #expect(!edges.hasDependents(of: id(2)))
    edges.removeEdges(from: 5)
    #expect(edges.isEmpty)
  }

  @Test func `a slot that is reused has no edges of its previous task`() {
    var edges = DependencyEdges()
    edges.addEdge(from: 3, to: id(1))
    edges.changeUnfinishedCount(of: 3, by: 1)
    edges.removeEdges(from: 3)
    #expect(edges.unfinishedCount(of: 3) == 0)
    edges.addEdge(from: 3, to: id(2))
    #expect(edges.slots(naming: id(1)).isEmpty)
    #expect(edges.slots(naming: id(2)) == [3])
  }

  @Test func `the number of open dependencies is never negative`() {
    var edges = DependencyEdges()
    edges.changeUnfinishedCount(of: 1, by: -1)
    #expect(edges.unfinishedCount(of: 1) == 0)
    edges.changeUnfinishedCount(of: 1, by: 1)
    #expect(edges.unfinishedCount(of: 1) == 1)
    #expect(edges.unfinishedCount(of: 1_000_000) == 0)
  }

  @Test(arguments: 0..<UInt64(20))
  func `random additions and removals agree with a list of pairs`(seed: UInt64) {
    var generator = SplitMix64(seed: seed)
    var edges = DependencyEdges()
    var pairs: [(slot: Int, named: TaskID)] = []
    for _ in 0..<600 {
      let slot = Int.random(in: 0..<40, using: &generator)
      if Int.random(in: 0..<4, using: &generator) == 0 {
        edges.removeEdges(from: slot)
        pairs.removeAll { $0.slot == slot }
      } else {
        let named = id(Int.random(in: 0..<12, using: &generator))
        guard !pairs.contains(where: { $0 == (slot, named) }) else { continue }
        edges.addEdge(from: slot, to: named)
        pairs.append((slot, named))
      }
      for number in 0..<12 {
        let named = id(number)
        let expected = pairs.filter { $0.named == named }.map(\.slot)
        #expect(edges.slots(naming: named) == expected)
        #expect(edges.hasDependents(of: named) == !expected.isEmpty)
      }
      #expect(edges.isEmpty == pairs.isEmpty)
    }
  }
}
