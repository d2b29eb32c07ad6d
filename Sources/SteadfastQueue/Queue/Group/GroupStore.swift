import Synchronization

/// What one queue of a group sees of the group's store: its own tasks.
///
/// It adds the queue's name to what goes into the store. What a change means for tasks of other
/// queues, which wait for the changed task, it reports to them.
struct GroupStore: StoreWrapper {
  let base: any Persistence
  /// The name of the queue, as the store has it (``TaskRecord/queue``).
  let queue: String
  let members: GroupMembers

  var use: (any StoreUse)? { members.use }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch.map(inQueue), durability: durability)
    for (change, outcome) in zip(batch, outcomes) {
      // Any queue of the group completes what a task of any other awaits.
      if case .complete = change, outcome == .done { members.lookForWork(except: queue) }
      guard let consequences = outcome.consequences else { continue }
      await members.tell(consequences, of: change, from: queue)
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

  /// Refuses: the store belongs to the group.
  func destroy() async throws { throw isDestroyedAsAWhole }

  var isDestroyedAsAWhole: TaskQueueError {
    TaskQueueError(
      .invalidArgument,
      "the queue '\(members.name(ofQueue: queue))' shares its store with the other queues of its "
        + "group, and can't be destroyed alone: destroy the group, or cancel and remove its tasks"
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

  /// A record that names a queue, as the occurrence of a schedule of another one does, is of that.
  private func inQueue(_ record: TaskRecord) -> TaskRecord {
    let queue =
      record.queue.isEmpty ? queue : TaskQueueGroup.storedName(ofQueue: record.queue)
    return queue == record.queue ? record : record.replacing(queue: queue)
  }

  /// A filter that names another queue, or all of them, stays as it is.
  private func inQueue(_ filter: TaskFilter) -> TaskFilter {
    guard filter.queue == "" else { return filter }
    var filter = filter
    filter.queue = queue
    return filter
  }

  /// The name of a value in the store: each queue has its own of those that the package uses.
  private func valueName(_ name: String) -> String {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return name }
    // The names without a text of the application have no space and no slash, so the queue's name
    // can follow them. It does so in the files that exist, and in the name of a schedule of another
    // queue.
    let end = name.utf8.firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: " ") }
    if let end, name.utf8[end] == UInt8(ascii: " ") {
      let other = String(name[end...].dropFirst())
      return TaskQueueGroup.storedName(ofQueue: other).isEmpty ? String(name[..<end]) : name
    }
    guard !queue.isEmpty else { return name }
    guard let end else { return "\(name) \(queue)" }
    // A text after a slash, the name of tasks that a limit concerns, may be anything. So it comes
    // last, behind a character that the name of a queue can't have: else the tasks "Mail q" of the
    // default queue would share a limit with the tasks "Mail" of the queue "q".
    return "\(name[..<end]) \(queue)\u{1f}\(name[end...])"
  }
}

/// The queues of a group, which learn what the changes of the others mean for their tasks.
final class GroupMembers: Sendable {
  private struct Member: Sendable {
    weak var queue: QueueCore?
  }

  /// Which group runs on the store.
  let use: GroupUse
  /// Whether the store is gone for one of the queues, some of whose calls reach others.
  let absence = StoreAvailability()
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

  /// Reports to the other queues what a change of one of them has meant for tasks that wait.
  func tell(_ consequences: Consequences, of change: TaskChange, from name: String) async {
    for other in queues(except: name) { await other.results.hear(consequences, of: change) }
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

  func begin(_: String, on store: any Persistence) throws(TaskQueueError) {
    try runningCount.withLock { count throws(TaskQueueError) in
      if count == 0 { try use?.begin(name, on: store) }
      count += 1
    }
  }

  func end() {
    runningCount.withLock { count in
      count -= 1
      if count == 0 { use?.end() }
    }
  }
}
