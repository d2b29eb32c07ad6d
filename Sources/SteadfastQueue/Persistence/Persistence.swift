/// Where a queue's tasks rest: memory, a file, a database, or a store of your own.
///
/// A store keeps tasks and hands them out in order; it does not schedule. Backoff, handlers and
/// limits are the queue's, and `now` is passed in. A store holds the tasks of one queue, which may run
/// in several processes at the same time if the store says so (``sharing``).
///
/// ## What a store promises
///
/// 1. **A batch is atomic.** Either all changes of one ``apply(_:durability:)`` are kept that have an
///    effect or, if it throws, none is. Changes apply in order; a batch holds at most one change for
///    each task.
/// 2. **Acknowledged is kept.** With ``Durability/durable``, a call that has returned survives a
///    power cut; with ``Durability/relaxed``, the end of the process.
/// 3. **One holder.** A claimed task is leased: no other claim returns it until it is released,
///    retried, its lease has run out, or its store is opened anew. A change that names a lease which
///    is not the task's present one is skipped and answered with ``ChangeOutcome/stale``, so that a
///    late finisher overwrites nothing.
/// 4. **An interrupted task is counted.** That an attempt has begun is kept with
///    ``Durability/relaxed``. A task that is found leased when its store is opened, or whose lease
///    has run out, is available again, with its ``TaskRecord/interruptionCount`` raised by one.
/// 5. **Nothing is dropped.** Tasks of names that nobody claims stay as they are.
/// 6. **A call runs to its end.** Once made, it completes even though the Swift task that made it
///    is cancelled: finishing happens inside cancelled tasks.
///
/// Calls come from many tasks at the same time, run in the caller's isolation, and may return
/// without suspending. A store that waits for a device gathers concurrent calls into one write.
/// <doc:WritingAStore> goes through the requirements, with the SQL that would meet each.
/// It wraps each wait in ``RealWork/performInTurn(_:)``, so that tests in virtual time are the same
/// each time, however fast the device is.
public protocol Persistence: Sendable {
  /// Whether ``apply(_:durability:)`` waits for nothing, so that the queue gains nothing by
  /// gathering changes into larger batches.
  ///
  /// By default `false`.
  var appliesAtOnce: Bool { get }

  /// How several queues share the store; `nil`, the default, if one at a time uses it.
  var sharing: StoreSharing? { get }

  /// Makes the store ready, if it is not; a queue calls it before anything else.
  ///
  /// By default it does nothing.
  /// - Throws: what keeps the store from being opened. The next call tries again.
  nonisolated(nonsending) func open() async throws

  /// Keeps a batch of changes, all or none, and returns an outcome for each.
  ///
  /// - Throws: what keeps them from being stored; ``TaskChange/checkForm()``'s error for a change
  ///   that makes no sense.
  nonisolated(nonsending) func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome]

  /// Leases the first available tasks: higher priority first, then the earlier available date,
  /// then the order in which they were kept.
  nonisolated(nonsending) func claim(_ request: ClaimRequest) async throws -> Claim

  /// Looks tasks up.
  ///
  /// A page need not show one moment: a store may look in slices and let others change tasks between
  /// them. Each task is then shown as it was at some moment of the call. A task that meets the filter
  /// from the beginning of the call to its end is found, and no task is found twice; one that comes,
  /// goes or changes meanwhile may be missing. Over several pages the same holds from the first call
  /// to the last. Whoever changes what he has found names it in a change, which the store checks.
  ///
  /// - Parameters:
  ///   - filter: which tasks.
  ///   - id: where to go on: only tasks with greater identities are returned.
  ///   - limit: how many at most.
  /// - Returns: the tasks that the filter lets through, in the order of their identities.
  /// - Throws: what keeps the store from being read.
  nonisolated(nonsending) func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord]

  /// How many tasks a filter lets through.
  ///
  /// As for a page, those that change meanwhile may be counted or not.
  nonisolated(nonsending) func count(matching filter: TaskFilter) async throws -> Int

  /// Ends the use of the store in good order and gives up what it holds.
  ///
  /// Later calls throw. By default it does nothing.
  nonisolated(nonsending) func close() async throws

  /// Removes all tasks, claimed ones too, and what the store keeps them in, for good.
  ///
  /// Later calls throw.
  nonisolated(nonsending) func destroy() async throws
}

extension Persistence {
  /// `false`.
  public var appliesAtOnce: Bool { false }
  /// `nil`: one queue at a time.
  public var sharing: StoreSharing? { nil }
  /// Does nothing.
  public func open() async throws {}
  /// Does nothing.
  public func close() async throws {}
}
