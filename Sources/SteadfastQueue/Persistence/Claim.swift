#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue asks a store to hand out.
public struct ClaimRequest: Sendable {
  /// The largest number of tasks to hand out.
  public var limit: Int
  /// The queue whose tasks to hand out (``TaskRecord/queue``).
  public var queue: String
  /// The names to hand out, each with the largest number of its tasks.
  public var names: [String: Int]
  /// The largest number of tasks for each name that is not among ``names``; 0 for none.
  public var otherNames: Int
  /// The date now by the queue's clock; tasks with a later available date are not handed out.
  public var now: Date
  /// The conditions that hold; tasks with any other condition are not handed out.
  public var conditions: Set<TaskCondition>
  /// How long the claim lasts by the store's clock if it is not extended; `nil` in a store that one
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

  /// The largest number of tasks of a name to hand out, as ``names`` or ``otherNames`` says.
  ///
  /// A name is listed only if its UTF-8 bytes are; Swift's `==` takes other texts for the same.
  public func room(for name: String) -> Int { names[exactly: name] ?? otherNames }
}

/// What a store hands out.
public struct Claim: Sendable {
  /// The tasks, each with its lease, in the order in which to perform them.
  public var tasks: [ClaimedTask]
  /// A date by the queue's clock, not later than that from which another claim can find tasks.
  ///
  /// It is `nil` if nothing waits.
  ///
  /// If more tasks were available than the limit allowed, it is not after the request's `now`. A
  /// claim in a shared store may run out, and its task is found then. So the date is not later than
  /// the request's `now` and the time that is left until then by the store's clock.
  ///
  /// A store that has handed out tasks need not look for the date: it may give the request's `now`,
  /// and the queue claims again when it has an idle worker. A claim that hands out nothing, and has
  /// left nothing because of its limit, looks. If it gives a date that has come all the same, the
  /// queue asks again a second later.
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
  /// The lease to name in the change that ends the attempt.
  public var lease: Lease

  /// Makes a claimed task.
  public init(record: TaskRecord, lease: Lease) {
    self.record = record
    self.lease = lease
  }
}

/// Proof of a claim; a store changes a claimed task only for the holder of its lease.
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
