import SteadfastQueue

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

extension ReferenceTable {
  /// Counts from `now` what was counted from a later date.
  package mutating func rebase(to now: Date) {
    for index in entries.indices.sorted(by: { entries[$0].place < entries[$1].place }) {
      let old = entries[index].record
      var record = old.dated(min(old.createdDate, now))
      if !old.state.isFinished { record.failedDate = old.failedDate.map { min($0, now) } }
      if !old.state.isFinished, let origin = old.countedFrom, origin > now {
        record.availableDate = old.availableDate.moved(by: now.timeIntervalSince(origin))
        record.countedFrom = now
        if old.state == .suspended { wake(&record) }
        if record.state == .waiting { entries[index].place = nextPlace() }
      }
      entries[index].record = record
      if let start = entries[index].leaseStart, start > clock {
        entries[index].leaseEnd? += clock.timeIntervalSince(start)
        entries[index].leaseStart = clock
      }
    }
  }
}

extension Date {
  fileprivate func moved(by seconds: TimeInterval) -> Date {
    // Rounded as after storing it in seconds since 1970.
    Date(timeIntervalSince1970: (self + seconds).timeIntervalSince1970)
  }
}

extension TaskRecord {
  /// Returns the same task as if it had been made on another date, from each of its fields.
  ///
  /// The dates that were counted from its creation have the same distance from it.
  func dated(_ date: Date) -> TaskRecord {
    func moved(_ end: Date?) -> Date? {
      guard let end, end >= createdDate, date != createdDate else { return end }
      return end.moved(by: date.timeIntervalSince(createdDate))
    }
    return TaskRecord(
      id: id,
      name: name,
      payload: payload,
      priority: priority,
      createdDate: date,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      uniqueKey: uniqueKey,
      keyRole: keyRole,
      uniqueUntil: moved(uniqueUntil),
      latestDate: moved(latestDate),
      orderKey: orderKey,
      holdsOrder: holdsOrder,
      conditions: conditions,
      dependencies: dependencies,
      queue: queue,
      tags: tags,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      memorySize: memorySize,
      state: state,
      availableDate: availableDate,
      countedFrom: countedFrom,
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: lastError,
      failedDate: failedDate,
      earlierFailures: earlierFailures,
      isPostponed: isPostponed,
      finishedDate: finishedDate
    )
  }
}
