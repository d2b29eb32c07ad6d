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

    mutating func append(_ node: Node, finishedDate: Date?) {
      nodes.append((node, finishedDate ?? .distantPast))
    }

    var count: Int { nodes.count - head }

    mutating func retain(where isKept: (Node) -> Bool) {
      nodes = nodes[head...].filter { isKept($0.node) }
      head = 0
    }

    /// Takes out those that ended before the date and all but the latest, in order; nodes that are
    /// no longer current do not count.
    mutating func removeExpired(
      endedBefore date: Date?,
      keepingLatest count: Int?,
      isCurrent: (Node) -> Bool
    ) -> [Node] {
      // Those that a compaction has written come back in any order.
      nodes = nodes[head...].filter { isCurrent($0.node) }
        .sorted { $0.node.position < $1.node.position }
      head = 0
      let surplus = count.map { max(0, nodes.count - $0) } ?? 0
      while head < nodes.count, head < surplus || date.map({ nodes[head].date < $0 }) ?? false {
        head += 1
      }
      return nodes[..<head].map(\.node)
    }
  }
}
