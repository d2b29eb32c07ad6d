import Synchronization

/// The view that one queue has of its group's store: its own tasks.
///
/// The view adds the queue's name to everything that it stores. If a change has consequences for
/// waiting tasks of other queues, it notifies these queues.
struct GroupStore: StoreWrapper {
  let base: any Persistence
  /// The stored name of the queue (``TaskRecord/queue``).
  let queue: String
  let members: GroupMembers

  var use: (any StoreUse)? { members.use }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch.map(inQueue), durability: durability)
    for (change, outcome) in zip(batch, outcomes) {
      // A queue of the group may complete what a task of another queue awaits.
      if case .complete = change, outcome == .done { members.lookForWork(except: queue) }
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
    try await base.tasks(matching: inQueue(filter), after: id, limit: limit)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: inQueue(filter))
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(inQueue(filter))
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: valueName(name))
  }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: inQueue(record), onDuplicate: policy)
  }

  /// Does nothing: the store belongs to the group.
  func close() async throws {}

  /// Throws: the store belongs to the group.
  func destroy() async throws { throw isDestroyedAsAWhole }

  var isDestroyedAsAWhole: TaskQueueError {
    TaskQueueError(
      .invalidArgument,
      "the queue '\(members.name(ofQueue: queue))' shares its store with the other queues of its "
        + "group, and can't be destroyed alone: destroy the group, or cancel and remove the queue's tasks"
    )
  }

  /// The other queues of the group.
  var otherQueues: [QueueCore] { members.queues(except: queue) }

  // MARK: The queue's part of the store

  private func inQueue(_ change: TaskChange) -> TaskChange {
    switch change {
    case .insert(let record, let policy):
      .insert(inQueue(record), onDuplicate: policy)
    case .unpark(let name, _): .unpark(name: name, queue: queue)
    case .prune(let state, let date, let count, let now, _):
      .prune(state, endedBefore: date, keepingLatest: count, now: now, queue: queue)
    case .setValue(let name, let old, let new):
      .setValue(named: valueName(name), from: old, to: new)
    case .succeed, .retry, .abandon, .release, .park, .cancel, .pause, .resume, .restart,
      .reschedule, .update, .remove, .extend, .rebase, .remember, .suspend, .complete:
      change
    }
  }

  /// Adds the queue's name to a record, unless the record names a queue itself, as an occurrence of
  /// another queue's schedule does.
  private func inQueue(_ record: TaskRecord) -> TaskRecord {
    let queue =
      record.queue.isEmpty ? queue : TaskQueueGroup.storedName(ofQueue: record.queue)
    return queue == record.queue ? record : record.replacing(queue: queue)
  }

  /// Limits a filter to the queue, unless the filter names another queue, or all of them.
  private func inQueue(_ filter: TaskFilter) -> TaskFilter {
    guard filter.queue == "" else { return filter }
    var filter = filter
    filter.queue = queue
    return filter
  }

  /// Returns the stored name of a value.
  ///
  /// Each queue has its own copy of the values that the package uses.
  private func valueName(_ name: String) -> String {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return name }
    // Names that contain no text of the application have no space and no slash, so the queue's name
    // can follow them. Existing files, and the names of other queues' schedules, have this form.
    let end = name.utf8.firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: " ") }
    if let end, name.utf8[end] == UInt8(ascii: " ") {
      let other = String(name[end...].dropFirst())
      return TaskQueueGroup.storedName(ofQueue: other).isEmpty ? String(name[..<end]) : name
    }
    guard !queue.isEmpty else { return name }
    guard let end else { return "\(name) \(queue)" }
    // The text after a slash, a name of tasks that have a limit, may contain anything. So it comes
    // last, after a character that a queue's name can't contain. Otherwise, the tasks "Mail q" of
    // the default queue would share a limit with the tasks "Mail" of the queue "q".
    return "\(name[..<end]) \(queue)\u{1f}\(name[end...])"
  }
}

/// The queues of a group, which notify each other of consequences for their tasks.
final class GroupMembers: Sendable {
  private struct Member: Sendable {
    weak var queue: QueueCore?
  }

  /// Which group runs on the store.
  let use: GroupUse
  /// Whether the store is unavailable for one of the queues.
  ///
  /// The queues share this object, because some calls of a queue reach others.
  let availability = StoreAvailability()
  let suspects = Suspects()
  private let members = Mutex<[String: Member]>([:])

  init(group name: String, on store: any Persistence) {
    use = GroupUse(group: name, of: store.useIfKnown)
  }

  func add(_ queue: QueueCore, storedAs name: String) {
    members.withLock { $0[name] = Member(queue: queue) }
  }

  func name(ofQueue name: String) -> String {
    members.withLock { $0[name]?.queue?.name } ?? name
  }

  func queue(named name: String) -> QueueCore? {
    members.withLock { $0[TaskQueueGroup.storedName(ofQueue: name)]?.queue }
  }

  /// Makes the other queues look for available tasks.
  func lookForWork(except name: String) {
    for other in queues(except: name) { other.dispatch.lookForWork() }
  }

  /// Notifies the other queues of the consequences of a change for tasks that wait.
  func notifyOthers(
    of consequences: Consequences,
    causedBy change: TaskChange,
    from name: String
  ) async {
    for other in queues(except: name) {
      await other.results.applyRemoteEffects(consequences, of: change)
    }
  }

  func queues(except name: String) -> [QueueCore] {
    members.withLock { members in
      members.filter { $0.key != name }.sorted { $0.key < $1.key }.compactMap(\.value.queue)
    }
  }
}

/// The use of a store by a group: it begins with the first queue that runs, and ends with the last.
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
