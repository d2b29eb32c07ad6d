#if SQLite
import SteadfastDatabases
public import SteadfastQueue
import SystemSQLite

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A store in a SQLite database, which may be your application's own.
///
/// ```swift
/// let queue = TaskQueue(persistence: .sqlite(at: url))
/// ```
///
/// What was acknowledged survives a power cut: a change is committed and flushed to the disk before
/// the call that made it returns. Concurrent callers share one transaction and one flush. Memory
/// does not grow with the number of tasks.
///
/// ## The tables
///
/// The store makes its tables in the database, and touches no others. Their names begin with
/// `steadfast_`, or with another word that you choose. So several stores can be in one database.
/// Older versions of the tables are brought to the present one when the store is opened, in one
/// transaction. A newer version, and a table of that name that another program has made, are
/// refused and left as they are.
///
/// The database gets the journal mode WAL, which stays. Back it up while it is in use with
/// `vacuum into`, or with SQLite's backup interface. A copy of the file alone may miss what stands
/// in the `-wal` file beside it.
///
/// ## Processes
///
/// A store without ``sharing`` is the only one to use its tables. A lock file keeps others out: the
/// real path of the database, `-steadfast` and `.lock`. When the process ends, however suddenly,
/// the next one goes on with its tasks at once. A database with several names, hard links, is
/// refused.
///
/// With ``sharing``, the stores of several processes on one machine use the tables. Their claims
/// are leases, which the machine's clock ends. A store notices what another process has stored
/// within some milliseconds (``hints``), in addition to the looks at each poll. One process writes
/// at a time, so more processes do not make a queue faster.
///
/// Use a local disk. SQLite's locks do not work reliably over a network.
///
/// ## Threads
///
/// A store has four threads of its own: one that writes, two that look tasks up and, while a queue
/// runs, one that waits for what others write. None of the threads that Swift's tasks share waits
/// for the disk.
///
/// ## Failures
///
/// All errors are ``SQLiteError``, or errors of what a payload encodes. If another program writes
/// for more than 5 seconds, the error is transient, and a queue makes the call again. When a call
/// has thrown, nothing of it is stored.
///
/// ## Privacy
///
/// The payloads stand in the database as plain bytes.
/// `Persistence.sealingPayloads(with:acceptsPlain:)` encrypts them.
public final class SQLiteStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// The database.
  public let url: URL
  /// How several processes use the tables at the same time; `nil` if one store uses them alone.
  public let sharing: StoreSharing?
  /// `true`: the processes that share a file are on one machine.
  public var hasOneClock: Bool { true }
  /// 64: a queue whose attempts are short claims up to 64 tasks at once.
  public var claimBatch: Int { 64 }
  package let use: (any StoreUse)?
  package var hasTransientErrors: Bool { true }

  let core: StoreCore

  /// Makes a store in a database that exists, or will be made.
  ///
  /// This does not open the database yet. Its folder must exist.
  ///
  /// - Parameters:
  ///   - url: The database. Other programs may use its other tables.
  ///   - prefix: The word with which the names of the tables begin: 1 to 40 letters of ASCII,
  ///     digits and underscores, the first of them a letter.
  ///   - sharing: How several processes use the tables; `nil` if this store uses them alone.
  public convenience init(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing? = nil
  ) {
    self.init(at: url, prefix: prefix, sharing: sharing) { Date().timeIntervalSince1970 }
  }

  /// Makes a store whose claims run out by another clock than the machine's.
  package init(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing?,
    clock: @escaping @Sendable () -> Double
  ) {
    self.url = url
    self.sharing = sharing
    use = sharing == nil ? ExclusiveUse() : nil
    core = StoreCore(
      DatabaseLocation(url: url, prefix: prefix),
      isShared: sharing != nil,
      clock: clock
    )
  }

  deinit { core.end() }

  /// The path of the database.
  public var description: String { url.path }

  /// Tells that another connection has changed the database, some milliseconds later.
  ///
  /// It may be that of another process, or one of yours. On Linux, a thread waits for what is
  /// written to the `-wal` file, and looks once a second even so. Elsewhere, a store with
  /// ``sharing`` looks 25 times a second, and another one once a second. A look reads a number in
  /// shared memory. The sequence is `nil` in virtual time.
  public var hints: AsyncStream<Void>? {
    RealWork.taskExecutor == nil ? core.hints() : nil
  }

  /// Opens the database, or makes it, and makes the tables if they are missing.
  ///
  /// If it is open, this does nothing.
  ///
  /// - Throws: A ``SQLiteError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// It returns when the changes are as durable as `durability` asks for.
  ///
  /// - Throws: A ``SQLiteError``, or what a payload's encoding throws.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await core.apply(batch, durability: durability)
  }

  /// Leases the first available tasks.
  ///
  /// - Throws: A ``SQLiteError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await core.claim(request)
  }

  /// Returns the tasks that match a filter.
  ///
  /// It reads the tasks in the order of their IDs. Only filters with IDs, with unique keys, or with
  /// nothing but states of tasks that have not ended use an index.
  ///
  /// - Throws: A ``SQLiteError``.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await core.tasks(matching: filter, after: id, limit: limit)
  }

  /// Returns how many tasks match a filter.
  ///
  /// - Throws: A ``SQLiteError``.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await core.count(matching: filter)
  }

  /// Returns whether any task matches a filter.
  ///
  /// - Throws: A ``SQLiteError``.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await core.contains(filter)
  }

  /// Returns the bytes that the store holds under a name; `nil` if there are none.
  ///
  /// - Throws: A ``SQLiteError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.value(named: name)
  }

  /// Returns what a task remembers; nothing if it is not in the store.
  ///
  /// - Throws: A ``SQLiteError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.memory(of: id)
  }

  /// Closes the database.
  ///
  /// Later calls throw.
  ///
  /// When the last reference to a store is gone, the store does the same by itself, and another one
  /// can use the tables at once.
  public func close() async throws {
    try await core.close()
  }

  /// Removes the tables with all tasks and values; the database and its other tables stay.
  ///
  /// The store need not be open. Tables that this library has not made, those of a newer version,
  /// and those that another store has open are left alone, unless both stores are shared. A lock
  /// file that was there stays. Later calls of other methods throw.
  ///
  /// - Throws: A ``SQLiteError``. The next call tries again.
  public func destroy() async throws {
    try await core.destroy()
  }
}

extension Persistence where Self == SQLiteStore {
  /// A store in a SQLite database.
  ///
  /// `prefix` is the word with which the names of its tables begin. `sharing` says how several
  /// processes use them at the same time; with `nil`, one store uses them alone.
  public static func sqlite(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing? = nil
  ) -> SQLiteStore {
    SQLiteStore(at: url, prefix: prefix, sharing: sharing)
  }
}

extension SQLiteStore {
  /// Returns the statement with which a program adds a task within its own transaction.
  ///
  /// It inserts one row into the view `steadfast_insertion`, or that of your prefix. The store must
  /// have been opened once, by a version that makes the view. After the statement,
  /// `select count(*) from steadfast_insertion where id = ?`, with the statement's first parameter,
  /// tells whether the task was added, or another one stands for it. SQLite's `changes()` does not
  /// tell: it does not count what is inserted into a view.
  ///
  /// - Throws: A ``SQLiteError`` for a task that a statement can't add: one that does not wait, or
  ///   is a member of a batch. A `TaskQueueError` for one that makes no sense; what a payload's
  ///   encoding throws.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.place.check()
    if let objection = record.objectionToStatement {
      throw SQLiteError(.invalidArgument, url, objection)
    }
    return try InsertStatement(record, policy, prefix: core.place.prefix)
  }
}

/// The system's SQLite library.
enum Library {
  /// The oldest version whose statements the store can use, which is of November 2021.
  private static let oldest: Int32 = 3_037_000

  static func check(_ place: DatabaseLocation) throws(SQLiteError) {
    let version = sqlite3_libversion_number()
    guard version < oldest || sqlite3_threadsafe() == 0 else { return }
    throw SQLiteError(
      .unsuitableLibrary,
      place.url,
      "the store needs SQLite 3.37 or newer that was built for threads; the system has version "
        + "\(version / 1_000_000).\(version / 1_000 % 1_000)"
    )
  }
}
#endif
