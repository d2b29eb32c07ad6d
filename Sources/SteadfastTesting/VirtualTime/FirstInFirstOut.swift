/// A first-in, first-out queue whose operations take amortized constant time.
struct FirstInFirstOut<Element> {
  private var elements: [Element?] = []
  private var head = 0

  var count: Int { elements.count - head }
  var isEmpty: Bool { count == 0 }

  mutating func append(_ element: Element) { elements.append(element) }

  /// Exchanges the first element with the one that is `index` places behind it.
  mutating func bringToFront(_ index: Int) { elements.swapAt(head, head + index) }

  mutating func popFirst() -> Element? {
    guard head < elements.count else { return nil }
    let first = elements[head].take()
    head += 1
    // At least half of the storage is unused then, so each element is moved at most once on
    // average.
    if head * 2 >= elements.count {
      elements.removeFirst(head)
      head = 0
    }
    return first
  }
}
