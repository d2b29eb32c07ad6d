#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A store in one file that people can read: JSON Lines, appended to.
///
/// ```swift
/// let queue = TaskQueue(persistence: .jsonFile(at: url))
/// ```
///
/// What was acknowledged survives a power cut: a change is written and flushed to the disk before
/// the call that made it returns, unless you choose otherwise (``Flushing``). Concurrent callers
/// share one write and one flush. Beside the file lies a lock file, `.lock`, which keeps a second
/// queue, in this process or another, from using the same file; it stays when the store is closed. The
/// file itself is locked as well, so that deleting the lock file lets nobody in. A child that is
/// forked off, without a new program, can't use its parent's store: calls throw.
///
/// ## Opening
///
/// The file is opened at the first call, or with ``open()``, on a thread of its own. The folder
/// must exist. A file that is missing or empty is made anew, without an error: a wrong path, or a
/// disk that is not mounted, looks like a first start. Where tasks are expected, look at
/// ``JSONFileStatistics/taskCount`` of ``statistics()`` before the queue runs.
///
/// An end that a crash has torn is cut off; where whole lines can be read in it, it is first copied to
/// `.torn-1` beside the file. A file of another format is refused and left as it is,
/// and so is a damaged one, where a later line says that what is damaged had been flushed. Other
/// damage, to what was written last, can't be told from a torn end (``Flushing``). ``verify(at:)``
/// tells what is wrong with a damaged file, and ``repair(at:)`` saves what can be read of it
/// (<doc:DamagedFiles>).
///
/// ## Size
///
/// Every change is a line. When most lines say what later ones have made void, the file is written
/// anew without them: beside ordinary work, to a temporary file, `.new`, that takes its place when
/// it is durable. That is done when the file is 4 MiB or more, and four times as large as it was
/// after the last time, or 32 MiB more than twice as large. If that fails, for instance because the
/// disk is full, all stays as it was, and it is tried again when the file has doubled; why is told by
/// ``JSONFileStatistics/failedCompaction`` and, once for a reason, on standard error. What somebody else
/// has put at `.new` is not lost: it is renamed, or is in the way and named in an error.
/// ``statistics()`` tells the figures. The line of a new task may have 16 MiB less 64 KiB, its
/// payload included, which takes a third more than its bytes if it is not JSON or is sealed.
/// Smaller limits, and one for the file, are ``Options/maxTaskSize`` and ``Options/maxFileSize``.
///
/// ## Failures
///
/// When the disk is full, or the limit for a file's size (`ulimit -f`) is reached, the call throws
/// and nothing of it is stored. (On Darwin the limit ends a process that does not ignore SIGXFSZ.)
/// The same holds when somebody deletes, moves or replaces the file while it is open
/// (``JSONFileError/Code/displaced``), or writes it (``JSONFileError/Code/changed``): until it is put
/// back as it was, it takes nothing in, and what it held is still in memory. When a flush fails,
/// it is open whether the last changes are stored: calls throw
/// ``JSONFileError/Code/outcomeUnknown`` from then on. The store has given the file up: make a new
/// one to see what is there.
///
/// ## Where the file lies
///
/// Use a local disk. Over a network, what `flock` keeps out and what `fsync` makes durable is the
/// server's affair.
///
/// ## Backing up
///
/// Close the store and copy the file; its lock file and `.new` are not needed. While the store is
/// open, a copy that reads the file once from its beginning to its end, as `cp` does, holds all up
/// to some moment, with half a line behind it perhaps, and reads as a file that a crash has left.
/// A compaction does not disturb it: that puts another file in the place of the one that is being
/// copied. A write that fails meanwhile, on a full disk for instance, may spoil it: have the copy
/// verified (``verify(at:)``). A hard link, as `cp -al` makes one, takes in what is stored until the file
/// is compacted or opened again: then the queue gets a file of its own. A queue on a copy performs again what was done since it was made.
///
/// ## Privacy
///
/// The payloads stand in the file as plain text, which only the user who runs the process may
/// read, unless you choose other ``Options/permissions``;
/// ``Persistence/sealingPayloads(with:acceptsPlain:)`` has them encrypted. A checksum is not a
/// signature: who can write the file chooses the tasks. On an iPhone and its kin the files can't be
/// read before the first unlocking after a start (``Options/protection``).
///
/// ## In an app group
///
/// iOS ends an app that holds a file lock in a shared container when it is suspended: call
/// ``TaskQueue/shutDown(within:)`` and ``close()`` before, and make a new queue and a new store
/// afterwards. A store that is closed while an attempt is under way has interrupted it
/// (``TaskQueueConfiguration/maxInterruptions``).
public final class JSONFileStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// The file.
  public let url: URL
  let core: JSONFileCore
  let use: StoreUse? = StoreUse()

  /// Makes a store in a file that is there, or will be.
  ///
  /// Nothing is opened yet.
  ///
  /// - Parameters:
  ///   - url: the file, which no other program writes.
  ///   - flushing: what a power cut may take away.
  ///   - options: how large it may grow, and who may read it.
  public init(at url: URL, flushing: Flushing = .eachBatch, options: Options = Options()) {
    self.url = url
    core = JSONFileCore(url, flushing: flushing, options: options)
  }

  deinit { core.abandon() }

  /// The path of the file.
  public var description: String { url.path }

  /// Opens the file, or makes it.
  ///
  /// It does nothing if that is done.
  ///
  /// - Throws: a ``JSONFileError``; the next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes and returns an outcome for each, when they are as durable as asked for.
  ///
  /// - Throws: a ``JSONFileError``; what a payload's encoding throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await core.open()
    return try await core.apply(batch, durability)
  }

  /// Leases the first available tasks.
  ///
  /// That they have begun is written, and not flushed.
  ///
  /// - Throws: a ``JSONFileError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await core.open()
    return try await core.claim(request)
  }

  /// The tasks that a filter lets through.
  ///
  /// - Throws: a ``JSONFileError``.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await core.open()
    var lookUp = TaskLookUp(filter, after: id, limit: limit)
    while !lookUp.isOver { core.read { $0.advance(&lookUp) } }
    return lookUp.records
  }

  /// How many tasks a filter lets through.
  ///
  /// - Throws: a ``JSONFileError``.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await core.open()
    if let count = core.read({ $0.knownCount(matching: filter) }) { return count }
    var lookUp = TaskLookUp(counting: filter)
    while !lookUp.isOver { core.read { $0.advance(&lookUp) } }
    return lookUp.count
  }

  /// What the file holds now.
  ///
  /// O(1).
  ///
  /// - Throws: a ``JSONFileError``.
  public func statistics() async throws -> JSONFileStatistics {
    try await core.open()
    return try await core.statistics()
  }

  /// Makes all that was written durable, says so in a last line unless nothing was written since one
  /// was, and gives the file and its lock up.
  ///
  /// Calls after that throw.
  ///
  /// A store whose last reference goes does the same by itself, a little later.
  ///
  /// - Throws: a ``JSONFileError``; the file is given up all the same. On a full disk that last line
  ///   may be missing: then the error says that all else is stored, and the file reads as one that a
  ///   crash has left, with all its tasks.
  public func close() async throws { try await core.close() }

  /// Deletes the file, with all tasks, and gives its lock up.
  ///
  /// Calls after that throw. The lock file stays.
  ///
  /// - Throws: a ``JSONFileError``; then the file may be there still.
  public func destroy() async throws { try await core.destroy() }
}

extension Persistence where Self == JSONFileStore {
  /// A store in one file that people can read, which no other program writes; `flushing` says what
  /// a power cut may take away, and `options` how large it may grow and who may read it.
  public static func jsonFile(
    at url: URL,
    flushing: JSONFileStore.Flushing = .eachBatch,
    options: JSONFileStore.Options = JSONFileStore.Options()
  ) -> JSONFileStore {
    JSONFileStore(at: url, flushing: flushing, options: options)
  }
}
