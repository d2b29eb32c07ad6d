package import SteadfastQueue

/// A task that has a role for a unique key.
package struct KeyTwin {
  package let id: TaskID
  package let state: TaskState
  /// Whether it stands for a task of the date that was asked for.
  package let isRecent: Bool
  package let memorySize: Int
}

extension KeyTwin {
  /// Reads a row of the ID, the role, the state, whether the task is recent, and the size of its
  /// memory.
  package static func read(_ row: some TaskRow) throws -> (UniqueKeyRole, KeyTwin) {
    guard let id = row.id(0), let role = UniqueKeyRole(rawValue: row.text(1)) else {
      throw UnreadableRow(column: "key_role", id: row.id(0))
    }
    let twin = KeyTwin(
      id: id,
      state: try row.state(2),
      isRecent: row.flag(3),
      memorySize: row.integer(4)
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
    let twins = try twins(of: record, key)
    guard let holder = twins[.holder] else {
      let recent = policy == .replace ? nil : try recent(record, key)
      return recent.map { .outcome(.duplicate(of: $0)) } ?? .role(.holder)
    }
    if policy == .reject || policy == .join { return .outcome(.duplicate(of: holder.id)) }
    if twins[.successor] == nil {
      let begins = policy == .replace || !holder.isRecent
      if holder.state == .running, begins { return .role(.successor) }
      if policy == .replace, holder.memorySize > 0 { return .role(.successor) }
    }
    let twin = twins[.successor] ?? holder
    guard policy == .replace else { return .outcome(.duplicate(of: twin.id)) }
    try takeOver(record, by: twin.id, payload)
    return .outcome(.replaced(twin.id))
  }
}

private enum KeyDecision {
  case role(UniqueKeyRole)
  case outcome(ChangeOutcome)
}
