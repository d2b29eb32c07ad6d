/// A binary heap: the least element first, O(log n) in and out.
struct Heap<Element: Comparable & Sendable>: Sendable {
  private var nodes: [Element] = []

  var first: Element? { nodes.first }
  var count: Int { nodes.count }

  mutating func insert(_ element: Element) {
    nodes.append(element)
    var hole = nodes.count - 1
    while hole > 0 {
      let parent = (hole - 1) / 2
      guard element < nodes[parent] else { break }
      nodes[hole] = nodes[parent]
      hole = parent
    }
    nodes[hole] = element
  }

  mutating func popFirst() -> Element? {
    guard let first = nodes.first else { return nil }
    let last = nodes.removeLast()
    guard !nodes.isEmpty else { return first }
    var hole = 0
    while true {
      var child = 2 * hole + 1
      guard child < nodes.count else { break }
      if child + 1 < nodes.count, nodes[child + 1] < nodes[child] { child += 1 }
      guard nodes[child] < last else { break }
      nodes[hole] = nodes[child]
      hole = child
    }
    nodes[hole] = last
    return first
  }

  /// Keeps only the elements that satisfy the predicate.
  ///
  /// O(n log n).
  mutating func retain(where isKept: (Element) -> Bool) {
    nodes = nodes.filter(isKept).sorted()
  }
}
