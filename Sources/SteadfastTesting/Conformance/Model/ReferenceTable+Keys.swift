import SteadfastQueue
import SystemFoundation

/// Unique keys in the reference.
extension ReferenceTable {
  enum KeyDecision {
    case role(UniqueKeyRole)
    case outcome(ChangeOutcome)
  }

  /// Returns the indices of the other tasks with the same name and unique key.
  private func twins(of record: TaskRecord) -> [Int] {
    entries.indices.filter { index in
      let other = entries[index].record
      return other.id != record.id && other.isTwin(of: record)
    }
  }

  private func twin(of record: TaskRecord, _ role: UniqueKeyRole) -> Int? {
    twins(of: record).first { entries[$0].record.keyRole == role }
  }

  /// Returns the index of the twin with a role, unless it has expired by the new task's creation.
  private func lastingTwin(of record: TaskRecord, _ role: UniqueKeyRole) -> Int? {
    twin(of: record, role).flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
  }

  private func hasExpired(_ index: Int, by date: Date) -> Bool {
    entries[index].record.state != .running && entries[index].record.hasExpired(by: date)
  }

  /// Gives a new task a role, and removes the roles of expired twins.
  private mutating func give(_ role: UniqueKeyRole, to record: TaskRecord) -> KeyDecision {
    for index in twins(of: record)
    where entries[index].record.keyRole != nil && hasExpired(index, by: record.createdDate) {
      entries[index].record.keyRole = nil
    }
    return .role(role)
  }

  mutating func place(
    for record: TaskRecord,
    _ key: String,
    _ policy: UniquePolicy
  ) -> KeyDecision {
    let (holder, successor) = (
      lastingTwin(of: record, .holder), lastingTwin(of: record, .successor)
    )
    func isSame(_ index: Int) -> Bool {
      policy != .replace
        && entries[index].record.uniqueUntil.map { $0 > record.createdDate } ?? false
    }
    guard let last = successor ?? holder else {
      let same = twins(of: record).filter { entries[$0].record.state == .succeeded && isSame($0) }
        .map { entries[$0].record }
        .max { ($0.uniqueUntil ?? .distantPast, $0.id) < ($1.uniqueUntil ?? .distantPast, $1.id) }
      return same.map { .outcome(.duplicate(of: $0.id)) } ?? give(.holder, to: record)
    }
    if policy == .reject || policy == .join {
      return .outcome(.duplicate(of: entries[holder ?? last].record.id))
    }
    if successor == nil, entries[last].record.state == .running, !isSame(last) {
      return give(.successor, to: record)
    }
    let id = entries[last].record.id
    if policy == .keep { return .outcome(.duplicate(of: id)) }
    if successor == nil, !entries[last].memory.isEmpty { return give(.successor, to: record) }
    if entries[last].record.state == .suspended {
      wake(id)
      entries[last].place = nextPlace()
    }
    replace(last, by: record)
    return .outcome(.replaced(id))
  }

  /// Returns the available date of a task that was replaced, and the date from which it is counted.
  private static func date(of new: TaskRecord, inPlaceOf old: TaskRecord) -> (Date, from: Date?) {
    let (kept, taken) = (
      (old.availableDate, from: old.countedFrom), (new.availableDate, from: new.countedFrom)
    )
    if old.isPostponed { return new.availableDate > old.availableDate ? taken : kept }
    if new.availableDate <= new.createdDate {
      return new.availableDate < old.availableDate ? taken : kept
    }
    guard let latest = old.latestDate ?? new.latestDate, latest < new.availableDate else {
      return taken
    }
    return (latest, from: old.createdDate)
  }

  private mutating func replace(_ index: Int, by new: TaskRecord) {
    let old = entries[index].record
    let latest = old.latestDate ?? new.latestDate
    let (date, origin) = Self.date(of: new, inPlaceOf: old)
    let state = old.state == .parked ? TaskState.waiting : old.state
    entries[index].record = TaskRecord(
      id: old.id,
      name: old.name,
      payload: new.payload,
      priority: new.priority,
      createdDate: old.createdDate,
      maxRetries: new.maxRetries,
      usesBackoff: new.usesBackoff,
      uniqueKey: old.uniqueKey,
      keyRole: old.keyRole,
      uniqueUntil: new.uniqueUntil,
      latestDate: latest,
      orderKey: old.orderKey,
      blocksOrderOnFailure: old.blocksOrderOnFailure,
      conditions: new.conditions,
      dependencies: old.dependencies,
      queue: old.queue,
      tags: new.tags,
      timeLimit: new.timeLimit,
      expiryDate: new.expiryDate,
      state: state,
      availableDate: date,
      countedFrom: origin,
      retryCount: old.retryCount,
      interruptionCount: old.interruptionCount,
      lastError: old.lastError,
      failedDate: old.failedDate,
      earlierFailures: old.earlierFailures,
      isPostponed: old.isPostponed
    )
    if state != old.state || date != old.availableDate || new.priority != old.priority {
      entries[index].place = nextPlace()
    }
  }

  /// Replaces a task whose attempt failed with its successor, if it has one that has not expired.
  ///
  /// - Returns: The successor; `nil` if the task stays.
  mutating func supersede(_ id: TaskID) -> TaskID? {
    guard let index = index(id) else { return nil }
    let holder = entries[index].record
    guard holder.keyRole == .holder, let successor = twin(of: holder, .successor),
      !entries[successor].record.hasExpired(by: holder.availableDate)
    else { return nil }
    let old = entries[successor].record
    entries[successor].record = TaskRecord(
      id: old.id,
      name: old.name,
      payload: old.payload,
      priority: old.priority,
      createdDate: old.createdDate,
      maxRetries: old.maxRetries,
      usesBackoff: old.usesBackoff,
      uniqueKey: old.uniqueKey,
      keyRole: .holder,
      uniqueUntil: old.uniqueUntil,
      latestDate: old.latestDate,
      orderKey: old.orderKey,
      blocksOrderOnFailure: old.blocksOrderOnFailure,
      conditions: old.conditions,
      dependencies: old.dependencies,
      queue: old.queue,
      tags: old.tags,
      timeLimit: old.timeLimit,
      expiryDate: old.expiryDate,
      state: old.state,
      availableDate: max(old.availableDate, holder.availableDate),
      countedFrom: (old.availableDate > holder.availableDate ? old : holder).countedFrom,
      retryCount: holder.retryCount,
      interruptionCount: holder.interruptionCount,
      lastError: holder.lastError,
      failedDate: holder.failedDate,
      earlierFailures: holder.earlierFailures,
      isPostponed: holder.isPostponed
    )
    remove(at: index)
    return old.id
  }

  /// Promotes each successor whose holder has ended to holder.
  mutating func promoteSuccessors() {
    for index in entries.indices
    where entries[index].record.keyRole == .successor
      && twin(of: entries[index].record, .holder) == nil
    {
      entries[index].record.keyRole = .holder
    }
  }

  mutating func setHolder(_ id: TaskID) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    entries[index].record.keyRole = .holder
  }

  /// Returns the holder that prevents a task without a role from being restarted, if there is one.
  func holder(insteadOf record: TaskRecord) -> TaskID? {
    guard record.uniqueKey != nil, record.keyRole == nil else { return nil }
    return twin(of: record, .holder).map { entries[$0].record.id }
  }
}

extension TaskRecord {
  fileprivate func hasExpired(by date: Date) -> Bool { expiryDate.map { $0 <= date } ?? false }
}
