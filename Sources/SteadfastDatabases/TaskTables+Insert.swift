package import SteadfastQueue

/// A task that has a role for a unique key.
package struct KeyTwin {
  package let id: TaskID
  package let state: TaskState
  /// Whether it stands for a task of the date that was asked for.
  package let isRecent: Bool
  package let memorySize: Int
  /// Whether it can't be performed any more on the date that was asked for.
  package let hasExpired: Bool
}

extension KeyTwin {
  /// Reads a row of the ID, the role, the state, whether the task is recent, the size of its
  /// memory, and whether it has expired.
  package static func read(_ row: some TaskRow) throws -> (UniqueKeyRole, KeyTwin) {
    guard let id = row.id(0), let role = UniqueKeyRole(rawValue: row.text(1)) else {
      throw UnreadableRow(column: "key_role", id: row.id(0))
    }
    let twin = KeyTwin(
      id: id,
      state: try row.state(2),
      isRecent: row.flag(3),
      memorySize: row.integer(4),
      hasExpired: row.flag(5)
    )
    return (role, twin)
  }
}

/// Insertions.
extension TaskTables {
  func insert(
    _ record: TaskRecord,
    _ policy: UniquePolicy,
    _ payload: [UInt8]
  ) throws -> ChangeOutcome {
    var role: UniqueKeyRole?
    let key = StoredKey.text(of: record.uniqueKey, in: record.queue)
    let takesKey = key != nil && !record.state.isFinished
    if takesKey || !record.dependencies.tasks.isEmpty,
      let sent = try outcomeIfSent(record, payload)
    {
      return sent
    }
    if takesKey, let key {
      switch try decision(on: record, key, policy, payload) {
      case .role(let decided): role = decided
      case .outcome(let outcome): return outcome
      }
    }
    guard try add(record, role, payload) else {
      return try outcomeIfSent(record, payload) ?? .identityTaken
    }
    if let key = StoredKey.text(of: record.orderKey, in: record.queue) {
      changedOrders.append(key)
    }
    if record.dependencies.follower != nil { newMembers.append(record) }
    guard !record.dependencies.tasks.isEmpty else { return .done }
    return try name(record.dependencies, by: record)
  }

  /// Decides what a new task with a unique key becomes, and lets its twin take it over.
  private func decision(
    on record: TaskRecord,
    _ key: String,
    _ policy: UniquePolicy,
    _ payload: [UInt8]
  ) throws -> KeyDecision {
    let all = try twins(of: record, key)
    let twins = all.filter { !$0.value.hasExpired }
    guard let last = twins[.successor] ?? twins[.holder] else {
      let recent = policy == .replace ? nil : try recent(record, key)
      if let recent { return .outcome(.duplicate(of: recent)) }
      if !all.isEmpty { try displaceTwins(of: record, key) }
      return .role(.holder)
    }
    if policy == .reject || policy == .join {
      return .outcome(.duplicate(of: (twins[.holder] ?? last).id))
    }
    if twins[.successor] == nil {
      let begins = policy == .replace || !last.isRecent
      if last.state == .running && begins || policy == .replace && last.memorySize > 0 {
        if all[.successor] != nil { try displaceTwins(of: record, key) }
        return .role(.successor)
      }
    }
    guard policy == .replace else { return .outcome(.duplicate(of: last.id)) }
    try takeOver(record, by: last.id, payload)
    return .outcome(.replaced(last.id))
  }
}

private enum KeyDecision {
  case role(UniqueKeyRole)
  case outcome(ChangeOutcome)
}
