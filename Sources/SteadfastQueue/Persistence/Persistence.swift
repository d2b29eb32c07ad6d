/// The place that holds a queue's tasks: memory, a file, a database, or a store of your own.
///
/// A store holds tasks and hands them out in order. It does not schedule: the queue is responsible
/// for backoff, handlers, limits and dates, and passes in `now`. A store holds the tasks of one
/// queue. If the store supports it (``sharing``), that queue may run in several processes at the
/// same time. Then only the store's own clock decides when a claim has expired.
///
/// ## What a store promises
///
/// 1. **A batch is atomic.** A call of ``apply(_:durability:)`` either stores all changes of the
///    batch that have an effect or throws and stores none. Changes apply in order. A batch contains
///    at most one change for each task (but see ``TaskChange/remember(_:named:value:)``) and for
///    each value. It contains no new task with the name and the unique key of a task that another
///    of its changes concerns. Nor does it contain a new task that names a task, or has a task as
///    its follower, that another of its changes concerns, unless that change adds it. A change also
///    concerns the tasks that wait for its task, directly or indirectly. Another change of the
///    batch to one of those may be stale.
/// 2. **An acknowledged change is stored.** After a call has returned, its changes survive a power
///    cut with ``Durability/durable``, and the end of the process with ``Durability/relaxed``.
/// 3. **A claim is exclusive.** A claimed task is leased. No other claim returns it until it is
///    released or retried, its lease expires, or its store is opened again. A change that names a
///    lease other than the task's present one is skipped, and its outcome is
///    ``ChangeOutcome/stale``. So a worker that finishes late overwrites nothing.
/// 4. **An interruption is counted.** The start of an attempt is stored with
///    ``Durability/relaxed``. A task that is leased when its store is opened, or whose lease has
///    expired, becomes available again, and its ``TaskRecord/interruptionCount`` is incremented. A
///    store that several queues share may end an expired lease late, but at most a third of
///    ``StoreSharing/leaseDuration`` after it expired. Until then, the lease is valid.
/// 5. **Nothing is dropped.** Tasks whose names no queue claims stay as they are.
/// 6. **A unique key has one holder.** Of the tasks with one name and one unique key, at most one
///    is the holder, and at most one the successor (``TaskRecord/keyRole``). Only the holder is
///    handed out. A successor becomes the holder in the change that ends the holder. An expired
///    task loses its role to a new task, and is handed out so that the queue can end it.
/// 7. **Tasks with one order key are handed out one at a time, in the order of insertion.**
///    Consider the tasks with an order key (``TaskRecord/orderKey``) that have not ended, or that
///    hold up others (``TaskRecord/blocksOrder``). Only the first of them is handed out, and only
///    while no other one of them runs. A restarted task returns to its previous place.
/// 8. **A task waits for the tasks that it names, and a follower waits for its batch.** A task is
///    not handed out while the store contains an unfinished task that it names
///    (``TaskDependencies/tasks``), or whose follower it is (``TaskDependencies/follower``). When a
///    task ends, is restarted or is removed, the effects on the tasks that wait for it are stored
///    in the same change (``TaskDependencies``).
/// 9. **A value is compared and set in one step.** A batch with a
///    ``TaskChange/setValue(named:from:to:)`` is stored only if the present value under that name
///    equals the one that the change expects (``ChangeOutcome/valueDiffers``). Values stay until
///    they are removed by such a change, or the store is destroyed. They are not tasks: claims,
///    look-ups, pruning and rebasing don't affect them.
/// 10. **Queues are separate.** A claim, a ``TaskChange/unpark(name:queue:)`` and a pruning concern
///     the tasks of one queue (``TaskRecord/queue``). Unique keys and order keys belong to one
///     queue too. A look-up finds the tasks of one queue or of all. Dependencies and IDs apply
///     across the store.
/// 11. **A task remembers until it succeeds or leaves.** The values that a
///     ``TaskChange/remember(_:named:value:)`` has stored are returned by ``memory(of:)`` to every
///     later attempt, until the task succeeds, is removed, or is restarted with `forgets`. Only the
///     holder of the lease adds values. A ``TaskChange/complete(_:named:value:)`` fills an open
///     value once. A ``TaskChange/suspend(_:until:awaiting:countedFrom:)`` misses no completion,
///     whichever of them comes first.
/// 12. **An insertion that is sent again is done.** If the task is already in the store
///     (``TaskRecord/isStored(as:)``), the outcome is ``ChangeOutcome/done``, and nothing changes.
///     A queue sends an insertion again after a transient error of the store
///     (``PersistenceError``).
/// 13. **A call runs to its end.** A call completes even if the Swift task that made it is
///     cancelled, because attempts also finish inside cancelled tasks.
///
/// ## What a store is given
///
/// A store refuses a change that ``TaskChange/checkForm()`` refuses. So no name, key, tag,
/// condition or text of a failure contains a NUL (U+0000), which PostgreSQL can't store. A payload
/// consists of bytes, and may contain NUL. Dates are from `Date.distantPast` to the last second of
/// the year 9999, and time limits are at most 100,000,000,000 seconds.
///
/// Two names, keys, tags, conditions or names of values are the same only if their UTF-8 bytes are.
/// So `"\u{e9}"` and `"e\u{301}"` are different, although both are an é and Swift's `==` considers
/// them equal. Databases compare texts in this way, and so do ``TaskFilter/matches(_:)``,
/// ``ClaimRequest/room(for:)`` and ``TaskRecord/isTwin(of:)``.
///
/// ## Calls
///
/// Calls come from many tasks at the same time, run in the caller's isolation, and may return
/// without suspending. A store that waits for a device combines concurrent calls into one write. It
/// wraps each wait in ``RealWork/performInTurn(_:)``, so that tests in virtual time have the same
/// result each time, however fast the device is. <doc:WritingAStore> goes through the requirements,
/// with SQL that would meet each of them.
public protocol Persistence: Sendable {
  /// Whether ``apply(_:durability:)`` returns without waiting.
  ///
  /// If `true`, the queue gains nothing by combining changes into larger batches. The default is
  /// `false`.
  var appliesAtOnce: Bool { get }

  /// The maximum number of tasks that a claim may hand out even if fewer workers are idle.
  ///
  /// If it is above 0, a queue whose attempts are short claims up to this number of tasks at once
  /// (<doc:WritingAStore>). That pays off if a call of the store costs much more than an additional
  /// task in its result. The default is 0: a queue claims only for idle workers.
  var claimBatch: Int { get }

  /// How several queues share the store; `nil`, the default, if one queue at a time uses it.
  var sharing: StoreSharing? { get }

  /// Whether all queues that use the store read the same clock, such as the clock of one machine.
  ///
  /// If `true`, a queue that detects that the clock was set back asks the store to rebase its tasks
  /// (``TaskChange/rebase(_:)``). The default is `true` for a store that one queue uses, and
  /// `false` for one that several share, because a clock that is behind was not necessarily set
  /// back.
  var hasOneClock: Bool { get }

  /// Hints that another queue or program may have changed something; `nil`, the default, if the
  /// store can't provide them.
  ///
  /// Each access starts a new sequence, which ends when the store is closed. An element guarantees
  /// nothing: it may come without a change, and a change may come without it. A queue that gets one
  /// looks for tasks at once, in addition to its looks at each ``StoreSharing/pollInterval``.
  /// Buffer only the newest element. In virtual time, a store whose hints come from outside the
  /// test returns `nil`: their timing would depend on how fast the outside is.
  var hints: AsyncStream<Void>? { get }

  /// Opens the store if it is not open. A queue calls it before any other method.
  ///
  /// The default implementation does nothing.
  /// - Throws: The error that prevents the store from opening. The next call tries again.
  nonisolated(nonsending) func open() async throws

  /// Stores a batch of changes, all or none, and returns an outcome for each.
  ///
  /// - Throws: The error that prevents the store from storing them; the error of
  ///   ``TaskChange/checkForm()`` for an invalid change.
  nonisolated(nonsending) func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome]

  /// Leases the first available tasks whose conditions hold.
  ///
  /// Tasks with a higher priority come first, then those with an earlier available date, then those
  /// that were stored earlier.
  nonisolated(nonsending) func claim(_ request: ClaimRequest) async throws -> Claim

  /// Looks tasks up.
  ///
  /// A page need not show a single moment. A store may look tasks up in slices, and let other calls
  /// change tasks in between. Each task is then shown as it was at some moment of the call. A task
  /// that matches the filter during the whole call is found. No task is found twice. A task that is
  /// added, removed or changed during the call may be missing. Over several pages, the same applies
  /// from the first call to the last. To change a task that was found, name it in a change: the
  /// store checks it then.
  ///
  /// - Parameters:
  ///   - filter: The criteria for the tasks to return.
  ///   - id: The ID to continue after: only tasks with greater IDs are returned.
  ///   - limit: The maximum number of tasks to return.
  /// - Returns: The tasks that match the filter, in the order of their IDs.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord]

  /// Returns the number of tasks that match a filter.
  ///
  /// Tasks that change during the call may or may not be counted.
  nonisolated(nonsending) func count(matching filter: TaskFilter) async throws -> Int

  /// Returns whether any task matches a filter.
  ///
  /// A queue asks for this more often than for a count. The default implementation looks up one
  /// task.
  nonisolated(nonsending) func contains(_ filter: TaskFilter) async throws -> Bool

  /// Returns the bytes that are stored under a name.
  ///
  /// They are those of the last stored ``TaskChange/setValue(named:from:to:)`` for that name. A
  /// change that is still being stored may or may not count. After a batch had the outcome
  /// ``ChangeOutcome/valueDiffers``, the call returns the value that made it differ, or a later
  /// one.
  /// - Returns: The bytes; `nil` if there is no value.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func value(named name: String) async throws -> [UInt8]?

  /// Returns the values that a task remembers.
  ///
  /// These are the values that stored changes have set. A change that is still being stored may or
  /// may not count. After a ``TaskChange/complete(_:named:value:)`` was stale because another one
  /// came first, the result contains the value of that other one.
  /// - Returns: The memory; an empty one if the task remembers nothing, or is not in the store.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func memory(of id: TaskID) async throws -> TaskMemory

  /// Returns the SQL statement with which a program adds a new task within its own transaction.
  ///
  /// The statement does what ``apply(_:durability:)`` does for an insertion. It fails where that
  /// call would refuse its batch. The program executes it on its own connection, so the store
  /// learns of the task in the way that it learns of other queues' changes (``hints``). The default
  /// implementation returns `nil`.
  /// - Returns: The statement; `nil` if the store has none.
  /// - Throws: The errors of ``apply(_:durability:)`` for a task that is invalid or can't be
  ///   encoded.
  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement?

  /// Closes the store in good order, and releases its resources.
  ///
  /// Later calls throw. The default implementation does nothing.
  nonisolated(nonsending) func close() async throws

  /// Removes everything permanently: all tasks, including claimed ones, all values, and the place
  /// where the store keeps them.
  ///
  /// It may be called in any state: before ``open()``, while the store is open, after ``close()``,
  /// and after a failed call. Afterwards, a second call does nothing, even if another store has
  /// been created at that place. Later calls of other methods throw.
  /// - Throws: The error that prevents the removal. The next call tries again.
  nonisolated(nonsending) func destroy() async throws
}

extension Persistence {
  /// `false`.
  public var appliesAtOnce: Bool { false }
  /// 0: a queue claims only for idle workers.
  public var claimBatch: Int { 0 }
  /// Looks up one task.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await !tasks(matching: filter, after: nil, limit: 1).isEmpty
  }
  /// `nil`: the store has no such statement.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? { nil }
  /// `nil`: the store provides no hints.
  public var hints: AsyncStream<Void>? { nil }
  /// `true` if one queue at a time uses the store.
  public var hasOneClock: Bool { sharing == nil }
  /// `nil`: one queue at a time.
  public var sharing: StoreSharing? { nil }
  /// Does nothing.
  public func open() async throws {}
  /// Does nothing.
  public func close() async throws {}
}

/// A store's error that can say whether it is temporary.
///
/// ```swift
/// extension DatabaseError: PersistenceError {
///   var isTransient: Bool { isConnectionLost || isSerializationFailure }
/// }
/// ```
/// If the error of a call is transient, a queue repeats the call after a while, as often as
/// necessary. So no worker stops when a database fails over. Any other error ends the queue's run.
///
/// ## What a store promises with a transient error
///
/// - The same call may succeed a little later without anybody's intervention.
/// - The call may have been carried out, for example if a connection breaks before the answer
///   arrives. So a repeated call has these results:
///   - An insertion whose task is in the store has the outcome ``ChangeOutcome/done``, and changes
///     nothing (``TaskRecord/isStored(as:)``).
///   - A change that names a lease is ``ChangeOutcome/stale`` if its first sending ended the claim.
///     The queue looks up the task to find out what happened.
///   - A batch that compares a value (``TaskChange/setValue(named:from:to:)``) is not sent again,
///     because the comparison would fail. Its caller gets the error.
/// - In a store that one queue uses, a claim that throws has handed out nothing. In a store that
///   several queues share, the tasks of a lost answer are handed out again when their claims have
///   expired.
///
/// A caller that is cancelled while the queue waits gets the store's error, and does not know
/// whether the call was carried out. So set a time limit for calls whose caller can't wait for
/// long.
///
/// A store that can determine whether a call was carried out, for example because it stores a
/// number with each batch, returns the result itself, and throws nothing.
public protocol PersistenceError: Error {
  /// Whether the same call may succeed a little later.
  var isTransient: Bool { get }
}

extension Error {
  /// Whether a store says that the error is temporary.
  var isTransientFailure: Bool { (self as? any PersistenceError)?.isTransient ?? false }
}

/// How queues in several processes use one store at the same time.
public struct StoreSharing: Sendable, Hashable {
  /// How long a claim lasts unless it is extended.
  ///
  /// A queue extends the claims of its tasks three times within this time. It continues, even in a
  /// cancelled run, until their handlers have ended and the results are stored. If a process dies,
  /// its tasks are available again after this time, or up to a third of it later. The store's clock
  /// measures it, so the clocks of the processes may differ.
  public var leaseDuration: Duration
  /// How often a waiting queue looks for tasks that other queues have added.
  public var pollInterval: Duration

  /// Makes the settings; the defaults are a minute and five seconds.
  public init(leaseDuration: Duration = .seconds(60), pollInterval: Duration = .seconds(5)) {
    self.leaseDuration = leaseDuration
    self.pollInterval = pollInterval
  }

  func validate() throws(TaskQueueError) {
    for (name, duration) in [("leaseDuration", leaseDuration), ("pollInterval", pollInterval)] {
      guard duration <= .zero else { continue }
      throw TaskQueueError(
        .invalidArgument,
        "the store's \(name) is \(duration); it must be more than zero"
      )
    }
  }
}

/// A decision about a change that its line records, so that reading the line repeats it.
enum Decision: Sendable {
  case addition(Addition)
  /// The task of a retry was superseded.
  case supersession
  /// These tasks are not restarted along with another task, because their unique keys are taken.
  case restart(excluding: [TaskID])
}

/// The result of adding a task with a unique key.
enum Addition: Sendable, Equatable {
  /// The new task became the holder of its key, or had already ended.
  case holder
  /// The new task became the successor, or the holder if the key no longer had a holder.
  case successor
  /// The task with this ID took over the new task.
  case takenOver(by: TaskID)
}

/// One SQL statement that adds a task, within a transaction of yours.
///
/// ``TaskQueue/insertStatement(for:uniqueKey:options:)`` makes it. Execute it on your own
/// connection to the queue's database. The task is added when your transaction is committed, and
/// never if it is rolled back. <doc:EnqueueInYourTransaction> shows how, and lists the
/// requirements.
public struct InsertStatement: Sendable, Equatable {
  /// The ID of the task, if it is added.
  ///
  /// If another task has the same unique key, that task may be used instead (``UniquePolicy``).
  public let id: TaskID
  /// The statement, with a question mark for each parameter in SQLite, and `$1`, `$2` and so on in
  /// PostgreSQL.
  ///
  /// The text is the same for all tasks of a queue, so a connection can keep it prepared. It
  /// contains no payload.
  public let text: String
  /// The parameters, in the order of the question marks or numbers.
  public let parameters: [SQLParameter]

  /// Makes a statement; stores call this initializer.
  public init(id: TaskID, text: String, parameters: [SQLParameter]) {
    self.id = id
    self.text = text
    self.parameters = parameters
  }
}

/// A parameter of a SQL statement.
public enum SQLParameter: Sendable, Equatable {
  case null
  case integer(Int64)
  case real(Double)
  case text(String)
  case bytes([UInt8])
}
