/// The place that holds a queue's tasks: memory, a file, a database, or a store of your own.
///
/// A store holds tasks and hands them out in order. It does not schedule: backoff, handlers, limits
/// and the dates of tasks are the queue's, and `now` is passed in. A store holds the tasks of one
/// queue, which may run in several processes at the same time if the store says so (``sharing``).
/// Then the store's own clock, and no other, decides when a claim has run out.
///
/// ## What a store promises
///
/// 1. **A batch is atomic.** A call of ``apply(_:durability:)`` stores all changes of the batch
///    that have an effect or, if it throws, none. Changes apply in order. A batch holds at most one
///    change for each task (but see ``TaskChange/remember(_:named:value:)``) and each value, and no
///    new task with the name and the unique key of a task that another of its changes concerns. Nor
///    does it hold a new task that names a task, or has one as its follower, that another of its
///    changes concerns, unless that change adds it. A change also concerns the tasks that wait for
///    its task, those that wait for these, and so on; another change of the batch to one of those
///    may be stale.
/// 2. **An acknowledged change is stored.** With ``Durability/durable``, a call that has returned
///    survives a power cut; with ``Durability/relaxed``, the end of the process.
/// 3. **A claim is exclusive.** A claimed task is leased. No other claim returns it until it is
///    released or retried, its lease runs out, or its store is opened again. A change that names a
///    lease other than the task's present one is skipped, and its outcome is
///    ``ChangeOutcome/stale``. So a worker that finishes late overwrites nothing.
/// 4. **An interruption is counted.** The beginning of an attempt is stored with
///    ``Durability/relaxed``. A task that is leased when its store is opened, or whose lease has
///    run out, is available again, and its ``TaskRecord/interruptionCount`` is raised by one. A
///    store that several queues share ends leases that have run out when it likes, at the latest a
///    third of ``StoreSharing/leaseDuration`` later. Until then, a lease is valid.
/// 5. **Nothing is dropped.** Tasks of names that no queue claims stay as they are.
/// 6. **A unique key has one holder.** Of the tasks with one name and one unique key, at most one
///    is the holder, and at most one the successor (``TaskRecord/keyRole``). Only the holder is
///    handed out, and a successor becomes the holder in the change that ends the holder. A task
///    that has expired loses its role to a new one, and is handed out so that the queue ends it.
/// 7. **Tasks with one order key are handed out one at a time, in the order of insertion.** Of the
///    tasks with an order key (``TaskRecord/orderKey``) that have not ended, or hold up others
///    (``TaskRecord/holdsUpOthers``), only the first is handed out, and none while another one of
///    them runs. A restarted task has the place that it had.
/// 8. **A task waits for the tasks that it names, and a follower for its batch.** It is not handed
///    out while a task that it names (``TaskDependencies/tasks``) is in the store and has not
///    ended, or one whose follower it is (``TaskDependencies/follower``). What the end, the restart
///    or the removal of a task means for those that wait for it is stored in the same change
///    (``TaskDependencies``).
/// 9. **A value is compared and set in one step.** A batch with a
///    ``TaskChange/setValue(named:from:to:)`` is stored only if the value under that name is the
///    one that the change names (``ChangeOutcome/valueDiffers``). Values stay until they are
///    removed in this way, or the store is destroyed. They are no tasks: no claim, look-up, pruning
///    or rebase concerns them.
/// 10. **A queue's tasks are apart.** A claim, a ``TaskChange/unpark(name:queue:)`` and a pruning
///     concern the tasks of one queue (``TaskRecord/queue``), and so do unique keys and order keys.
///     A look-up finds those of one queue or of all. Dependencies and IDs are those of the store.
/// 11. **A task remembers until it succeeds or leaves.** What a
///     ``TaskChange/remember(_:named:value:)`` has stored is found by ``memory(of:)``, by every
///     later attempt, until the task succeeds, is removed, or is restarted with `forgets`. Only the
///     holder of the lease adds to it, and a ``TaskChange/complete(_:named:value:)`` fills what is
///     open, once. A ``TaskChange/suspend(_:until:awaiting:countedFrom:)`` misses no completion,
///     whichever comes first.
/// 12. **An insertion that is sent again is done.** If the task is in the store already
///     (``TaskRecord/isStored(as:)``), its outcome is ``ChangeOutcome/done``, and nothing changes.
///     A queue sends it again if the store's error was transient (``PersistenceError``).
/// 13. **A call runs to its end.** Once made, it completes even if the Swift task that made it is
///     cancelled: attempts finish inside cancelled tasks.
///
/// ## What a store is given
///
/// A store refuses a change that ``TaskChange/checkForm()`` refuses. So no name, key, tag,
/// condition or text of a failure has a NUL (U+0000), which PostgreSQL can't store. A payload is
/// bytes, and may have any. Dates are from `Date.distantPast` to the last second of the year 9999,
/// and time limits are at most 100,000,000,000 seconds.
///
/// Two names, keys, tags, conditions or names of values are the same if their UTF-8 bytes are. So
/// `"\u{e9}"` and `"e\u{301}"` are two, though both are an é and Swift's `==` takes them for one.
/// Databases compare texts so, and ``TaskFilter/matches(_:)``, ``ClaimRequest/room(for:)`` and
/// ``TaskRecord/isTwin(of:)`` do.
///
/// ## Calls
///
/// Calls come from many tasks at the same time, run in the caller's isolation, and may return
/// without suspending. A store that waits for a device gathers concurrent calls into one write. It
/// wraps each wait in ``RealWork/performInTurn(_:)``, so that tests in virtual time have the same
/// result each time, however fast the device is. <doc:WritingAStore> goes through the requirements,
/// with the SQL that would meet each.
public protocol Persistence: Sendable {
  /// Whether ``apply(_:durability:)`` waits for nothing.
  ///
  /// If `true`, the queue gains nothing by gathering changes into larger batches. The default is
  /// `false`.
  var appliesAtOnce: Bool { get }

  /// How many tasks a claim may hand out although fewer workers are idle.
  ///
  /// Above 0, a queue whose attempts are short claims up to this number of tasks at once
  /// (<doc:WritingAStore>). That pays where a call of the store costs much more than another task
  /// in its answer. The default is 0: a queue claims for idle workers only.
  var claimBatch: Int { get }

  /// How several queues share the store; `nil`, the default, if one queue at a time uses it.
  var sharing: StoreSharing? { get }

  /// Whether all queues that use the store read one clock, as those of one machine do.
  ///
  /// If `true`, a queue that finds the clock set back has the store rebase its tasks
  /// (``TaskChange/rebase(_:)``). The default is `true` for a store that one queue uses, and
  /// `false` for one that several share: a clock that is behind need not be one that was set back.
  var hasOneClock: Bool { get }

  /// Tells that another queue or program may have changed something; `nil`, the default, if the
  /// store can't.
  ///
  /// Each access begins a new sequence, which ends when the store is closed. An element promises
  /// nothing: it may come for nothing, and may be missing. A queue that gets one looks for tasks at
  /// once, in addition to the looks at each ``StoreSharing/pollInterval``. Buffer only the newest
  /// element. In virtual time, a store whose hints come from outside of the test returns `nil`:
  /// when they come would depend on how fast the outside is.
  var hints: AsyncStream<Void>? { get }

  /// Makes the store ready, if it is not. A queue calls it before any other method.
  ///
  /// The default implementation does nothing.
  /// - Throws: The error that prevents the store from opening. The next call tries again.
  nonisolated(nonsending) func open() async throws

  /// Stores a batch of changes, all or none, and returns an outcome for each.
  ///
  /// - Throws: The error that prevents the store from storing them; the error of
  ///   ``TaskChange/checkForm()`` for a change that makes no sense.
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
  /// A page need not show one moment. A store may look tasks up in slices, and let other calls
  /// change tasks between them. Each task is then shown as it was at some moment of the call. A
  /// task that matches the filter from the beginning of the call to its end is found. No task is
  /// found twice. A task that is added, removed or changed during the call may be missing. Over
  /// several pages, the same holds from the first call to the last. To change a task that was
  /// found, name it in a change: the store checks it then.
  ///
  /// - Parameters:
  ///   - filter: Which tasks to return.
  ///   - id: Where to continue: only tasks with greater IDs are returned.
  ///   - limit: The largest number of tasks to return.
  /// - Returns: The tasks that match the filter, in the order of their IDs.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord]

  /// Returns the number of tasks that match a filter.
  ///
  /// As for a page, tasks that change during the call may be counted or not.
  nonisolated(nonsending) func count(matching filter: TaskFilter) async throws -> Int

  /// Returns whether any task matches a filter.
  ///
  /// A queue asks this more often than it asks for a number. The default implementation looks one
  /// task up.
  nonisolated(nonsending) func contains(_ filter: TaskFilter) async throws -> Bool

  /// Returns the bytes that the store holds under a name.
  ///
  /// They are those of the last ``TaskChange/setValue(named:from:to:)`` of that name that was
  /// stored. A change that is being stored may count or not. After a batch had the outcome
  /// ``ChangeOutcome/valueDiffers``, the value that made it differ is found, or a later one.
  /// - Returns: The bytes; `nil` if there is no value.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func value(named name: String) async throws -> [UInt8]?

  /// Returns what a task remembers.
  ///
  /// It is what changes that were stored have set. One that is being stored may count or not. After
  /// a ``TaskChange/complete(_:named:value:)`` was stale because another one came first, that one's
  /// value is found.
  /// - Returns: The memory; an empty one if the task remembers nothing, or is not in the store.
  /// - Throws: The error that prevents the store from being read.
  nonisolated(nonsending) func memory(of id: TaskID) async throws -> TaskMemory

  /// Returns the SQL statement with which a program adds a new task within its own transaction.
  ///
  /// The statement does what ``apply(_:durability:)`` does with an insertion, and fails where that
  /// refuses its batch. The program executes it on a connection of its own, so the store learns of
  /// it as it learns of the changes of other queues (``hints``). The default implementation returns
  /// `nil`.
  /// - Returns: The statement; `nil` if the store has none.
  /// - Throws: As ``apply(_:durability:)`` for a task that makes no sense, or can't be encoded.
  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement?

  /// Ends the use of the store in good order, and gives up the resources that it holds.
  ///
  /// Later calls throw. The default implementation does nothing.
  nonisolated(nonsending) func close() async throws

  /// Removes all tasks for good, claimed ones too, all values, and the place where the store holds
  /// them.
  ///
  /// It may be called in any state: before ``open()``, while the store is open, after ``close()``,
  /// and after a call that has failed. Afterwards, a second call does nothing, even if another
  /// store has been made at the place. Later calls of other methods throw.
  /// - Throws: The error that prevents the removal. The next call tries again.
  nonisolated(nonsending) func destroy() async throws
}

extension Persistence {
  /// `false`.
  public var appliesAtOnce: Bool { false }
  /// 0: a queue claims for idle workers only.
  public var claimBatch: Int { 0 }
  /// Looks for one task.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await !tasks(matching: filter, after: nil, limit: 1).isEmpty
  }
  /// `nil`: the store has no such statement.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? { nil }
  /// `nil`: the store can't tell.
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

/// An error of a store that says whether it may pass by itself.
///
/// ```swift
/// extension DatabaseError: PersistenceError {
///   var isTransient: Bool { isConnectionLost || isSerializationFailure }
/// }
/// ```
/// A queue makes a call again whose error is transient, after a while and as often as it takes. So
/// a database that fails over stops no worker. Any other error ends the queue's run.
///
/// ## What a store promises with a transient error
///
/// - The same call may succeed a little later, although no person has done anything.
/// - The call may have been carried out, as when a connection breaks before the answer has come.
///   Then a call that is made again must be understood:
///   - An insertion whose task is in the store has the outcome ``ChangeOutcome/done``, and changes
///     nothing (``TaskRecord/isStored(as:)``).
///   - A change that names a lease is ``ChangeOutcome/stale``, because its first sending has ended
///     the claim. The queue looks the task up to tell what it was.
///   - A batch that compares a value (``TaskChange/setValue(named:from:to:)``) is not sent again,
///     because the comparison would fail. Its caller gets the error.
/// - A claim has handed out nothing, if one queue uses the store. In a store that several queues
///   share, tasks whose answer was lost are handed out again when their claims have run out.
///
/// A caller that is cancelled while the queue waits gets the store's error, and does not know
/// whether the call was carried out. So give a call a limit where its caller can't wait for long.
///
/// A store that can tell whether a call was carried out, for example because it has stored a number
/// with each batch, answers the call itself, and throws nothing.
public protocol PersistenceError: Error {
  /// Whether the same call may succeed a little later.
  var isTransient: Bool { get }
}

extension Error {
  /// Whether a store says that the error may pass by itself.
  var isTransientFailure: Bool { (self as? any PersistenceError)?.isTransient ?? false }
}

/// How queues in several processes use one store at the same time.
public struct StoreSharing: Sendable, Hashable {
  /// How long a claim lasts unless it is extended.
  ///
  /// A queue extends the claims of its tasks three times as often. It goes on, in a cancelled run
  /// too, until their handlers have ended and the results are stored. When a process is gone, its
  /// tasks are available again after this time, or up to a third of it later. The store's clock
  /// measures it, so the clocks of the processes may differ.
  public var leaseDuration: Duration
  /// How often a waiting queue looks for tasks that other queues have added.
  public var pollInterval: Duration

  /// Makes the settings; by default a minute, and five seconds.
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

/// What a store has decided about a change, if reading its line again must come to the same.
enum Decision: Sendable {
  case addition(Addition)
  /// The task of a retry is superseded.
  case supersession
  /// These tasks are not restarted along with another one, because their unique keys are held.
  case restart(excluding: [TaskID])
}

/// What became of a new task with a unique key.
enum Addition: Sendable, Equatable {
  /// It became the holder of its key, or has ended already.
  case holder
  /// It became the successor, or the holder if there was none any more.
  case successor
  /// This task took it over.
  case takenOver(by: TaskID)
}

/// One SQL statement that adds a task, within a transaction of yours.
///
/// ``TaskQueue/insertStatement(for:uniqueKey:options:)`` makes it. Execute it on a connection of
/// yours to the database of the queue. The task is there when your transaction is committed, and
/// never if it is rolled back. <doc:EnqueueInYourTransaction> shows how, and what must hold.
public struct InsertStatement: Sendable, Equatable {
  /// The ID of the task, if it is added.
  ///
  /// Another task with the same unique key may stand for it (``UniquePolicy``).
  public let id: TaskID
  /// The statement, with a question mark for each parameter in SQLite, and `$1`, `$2` and so on in
  /// PostgreSQL.
  ///
  /// It is the same for all tasks of a queue, so a connection can keep it prepared. It shows no
  /// payload.
  public let text: String
  /// The parameters, in the order of the question marks or numbers.
  public let parameters: [SQLParameter]

  /// Makes a statement; a store does.
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
