import SystemFoundation

/// Task memory, which consists of the values that a task keeps from one attempt to the next, and
/// the suspension of tasks until such a value arrives.
extension TaskTable {
  /// Returns the memory of a task; it is empty if the task is not in the table.
  func memory(of id: TaskID) -> TaskMemory {
    guard let slot = slot(of: id), entries[slot].place != .staged else { return TaskMemory() }
    return memories[slot]
  }

  /// Returns the record of a task for callers: it contains the size of the task's memory.
  @inline(__always)
  func shownRecord(of slot: Int) -> TaskRecord {
    guard entries[slot].remembers else { return entries[slot].record }
    var record = entries[slot].record
    record.memorySize = memories[slot].size
    return record
  }

  // MARK: Staging

  /// Stages a change to the memory of a task, without reserving the task.
  ///
  /// Changes to a memory are committed in the order in which they were staged. A completion is
  /// stale if the task does not wait for the value. The end of the task's attempt must not become
  /// stale because of a completion. So other changes may be committed first, and the commit checks
  /// again whether the task waits for the value.
  mutating func stageMemoryChange(_ change: MemoryChange) -> StagedChange {
    switch change {
    case .remember(let lease, _, _):
      guard let slot = slot(ofClaimed: lease) else { return .stale }
      stagedMemories[slot, default: 0] += 1
    case .complete(let id, let name, _):
      guard isOpen(name, of: id) else { return .stale }
    case .suspend:
      preconditionFailure("a suspension must be staged for its task")
    }
    return StagedChange(.memory(change))
  }

  /// Records that a staged change to a task's memory was committed or rolled back.
  mutating func unstage(_ change: MemoryChange) {
    guard case .remember(let lease, _, _) = change, let slot = slot(of: lease.id),
      let count = stagedMemories[slot]
    else { return }
    stagedMemories[slot] = count > 1 ? count - 1 : nil
  }

  /// Returns whether a task's memory will contain any value after all staged changes are committed.
  ///
  /// The end of an attempt may be staged before the attempt's last change to the memory is
  /// committed.
  func willRemember(_ slot: Int) -> Bool {
    entries[slot].remembers || stagedMemories[slot] != nil
  }

  /// Returns whether an unfinished task waits for a value: its memory then contains an empty value
  /// with that name.
  private func isOpen(_ name: String, of id: TaskID) -> Bool {
    guard let slot = slot(of: id), entries[slot].place != .staged, entries[slot].remembers,
      !entries[slot].record.state.isFinished
    else { return false }
    return memories[slot][name]?.isEmpty == true
  }

  // MARK: Committing

  /// Commits a change to a task's memory.
  ///
  /// - Returns: The outcome; it is `.stale` for a completion that came too late.
  mutating func commit(_ change: MemoryChange) -> ChangeOutcome {
    unstage(change)
    switch change {
    case .remember(let lease, let name, let value):
      guard let slot = slot(of: lease.id) else { return .stale }
      setMemory(value, named: name, of: slot)
      if entries[slot].record.interruptionCount > 0 { entries[slot].record.interruptionCount = 0 }
      return .done
    case .complete(let id, let name, let value):
      guard isOpen(name, of: id), let slot = slot(of: id) else { return .stale }
      setMemory(value, named: name, of: slot)
      if entries[slot].record.state == .suspended { wake(slot) }
      return .done
    case .suspend:
      preconditionFailure("a suspension must be committed for its task")
    }
  }

  mutating func setMemory(_ value: [UInt8], named name: String, of slot: Int) {
    let old = memories[slot][name]
    memories.changeMemory(of: slot) { $0[name] = value }
    entries[slot].remembers = true
    if old == nil { memoryCount += 1 }
    addBytes(
      Self.byteCount(name, value) - (old.map { Self.byteCount(name, $0) } ?? 0),
      to: slot
    )
  }

  /// Removes all values from a task's memory.
  mutating func forgetMemory(of slot: Int) {
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

  /// Returns the approximate number of bytes that a value of a task's memory uses in a file.
  static func byteCount(_ name: String, _ value: [UInt8]) -> Int {
    let isText = String(validating: value, as: UTF8.self) != nil
    return JournalLineSize.envelope + name.utf8.count
      + (isText ? value.count : (value.count + 2) / 3 * 4)
  }

  private enum JournalLineSize {
    /// The approximate length of a line of a file, without the name and the value in the line.
    static let envelope = 140
  }

  /// Suspends a claimed task, which wakes at once if one of the values that it waits for has
  /// arrived.
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
    advanceLatestDate(for: entries[slot].record)
    putAtEndOfList(slot)
  }

  /// Ends the suspension of a task, so that its next attempt can begin.
  private mutating func wake(_ slot: Int) {
    removeFromList(slot)
    changeRecord(of: slot) { $0.wake() }
    putAtEndOfListWhenFree(slot)
  }
}

/// The memory of each task in a table, by slot.
///
/// Copies share pages, so that copying for a compaction is cheap. Most tasks have an empty memory:
/// a page of empty memories uses one word.
struct TaskMemories: Sendable {
  private static var pageSize: Int { 256 }

  private var pages: [[TaskMemory]] = []
  /// For each page, the number of memories that are not empty.
  private var counts: [Int32] = []

  /// The memory of the task in a slot.
  subscript(slot: Int) -> TaskMemory {
    get {
      let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
      guard page < pages.count, !pages[page].isEmpty else { return TaskMemory() }
      return pages[page][index]
    }
    set {
      let page = slot / Self.pageSize
      guard !newValue.isEmpty || page < pages.count && !pages[page].isEmpty else { return }
      changeMemory(of: slot) { $0 = newValue }
    }
  }

  /// Changes the memory of the task in a slot, without copying it.
  mutating func changeMemory(of slot: Int, _ body: (inout TaskMemory) -> Void) {
    let (page, index) = slot.quotientAndRemainder(dividingBy: Self.pageSize)
    ensureCapacity(for: page)
    if !pages[page][index].isEmpty { counts[page] -= 1 }
    body(&pages[page][index])
    if !pages[page][index].isEmpty { counts[page] += 1 }
    if counts[page] == 0 { pages[page] = [] }
  }

  private mutating func ensureCapacity(for page: Int) {
    if page >= pages.count {
      counts.append(contentsOf: repeatElement(0, count: page + 1 - pages.count))
      pages.append(contentsOf: repeatElement([], count: page + 1 - pages.count))
    }
    if pages[page].isEmpty {
      pages[page] = Array(repeating: TaskMemory(), count: Self.pageSize)
    }
  }
}

/// The values that a store keeps under names, and the staged changes to them.
///
/// Changes to one value are committed in the order in which they were staged, and rolled back in
/// the reverse order. So a new change is compared with the value that the previous staged change
/// sets: if the previous change is rolled back, the new one is, too.
struct StoredValues: Sendable {
  struct Value: Sendable, Equatable {
    var bytes: [UInt8]
    /// The approximate number of bytes that the value uses in a file.
    var byteCount = 0
  }

  /// The values that are stored, without the staged changes.
  private(set) var packed: Set<PackedValue> = []
  /// For each name, the values that staged changes set, in the order of staging; `nil` stands for a
  /// removal.
  private(set) var staged: [ExactText: [Value?]] = [:]
  /// The approximate number of bytes that all values use in a file.
  private(set) var byteCount = 0

  /// The number of stored values.
  var count: Int { packed.count }

  /// The bytes that are stored under a name.
  subscript(name: String) -> [UInt8]? { committedValue(named: name)?.bytes }

  /// Returns the values whose names begin with a prefix, in the order of the names' UTF-8 bytes.
  func all(prefix: String) -> [(name: String, bytes: [UInt8])] {
    packed.filter { $0.nameBytes.starts(with: prefix.utf8) }
      .sorted { $0.nameBytes.lexicographicallyPrecedes($1.nameBytes) }
      .map { ($0.name, $0.value.bytes) }
  }

  private func committedValue(named name: String) -> Value? {
    packed.firstIndex(of: PackedValue(named: name)).map { packed[$0].value }
  }

  /// Stages a change of the value under a name, if the value equals `old` after the changes that
  /// are already staged.
  ///
  /// - Returns: Whether the change was staged.
  mutating func stageChange(of name: String, from old: [UInt8]?, to new: [UInt8]?) -> Bool {
    let current =
      if let last = staged[ExactText(name)]?.last { last } else { committedValue(named: name) }
    guard current?.bytes == old else { return false }
    staged[ExactText(name), default: []].append(new.map { Value(bytes: $0) })
    return true
  }

  /// Records the size in a file, in bytes, of the value that the last staged change of a name sets.
  mutating func setByteCount(_ count: Int, ofLastStaged name: String) {
    guard let last = staged[ExactText(name)]?.indices.last else { return }
    staged[ExactText(name)]?[last]?.byteCount = count
  }

  /// Commits the first staged change of the value under a name.
  mutating func commitFirstChange(of name: String) {
    guard let value = takeStaged(name, { $0.removeFirst() }) else {
      preconditionFailure("a change to a value was committed without having been staged")
    }
    setValue(named: name, to: value)
  }

  /// Rolls back the last staged change of the value under a name.
  mutating func rollBackLastChange(of name: String) { _ = takeStaged(name) { $0.removeLast() } }

  private mutating func takeStaged(
    _ name: String,
    _ take: (inout [Value?]) -> Value?
  ) -> Value?? {
    guard var changes = staged.removeValue(forKey: ExactText(name)) else { return nil }
    let value = take(&changes)
    if !changes.isEmpty { staged[ExactText(name)] = changes }
    return .some(value)
  }

  /// Stores a value in place of any previous one; `nil` removes the value.
  mutating func setValue(named name: String, to value: Value?) {
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
