import Synchronization

/// A store for one queue of a group, which contains only the tasks of that queue.
///
/// If a change has consequences for tasks of other queues, it notifies these queues.
struct GroupStore: StoreWrapper {
  let base: any Persistence
  let members: GroupMembers
  /// The queue's name.
  private let name: String

  init(_ store: any Persistence, queue name: String, members: GroupMembers) {
    base = NamedStore.of(queue: name, in: store)
    self.members = members
    self.name = name
  }

  var use: (any StoreUse)? { members.use }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    let outcomes = try await base.apply(batch, durability: durability)
    for (change, outcome) in zip(batch, outcomes) {
      // The task that waits for the completion may belong to another queue.
      if case .memory(.complete) = change, outcome == .done { members.lookForWork(except: name) }
      guard let consequences = outcome.consequences else { continue }
      await members.notifyOthers(of: consequences, causedBy: change, from: name)
    }
    return outcomes
  }

  /// Does nothing, because the other queues of the group use the same store.
  func close() async throws {}

  /// Throws, because the other queues of the group use the same store.
  func destroy() async throws { throw sharedStoreError }

  var sharedStoreError: TaskQueueError {
    TaskQueueError(
      .invalidArgument,
      "the queue '\(name)' shares its store with the other queues of its group, so it can't be "
        + "destroyed alone; destroy the group, or remove the queue's tasks"
    )
  }

  var otherQueues: [QueueCore] { members.queues(except: name) }
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
  /// The queues by their names.
  private let members = Mutex<[String: Member]>([:])

  init(group name: String, on store: any Persistence) {
    use = GroupUse(group: name, of: store.useIfKnown)
  }

  func add(_ queue: QueueCore) {
    members.withLock { $0[queue.name] = Member(queue: queue) }
  }

  func queue(named name: String) -> QueueCore? { members.withLock { $0[name]?.queue } }

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
