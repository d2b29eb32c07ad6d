import Foundation
import SteadfastRetry

@testable import SteadfastQueue

extension TaskUpdate {
  /// Draws an update at random.
  static func drawn(by random: inout SplitMix64, at now: Date) -> TaskUpdate {
    let text = "\(random.next() % 9)"
    return TaskUpdate(
      payload: random.next() % 2 == 0 ? StoredPayload(Array(text.utf8), format: .json) : nil,
      priority: random.next() % 2 == 0
        ? TaskQueue.Priority(rawValue: Int(random.next() % 3)) : nil,
      maxRetries: random.next() % 4 == 0 ? .alwaysRetry : nil,
      usesBackoff: random.next() % 4 == 0 ? random.next() % 2 == 0 : nil,
      timeLimit: random.next() % 4 == 0 ? .seconds(1 + Int(random.next() % 9)) : nil,
      expiryDate: random.next() % 4 == 0 ? now + 1e6 : nil,
      tags: random.next() % 4 == 0 ? (random.next() % 2 == 0 ? [] : [text]) : nil,
      metadata: ["0": [:], "1": ["update": text], "2": ["a": "b", "update": text]][text]
    )
  }
}
