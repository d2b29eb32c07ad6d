import Testing

@testable import SteadfastRetry

@Suite struct DeadlineHeapTests {
  private func seconds(_ seconds: Int) -> Duration { .seconds(seconds) }

  @Test func `elements are removed in the order of their deadlines, and then of their insertion`() {
    var heap = DeadlineHeap<String, Duration>()
    _ = heap.insert("c", deadline: seconds(2))
    _ = heap.insert("a", deadline: seconds(1))
    _ = heap.insert("d", deadline: seconds(2))
    _ = heap.insert("b", deadline: seconds(1))
    #expect(heap.sorted.map(\.element) == ["a", "b", "c", "d"])
    var popped: [String] = []
    while let (_, element) = heap.popFirst(through: seconds(100)) { popped.append(element) }
    #expect(popped == ["a", "b", "c", "d"])
  }

  @Test func `later elements reuse the slots of removed ones`() {
    var heap = DeadlineHeap<Int, Duration>()
    for number in 0..<100 {
      let tickets = (0..<3).map { heap.insert(number, deadline: seconds($0)) }
      for ticket in tickets.dropFirst() { _ = heap.remove(ticket) }
      _ = heap.popFirst(through: seconds(0))
    }
    #expect(heap.sorted.isEmpty)
    #expect(heap.slots.count == 3)
  }

  @Test func `popFirst removes no element with a deadline after the limit`() {
    var heap = DeadlineHeap<String, Duration>()
    _ = heap.insert("a", deadline: seconds(2))
    #expect(heap.popFirst(through: seconds(1)) == nil)
    #expect(heap.popFirst(through: seconds(2))?.element == "a")
    #expect(heap.popFirst(through: seconds(100)) == nil)
  }

  @Test func `a ticket removes only the element of its insertion, even if the slot is reused`() {
    var heap = DeadlineHeap<String, Duration>()
    let first = heap.insert("a", deadline: seconds(1))
    #expect(heap.remove(first) == "a")
    let second = heap.insert("b", deadline: seconds(1))
    #expect(heap.remove(first) == nil)
    #expect(heap.count == 1)
    #expect(heap.remove(second) == "b")
    #expect(heap.remove(second) == nil)
  }

  @Test(arguments: 0..<50 as Range<UInt64>)
  func `random operations have the same results on a heap and on a sorted array`(seed: UInt64) {
    var random = Randomness.seeded(seed).makeGenerator()
    var heap = DeadlineHeap<Int, Duration>()
    var model: [(deadline: Int, element: Int, ticket: DeadlineHeap<Int, Duration>.Ticket)] = []
    for element in 0..<1_000 {
      switch Int.random(in: 0..<5, using: &random) {
      case 0, 1, 2:
        let deadline = Int.random(in: -20...20, using: &random)
        let ticket = heap.insert(element, deadline: seconds(deadline))
        let index = model.firstIndex { $0.deadline > deadline } ?? model.endIndex
        model.insert((deadline, element, ticket), at: index)
      case 3:
        let limit = Int.random(in: -20...20, using: &random)
        let due = model.first.flatMap { $0.deadline <= limit ? $0 : nil }
        let popped = heap.popFirst(through: seconds(limit))
        #expect(popped?.element == due?.element)
        #expect(popped?.deadline == due.map { seconds($0.deadline) })
        if due != nil { model.removeFirst() }
      default:
        guard let index = model.indices.randomElement(using: &random) else { continue }
        #expect(heap.remove(model[index].ticket) == model[index].element)
        #expect(heap.remove(model[index].ticket) == nil)
        model.remove(at: index)
      }
      #expect(heap.count == model.count)
      #expect(heap.firstDeadline == model.first.map { seconds($0.deadline) })
    }
    #expect(heap.sorted.map(\.element) == model.map(\.element))
  }
}
