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
  /// The date now; tasks with a later available date are not handed out.
  public var now: Date
  /// The conditions that hold; tasks with any other condition are not handed out.
  public var conditions: Set<TaskCondition>
  /// When the claim ends if it is not extended; `nil` in a store that one queue uses.
  public var leaseEnd: Date?

  /// Makes a request.
  public init(
    limit: Int,
    queue: String = "",
    names: [String: Int],
    otherNames: Int = 0,
    now: Date,
    conditions: Set<TaskCondition> = [],
    leaseEnd: Date? = nil
  ) {
    self.limit = limit
    self.queue = queue
    self.names = names
    self.otherNames = otherNames
    self.now = now
    self.conditions = conditions
    self.leaseEnd = leaseEnd
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
  /// The date from which another claim can find tasks; `nil` if nothing waits.
  ///
  /// If more tasks were available than the limit allowed, it is not after the request's `now`.
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
