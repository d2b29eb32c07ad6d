/// A priority queue that costs O(1) while elements arrive in order: a sorted run, and a heap for
/// the rest.
struct OrderedLine<Element: Comparable & Sendable>: Sendable {
  private var run: [Element] = []
  private var head = 0
  private var strays = Heap<Element>()

  var count: Int { run.count - head + strays.count }

  var first: Element? {
    guard head < run.count else { return strays.first }
    guard let stray = strays.first else { return run[head] }
    return min(run[head], stray)
  }

  mutating func insert(_ element: Element) {
    if head < run.count, element < run[run.count - 1] {
      strays.insert(element)
    } else {
      run.append(element)
    }
  }

  @discardableResult
  mutating func popFirst() -> Element? {
    guard head < run.count else { return strays.popFirst() }
    if let stray = strays.first, stray < run[head] { return strays.popFirst() }
    let element = run[head]
    head += 1
    dropConsumedRun()
    return element
  }

  /// Keeps only the elements that satisfy the predicate.
  ///
  /// O(n log n).
  mutating func retain(where isKept: (Element) -> Bool) {
    run = run[head...].filter(isKept)
    head = 0
    strays.retain(where: isKept)
  }

  private mutating func dropConsumedRun() {
    if head == run.count {
      run.removeAll(keepingCapacity: head < 4096)
      head = 0
    } else if head > 1024, head * 2 > run.count {
      run.removeFirst(head)
      head = 0
    }
  }
}
