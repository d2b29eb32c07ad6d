#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A store in one file of JSON Lines, which people can read and the store appends to.
///
/// ```swift
/// let queue = TaskQueue(persistence: .jsonFile(at: url))
/// ```
///
/// What was acknowledged survives a power cut: a change is written and flushed to the disk before
/// the call that made it returns, unless you choose otherwise (``Flushing``). Concurrent callers
/// share one write and one flush.
///
/// A lock file beside the file, `.lock`, keeps a second queue, in this process or another, from
/// using the same file. It stays when the store is closed. The file itself is locked as well, so
/// deleting the lock file does not let another queue in. A forked child that starts no new program
/// can't use its parent's store: calls throw.
///
/// ## Opening
///
/// The file is opened at the first call, or with ``open()``, on a thread of its own. The folder
/// must exist. If the file is missing or empty, a new one is made without an error. So a wrong
/// path, or a disk that is not mounted, looks like a first start. If you expect tasks, look at
/// ``JSONFileStatistics/taskCount`` of ``statistics()`` before the queue runs.
///
/// Opening cuts off an end that a crash has torn. If a line can be read behind the torn one, the
/// end is first copied to `.torn-1` beside the file. A file of another format is refused and left
/// as it is. A damaged file is refused and left as it is too, if a later line says that the damaged
/// part had been flushed. Other damage, to what was written last, looks the same as a torn end
/// (``Flushing``). ``verify(at:)`` reports what is wrong with a damaged file, and ``repair(at:)``
/// saves what can be read of it (<doc:DamagedFiles>).
///
/// ## Size
///
/// Every change is a line. When later changes have made most lines obsolete, a compaction writes
/// the file again without them. It writes a temporary file, `.new`, while ordinary work goes on.
/// That file takes the place of the old one when it is durable. A compaction begins when the file
/// is 4 MiB or more, and either four times as large as after the last compaction, or 32 MiB more
/// than twice as large. If its tasks take less now than they did then, their present size counts.
///
/// If a compaction fails, for example because the disk is full, everything stays as it was. The
/// store tries again when the file has doubled, or its tasks take half as many bytes.
/// ``JSONFileStatistics/failedCompaction`` says why it failed, and so does a line on standard
/// error, unless the failure before had the same reason. A file that another program has put at
/// `.new` is not lost: it is renamed, or it is in the way and an error names it. ``statistics()``
/// returns the figures.
///
/// The line of a new task may have 16 MiB less 64 KiB. That includes its payload, which takes a
/// third more than its bytes if it is not JSON or is sealed. ``Options/maxTaskSize`` sets a smaller
/// limit, and ``Options/maxFileSize`` sets one for the file.
///
/// ## Threads
///
/// The store has two threads of its own, on which it reads, writes and flushes the file, so that no
/// flush blocks a thread that Swift's tasks share. There is one exception to this. When a queue
/// claims tasks and the store's threads have nothing to write, the claim writes its lines itself,
/// about a hundred bytes for each task. Such a write goes to the system's cache and usually takes a
/// few microseconds, less than a hand-over to another thread. If the system has no room in its
/// cache, the write waits for the disk. If it fails, the claim also takes back what it wrote.
///
/// ## Failures
///
/// When the disk is full, or the limit for a file's size (`ulimit -f`) is reached, the call throws
/// and nothing of it is stored. (On Darwin the limit ends a process that does not ignore SIGXFSZ.)
/// The same holds when another program deletes, moves or replaces the file while it is open
/// (``JSONFileError/Code/displaced``), or writes it (``JSONFileError/Code/changed``). Until the
/// file is put back as it was, the store takes nothing in. What the file held is still in memory.
///
/// When a flush fails, it is unknown whether the last changes are stored. From then on, calls throw
/// ``JSONFileError/Code/outcomeUnknown``. The store has given up the file: make a new store to see
/// what is there.
///
/// ## Where the file lies
///
/// Use a local disk. Over a network, the server decides what `flock` keeps out and what `fsync`
/// makes durable.
///
/// ## Backing up
///
/// Close the store and copy the file. Its lock file and `.new` are not needed.
///
/// Without ``Options/reservedSpace``, you can also copy the file while the store is open, with a
/// program that reads it once from its beginning to its end, as `cp` does. The copy holds
/// everything up to some moment, perhaps with half a line after it, and reads as a file that a
/// crash has left. A compaction does not disturb it, because it puts another file in the place of
/// the one that is being copied. A write that fails during the copying, for example on a full disk,
/// may spoil the copy: verify it (``verify(at:)``).
///
/// With ``Options/reservedSpace``, such a program may read zeros that lines replace a moment later,
/// and then good lines behind them. Such a copy is damaged (``JSONFileError/Code/damaged``). So
/// close the store, or copy the file from a snapshot of its file system, which reads as a file that
/// a crash has left.
///
/// A hard link, such as `cp -al` makes, gets every stored change until the file is compacted or
/// opened again. From then on the queue has a file of its own. A queue that uses a copy performs
/// again what was done since the copy was made.
///
/// ## Privacy
///
/// The payloads stand in the file as plain text. Only the user who runs the process may read it,
/// unless you choose other ``Options/permissions``.
/// ``Persistence/sealingPayloads(with:acceptsPlain:)`` encrypts the payloads. A checksum is not a
/// signature: a person who can write the file chooses the tasks. On an iPhone and related devices,
/// the files can't be read before the first unlocking after a start (``Options/protection``).
///
/// ## In an app group
///
/// iOS ends an app that holds a file lock in a shared container when the app is suspended. Call
/// ``TaskQueue/shutDown(within:)`` and ``close()`` before that, and make a new queue and a new
/// store afterwards. Closing a store while an attempt is under way interrupts the attempt
/// (``TaskQueueConfiguration/maxInterruptions``).
public final class JSONFileStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// The file.
  public let url: URL
  let core: JSONFileCore
  package let use: (any StoreUse)? = ExclusiveUse()

  /// Makes a store in a file that exists, or will be made.
  ///
  /// This does not open the file yet.
  ///
  /// - Parameters:
  ///   - url: The file. No other program may write it.
  ///   - flushing: When changes are flushed, and so what a power cut may take away.
  ///   - options: How large the file may grow, and who may read it.
  public init(at url: URL, flushing: Flushing = .eachBatch, options: Options = Options()) {
    self.url = url
    core = JSONFileCore(url, flushing: flushing, options: options)
  }

  deinit { core.abandon() }

  /// 64: one write stores all that a claim hands out.
  public var claimBatch: Int { 64 }

  /// The path of the file.
  public var description: String { url.path }

  /// Opens the file, or makes it.
  ///
  /// If the file is open, this does nothing.
  ///
  /// - Throws: A ``JSONFileError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// It returns when the changes are as durable as `durability` asks for.
  ///
  /// - Throws: A ``JSONFileError``, or what a payload's encoding throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await core.open()
    return try await core.apply(batch, durability)
  }

  /// Leases the first available tasks.
  ///
  /// This writes that their attempts have begun, and does not flush it.
  ///
  /// - Throws: A ``JSONFileError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await core.open()
    return try await core.claim(request)
  }

  /// Returns the tasks that match a filter.
  ///
  /// - Throws: A ``JSONFileError``.
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

  /// Returns how many tasks match a filter.
  ///
  /// - Throws: A ``JSONFileError``.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await core.open()
    if let count = core.read({ $0.knownCount(matching: filter) }) { return count }
    var lookUp = TaskLookUp(counting: filter)
    while !lookUp.isOver { core.read { $0.advance(&lookUp) } }
    return lookUp.count
  }

  /// Returns whether any task matches a filter.
  ///
  /// - Throws: A ``JSONFileError``.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await core.open()
    if let count = core.read({ $0.knownCount(matching: filter) }) { return count > 0 }
    return try await !tasks(matching: filter, after: nil, limit: 1).isEmpty
  }

  /// Returns the bytes that the file holds under a name; `nil` if there are none.
  ///
  /// - Throws: A ``JSONFileError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.open()
    return core.read { $0.values[name] }
  }

  /// Returns what a task remembers; nothing if it is not in the file.
  ///
  /// - Throws: A ``JSONFileError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.open()
    return core.read { $0.memory(of: id) }
  }

  /// Returns what the file holds now.
  ///
  /// O(1).
  ///
  /// - Throws: A ``JSONFileError``.
  public func statistics() async throws -> JSONFileStatistics {
    try await core.open()
    return try await core.statistics()
  }

  /// Makes everything that was written durable, and gives up the file and its lock.
  ///
  /// A last line says so. It is left out if nothing was written since the last such line. Later
  /// calls throw.
  ///
  /// When the last reference to a store is gone, the store does the same by itself, a little later.
  ///
  /// - Throws: A ``JSONFileError``. The file is given up all the same. On a full disk the last line
  ///   may be missing. The error then says that everything else is stored, and the file reads as
  ///   one that a crash has left, with all its tasks.
  public func close() async throws { try await core.close() }

  /// Deletes the file with all its tasks and values, and gives up its lock.
  ///
  /// The file need not be open. It is deleted after ``close()`` too, and if it can't be opened,
  /// because it is damaged for instance. A file that is no queue's file is left alone, and so is
  /// one that another store has open. Without a file, or if this store was destroyed before, there
  /// is nothing to do. Later calls of other methods throw. A lock file that was there stays.
  ///
  /// - Throws: A ``JSONFileError``. The file may still be there then; the next call tries again.
  public func destroy() async throws { try await core.destroy() }
}

extension Persistence where Self == JSONFileStore {
  /// A store in one file that people can read.
  ///
  /// No other program may write the file. `flushing` says what a power cut may take away. `options`
  /// says how large the file may grow, and who may read it.
  public static func jsonFile(
    at url: URL,
    flushing: JSONFileStore.Flushing = .eachBatch,
    options: JSONFileStore.Options = JSONFileStore.Options()
  ) -> JSONFileStore {
    JSONFileStore(at: url, flushing: flushing, options: options)
  }
}
