#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskTable {
  /// A task in a line, ordered by its position.
  ///
  /// Two tasks can have the same position in a file that was edited by hand.
  struct Node: Comparable, Sendable {
    let slot: Int
    let position: UInt64

    static func < (left: Node, right: Node) -> Bool {
      left.position != right.position ? left.position < right.position : left.slot < right.slot
    }
  }

  /// A ready task in its lane: first by higher priority, then by earlier date, then by position.
  struct ReadyNode: Comparable, Sendable {
    let priority: Int
    let date: Date
    let node: Node

    static func < (left: ReadyNode, right: ReadyNode) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.date != right.date { return left.date < right.date }
      return left.node < right.node
    }
  }

  /// A lane, ordered by its first ready task.
  struct RankedLane: Comparable, Sendable {
    let first: ReadyNode
    let lane: Int

    static func < (left: RankedLane, right: RankedLane) -> Bool { left.first < right.first }
  }

  /// A task that waits for its date.
  struct DateNode: Comparable, Sendable {
    let date: Date
    let node: Node

    static func < (left: DateNode, right: DateNode) -> Bool {
      left.date != right.date ? left.date < right.date : left.node < right.node
    }
  }
}
