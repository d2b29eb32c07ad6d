public import SystemFoundation

/// A store that appends every change as a line to one readable file, in the JSON Lines format.
///
/// ```swift
/// let queue = TaskQueue(persistence: .jsonFile(at: url))
/// ```
///
/// Acknowledged changes survive a power cut: a change is written and flushed to the disk before its
/// call returns, unless you choose otherwise (``Flushing``). Concurrent callers share one write and
/// one flush.
///
/// A lock file, at the file's path plus `.lock`, prevents a second queue, in this process or
/// another, from using the same file. The lock file stays when the store is closed. The file itself
/// is locked as well, so deleting the lock file does not let another queue open the file. After
/// `fork()` without `exec()`, the child process can't use its parent's store: calls throw.
///
/// ## Opening
///
/// The file is opened at the first call, or with ``open()``, on a separate thread. The folder must
/// exist. If the file is missing or empty, a new one is created without an error. So a wrong path,
/// or a disk that is not mounted, looks like the first launch. If you expect tasks, check
/// ``JSONFileStatistics/taskCount`` of ``statistics()`` before the queue runs.
///
/// A crash can leave incomplete lines at the end of the file: a torn end. Opening removes it. If
/// there is a readable line after the first incomplete one, the torn end is first copied to a file
/// beside the original, whose name ends with `.torn-1`. A file of another format is refused and not
/// changed. A damaged file is refused and not changed either, if a later line shows that the
/// damaged part had been flushed. Damage that no later line reveals can't be distinguished from a
/// torn end (``Flushing``). ``verify(at:)`` reports the problems of a damaged file, and
/// ``repair(at:)`` saves everything that can still be read (<doc:DamagedFiles>).
///
/// ## Size
///
/// Every change is a line. When later changes have made most lines obsolete, the store compacts the
/// file: it rewrites the file without the obsolete lines. A compaction writes a temporary file,
/// whose name ends with `.new`, while other calls continue. When the temporary file is durable, it
/// replaces the old file. A compaction starts when the file has at least 4 MiB, and is either four
/// times as large as after the last compaction, or 32 MiB more than twice as large. If the tasks
/// now need less space than after the last compaction, their current size is used instead.
///
/// If a compaction fails, for example because the disk is full, nothing changes. The store tries
/// again when the file is twice as large, or its tasks need half as much space.
/// ``JSONFileStatistics/failedCompaction`` contains the reason. The store also writes it to
/// standard error, unless the previous failure had the same reason. If another program has created
/// a file with the name of the temporary file, that file is not lost: it is renamed, or an error
/// asks you to move it away. ``statistics()`` returns the sizes.
///
/// The line of a new task may have up to 16 MiB less 64 KiB, including the payload. A payload that
/// is sealed or is not JSON is written in Base64, which takes a third more space.
/// ``Options/maxTaskSize`` sets a smaller limit, and ``Options/maxFileSize`` sets one for the file.
///
/// ## Threads
///
/// The store reads, writes and flushes the file on two threads of its own, so that no flush blocks
/// a thread of Swift's shared thread pool. There is one exception: when a queue claims tasks and
/// the store's threads have nothing to write, the calling thread writes the claim's lines, about a
/// hundred bytes for each task. The bytes go to the system's cache, which usually takes a few
/// microseconds, less than a switch to another thread. If the cache is full, the write waits for
/// the disk.
///
/// ## Failures
///
/// When the disk is full, or the limit for a file's size (`ulimit -f`) is reached, the call throws
/// and stores nothing. (On Darwin, exceeding the limit ends a process that does not ignore
/// SIGXFSZ.) A call also throws and stores nothing when another program deletes, moves or replaces
/// the file while it is open (``JSONFileError/Code/displaced``), or writes to it
/// (``JSONFileError/Code/changed``). Until the file is restored, the store accepts no changes. Its
/// tasks are still in memory.
///
/// When a flush fails, it is unknown whether the last changes are stored. From then on, calls throw
/// ``JSONFileError/Code/outcomeUnknown``. The store has closed the file: make a new store to see
/// its contents.
///
/// ## Where to put the file
///
/// Use a local disk. On a network file system, `flock` may not exclude other computers, and `fsync`
/// may not make the bytes durable.
///
/// ## Backing up
///
/// Close the store and copy the file. The lock file and the temporary file are not needed.
///
/// Without ``Options/reservedSpace``, you can also copy the file while the store is open, with a
/// program that reads it once from start to end, such as `cp`. The copy contains all changes up to
/// some moment, and perhaps an incomplete line after them, like a file after a crash. A compaction
/// does not affect the copy, because a compaction replaces the file instead of changing it. If a
/// write fails during the copying, for example because the disk is full, the copy may be damaged:
/// verify the copy (``verify(at:)``).
///
/// With ``Options/reservedSpace``, the program may read zeros just before the store replaces them
/// with lines, and then read good lines after the zeros. The copy is then damaged
/// (``JSONFileError/Code/damaged``). So close the store, or copy the file from a snapshot of its
/// file system.
///
/// A hard link, for example from `cp -al`, is not a copy: it contains every stored change until the
/// file is compacted or opened again. From then on, the queue uses a new file.
///
/// A queue that is started from a copy repeats the work that was done since the copy was made.
///
/// ## Privacy
///
/// The file contains payloads as plain text. Only the user who runs the process may read it, unless
/// you choose other ``Options/permissions``. ``Persistence/sealingPayloads(with:acceptsPlain:)``
/// encrypts the payloads. The checksums in the file are not signatures: anyone who can write to the
/// file can add tasks. On an iPhone or a related device, the files can't be read until the device
/// has been unlocked once since it was started (``Options/protection``).
///
/// ## In an app group
///
/// iOS ends an app that holds a file lock in a shared container when the app is suspended. Before
/// the app is suspended, call ``TaskQueue/shutDown(within:)`` and ``close()``; afterwards, make a
/// new queue and a new store. Closing a store while a task is being performed interrupts the
/// attempt (``TaskQueueConfiguration/maxInterruptions``).
public final class JSONFileStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// The file.
  public let url: URL
  let core: JSONFileCore
  package let use: (any StoreUse)? = ExclusiveUse()

  /// Makes a store for a file, which is created when it is opened if it does not exist.
  ///
  /// The file is not opened yet.
  ///
  /// - Parameters:
  ///   - url: The file. No other program may write to it.
  ///   - flushing: When changes are flushed. This determines which changes a power cut may remove.
  ///   - options: The maximum size of the file, and the users who may read it.
  public init(at url: URL, flushing: Flushing = .eachBatch, options: Options = Options()) {
    self.url = url
    core = JSONFileCore(url, flushing: flushing, options: options)
  }

  deinit { core.abandon() }

  /// The maximum number of tasks to claim at a time: 64.
  ///
  /// The store writes all tasks of a claim at once.
  public var claimBatch: Int { 64 }

  /// The path of the file.
  public var description: String { url.path }

  /// Opens the file, or creates it.
  ///
  /// If the file is already open, the call does nothing.
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

  /// Leases the available tasks that are first in the queue's order.
  ///
  /// The call writes lines that record the start of the tasks' attempts, without flushing them.
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
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await core.open()
    var lookUp = TaskLookUp(filter, after: id, limit: limit, newestFirst: newestFirst)
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

  /// Counts the tasks by queue, name and state, without visiting most of them.
  ///
  /// - Throws: A ``JSONFileError``.
  public func census(at now: Date) async throws -> TaskCensus {
    try await core.open()
    return core.read { $0.census(at: now) }
  }

  /// Returns the bytes that are stored with a name; `nil` if there are none.
  ///
  /// - Throws: A ``JSONFileError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.open()
    return core.read { $0.values[name] }
  }

  /// Returns the values whose names begin with a prefix, in the order of their names.
  ///
  /// - Throws: A ``JSONFileError``.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await core.open()
    return core.read { $0.values.all(prefix: prefix) }
  }

  /// Returns the values that a task remembers; none if the task is not in the file.
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

  /// Makes everything that was written durable, closes the file, and releases its lock.
  ///
  /// The call appends a line that records the closing, unless the file already ends with one. Later
  /// calls throw.
  ///
  /// A store also closes its file after the last reference to the store is released, on another
  /// thread.
  ///
  /// - Throws: A ``JSONFileError``. The file is closed anyway. If the disk is full, the line that
  ///   records the closing may be missing. The error then says that everything else is stored, and
  ///   the next store opens the file as after a crash, with all its tasks.
  public func close() async throws { try await core.close() }

  /// Deletes the file with all its tasks and values, and releases its lock.
  ///
  /// The file need not be open. It is deleted even after ``close()``, or if it can't be opened, for
  /// instance because it is damaged. A file of another program is not deleted, and neither is one
  /// that another store has open. If there is no file, or this store was destroyed before, the call
  /// does nothing. Later calls of other methods throw. The lock file is deleted only if this call
  /// created it.
  ///
  /// - Throws: A ``JSONFileError``. The file may still exist after an error; the next call tries
  ///   again.
  public func destroy() async throws { try await core.destroy() }
}

extension Persistence where Self == JSONFileStore {
  /// A store in one file that people can read.
  ///
  /// No other program may write to the file. `flushing` determines which changes a power cut may
  /// remove. `options` sets the maximum size of the file, and the users who may read it.
  public static func jsonFile(
    at url: URL,
    flushing: JSONFileStore.Flushing = .eachBatch,
    options: JSONFileStore.Options = JSONFileStore.Options()
  ) -> JSONFileStore {
    JSONFileStore(at: url, flushing: flushing, options: options)
  }
}

extension JSONFileStore {
  /// When changes are flushed to the disk, so that they also survive a power cut.
  ///
  /// With every value, a change is written before its call returns, so that it survives a crash of
  /// the process, and ``JSONFileStore/close()`` flushes. A change that is stored with
  /// ``Durability/relaxed``, for example the start of an attempt, is flushed together with later
  /// changes. A power cut can remove only the last changes: every change from some point on, and
  /// none before it. If the insertion of a task is lost, the task is lost. If its success is lost,
  /// the task is performed again.
  ///
  /// - **The process crashes or is killed**: no acknowledged change is lost.
  /// - **The power fails**: changes that were not flushed may be lost.
  /// - **The file is damaged**, by its disk or by another program: every line records how much of
  ///   the file had been flushed when the line was written. If a later good line shows that the
  ///   damaged part had been flushed, opening refuses the file. Otherwise, the damage looks like
  ///   the end of a file after a crash, and opening removes the damaged line and everything after
  ///   it, without an error. This applies to damage that reaches the end of the file. If the file
  ///   was not closed properly, it also applies to damage to the lines that were written last.
  ///
  /// To detect most damage, choose ``eachBatch`` or ``atMostEvery(_:)``.
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
    /// a millisecond on a fast disk to more than ten milliseconds on a slow one. Concurrent calls
    /// share a flush. If the changes of the last flush are damaged, and no line was written after
    /// them, opening removes them without an error.
    ///
    /// The drive must not lose bytes that it reports as flushed. On Darwin, the store tells the
    /// drive to empty its cache (`F_FULLFSYNC`). On a file system that does not support that, the
    /// store only calls `fsync`, which may leave bytes in the cache.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// Flushes a change at most `interval` after it was written.
    ///
    /// A power cut can remove the changes of the last interval, and those of the flush that follows
    /// it. If the last changes that were flushed together are damaged, opening removes them without
    /// an error.
    ///
    /// If a flush fails, the next call throws the error. A negative interval counts as zero.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// Leaves flushing to the operating system.
    ///
    /// A power cut removes the bytes that the system has not written to the disk yet, and
    /// everything after them: usually the changes of the last half minute.
    ///
    /// The store itself flushes only when the file is opened, compacted and closed, and when a
    /// write has failed. If a line that was written since the last flush is damaged, opening
    /// removes that line and everything after it, without an error. That may be nearly the whole
    /// file.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}

extension JSONFileStore {
  /// Repairs a damaged file that no store has open, and keeps a copy of the damaged file.
  ///
  /// The file is first copied, byte for byte and durably, to an unused path beside it, such as
  /// `queue.jsonl.damaged-1`. Then a new file replaces it in one step, with everything that can
  /// still be read. If there are no problems, the file is not changed. Incomplete lines at the end,
  /// which a crash leaves, are not changed either: opening removes them. <doc:DamagedFiles>
  /// explains what is saved. In short: if the insertion of a task is lost, the task is lost; if its
  /// success is lost, the task is performed again.
  ///
  /// A crash at any moment leaves either the damaged file, or the repaired file with the complete
  /// copy beside it. Repairing again is always possible. An identical copy that an interrupted
  /// repair made is used again. When the call throws, the file is unchanged and new files are
  /// removed, unless the error says otherwise.
  ///
  /// The call works on a separate thread, and cancellation does not stop it. The whole file is held
  /// in memory, in addition to the tasks.
  ///
  /// - Returns: The problems that were found, the lost lines, and the path of the copy.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` if a store has the file open;
  ///   ``JSONFileError/Code/notAQueueFile`` or ``JSONFileError/Code/newerVersion`` if the file has
  ///   another format or no readable line; ``JSONFileError/Code/systemCall`` if the file does not
  ///   exist or can't be read, or if the disk has no space for two files of its size;
  ///   ``JSONFileError/Code/outcomeUnknown`` if the file was repaired, but a power cut may restore
  ///   the damaged one.
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

/// The result of a repair: the tasks that were saved, and the lines that are lost.
public struct JSONFileRepair: Sendable, Hashable {
  /// The report on the original file, with all its problems.
  ///
  /// Its ``JSONFileReport/counts`` are the numbers of saved tasks.
  public let report: JSONFileReport
  /// The copy of the damaged file; `nil` if there was nothing to repair.
  public let copy: URL?
  /// The lines that are omitted from the repaired file, at most a thousand.
  ///
  /// A line is omitted if it can't be read, or contradicts the other lines about its task. Lines
  /// that are missing from the damaged file are not listed here; ``JSONFileReport/lostRecordCount``
  /// counts them.
  public let skippedLines: [JSONFileReport.Problem]
  /// The number of lines that are omitted from the repaired file.
  public let skippedLineCount: Int
}

extension JSONFileStore {
  /// Reads a file that no store has open, and reports its contents and its problems.
  ///
  /// The file is not changed: incomplete lines at the end, which a crash leaves, stay. If there is
  /// no lock file beside the file, one is created, so that no store opens the file in the meantime,
  /// and removed again. So the process needs permission to write to the file and its folder. To
  /// verify a file on a read-only disk, verify a copy.
  ///
  /// The call works on a separate thread, and cancellation does not stop it. In addition to the
  /// tasks, only a small part of an undamaged file is held in memory, but all of a damaged one.
  ///
  /// - Returns: A report. Its ``JSONFileReport/isSound`` says whether the file can be opened.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` if a store has the file open,
  ///   ``JSONFileError/Code/notAQueueFile`` or ``JSONFileError/Code/newerVersion`` if the file has
  ///   another format, ``JSONFileError/Code/systemCall`` if the file does not exist or can't be
  ///   read.
  public static func verify(at url: URL) async throws -> JSONFileReport {
    try await DetachedFile(url: url).performWithLock { closed, storage in
      guard let file = try storage.open(.journal) else { throw closed.errors.missing }
      defer { file.close() }
      return try JournalInspection(JournalSource(file)).report
    }
  }

  /// Reads the store's file, and compares its contents with the tasks and values in memory.
  ///
  /// The call checks that every line is good, and that the file's contents match those in memory.
  /// It finds differences that the store did not cause: bits that the disk lost, edits by other
  /// programs, and a file that was truncated, replaced or deleted. Changes that are still being
  /// stored are not compared. The system may return bytes from its cache instead of reading the
  /// disk again.
  ///
  /// If the store is not open, the call opens it first. The store can be used after the call, even
  /// if there are problems. Its writes wait until the verification ends, which takes about as long
  /// as opening the file. Until then, the tasks are held in memory twice and, if the file is
  /// damaged, all its bytes too.
  ///
  /// If there are problems, the tasks in memory are still correct: read them from the store, close
  /// it, and then call ``repair(at:)``.
  ///
  /// - Returns: A report. Its ``JSONFileReport/counts`` are the numbers of tasks in memory, and its
  ///   ``JSONFileReport/wasClosed`` is `false`.
  /// - Throws: A ``JSONFileError`` if the store can't be opened, or the file can't be read back.
  public func verify() async throws -> JSONFileReport {
    try await core.open()
    return try await core.verify()
  }
}
