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

extension JSONFileStore {
  /// When written changes are flushed, so that they survive a power cut and not only the process.
  ///
  /// With every choice, a change is written before its call returns, and ``JSONFileStore/close()``
  /// flushes. A change that is stored with ``Durability/relaxed``, for example that an attempt has
  /// begun, is flushed together with later changes. Only the end of the file can be lost: every
  /// change from some point on, and none before it. A lost task was, in effect, never enqueued. If
  /// the end of a task is lost, the task is performed again.
  ///
  /// - **The process ends**, however suddenly: nothing that was acknowledged is lost.
  /// - **The power fails**: what was not flushed may be lost.
  /// - **The file is damaged**, by its disk or by another program: opening finds the damage and
  ///   refuses the file if a good line after the damage says that the damaged part had been
  ///   flushed. Every line says how much had been flushed when it was written. Damage without such
  ///   a line after it looks like an end that a crash has torn, and opening cuts the file off
  ///   there, without an error. This applies to damage that reaches the end of the file. In a file
  ///   that was not closed in good order, it also applies to damage to what was written last.
  ///
  /// If damage must be found, choose ``eachBatch`` or ``atMostEvery(_:)``.
  public struct Flushing: Sendable, Hashable {
    enum Moment: Hashable {
      case eachBatch
      case atMostEvery(Duration)
      case leftToSystem
    }

    let moment: Moment

    /// Flushes before the call returns.
    ///
    /// A power cut loses nothing that was acknowledged as durable. A flush takes from a tenth of a
    /// millisecond on a fast disk to ten milliseconds and more on a slow one. Concurrent calls
    /// share it. What the last flush has made durable is cut off if it is damaged and no line was
    /// written after it.
    ///
    /// This relies on a drive that does not lose what it reports as flushed. On Darwin, the store
    /// tells the drive to empty its cache (`F_FULLFSYNC`). On a file system that does not support
    /// that, the store only calls `fsync`, which may leave what was written in the cache.
    public static let eachBatch = Flushing(moment: .eachBatch)

    /// Flushes at the latest when `interval` has passed after a change was written.
    ///
    /// A power cut loses the changes of the last interval, and of the flush that ends it. The
    /// changes of the last interval in which there were any are cut off if they are damaged.
    ///
    /// If a flush fails, the next call throws the error. An interval of zero or less means the
    /// shortest one possible.
    public static func atMostEvery(_ interval: Duration) -> Flushing {
      Flushing(moment: .atMostEvery(max(interval, .zero)))
    }

    /// Leaves it to the system when to flush.
    ///
    /// A power cut loses what the system has not written yet, and everything after that: mostly the
    /// changes of the last half minute.
    ///
    /// The store itself flushes only when the file is opened, compacted and closed, and when a
    /// write has failed. If anything is damaged that was written since then, the rest of the file
    /// is cut off, which may be nearly all of it.
    public static let leftToSystem = Flushing(moment: .leftToSystem)
  }
}

extension JSONFileStore {
  /// Saves what can be read of a damaged file that no store has open, and keeps a copy of the file.
  ///
  /// The file is first copied, byte for byte and durably, to a free name beside it:
  /// `queue.jsonl.damaged-1`, and so on. Then a new file with everything that can be read takes its
  /// place in one step. If nothing is wrong, the file is left alone. A torn end is left alone too,
  /// because opening cuts it off. <doc:DamagedFiles> explains what is saved and what is not. In
  /// short: if an insertion is lost, the task is lost; if an end is lost, the task is performed
  /// again.
  ///
  /// A crash at any moment leaves either the damaged file, or the repaired one with the whole copy
  /// beside it. Repairing again is always possible. If a crash cut an earlier repair short and its
  /// copy is there, no second copy is made. When the repair throws, the file is as it was and what
  /// was made is removed, unless the error says otherwise.
  ///
  /// The work is done on a thread of its own. Once it has begun, it runs to its end. Unlike
  /// opening, it holds the whole file in memory, in addition to the tasks.
  ///
  /// - Returns: What was found, what is lost, and where the copy is.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a
  ///   store has the file open; ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` for a file that this version did not write, or of which
  ///   no line can be read; ``JSONFileError/Code/systemCall`` if it is not there, can't be read, or
  ///   there is no room for two files of its size; ``JSONFileError/Code/outcomeUnknown`` if the
  ///   disk failed at the very end: the file is repaired, but a power cut may bring the damaged one
  ///   back.
  public static func repair(at url: URL) async throws -> JSONFileRepair {
    try await DetachedFile(url: url).locked { closed, storage in
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
        copy: repair.copy.map { URL(filePath: storage.path(.copy($0))) },
        skippedLines: repair.skipped.first,
        skippedLineCount: repair.skipped.count
      )
    } catch let error as SystemCallError {
      throw closed.errors.repairing(error)
    } catch let error as JournalRepair.PerhapsUndone {
      throw closed.errors.repairedPerhaps(error.reason, copy: storage.path(.copy(error.copy)))
    }
  }
}

/// What a repair of a queue's file has saved, and what is lost.
public struct JSONFileRepair: Sendable, Hashable {
  /// The report on the file as it was found, with everything that was wrong.
  ///
  /// Its ``JSONFileReport/counts`` are the tasks that were saved.
  public let report: JSONFileReport
  /// The copy of the file as it was, byte for byte; `nil` if nothing was wrong and nothing was
  /// done.
  public let copy: URL?
  /// The lines that are left out of the repaired file, a thousand of them at most.
  ///
  /// A line is left out if it can't be read, or does not fit what is known of its task. Lines that
  /// are missing are counted only by ``JSONFileReport/lostRecordCount``.
  public let skippedLines: [JSONFileReport.Problem]
  /// How many lines are left out of the repaired file.
  public let skippedLineCount: Int
}

extension JSONFileStore {
  /// Reads a file that no store has open, and reports what it holds and what is wrong with it.
  ///
  /// The file is not changed: an end that a crash has torn stays as it is. If there is no lock file
  /// beside it, one is made so that no store opens the file during this, and removed again. So the
  /// caller must be allowed to write the file and its folder. Copy a file from a medium that is
  /// read-only, and verify the copy.
  ///
  /// The work is done on a thread of its own. Once it has begun, it runs to its end. In addition to
  /// the tasks, little of a sound file is held in memory. A damaged file is held whole.
  ///
  /// - Returns: A report. Its ``JSONFileReport/isSound`` says whether the file can be opened.
  /// - Throws: A ``JSONFileError``: ``JSONFileError/Code/inUse`` with the holder's process if a
  ///   store has the file open, ``JSONFileError/Code/notAQueueFile`` or
  ///   ``JSONFileError/Code/newerVersion`` if nothing can be said of it,
  ///   ``JSONFileError/Code/systemCall`` if it is not there or can't be read.
  public static func verify(at url: URL) async throws -> JSONFileReport {
    try await DetachedFile(url: url).locked { closed, storage in
      guard let file = try storage.open(.journal) else { throw closed.errors.missing }
      defer { file.close() }
      return try JournalInspection(JournalSource(file)).report
    }
  }

  /// Reads the file back, and compares it with what the store holds.
  ///
  /// It checks that every line is good and that the file says what the store holds. It finds
  /// changes that the store did not make: bits that the disk lost, edits, and a file that was cut,
  /// replaced or deleted. What is being stored at that moment is left out of the comparison. The
  /// system may answer from its cache instead of reading the disk again.
  ///
  /// The store opens first if it is not open. It goes on as before, whatever is found. Its writes
  /// wait until this ends, which takes about as long as opening the file. Until then, a second
  /// table of the tasks is held in memory and, if the file is damaged, all its bytes too.
  ///
  /// If there are problems, what the store holds in memory is still right: look at its tasks before
  /// it is closed, and then call ``repair(at:)``.
  ///
  /// - Returns: A report. Its ``JSONFileReport/counts`` are those of the store, and its
  ///   ``JSONFileReport/wasClosed`` is `false`.
  /// - Throws: A ``JSONFileError`` if the store can't be opened, or the file can't be read back.
  public func verify() async throws -> JSONFileReport {
    try await core.open()
    return try await core.verify()
  }
}
