#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What a queue asks a store to hand out.
public struct ClaimRequest: Sendable {
  /// How many tasks at most.
  public var limit: Int
  /// The names to hand out, each with the number of tasks of it at most.
  public var names: [String: Int]
  /// How many tasks at most of each name that is not among ``names``; 0 for none.
  public var otherNames: Int
  /// The date now: tasks whose available date is later are left.
  public var now: Date
  /// When the claim ends if it is not extended; `nil` in a store that one queue uses.
  public var leaseEnd: Date?

  /// Makes a request.
  public init(
    limit: Int,
    names: [String: Int],
    otherNames: Int = 0,
    now: Date,
    leaseEnd: Date? = nil
  ) {
    self.limit = limit
    self.names = names
    self.otherNames = otherNames
    self.now = now
    self.leaseEnd = leaseEnd
  }
}

/// What a store hands out.
public struct Claim: Sendable {
  /// The tasks, each with its lease, in the order in which to perform them.
  public var tasks: [ClaimedTask]
  /// When asking again is worth it: a date that is not after the request's `now` if more tasks
  /// were available than the limit let through, `nil` if nothing waits.
  public var nextDate: Date?

  /// Makes a claim.
  public init(tasks: [ClaimedTask], nextDate: Date?) {
    self.tasks = tasks
    self.nextDate = nextDate
  }
}

/// A task that was handed out, and the proof of it.
public struct ClaimedTask: Sendable {
  /// The task, in the state `running`.
  public var record: TaskRecord
  /// What to name in the change that ends the attempt.
  public var lease: Lease

  /// Makes a claimed task.
  public init(record: TaskRecord, lease: Lease) {
    self.record = record
    self.lease = lease
  }
}

/// Proof of a claim: a store changes a claimed task for nobody else.
public struct Lease: Sendable, Hashable {
  /// The task that was claimed.
  public let id: TaskID
  /// What tells this claim of the task from earlier and later ones.
  public let token: UInt64

  /// Makes a lease; a store does.
  public init(id: TaskID, token: UInt64) {
    self.id = id
    self.token = token
  }
}
