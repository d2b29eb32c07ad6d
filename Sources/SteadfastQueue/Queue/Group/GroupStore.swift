import Synchronization

/// A store for one queue of a group, which contains only the tasks of that queue.
///
/// It calls the group's store, with the queue's name added to tasks, filters, claims and values. If
/// a change has consequences for tasks of other queues, it notifies these queues.
struct GroupStore: StoreWrapper {
  let base: any Persistence
  /// The queue's name as it is stored in ``TaskRecord/queue``; empty for the queue `"default"`.
  let queue: String
  let members: GroupMembers

  var use: (any StoreUse)? { members.use }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch.map(assignedToQueue), durability: durability)
    for (change, outcome) in zip(batch, outcomes) {
      // The task that waits for the completion may belong to another queue.
      if case .memory(.complete) = change, outcome == .done { members.lookForWork(except: queue) }
      guard let consequences = outcome.consequences else { continue }
      await members.notifyOthers(of: consequences, causedBy: change, from: queue)
    }
    return outcomes
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    var request = request
    request.queue = queue
    return try await base.claim(request)
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: limitedToQueue(filter), after: id, limit: limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: limitedToQueue(filter))
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(limitedToQueue(filter))
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: valueName(name))
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    let stored = try await base.values(
      prefix: prefix.utf8.contains(UInt8(ascii: "/")) ? valueName(prefix) : prefix
    )
    // The order of the names may differ from that of the stored names.
    return stored.compactMap { stored in
      name(ofValueStoredAs: stored.name).map { (name: $0, bytes: stored.bytes) }
    }
    .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
  }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: assignedToQueue(record), onDuplicate: policy)
  }

  /// Does nothing, because the other queues of the group use the same store.
  func close() async throws {}

  /// Throws, because the other queues of the group use the same store.
  func destroy() async throws { throw sharedStoreError }

  var sharedStoreError: TaskQueueError {
    TaskQueueError(
      .invalidArgument,
      "the queue '\(members.name(ofStoredName: queue))' shares its store with the other queues of its "
        + "group, so it can't be destroyed alone; destroy the group, or remove the queue's tasks"
    )
  }

  var otherQueues: [QueueCore] { members.queues(except: queue) }

  // MARK: Adding the queue's name

  private func assignedToQueue(_ change: TaskChange) -> TaskChange {
    switch change {
    case .insert(let record, let policy):
      .insert(assignedToQueue(record), onDuplicate: policy)
    case .broad(.unpark(let name, _, let version)):
      .unpark(name: name, queue: queue, below: version)
    case .broad(.prune(let state, let date, let count, let now, _)):
      .prune(state, endedBefore: date, keepingLatest: count, now: now, queue: queue)
    case .setValue(let name, let old, let new):
      .setValue(named: valueName(name), from: old, to: new)
    case .move, .end, .update, .remove, .extend, .memory, .broad(.rebase): change
    }
  }

  private func assignedToQueue(_ record: TaskRecord) -> TaskRecord {
    record.queue == queue ? record : record.replacing(queue: queue)
  }

  /// Returns a copy of a filter that matches only tasks of the queue, unless the filter already has
  /// a queue's name or matches the tasks of all queues.
  private func limitedToQueue(_ filter: TaskFilter) -> TaskFilter {
    guard filter.queue == "" else { return filter }
    var filter = filter
    filter.queue = queue
    return filter
  }

  /// Returns the name under which the group's store has a value.
  ///
  /// All queues share the application's values. Of the package's own values, whose names start with
  /// `steadfast.`, each queue has its own, so the queue's name is added to the value's name.
  private func valueName(_ name: String) -> String {
    guard !queue.isEmpty, name.utf8.starts(with: "steadfast.".utf8) else { return name }
    // Only a name with a slash contains a string of the application.
    guard let end = name.utf8.firstIndex(of: UInt8(ascii: "/")) else { return "\(name) \(queue)" }
    // After the slash follows a task name, of tasks with a rate limit, which may contain any
    // characters. So insert the queue's name before the slash, and end it with a character that no
    // queue's name contains. If it came last, the tasks named "Mail q" of the default queue would
    // share a limit with the tasks named "Mail" of the queue "q".
    return "\(name[..<end]) \(queue)\u{1f}\(name[end...])"
  }

  /// Returns the name that this queue uses for a value of the group's store; `nil` if the value
  /// belongs to another queue.
  private func name(ofValueStoredAs stored: String) -> String? {
    guard stored.utf8.starts(with: "steadfast.".utf8) else { return stored }
    // The package's own names have no space before a slash, so the queue's name follows the space.
    let end = stored.utf8.firstIndex { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "/") }
    guard let end, stored.utf8[end] == UInt8(ascii: " ") else {
      return queue.isEmpty ? stored : nil
    }
    let (name, rest) = (stored[..<end], stored[end...])
    if !queue.isEmpty, String(rest).isExactly(" \(queue)") { return String(name) }
    let marker = " \(queue)\u{1f}"
    guard rest.utf8.starts(with: "\(marker)/".utf8) else { return nil }
    return "\(name)\(rest[rest.utf8.index(rest.startIndex, offsetBy: marker.utf8.count)...])"
  }
}

/// The queues of a group, and what they share.
final class GroupMembers: Sendable {
  private struct Member: Sendable {
    weak var queue: QueueCore?
  }

  let use: GroupUse
  /// Whether the store is unavailable for one of the queues.
  ///
  /// The queues share this object, because a call of one queue may wait for a call of another
  /// queue.
  let availability = StoreAvailability()
  let suspects = Suspects()
  /// The queues by their stored names.
  private let members = Mutex<[String: Member]>([:])

  init(group name: String, on store: any Persistence) {
    use = GroupUse(group: name, of: store.useIfKnown)
  }

  func add(_ queue: QueueCore, storedAs name: String) {
    members.withLock { $0[name] = Member(queue: queue) }
  }

  func name(ofStoredName storedName: String) -> String {
    members.withLock { $0[storedName]?.queue?.name } ?? storedName
  }

  func queue(named name: String) -> QueueCore? {
    members.withLock { $0[TaskQueueGroup.storedName(ofQueue: name)]?.queue }
  }

  func lookForWork(except name: String) {
    for other in queues(except: name) { other.dispatch.lookForWork() }
  }

  /// Tells the other queues how a change has affected tasks, which may be theirs.
  func notifyOthers(
    of consequences: Consequences,
    causedBy change: TaskChange,
    from name: String
  ) async {
    for other in queues(except: name) {
      await other.results.applyConsequences(consequences, of: change)
    }
  }

  func queues(except name: String) -> [QueueCore] {
    members.withLock { members in
      members.filter { $0.key != name }.sorted { $0.key < $1.key }.compactMap(\.value.queue)
    }
  }
}

/// Reports that a group uses a store: from the start of the first run of any of its queues until
/// the last run has ended.
final class GroupUse: StoreUse {
  private let name: String
  private let use: (any StoreUse)?
  private let runningCount = Mutex(0)

  init(group name: String, of use: (any StoreUse)?) {
    self.name = name
    self.use = use
  }

  func beginRun(ofQueue _: String, on store: any Persistence) throws(TaskQueueError) {
    try runningCount.withLock { count throws(TaskQueueError) in
      if count == 0 { try use?.beginRun(ofQueue: name, on: store) }
      count += 1
    }
  }

  func endRun() {
    runningCount.withLock { count in
      count -= 1
      if count == 0 { use?.endRun() }
    }
  }
}
