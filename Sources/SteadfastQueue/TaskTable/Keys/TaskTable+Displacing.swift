#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tasks that have expired, and lose their roles for a unique key to a new task.
extension TaskTable {
  /// Returns whether a task that has a role can't be performed any more on a date.
  ///
  /// A task that is being changed may have another expiry date afterwards, so it counts as one that
  /// can.
  private func hasExpired(_ slot: Int, by date: Date) -> Bool {
    entries[slot].record.hasExpired(by: date) && entries[slot].record.state != .running
      && !isInDoubt(slot)
  }

  /// The roles for the key of a new task, without those that it may take from expired tasks.
  func roles(for record: TaskRecord, _ key: String, _ lane: Int) -> UniqueKeys.Roles {
    var roles = keys[key, lane]
    func lasting(_ slot: Int?) -> Int? {
      slot.flatMap { hasExpired($0, by: record.createdDate) ? nil : $0 }
    }
    roles.holder = lasting(roles.holder)
    roles.successor = lasting(roles.successor)
    return roles
  }

  /// Frees a role for a new task, if expired tasks have it.
  ///
  /// They are reserved, and lose their roles when the insertion is committed.
  mutating func displace(_ role: UniqueKeyRole, _ key: String, for record: TaskRecord) -> [Int] {
    guard let lane = lanes.lane(of: record.name, in: record.queue) else { return [] }
    let roles = keys[key, lane]
    let others = (role == .holder ? [roles.holder, roles.successor] : [roles.successor])
      .compactMap(\.self)
    guard others.allSatisfy({ hasExpired($0, by: record.createdDate) }) else { return [] }
    for slot in others {
      reserve(slot)
      keys.addWithoutRole(slot, key)
      setRole(of: slot, to: nil)
    }
    return others
  }

  /// Takes the role from a displaced task, when the new one is stored.
  mutating func loseRole(_ slot: Int) {
    entries[slot].record.keyRole = nil
    setFree(slot)
  }

  /// Gives a displaced task its role again, when the new one is not stored.
  mutating func regainRole(_ slot: Int) {
    guard let key = entries[slot].record.uniqueKey else { return }
    keys.removeWithoutRole(slot, key)
    setRole(of: slot, to: slot)
    setFree(slot)
    // The holder may have ended since.
    takeFreeRole(slot)
  }

  /// Sets which task has the role of a task.
  private mutating func setRole(of slot: Int, to other: Int?) {
    guard let key = entries[slot].record.uniqueKey else { return }
    switch entries[slot].record.keyRole {
    case .holder: keys[key, nameLane(of: slot)].holder = other
    case .successor: keys[key, nameLane(of: slot)].successor = other
    case nil: break
    }
  }

  /// Returns whether a task has lost its role because it had expired.
  func isDisplaced(_ slot: Int) -> Bool {
    !entries[slot].hasLostKey && entries[slot].record.isDisplaced
  }

  /// Returns whether a restart of a task makes it the holder of its key, if it has one.
  func takesKeyAtRestart(_ slot: Int) -> Bool {
    entries[slot].record.state.isFinished || isDisplaced(slot)
  }
}
