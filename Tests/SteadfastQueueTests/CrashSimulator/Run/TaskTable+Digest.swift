import Foundation

@testable import SteadfastQueue

extension TaskTable {
  /// A hash of everything that the next process can observe of this table: its values, its tasks
  /// and their memory, and the order in which tasks are claimed and pruned.
  func digest() -> UInt64 {
    var table = self
    return table.takeDigest()
  }

  /// Computes the digest like `digest()`, but leaves the table unusable.
  mutating func takeDigest() -> UInt64 {
    interruptLeased()
    var hasher = Hasher()
    hasher.combine(values.committed.mapValues(\.bytes))
    for record in tasks(matching: TaskFilter(queue: nil), after: nil, limit: .max) {
      record.combine(into: &hasher)
      hasher.combine(slot(of: record.id).map { entries[$0].hasLostKey })
      hasher.combine(memory(of: record.id))
    }
    let queues = lanes.queues.map(\.name).sorted()
    for queue in queues { pruneHalf(queue, &hasher) }
    for queue in queues { unparkAll(queue) }
    // The end of a task makes its dependents and tasks with the same keys available.
    while case let count = queues.map({ perform($0, &hasher) }).reduce(0, +), count > 0 {}
    return UInt64(bitPattern: Int64(hasher.finalize()))
  }

  /// Prunes the earlier half of the ended tasks of a queue.
  private mutating func pruneHalf(_ queue: String, _ hasher: inout Hasher) {
    for state in TaskState.allCases where state.isFinished {
      let filter = TaskFilter(queue: queue, states: [state])
      let ended = count(matching: filter)
      _ = apply([
        .prune(state, endedBefore: nil, keepingLatest: ended / 2, now: .distantPast, queue: queue)
      ])
      for record in tasks(matching: filter, after: nil, limit: .max) { hasher.combine(record.id) }
    }
  }

  private mutating func unparkAll(_ queue: String) {
    for name in names(in: queue) { _ = apply([.unpark(name: name, queue: queue)]) }
  }

  private func names(in queue: String) -> [String] {
    lanes.number(ofQueue: queue).map { lanes.queues[$0].indices.keys.map(\.text).sorted() } ?? []
  }

  /// Performs the available tasks of a queue, and returns their number.
  private mutating func perform(_ queue: String, _ hasher: inout Hasher) -> Int {
    let request = ClaimRequest(
      limit: .max,
      queue: queue,
      names: Dictionary(uniqueKeysWithValues: names(in: queue).map { ($0, .max) }),
      now: .distantFuture,
      conditions: Set(lanes.all.flatMap(\.requirements.conditions))
    )
    let claimed = claim(request).tasks
    for task in claimed {
      hasher.combine(task.record.id)
      _ = apply([.succeed(task.lease, at: .distantFuture, retains: false)])
    }
    return claimed.count
  }
}

extension TaskRecord {
  fileprivate func combine(into hasher: inout Hasher) {
    hasher.combine(id)
    hasher.combine(name)
    hasher.combine(queue)
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
    hasher.combine(blocksOrderOnFailure)
    hasher.combine(conditions)
    hasher.combine(dependencies)
    hasher.combine(tags)
    hasher.combine(metadata)
    hasher.combine(timeLimit)
    hasher.combine(expiryDate)
    hasher.combine(state)
    hasher.combine(availableDate)
    hasher.combine(retryCount)
    hasher.combine(interruptionCount)
    hasher.combine(lastError)
    hasher.combine(failedDate)
    hasher.combine(failedAttempt)
    hasher.combine(earlierFailures)
    hasher.combine(parkedVersion)
    hasher.combine(isPostponed)
    hasher.combine(finishedDate)
    hasher.combine(memorySize)
  }
}
