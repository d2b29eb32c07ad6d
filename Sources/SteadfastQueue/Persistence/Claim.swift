public import SystemFoundation

/// A queue's request to a store for tasks to perform.
public struct ClaimRequest: Sendable {
  /// The maximum number of tasks to hand out.
  public var limit: Int
  /// The queue whose tasks to hand out (``TaskRecord/queue``).
  public var queue: String
  /// The names of tasks to hand out, each with the maximum number of its tasks.
  public var names: [String: Int]
  /// The maximum number of tasks for each name that is not in ``names``; 0 for none.
  public var otherNames: Int
  /// The current date by the queue's clock; tasks with a later available date are not handed out.
  public var now: Date
  /// The conditions that hold; tasks that require any other condition are not handed out.
  public var conditions: Set<TaskCondition>
  /// How long the claim lasts by the store's clock unless it is extended; `nil` in a store that one
  /// queue uses.
  public var leaseDuration: Duration?

  /// Makes a request.
  public init(
    limit: Int,
    queue: String = "",
    names: [String: Int],
    otherNames: Int = 0,
    now: Date,
    conditions: Set<TaskCondition> = [],
    leaseDuration: Duration? = nil
  ) {
    self.limit = limit
    self.queue = queue
    self.names = names
    self.otherNames = otherNames
    self.now = now
    self.conditions = conditions
    self.leaseDuration = leaseDuration
  }

  /// The maximum number of tasks of a name to hand out, from ``names`` or ``otherNames``.
  ///
  /// A name is in ``names`` only if its UTF-8 bytes are. Swift's `==` also considers other texts
  /// equal.
  public func room(for name: String) -> Int { names[exactly: name] ?? otherNames }
}

/// The tasks that a store hands out.
public struct Claim: Sendable {
  /// The tasks, each with its lease, in the order in which to perform them.
  public var tasks: [ClaimedTask]
  /// When to claim again, by the queue's clock: at the latest when the next task is available.
  ///
  /// It is `nil` if no task is waiting.
  ///
  /// If more tasks were available than the limit allowed, the date is not after the request's
  /// `now`. In a shared store, another queue's claim may expire, and then its task becomes
  /// available. So the date is not later than the request's `now` plus the time until that claim
  /// expires by the store's clock.
  ///
  /// A store that has handed out tasks need not look for the date: it may return the request's
  /// `now`, and the queue claims again when it has an idle worker. If a claim hands out nothing,
  /// and its limit excluded no task, the store must look. If the date that it returns has already
  /// come, the queue waits a second before it asks again.
  public var nextDate: Date?

  /// Makes a claim.
  public init(tasks: [ClaimedTask], nextDate: Date?) {
    self.tasks = tasks
    self.nextDate = nextDate
  }
}

/// A task that was handed out, with the proof of its claim.
public struct ClaimedTask: Sendable {
  /// The task, in the state `running`.
  public var record: TaskRecord
  /// The lease that the change that ends the attempt must name.
  public var lease: Lease

  /// Makes a claimed task.
  public init(record: TaskRecord, lease: Lease) {
    self.record = record
    self.lease = lease
  }
}

/// Proof of a claim; a store changes a claimed task only for the holder of the lease.
public struct Lease: Sendable, Hashable {
  /// The task that was claimed.
  public let id: TaskID
  /// The number that distinguishes this claim of the task from earlier and later ones.
  public let token: UInt64

  /// Makes a lease; stores call it.
  public init(id: TaskID, token: UInt64) {
    self.id = id
    self.token = token
  }
}
