public import SystemFoundation

/// A queue's request to a store for tasks to perform.
public struct ClaimRequest: Sendable {
  /// The maximum number of tasks to hand out.
  public var limit: Int
  /// The queue whose tasks to hand out (``TaskRecord/queue``).
  public var queue: String
  /// The names of the tasks to hand out, each with the maximum number of tasks with that name.
  public var names: [String: Int]
  /// The maximum number of tasks for each name that is not in ``names``; 0 for none.
  public var otherNames: Int
  /// For each name with a limit, the greatest payload version (``StoredPayload/version``) that the
  /// queue can decode; tasks with a greater version are not handed out.
  ///
  /// A newer version of the program may have stored such tasks. They wait for a process that runs
  /// that version.
  public var versions: [String: Int]
  /// The current date by the queue's clock; tasks with a later available date are not handed out.
  public var now: Date
  /// The conditions that hold; tasks that require any other condition are not handed out.
  public var conditions: Set<TaskCondition>
  /// How long the leases last, by the store's clock, unless they are extended; `nil` in a store
  /// that only one queue uses.
  public var leaseDuration: Duration?
  /// Who performs the tasks, at most 64 bytes of UTF-8 (``TaskClaim/holder``); empty if the store
  /// need not record it.
  public var holder: String

  /// Makes a request.
  public init(
    limit: Int,
    queue: String = "",
    names: [String: Int],
    otherNames: Int = 0,
    versions: [String: Int] = [:],
    now: Date,
    conditions: Set<TaskCondition> = [],
    leaseDuration: Duration? = nil,
    holder: String = ""
  ) {
    self.limit = limit
    self.queue = queue
    self.names = names
    self.otherNames = otherNames
    self.versions = versions
    self.now = now
    self.conditions = conditions
    self.leaseDuration = leaseDuration
    self.holder = holder
  }

  /// Returns the maximum number of tasks with this name to hand out, from ``names`` or
  /// ``otherNames``.
  ///
  /// Two names are the same only if their UTF-8 bytes are, although Swift's `==` considers some
  /// other strings equal, too.
  public func room(for name: String) -> Int { names[exactly: name] ?? otherNames }

  /// Returns the greatest payload version of the tasks with this name to hand out, from
  /// ``versions``.
  ///
  /// Names are compared as in ``room(for:)``.
  public func version(for name: String) -> Int { versions[exactly: name] ?? .max }
}

/// The tasks that a store hands out in response to a ``ClaimRequest``.
public struct Claim: Sendable {
  /// The tasks, each with its lease, in the order in which to perform them.
  public var tasks: [ClaimedTask]
  /// The date, by the queue's clock, at which to claim again; `nil` if no task is waiting.
  ///
  /// The date is not later than the next date at which a task becomes available. If more tasks were
  /// available than the limit allowed, the date is not later than the request's `now`. In a shared
  /// store, a task of another queue becomes available when its lease expires. So the date is not
  /// later than the request's `now` plus the time, by the store's clock, until the next lease
  /// expires.
  ///
  /// A store that has handed out tasks need not search for the date: it may return the request's
  /// `now`, and the queue claims again when it has an idle worker. If a claim hands out nothing,
  /// and the limit excluded no task, the store must search. If the date that it then returns has
  /// already passed, the queue waits a second before it claims again.
  public var nextDate: Date?

  /// Makes a claim.
  public init(tasks: [ClaimedTask], nextDate: Date?) {
    self.tasks = tasks
    self.nextDate = nextDate
  }
}

/// A task that a store has handed out, with its lease.
public struct ClaimedTask: Sendable {
  /// The task, in the state `running`.
  public var record: TaskRecord
  /// The lease, which the change that ends the attempt must name.
  public var lease: Lease

  /// Makes a claimed task.
  public init(record: TaskRecord, lease: Lease) {
    self.record = record
    self.lease = lease
  }
}

/// Proof of a claim: while a task is claimed, a store accepts only changes that name its lease.
public struct Lease: Sendable, Hashable {
  /// The task that was claimed.
  public let id: TaskID
  /// The number that distinguishes this claim of the task from earlier and later ones.
  public let token: UInt64
  /// The command that a change with this lease carries out (``TaskChange/command(_:from:to:)``);
  /// `nil` in the leases that a store returns.
  ///
  /// If the task has another command, a change that ends the attempt without success is skipped
  /// (``ChangeOutcome/commanded(_:)``).
  public var command: StoredCommand?

  /// Makes a lease; stores call it.
  public init(id: TaskID, token: UInt64) {
    self.id = id
    self.token = token
  }

  /// Returns whether both are leases of the same claim; ``command`` is ignored.
  public static func == (left: Lease, right: Lease) -> Bool {
    left.id == right.id && left.token == right.token
  }

  /// Hashes the ID and the token.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(id)
    hasher.combine(token)
  }
}
