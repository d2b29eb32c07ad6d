import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// A number for all that the next process could tell of this table: its values, its tasks, and
  /// the order in which they are handed out and leave.
  func digest() -> UInt64 {
    var table = self
    return table.takeDigest()
  }

  /// As `digest()`; the table is of no use afterwards.
  mutating func takeDigest() -> UInt64 {
    interruptLeased()
    var hasher = Hasher()
    hasher.combine(values.committed.mapValues(\.bytes))
    for record in tasks(matching: TaskFilter(), after: nil, limit: .max) {
      record.combine(into: &hasher)
      hasher.combine(slot(of: record.id).map { entries[$0].hasLostKey })
    }
    // Of those that ended, the earlier half leaves.
    for state in TaskState.allCases where state.isFinished {
      let ended = count(matching: TaskFilter(states: [state]))
      _ = apply([.prune(state, endedBefore: nil, keepingLatest: ended / 2, now: .distantPast)])
      for record in tasks(matching: TaskFilter(states: [state]), after: nil, limit: .max) {
        hasher.combine(record.id)
      }
    }
    let names = lanes.indices.keys.map(\.text).sorted()
    for name in names { _ = apply([.unpark(name: name)]) }
    let request = ClaimRequest(
      limit: .max,
      names: Dictionary(uniqueKeysWithValues: names.map { ($0, .max) }),
      now: .distantFuture,
      conditions: Set(lanes.all.flatMap(\.conditions))
    )
    // When a task ends, others with its keys are handed out.
    while case let claimed = claim(request).tasks, !claimed.isEmpty {
      for task in claimed {
        hasher.combine(task.record.id)
        _ = apply([.succeed(task.lease, at: .distantFuture, retains: false)])
      }
    }
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }
}

extension TaskRecord {
  fileprivate func combine(into hasher: inout Hasher) {
    hasher.combine(id)
    hasher.combine(name)
    hasher.combine((try? payload.bytes()) ?? [])
    hasher.combine(payload.format)
    hasher.combine(payload.version)
    hasher.combine(priority.rawValue)
    hasher.combine(createdDate)
    hasher.combine("\(maxRetries)")
    hasher.combine(usesBackoff)
    hasher.combine(uniqueKey)
    hasher.combine(keyRole)
    hasher.combine(uniqueUntil)
    hasher.combine(latestDate)
    hasher.combine(orderKey)
    hasher.combine(holdsOrder)
    hasher.combine(conditions)
    hasher.combine(dependencies)
    hasher.combine(tags)
    hasher.combine(timeLimit)
    hasher.combine(expiryDate)
    hasher.combine(state)
    hasher.combine(availableDate)
    hasher.combine(retryCount)
    hasher.combine(interruptionCount)
    hasher.combine(lastError)
    hasher.combine(failedDate)
    hasher.combine(earlierFailures)
    hasher.combine(isPostponed)
    hasher.combine(finishedDate)
  }
}
