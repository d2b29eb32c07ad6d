public import SystemFoundation

/// A store, which holds a queue's tasks in memory, in a file, in a database, or in your own way.
///
/// A store holds tasks, and hands them out in order. The queue is responsible for backoff,
/// handlers, limits and dates, and passes in the current date as `now`. A store holds the tasks of
/// one queue, or of a ``TaskQueueGroup``. If the store supports ``sharing``, a queue may run in
/// several processes at the same time. In this case, only the store's own clock decides whether a
/// lease has expired.
///
/// ## What a store promises
///
/// 1. **A batch is atomic.** A call of ``apply(_:durability:)`` stores either all changes of the
///    batch that have an effect, or none. Changes apply in order. The queue ensures that a batch
///    contains at most one change for each value, and at most one for each task (except for
///    ``TaskChange/remember(_:named:value:)``). If a batch adds a task, its other changes concern
///    no task with the same name and unique key. They also don't concern the tasks that the new
///    task waits for, or its follower, except that they may add them. A change also affects the
///    tasks that wait for its task, directly or indirectly. Another change of the batch to one of
///    those tasks may be stale.
/// 2. **An acknowledged change is stored.** After a call has returned, its changes survive a power
///    cut with ``Durability/durable``, and the end of the process with ``Durability/relaxed``.
/// 3. **A claim is exclusive.** A claimed task is leased. No other claim returns it until it is
///    released or retried, its lease expires, or its store is opened again. A change that names a
///    lease other than the task's current one is skipped, and its outcome is
///    ``ChangeOutcome/stale``. So a worker that finishes late overwrites nothing.
/// 4. **An interruption is counted.** The start of an attempt is stored with
///    ``Durability/relaxed``. A task that is leased when its store is opened, or whose lease has
///    expired, becomes available again, and its ``TaskRecord/interruptionCount`` is incremented. A
///    store that several queues share may end an expired lease late, but at most a third of
///    ``StoreSharing/leaseDuration`` after it expired. Until then, the lease is valid.
/// 5. **Nothing is dropped.** Tasks whose names no queue claims stay as they are.
/// 6. **A unique key has one holder.** Of the tasks with one name and one unique key, at most one
///    is the holder, and at most one is its successor (``TaskRecord/keyRole``). Only the holder is
///    handed out. The change that ends the holder makes the successor the new holder. If a task is
///    added, an expired task with its key is no longer the holder or the successor. The expired
///    task is handed out, so that the queue can end it.
/// 7. **Tasks with one order key are handed out one at a time, in the order of insertion.** Of the
///    tasks with one ``TaskRecord/orderKey`` that have not ended, or that block the later ones
///    (``TaskRecord/blocksOrder``), only the first is handed out, and only while none of the others
///    is running. A restarted task returns to its previous position.
/// 8. **A task waits for its dependencies, and a follower waits for its batch.** A task is not
///    handed out while the store contains an unfinished task that is one of its
///    ``TaskDependencies/tasks``, or that has it as ``TaskDependencies/follower``. When a task
///    ends, is restarted or is removed, the effects on the tasks that wait for it are stored in the
///    same change (``TaskDependencies``).
/// 9. **A value is compared and set in one step.** A batch with a
///    ``TaskChange/setValue(named:from:to:)`` is stored only if the current value under that name
///    equals the one that the change expects (``ChangeOutcome/valueDiffers``). A value stays until
///    such a change removes it, or the store is destroyed. Claims, look-ups, pruning and rebasing
///    don't affect values.
/// 10. **Queues are separate.** A claim, a ``TaskChange/unpark(name:queue:below:)`` and a pruning
///     concern the tasks of one queue (``TaskRecord/queue``). Each queue has its own unique keys
///     and order keys. A look-up finds the tasks of one queue or of all. Dependencies and IDs apply
///     across the store.
/// 11. **A task's memory lasts until the task succeeds or is removed.** ``memory(of:)`` returns the
///     values that ``TaskChange/remember(_:named:value:)`` has stored, until the task succeeds, is
///     removed, or is restarted with `forgets`. Only a change that names the task's lease adds
///     values. A ``TaskChange/complete(_:named:value:)`` fills an empty value, and only once. If it
///     comes before the ``TaskChange/suspend(_:until:awaiting:countedFrom:)`` that awaits the
///     value, the task wakes at once.
/// 12. **An insertion can be sent again.** If the task is already in the store
///     (``TaskRecord/isStored(as:)``), the outcome is ``ChangeOutcome/done``, and nothing changes.
/// 13. **A call completes even if it is cancelled.** The result of an attempt must be stored even
///     if the attempt, and with it the Swift task that makes the call, was cancelled.
/// 14. **A transient error means that nothing was stored** (``PersistenceError``). A queue makes
///     the call again, and takes its outcomes as those of the only call.
///
/// ## What a store is given
///
/// A store refuses a change that ``TaskChange/checkForm()`` refuses. So no name, key, tag,
/// condition, metadata or error text contains a NUL (U+0000), which PostgreSQL can't store. A
/// payload consists of bytes, and may contain NUL. Dates are from `Date.distantPast` to the last
/// second of the year 9999, and time limits are at most 100,000,000,000 seconds.
///
/// Two names, keys, tags, conditions, names of values, or keys or values of metadata are the same
/// only if their UTF-8 bytes are. So `"\u{e9}"` and `"e\u{301}"` are different, although both are an
/// é and Swift's `==` considers them equal. Databases compare strings in this way, and so do
/// ``TaskFilter/matches(_:)``, ``ClaimRequest/room(for:)`` and ``TaskRecord/isTwin(of:)``.
///
/// ## Calls
///
/// Calls come from many Swift tasks at the same time, run in the caller's isolation, and may return
/// without suspending. A store that waits for a device combines concurrent calls into one write. It
/// wraps each wait in ``RealWork/performInTurn(_:)``, so that tests in virtual time have the same
/// result each time, however fast the device is. <doc:WritingAStore> explains each requirement,
/// with SQL that meets it.
public protocol Persistence: Sendable {
  /// Whether ``apply(_:durability:)`` returns without waiting.
  ///
  /// If `true`, the queue gains nothing by combining changes into larger batches. The default is
  /// `false`.
  var appliesAtOnce: Bool { get }

  /// The maximum number of tasks that a claim may hand out even if fewer workers are idle.
  ///
  /// If the number is above 0, a queue whose attempts are short claims up to this number of tasks
  /// at once (<doc:WritingAStore>). This saves time if a call of the store takes much longer than
  /// adding a task to its result. The default is 0: a queue claims only for idle workers.
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

  /// A sequence with an element whenever another queue or program may have changed the store;
  /// `nil`, the default, if the store can't provide one.
  ///
  /// Each access starts a new sequence, which ends when the store is closed. The elements are only
  /// hints: one may come without a change, and a change may cause none. After an element, a queue
  /// looks for tasks at once; it also looks for tasks every ``StoreSharing/pollInterval``. Buffer
  /// only the newest element. In virtual time, a store whose hints come from outside the test, such
  /// as from a database server, returns `nil`, because their timing would vary.
  var hints: AsyncStream<Void>? { get }

  /// Opens the store if it is not open. A queue calls this before any other method.
  ///
  /// The default implementation does nothing.
  /// - Throws: The error that prevents the store from opening. The next call tries again.
  nonisolated(nonsending) func open() async throws

  /// Stores a batch of changes, all or none, and returns an outcome for each change.
  ///
  /// - Throws: The error that prevents the store from storing the batch; the error of
  ///   ``TaskChange/checkForm()`` for an invalid change.
  nonisolated(nonsending) func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome]

  /// Leases the first available tasks whose conditions hold, and returns them.
  ///
  /// Tasks with a higher priority come first, then those with an earlier available date, then those
  /// that were stored earlier.
  nonisolated(nonsending) func claim(_ request: ClaimRequest) async throws -> Claim

  /// Returns the tasks that match a filter, up to a limit.
  ///
  /// The result need not show the store's state at a single moment: a store may let other calls
  /// change tasks while it collects the result. Each returned task is as it was at some moment
  /// during the call. A task that matches the filter during the whole call is found. No task is
  /// found twice. A task that is added, removed or changed during the call may be missing. If a
  /// caller continues with further calls, the same applies to all these calls together. A task may
  /// have changed since it was returned. So a change that names the task may be stale
  /// (``ChangeOutcome/stale``).
  ///
  /// The IDs of tasks order them by the time of their insertion, approximately. A look-up of the
  /// newest tasks takes as long as one of the oldest.
  ///
  /// - Parameters:
  ///   - filter: The criteria for the tasks to return.
  ///   - id: Only tasks that come after this ID in the order of the result are returned; `nil` to
  ///     begin with the first task.
  ///   - limit: The maximum number of tasks to return.
  ///   - newestFirst: Whether the result begins with the greatest ID instead of the smallest.
  /// - Returns: The tasks that match the filter, in the order of their IDs or in the reverse order.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord]

  /// Returns the number of tasks that match a filter.
  ///
  /// A task that is added, removed or changed during the call may be counted or not.
  nonisolated(nonsending) func count(matching filter: TaskFilter) async throws -> Int

  /// Returns whether any task matches a filter.
  ///
  /// A queue calls this more often than ``count(matching:)``. The default implementation looks up
  /// one task.
  nonisolated(nonsending) func contains(_ filter: TaskFilter) async throws -> Bool

  /// Counts the tasks of all queues, by queue, name and state.
  ///
  /// The result equals what a caller would count that looks up all tasks. A task that is added,
  /// removed or changed during the call may be counted as before, as after, or not. The default
  /// implementation looks up all tasks; a store for many tasks should be faster.
  /// - Parameter now: The date by which waiting tasks are due (``TaskCensus/Row/due``).
  /// - Returns: The census.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func census(at now: Date) async throws -> TaskCensus

  /// Returns the bytes that are stored under a name.
  ///
  /// They are the bytes of the last stored ``TaskChange/setValue(named:from:to:)`` for that name. A
  /// change that is still being stored may count or not. After a batch had the outcome
  /// ``ChangeOutcome/valueDiffers``, the call returns the value that was not the expected one, or a
  /// later value.
  /// - Returns: The bytes; `nil` if there is no value.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func value(named name: String) async throws -> [UInt8]?

  /// Returns the values whose names begin with a prefix.
  ///
  /// Names and prefix are compared by their UTF-8 bytes. A change that is still being stored may
  /// count or not, but either all values of a batch count or none. A queue reads its schedules with
  /// one such call.
  /// - Returns: The values, in the order of the UTF-8 bytes of their names.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func values(
    prefix: String
  ) async throws -> [(name: String, bytes: [UInt8])]

  /// Returns a task's memory: the values that its attempts, and completions, have stored.
  ///
  /// A change that is still being stored may count or not. If a
  /// ``TaskChange/complete(_:named:value:)`` was stale because another one came first, the result
  /// of a later call contains the value of the first.
  /// - Returns: The memory; an empty one if nothing is stored, or if the task is not in the store.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func memory(of id: TaskID) async throws -> TaskMemory

  /// Returns the SQL statement with which a program adds a new task within its own transaction.
  ///
  /// The statement does what ``apply(_:durability:)`` does for an insertion, and fails if that call
  /// would refuse the insertion. The program executes the statement on its own connection. So the
  /// store learns of the task only in the way in which it learns of other queues' changes
  /// (``hints``). The default implementation returns `nil`.
  /// - Returns: The statement; `nil` if the store has none.
  /// - Throws: The errors of ``apply(_:durability:)`` for a task that is invalid or can't be
  ///   encoded.
  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement?

  /// Closes the store, and releases its resources.
  ///
  /// Later calls throw. The default implementation does nothing.
  nonisolated(nonsending) func close() async throws

  /// Removes everything permanently: all tasks, including claimed ones, all values, and the file or
  /// the tables that contain them.
  ///
  /// This may be called in any state: before ``open()``, while the store is open, after
  /// ``close()``, and after a failed call. A second call does nothing, even if another store has
  /// created the same file or tables again. Later calls of other methods throw.
  /// - Throws: The error that prevents the removal. The next call tries again.
  nonisolated(nonsending) func destroy() async throws
}

extension Persistence {
  /// `false`: the queue combines changes into larger batches.
  public var appliesAtOnce: Bool { false }
  /// 0: a queue claims only for idle workers.
  public var claimBatch: Int { 0 }
  /// Looks up tasks as ``tasks(matching:after:limit:newestFirst:)`` does, the oldest first.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await tasks(matching: filter, after: id, limit: limit, newestFirst: false)
  }
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

/// A store's error that says whether it is temporary.
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
/// - The same call may succeed a little later, without any intervention.
/// - The call has stored nothing. So the queue can make it again, and knows what the outcomes mean.
///   There are two exceptions: some of the claims that a batch extends may be extended
///   (``TaskChange/extend(_:for:)``), and in a store that several queues share, a claim may have
///   leased tasks. They are handed out again when their leases have expired.
///
/// If a connection breaks before the response arrives, a store must find out what happened. For
/// example, it stores a number with each batch, and looks for the number on its next connection. If
/// it finds that the batch was stored, it returns the outcomes. If it can't find out, it throws an
/// error that is not transient.
///
/// If a caller is cancelled while the queue waits to repeat the call, the caller gets the store's
/// error. A caller that can't wait for long should set a time limit.
public protocol PersistenceError: Error {
  /// Whether the same call may succeed a little later.
  var isTransient: Bool { get }

  /// Whether a transient error probably lasts, as if no host has the name in a connection string.
  ///
  /// ``TaskQueue/open()`` then throws the error at once. By default `false`.
  var isProbablyLasting: Bool { get }
}

extension PersistenceError {
  /// `false`.
  public var isProbablyLasting: Bool { false }
}

extension Error {
  /// Whether the error is a store's, and temporary.
  var isTransientFailure: Bool { (self as? any PersistenceError)?.isTransient ?? false }
  var isProbablyLasting: Bool { (self as? any PersistenceError)?.isProbablyLasting ?? false }
}

/// How queues in several processes use one store at the same time.
public struct StoreSharing: Sendable, Hashable {
  /// How long a lease lasts unless it is extended.
  ///
  /// A queue extends the leases of its tasks three times within this time, even in a cancelled run,
  /// until the handlers have ended and the results are stored. If a process dies, its tasks are
  /// available again after this time, or up to a third of this time later. Only the store's clock
  /// counts, so the clocks of the processes may differ.
  public var leaseDuration: Duration
  /// How often a queue that waits for tasks looks for those that other processes have added.
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
        "the store's \(name) is \(duration); give more than zero"
      )
    }
  }
}

/// What was decided when a change was stored.
///
/// A file store records the decision with the change, and follows it when it reads the file.
enum Decision: Sendable {
  case addition(Addition)
  /// A task that was to be retried was removed, and the successor of its unique key took its place.
  case supersession
  /// Another task's restart does not restart these tasks, because their unique keys are taken.
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

/// A SQL statement that adds a task within your own transaction.
///
/// ``TaskQueue/insertStatement(for:uniqueKey:options:)`` makes it. Execute it on your own
/// connection to the queue's database. The task is added when your transaction is committed, and
/// never if it is rolled back. <doc:EnqueueInYourTransaction> shows how, and lists the
/// requirements.
public struct InsertStatement: Sendable, Equatable {
  /// The ID that the task gets if it is added.
  ///
  /// If another task has the same unique key, the statement may add no task (``UniquePolicy``).
  public let id: TaskID
  /// The SQL; its parameters are written as question marks for SQLite, and as `$1`, `$2` and so on
  /// for PostgreSQL.
  ///
  /// The SQL is the same for all tasks of a queue, so a connection can prepare it once. It contains
  /// no payload.
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
