#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// A ready task in its lane: higher priority first, then the earlier date, then its position.
  struct ReadyNode: Comparable, Sendable {
    let priority: Int
    let date: Date
    let node: Node

    static func < (left: ReadyNode, right: ReadyNode) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.date != right.date { return left.date < right.date }
      return left.node.position < right.node.position
    }
  }

  /// A task that waits for its date.
  struct DateNode: Comparable, Sendable {
    let date: Date
    let node: Node

    static func < (left: DateNode, right: DateNode) -> Bool {
      left.date != right.date
        ? left.date < right.date : left.node.position < right.node.position
    }
  }

  /// Tasks that have ended and are kept, in the order in which they ended.
  struct EndedLine: Sendable {
    private var nodes: [(node: Node, date: Date)] = []
    private var head = 0
    /// Those that a compaction has written come back in any order.
    private var isSorted = true

    mutating func append(_ node: Node, finishedDate: Date?) {
      if let last = nodes.last, last.node.position > node.position { isSorted = false }
      nodes.append((node, finishedDate ?? .distantPast))
    }

    var count: Int { nodes.count - head }

    mutating func retain(where isKept: (Node) -> Bool) {
      nodes = nodes[head...].filter { isKept($0.node) }
      head = 0
    }

    /// Takes out those that ended before the date and all but the latest, in order; of the nodes so
    /// many are current.
    ///
    /// O(k) for the k that are taken out, and those that are no longer current.
    mutating func removeExpired(
      endedBefore date: Date?,
      keepingLatest latestCount: Int?,
      of currentCount: Int,
      isCurrent: (Node) -> Bool
    ) -> [Node] {
      if !isSorted { nodes[head...].sort { $0.node.position < $1.node.position } }
      isSorted = true
      let surplus = latestCount.map { max(0, currentCount - $0) } ?? 0
      var expired: [Node] = []
      while head < nodes.count {
        let (node, endDate) = nodes[head]
        if isCurrent(node) {
          guard expired.count < surplus || date.map({ endDate < $0 }) ?? false else { break }
          expired.append(node)
        }
        head += 1
      }
      if head > nodes.count / 2 {
        nodes.removeFirst(head)
        head = 0
      }
      return expired
    }
  }
}
