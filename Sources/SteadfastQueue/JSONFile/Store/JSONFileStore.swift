public import SystemFoundation

/// A store in one file of JSON Lines, which people can read and to which the store appends.
///
/// ```swift
/// let queue = TaskQueue(persistence: .jsonFile(at: url))
/// ```
///
/// Acknowledged changes survive a power cut: a change is written and flushed to the disk before its
/// call returns, unless you choose otherwise (``Flushing``). Concurrent callers share one write and
/// one flush.
///
/// A lock file beside the file, `.lock`, prevents a second queue, in this process or another, from
/// using the same file. It stays when the store is closed. The file itself is locked as well, so
/// deleting the lock file does not let another queue in. A forked child that starts no new program
/// can't use its parent's store: calls throw.
///
/// ## Opening
///
/// The file is opened at the first call, or with ``open()``, on a separate thread. The folder must
/// exist. If the file is missing or empty, a new one is created without an error. So a wrong path,
/// or a disk that is not mounted, looks like a first start. If you expect tasks, check
/// ``JSONFileStatistics/taskCount`` of ``statistics()`` before the queue runs.
///
/// Opening removes an end that a crash has torn. If there is a readable line after the torn one,
/// the end is first copied to `.torn-1` beside the file. A file of another format is refused and
/// not changed. A damaged file is refused and not changed either, if a later line shows that the
/// damaged part had been flushed. Other damage, to the lines that were written last, looks the same
/// as a torn end (``Flushing``). ``verify(at:)`` reports the problems of a damaged file, and
/// ``repair(at:)`` saves everything that can be read of it (<doc:DamagedFiles>).
///
/// ## Size
///
/// Every change is a line. When later changes have made most lines obsolete, a compaction rewrites
/// the file without them. It writes a temporary file, `.new`, while ordinary work continues. When
/// that file is durable, it replaces the old one. A compaction starts when the file is 4 MiB or
/// more, and either four times as large as after the last compaction, or 32 MiB more than twice as
/// large. If the tasks need less space now than they did then, their present size is used instead.
///
/// If a compaction fails, for example because the disk is full, nothing changes. The store tries
/// again when the file has doubled, or its tasks have shrunk to half their size.
/// ``JSONFileStatistics/failedCompaction`` contains the reason. The store also writes it to
/// standard error, unless the previous failure had the same reason. Another program's file at
/// `.new` is not lost: it is either renamed, or an error says that it is in the way.
/// ``statistics()`` returns the figures.
///
/// The line of a new task may have 16 MiB less 64 KiB. That includes its payload, which uses a
/// third more than its bytes if it is not JSON or is sealed. ``Options/maxTaskSize`` sets a smaller
/// limit, and ``Options/maxFileSize`` sets one for the file.
///
/// ## Threads
///
/// The store reads, writes and flushes the file on two threads of its own, so that no flush blocks
/// a thread that Swift's tasks share. There is one exception. When a queue claims tasks and the
/// store's threads have nothing to write, the claim writes its lines itself, about a hundred bytes
/// for each task. Such a write goes to the system's cache and usually takes a few microseconds,
/// less than a switch to another thread. If the system's cache is full, the write waits for the
/// disk. If the write fails, the claim also removes the bytes that it wrote.
///
/// ## Failures
///
/// When the disk is full, or the limit for a file's size (`ulimit -f`) is reached, the call throws
/// and stores nothing. (On Darwin, the limit ends a process that does not ignore SIGXFSZ.) The same
/// applies when another program deletes, moves or replaces the file while it is open
/// (``JSONFileError/Code/displaced``), or writes to it (``JSONFileError/Code/changed``). Until the
/// file is restored, the store accepts no changes. Its tasks are still in memory.
///
/// When a flush fails, it is unknown whether the last changes are stored. From then on, calls throw
/// ``JSONFileError/Code/outcomeUnknown``. The store has closed the file: make a new store to see
/// its contents.
///
/// ## Where to put the file
///
/// Use a local disk. On a network file system, the server decides which openers `flock` excludes
/// and which bytes `fsync` makes durable.
///
/// ## Backing up
///
/// Close the store and copy the file. Its lock file and `.new` are not needed.
///
/// Without ``Options/reservedSpace``, you can also copy the file while the store is open, with a
/// program that reads it once from start to end, such as `cp`. The copy contains everything up to
/// some moment, perhaps with half a line after it, and reads like a file after a crash. A
/// compaction does not affect the copy, because it replaces the file instead of changing it. A
/// write that fails during the copying, for example on a full disk, may spoil the copy: verify it
/// (``verify(at:)``).
///
/// With ``Options/reservedSpace``, such a program may read zeros that lines replace a moment later,
/// and then good lines after them. Such a copy is damaged (``JSONFileError/Code/damaged``). So
/// close the store, or copy the file from a snapshot of its file system, which reads like a file
/// after a crash.
///
/// A hard link, for example from `cp -al`, receives every stored change until the file is compacted
/// or opened again. From then on, the queue has a separate file. A queue that uses a copy repeats
/// the work that was done since the copy was made.
///
/// ## Privacy
///
/// The file contains payloads as plain text. Only the user who runs the process may read it, unless
/// you choose other ``Options/permissions``. ``Persistence/sealingPayloads(with:acceptsPlain:)``
/// encrypts the payloads. A checksum is not a signature: anyone who can write to the file can add
/// tasks. On an iPhone and related devices, the files can't be read until the device is first
/// unlocked after it starts (``Options/protection``).
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

  /// Makes a store in a file that exists, or will be created.
  ///
  /// This does not open the file yet.
  ///
  /// - Parameters:
  ///   - url: The file. No other program may write to it.
  ///   - flushing: When changes are flushed, which determines the changes that a power cut may
  ///     remove.
  ///   - options: The maximum size of the file, and who may read it.
  public init(at url: URL, flushing: Flushing = .eachBatch, options: Options = Options()) {
    self.url = url
    core = JSONFileCore(url, flushing: flushing, options: options)
  }

  deinit { core.abandon() }

  /// 64: one write stores a whole claim.
  public var claimBatch: Int { 64 }

  /// The path of the file.
  public var description: String { url.path }

  /// Opens the file, or creates it.
  ///
  /// If the file is open, this does nothing.
  ///
  /// - Throws: A ``JSONFileError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// The call returns when the changes are as durable as `durability` requires.
  ///
  /// - Throws: A ``JSONFileError``, or the error that encoding a payload throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await core.open()
    return try await core.apply(batch, durability)
  }

  /// Leases the first available tasks.
  ///
  /// This writes lines for the start of their attempts, without flushing them.
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

  /// Returns the number of tasks that match a filter.
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

  /// Returns the bytes that are stored under a name; `nil` if there are none.
  ///
  /// - Throws: A ``JSONFileError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.open()
    return core.read { $0.values[name] }
  }

  /// Returns the values that a task remembers; an empty memory if the task is not in the file.
  ///
  /// - Throws: A ``JSONFileError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.open()
    return core.read { $0.memory(of: id) }
  }

  /// Returns statistics about the file.
  ///
  /// O(1).
  ///
  /// - Throws: A ``JSONFileError``.
  public func statistics() async throws -> JSONFileStatistics {
    try await core.open()
    return try await core.statistics()
  }

  /// Makes everything that was written durable, and closes the file and releases its lock.
  ///
  /// A last line records this. It is omitted if nothing was written since the last such line. Later
  /// calls throw.
  ///
  /// When the last reference to a store is released, the store does the same, a little later.
  ///
  /// - Throws: A ``JSONFileError``. The file is closed anyway. On a full disk, the last line may be
  ///   missing. The error then says that everything else is stored, and the file reads like a file
  ///   after a crash, with all its tasks.
  public func close() async throws { try await core.close() }

  /// Deletes the file with all its tasks and values, and releases its lock.
  ///
  /// The file need not be open. It is deleted even after ``close()``, or if it can't be opened, for
  /// instance because it is damaged. A file that is not a queue's file is not deleted, and neither
  /// is one that another store has open. If there is no file, or this store was destroyed before,
  /// the call does nothing. Later calls of other methods throw. A lock file that existed before
  /// stays.
  ///
  /// - Throws: A ``JSONFileError``. The file may still exist then; the next call tries again.
  public func destroy() async throws { try await core.destroy() }
}

extension Persistence where Self == JSONFileStore {
  /// A store in one file that people can read.
  ///
  /// No other program may write to the file. `flushing` determines the changes that a power cut may
  /// remove. `options` sets the maximum size of the file, and who may read it.
  public static func jsonFile(
    at url: URL,
    flushing: JSONFileStore.Flushing = .eachBatch,
    options: JSONFileStore.Options = JSONFileStore.Options()
  ) -> JSONFileStore {
    JSONFileStore(at: url, flushing: flushing, options: options)
  }
}

extension JSONFileStore {
  /// When written changes are flushed, so that they survive not only the end of the process, but
  /// also a power cut.
  ///
  /// With every choice, a change is written before its call returns, and ``JSONFileStore/close()``
  /// flushes. A change that is stored with ``Durability/relaxed``, for example the start of an
  /// attempt, is flushed together with later changes. Only the end of the file can be lost: every
  /// change from some point on, and none before it. A lost task was, in effect, never enqueued. If
  /// the end of a task is lost, the task is performed again.
  ///
  /// - **The process ends**, however suddenly: no acknowledged change is lost.
  /// - **The power fails**: changes that were not flushed may be lost.
  /// - **The file is damaged**, by its disk or by another program: opening detects the damage and
  ///   refuses the file if a later good line shows that the damaged part had been flushed. Every
  ///   line records how much had been flushed when it was written. Damage without such a line after
  ///   it looks like a torn end after a crash, and opening truncates the file there, without an
  ///   error. This applies to damage that reaches the end of the file. In a file that was not
  ///   closed in good order, it also applies to damage to the lines that were written last.
  ///
  /// If damage must be detected, choose ``eachBatch`` or ``atMostEvery(_:)``.
  public struct Flushing: Sendable, Hashable {
    enum Moment: Hashable {
      case eachBatch
      case atMostEvery(Duration)
      case leftToSystem
    }

    let moment: Moment

    /// Flushes before the call returns.
    ///
    /// A power cut loses no change that was acknowledged as durable. A flush takes from a tenth of
    /// a millisecond on a fast disk to ten milliseconds and more on a slow one. Concurrent calls
    /// share it. The changes of the last flush are removed if they are damaged and no line was
    /// written after them.
    ///
    /// This requires a drive that does not lose bytes that it reports as flushed. On Darwin, the
    /// store tells the drive to empty its cache (`F_FULLFSYNC`). On a file system that does not
    /// support that, the store only calls `fsync`, which may leave bytes in the cache.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// Flushes at the latest when `interval` has passed since a change was written.
    ///
    /// A power cut loses the changes of the last interval, and of the flush at its end. The changes
    /// of the last interval that contained any are removed if they are damaged.
    ///
    /// If a flush fails, the next call throws the error. An interval of zero or less means the
    /// shortest possible one.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// Lets the system decide when to flush.
    ///
    /// A power cut loses the bytes that the system has not written yet, and everything after them:
    /// usually the changes of the last half minute.
    ///
    /// The store itself flushes only when the file is opened, compacted and closed, and when a
    /// write has failed. If anything that was written since then is damaged, the rest of the file
    /// is removed, which may be nearly all of it.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}

extension JSONFileStore {
  /// Saves everything that can be read of a damaged file that no store has open, and keeps a copy
  /// of the file.
  ///
  /// The file is first copied, byte for byte and durably, to an unused name beside it:
  /// `queue.jsonl.damaged-1`, and so on. Then a new file with everything that can be read replaces
  /// it in one step. If there are no problems, the file is not changed. A torn end is not changed
  /// either, because opening removes it. <doc:DamagedFiles> explains what is saved and what is not.
  /// In short: if an insertion is lost, the task is lost; if an end is lost, the task is performed
  /// again.
  ///
  /// A crash at any moment leaves either the damaged file, or the repaired file with the complete
  /// copy beside it. Repairing again is always possible. If a crash interrupted an earlier repair
  /// after it made its copy, no second copy is made. When the repair throws, the file is unchanged
  /// and new files are removed, unless the error says otherwise.
  ///
  /// The work is done on a separate thread. Once started, it runs to its end. Unlike opening, it
  /// holds the whole file in memory, in addition to the tasks.
  ///
  /// - Returns: The problems that were found, the lost lines, and the path of the copy.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the owner's process if a
  ///   store has the file open; ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` for a file that this version did not write, or that has
  ///   no readable line; ``JSONFileError/Code/systemCall`` if it does not exist, can't be read, or
  ///   two files of its size don't fit on the disk; ``JSONFileError/Code/outcomeUnknown`` if the
  ///   disk failed at the very end: the file is repaired, but a power cut may restore the damaged
  ///   one.
  public static func repair(at url: URL) async throws -> JSONFileRepair {
    try await DetachedFile(url: url).performWithLock { closed, storage in
      try repair(closed, storage)
    }
  }

  private static func repair(
    _ closed: DetachedFile,
    _ storage: FileStorage
  ) throws -> JSONFileRepair {
    do {
      guard let repair = try JournalRepair.repair(storage, at: Date()) else {
        throw closed.errors.missing
      }
      return JSONFileRepair(
        report: repair.report,
        copy: repair.copy.map { URL(filePath: storage.path(of: .copy($0))) },
        skippedLines: repair.skipped.first,
        skippedLineCount: repair.skipped.count
      )
    } catch let error as SystemCallError {
      throw closed.errors.repairFailedError(because: error)
    } catch let error as JournalRepair.PerhapsUndone {
      let copy = storage.path(of: .copy(error.copy))
      throw closed.errors.repairUncertainError(because: error.reason, copy: copy)
    }
  }
}

/// The result of a repair: what was saved, and what is lost.
public struct JSONFileRepair: Sendable, Hashable {
  /// The report on the original file, with all its problems.
  ///
  /// Its ``JSONFileReport/counts`` are those of the saved tasks.
  public let report: JSONFileReport
  /// The copy of the original file, byte for byte; `nil` if there was nothing to repair.
  public let copy: URL?
  /// The lines that are omitted from the repaired file, at most a thousand.
  ///
  /// A line is omitted if it can't be read, or contradicts the other lines about its task. Missing
  /// lines are only counted, by ``JSONFileReport/lostRecordCount``.
  public let skippedLines: [JSONFileReport.Problem]
  /// The number of lines that are omitted from the repaired file.
  public let skippedLineCount: Int
}

extension JSONFileStore {
  /// Reads a file that no store has open, and reports its contents and its problems.
  ///
  /// The file is not changed: a torn end after a crash stays as it is. If there is no lock file
  /// beside it, one is created so that no store opens the file in the meantime, and removed again.
  /// So the caller needs permission to write the file and its folder. Copy a file from a read-only
  /// medium, and verify the copy.
  ///
  /// The work is done on a separate thread. Once started, it runs to its end. In addition to the
  /// tasks, only a small part of an undamaged file is held in memory. A damaged file is held as a
  /// whole.
  ///
  /// - Returns: A report. Its ``JSONFileReport/isSound`` says whether the file can be opened.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the owner's process if a
  ///   store has the file open, ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` if nothing can be said about it,
  ///   ``JSONFileError/Code/systemCall`` if it does not exist or can't be read.
  public static func verify(at url: URL) async throws -> JSONFileReport {
    try await DetachedFile(url: url).performWithLock { closed, storage in
      guard let file = try storage.open(.journal) else { throw closed.errors.missing }
      defer { file.close() }
      return try JournalInspection(JournalSource(file)).report
    }
  }

  /// Reads the file back, and compares it with the contents of the store.
  ///
  /// It checks that every line is good and that the file's contents match the store. It finds
  /// changes that the store did not make: bits that the disk lost, edits, and a file that was
  /// truncated, replaced or deleted. Changes that are being stored at that moment are not compared.
  /// The system may answer from its cache instead of reading the disk again.
  ///
  /// The store opens first if it is not open. It continues as before, whatever is found. Its writes
  /// wait until the verification ends, which takes about as long as opening the file. Until then, a
  /// second table of the tasks is held in memory and, if the file is damaged, all its bytes too.
  ///
  /// If there are problems, the contents of the store in memory are still right: read its tasks
  /// before it is closed, and then call ``repair(at:)``.
  ///
  /// - Returns: A report. Its ``JSONFileReport/counts`` are those of the store, and its
  ///   ``JSONFileReport/wasClosed`` is `false`.
  /// - Throws: A ``JSONFileError`` if the store can't be opened, or the file can't be read back.
  public func verify() async throws -> JSONFileReport {
    try await core.open()
    return try await core.verify()
  }
}
