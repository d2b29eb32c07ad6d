import SteadfastQueue
import SystemFoundation

/// Unique keys in the reference. The twins of a task are the tasks with its name and unique key.
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

  /// Returns the index of the twin that has this role.
  private func twin(of record: TaskRecord, inRole role: UniqueKeyRole) -> Int? {
    twins(of: record).first { entries[$0].record.keyRole == role }
  }

  /// Returns the index of the twin that has this role, unless the twin has expired before the new
  /// task was created.
  private func unexpiredTwin(of record: TaskRecord, inRole role: UniqueKeyRole) -> Int? {
    twin(of: record, inRole: role).flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
  }

  /// Returns whether the task at an index has expired; a running task never has.
  private func hasExpired(_ index: Int, by date: Date) -> Bool {
    entries[index].record.state != .running && entries[index].record.hasExpired(by: date)
  }

  /// Gives a new task a role, and removes the roles of expired twins.
  private mutating func assign(_ role: UniqueKeyRole, to record: TaskRecord) -> KeyDecision {
    for index in twins(of: record)
    where entries[index].record.keyRole != nil && hasExpired(index, by: record.createdDate) {
      entries[index].record.keyRole = nil
    }
    return .role(role)
  }

  /// Decides on the role of a new task with a unique key, or on the outcome if it can't be added.
  mutating func decideRole(of record: TaskRecord, policy: UniquePolicy) -> KeyDecision {
    let holder = unexpiredTwin(of: record, inRole: .holder)
    let successor = unexpiredTwin(of: record, inRole: .successor)
    func isSame(_ index: Int) -> Bool {
      policy != .replace
        && entries[index].record.uniqueUntil.map { $0 > record.createdDate } ?? false
    }
    guard let last = successor ?? holder else {
      let same = twins(of: record).filter { entries[$0].record.state == .succeeded && isSame($0) }
        .map { entries[$0].record }
        .max { ($0.uniqueUntil ?? .distantPast, $0.id) < ($1.uniqueUntil ?? .distantPast, $1.id) }
      return same.map { .outcome(.duplicate(of: $0.id)) } ?? assign(.holder, to: record)
    }
    if policy == .reject || policy == .join {
      return .outcome(.duplicate(of: entries[holder ?? last].record.id))
    }
    if successor == nil, entries[last].record.state == .running, !isSame(last) {
      return assign(.successor, to: record)
    }
    let id = entries[last].record.id
    if policy == .keep { return .outcome(.duplicate(of: id)) }
    if successor == nil, !entries[last].memory.isEmpty { return assign(.successor, to: record) }
    if entries[last].record.state == .suspended {
      wake(id)
      entries[last].place = nextPlace()
    }
    replace(last, by: record)
    return .outcome(.replaced(id))
  }

  /// Returns the available date of a task after its replacement, and the date from which that
  /// available date is counted.
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

  /// Gives the task at an index the payload and the options of a new task.
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
      metadata: new.metadata,
      timeLimit: new.timeLimit,
      expiryDate: new.expiryDate,
      state: state,
      availableDate: date,
      countedFrom: origin,
      retryCount: old.retryCount,
      interruptionCount: old.interruptionCount,
      lastError: old.lastError,
      failedDate: old.failedDate,
      failedAttempt: old.failedAttempt,
      earlierFailures: old.earlierFailures,
      isPostponed: old.isPostponed
    )
    if state != old.state || date != old.availableDate || new.priority != old.priority {
      entries[index].place = nextPlace()
    }
  }

  /// Removes a task whose attempt failed if it has a successor, which gets the task's retries.
  ///
  /// - Returns: The successor's ID; `nil` if the task stays, because there is no successor, or
  ///   because the successor expires before the date of the retry.
  mutating func supersede(_ id: TaskID) -> TaskID? {
    guard let index = index(of: id) else { return nil }
    let holder = entries[index].record
    guard holder.keyRole == .holder, let successor = twin(of: holder, inRole: .successor),
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
      metadata: old.metadata,
      timeLimit: old.timeLimit,
      expiryDate: old.expiryDate,
      state: old.state,
      availableDate: max(old.availableDate, holder.availableDate),
      countedFrom: (old.availableDate > holder.availableDate ? old : holder).countedFrom,
      retryCount: holder.retryCount,
      interruptionCount: holder.interruptionCount,
      lastError: holder.lastError,
      failedDate: holder.failedDate,
      failedAttempt: holder.failedAttempt,
      earlierFailures: holder.earlierFailures,
      isPostponed: holder.isPostponed
    )
    remove(at: index)
    return old.id
  }

  /// Makes each successor whose holder has ended the holder of its key.
  mutating func promoteSuccessors() {
    for index in entries.indices
    where entries[index].record.keyRole == .successor
      && twin(of: entries[index].record, inRole: .holder) == nil
    {
      entries[index].record.keyRole = .holder
    }
  }

  /// Makes a task the holder of its unique key.
  mutating func makeHolder(_ id: TaskID) {
    guard let index = entries.firstIndex(where: { $0.record.id == id }) else { return }
    entries[index].record.keyRole = .holder
  }

  /// Returns the task that holds the unique key of a task without a role, which therefore can't be
  /// restarted.
  func holder(insteadOf record: TaskRecord) -> TaskID? {
    guard record.uniqueKey != nil, record.keyRole == nil else { return nil }
    return twin(of: record, inRole: .holder).map { entries[$0].record.id }
  }
}

extension TaskRecord {
  fileprivate func hasExpired(by date: Date) -> Bool { expiryDate.map { $0 <= date } ?? false }
}
