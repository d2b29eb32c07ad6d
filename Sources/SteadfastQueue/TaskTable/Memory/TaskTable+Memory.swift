#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What tasks remember, and tasks that are suspended.
extension TaskTable {
  /// What a task remembers; nothing if it is not in the table.
  func memory(of id: TaskID) -> TaskMemory {
    guard let slot = slot(of: id), entries[slot].place != .staged else { return TaskMemory() }
    return memories[slot]
  }

  /// The record of a task as callers see it, with the size of what the task remembers.
  @inline(__always)
  func shownRecord(of slot: Int) -> TaskRecord {
    guard entries[slot].remembers else { return entries[slot].record }
    var record = entries[slot].record
    record.memorySize = memories[slot].size
    return record
  }

  // MARK: Staging

  /// Stages a change to what a claimed task remembers.
  ///
  /// It does not reserve the task: the changes that are staged after it are committed after it.
  mutating func stageMemory(_ change: TaskChange, of slot: Int?) -> StagedChange {
    guard let slot else { return .stale }
    stagedMemories[slot, default: 0] += 1
    return StagedChange(.memory(change))
  }

  /// Takes note that a staged change to what a task remembers is committed, or rolled back.
  mutating func unstageMemory(_ change: TaskChange) {
    guard case .remember(let lease, _, _) = change, let slot = slot(of: lease.id),
      let count = stagedMemories[slot]
    else { return }
    stagedMemories[slot] = count > 1 ? count - 1 : nil
  }

  /// Returns whether a task remembers something when all staged changes are committed.
  ///
  /// The end of its attempt may be decided before the last step of the attempt is committed.
  func willRemember(_ slot: Int) -> Bool {
    entries[slot].remembers || stagedMemories[slot] != nil
  }

  /// Stages a completion, if its value is open by now.
  ///
  /// It does not reserve the task: the end of an attempt must not be stale because of it. Other
  /// changes may be committed before it, so the commit looks once more.
  func stageCompletion(_ change: TaskChange) -> StagedChange {
    guard case .complete(let id, let name, _) = change, isOpen(name, of: id) else { return .stale }
    return StagedChange(.memory(change))
  }

  /// Returns whether a task that has not ended remembers a value without bytes under a name.
  private func isOpen(_ name: String, of id: TaskID) -> Bool {
    guard let slot = slot(of: id), entries[slot].place != .staged, entries[slot].remembers,
      !entries[slot].record.state.isFinished
    else { return false }
    return memories[slot][name]?.isEmpty == true
  }

  // MARK: Committing

  /// Commits a change to what a task remembers.
  ///
  /// - Returns: Its outcome; `.stale` for a completion that comes too late after all.
  mutating func commitMemory(_ change: TaskChange) -> ChangeOutcome {
    unstageMemory(change)
    switch change {
    case .remember(let lease, let name, let value):
      guard let slot = slot(of: lease.id) else { return .stale }
      remember(value, name, slot)
      if entries[slot].record.interruptionCount > 0 { entries[slot].record.interruptionCount = 0 }
      return .done
    case .complete(let id, let name, let value):
      guard isOpen(name, of: id), let slot = slot(of: id) else { return .stale }
      remember(value, name, slot)
      if entries[slot].record.state == .suspended { wake(slot) }
      return .done
    default:
      preconditionFailure("a change was staged that concerns no memory")
    }
  }

  /// Sets what a task remembers under a name.
  mutating func remember(_ value: [UInt8], _ name: String, _ slot: Int) {
    let old = memories[slot][name]
    memories.change(slot) { $0[name] = value }
    entries[slot].remembers = true
    if old == nil { memoryCount += 1 }
    addBytes(
      Self.byteCount(name, value) - (old.map { Self.byteCount(name, $0) } ?? 0),
      to: slot
    )
  }

  /// Forgets all that a task remembers.
  mutating func forget(_ slot: Int) {
    guard entries[slot].remembers else { return }
    var count = 0
    memories[slot].forEach {
      count += Self.byteCount($0, $1)
      memoryCount -= 1
    }
    addBytes(-count, to: slot)
    memories[slot] = TaskMemory()
    entries[slot].remembers = false
  }

  /// About how many bytes a file takes for a value that a task remembers.
  static func byteCount(_ name: String, _ value: [UInt8]) -> Int {
    let isText = String(validating: value, as: UTF8.self) != nil
    return JournalLineSize.envelope + name.utf8.count
      + (isText ? value.count : (value.count + 2) / 3 * 4)
  }

  private enum JournalLineSize {
    /// About the length of a line without its name and its value.
    static let envelope = 140
  }

  /// Suspends a claimed task, unless what it waits for has come.
  mutating func suspend(
    _ slot: Int,
    until date: Date,
    awaiting names: [String],
    countedFrom origin: Date?
  ) {
    let hasCome = names.contains { memories[slot][$0]?.isEmpty == false }
    changeRecord(of: slot) { record in
      record.suspend(until: date, countedFrom: origin)
      if hasCome { record.wake() }
    }
    noteOrigin(of: entries[slot].record)
    lineUpAnew(slot)
  }

  /// Makes a suspended task wait.
  private mutating func wake(_ slot: Int) {
    leaveLine(slot)
    changeRecord(of: slot) { $0.wake() }
    lineUpAnewWhenFree(slot)
  }

  /// Pauses a task.
  ///
  /// A suspended one looks again what it waits for when it is resumed.
  mutating func pause(_ slot: Int) {
    changeRecord(of: slot) { record in
      if record.state == .suspended { record.wake() }
      record.state = .paused
    }
    lineUpAnew(slot)
  }
}

/// What the tasks of a table remember, by their slots.
///
/// A copy shares its pages, like a ``Slab``, so that a compaction has one for little. Most tasks
/// remember nothing: a page without memories takes a word.
struct TaskMemories: Sendable {
  private static var pageSize: Int { 256 }

  private var pages: [[TaskMemory]] = []
  /// How many tasks of each page remember something.
  private var counts: [Int32] = []

  /// What the task of a slot remembers.
  subscript(slot: Int) -> TaskMemory {
    get {
      let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
      guard page < pages.count, !pages[page].isEmpty else { return TaskMemory() }
      return pages[page][index]
    }
    set {
      let page = slot / Self.pageSize
      guard !newValue.isEmpty || page < pages.count && !pages[page].isEmpty else { return }
      change(slot) { $0 = newValue }
    }
  }

  /// Changes what the task of a slot remembers, in place.
  mutating func change(_ slot: Int, _ body: (inout TaskMemory) -> Void) {
    let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
    makeRoom(for: page)
    if !pages[page][index].isEmpty { counts[page] -= 1 }
    body(&pages[page][index])
    if !pages[page][index].isEmpty { counts[page] += 1 }
    if counts[page] == 0 { pages[page] = [] }
  }

  private mutating func makeRoom(for page: Int) {
    if page >= pages.count {
      counts.append(contentsOf: repeatElement(0, count: page + 1 - pages.count))
      pages.append(contentsOf: repeatElement([], count: page + 1 - pages.count))
    }
    if pages[page].isEmpty {
      pages[page] = Array(repeating: TaskMemory(), count: Self.pageSize)
    }
  }
}

/// The values that a store holds under names, and those that staged changes set.
///
/// Changes of one name are committed in the order in which they were staged, and rolled back in the
/// reverse order. So a change is compared with what the last staged one sets: if that one can't be
/// written, neither can this one.
struct StoredValues: Sendable {
  struct Value: Sendable, Equatable {
    var bytes: [UInt8]
    /// About how many bytes a file takes for the value.
    var byteCount = 0
  }

  /// The values that are stored.
  private(set) var packed: Set<PackedValue> = []
  /// What staged changes set, in the order of staging; `nil` for the removal of a value.
  private(set) var staged: [ExactText: [Value?]] = [:]
  /// About how many bytes a file takes for all values.
  private(set) var byteCount = 0

  /// How many values are stored.
  var count: Int { packed.count }

  /// The bytes that are stored under a name.
  subscript(name: String) -> [UInt8]? { committed(name)?.bytes }

  private func committed(_ name: String) -> Value? {
    packed.firstIndex(of: PackedValue(named: name)).map { packed[$0].value }
  }

  /// Stages a change, if the bytes under its name are these when all staged changes are stored.
  ///
  /// - Returns: Whether they are.
  mutating func stage(_ name: String, from old: [UInt8]?, to new: [UInt8]?) -> Bool {
    let present =
      if let last = staged[ExactText(name)]?.last { last } else { committed(name) }
    guard present?.bytes == old else { return false }
    staged[ExactText(name), default: []].append(new.map { Value(bytes: $0) })
    return true
  }

  /// Notes how many bytes a file takes for what the last staged change of a name sets.
  mutating func setByteCount(_ count: Int, ofLastStaged name: String) {
    guard let last = staged[ExactText(name)]?.indices.last else { return }
    staged[ExactText(name)]?[last]?.byteCount = count
  }

  /// Stores what the first staged change of a name sets.
  mutating func commit(_ name: String) {
    guard let value = takeStaged(name, { $0.removeFirst() }) else {
      preconditionFailure("a change of a value was committed that was not staged")
    }
    set(name, to: value)
  }

  /// Undoes the last staged change of a name.
  mutating func rollBack(_ name: String) { _ = takeStaged(name) { $0.removeLast() } }

  private mutating func takeStaged(
    _ name: String,
    _ take: (inout [Value?]) -> Value?
  ) -> Value?? {
    guard var changes = staged.removeValue(forKey: ExactText(name)) else { return nil }
    let value = take(&changes)
    if !changes.isEmpty { staged[ExactText(name)] = changes }
    return .some(value)
  }

  /// Stores a value, whatever it was before.
  mutating func set(_ name: String, to value: Value?) {
    byteCount += value?.byteCount ?? 0
    let old =
      if let value {
        packed.update(with: PackedValue(name, value))
      } else {
        packed.remove(PackedValue(named: name))
      }
    byteCount -= old?.value.byteCount ?? 0
  }
}
