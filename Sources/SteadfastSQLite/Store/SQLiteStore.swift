#if SQLite
import SteadfastDatabases
public import SteadfastQueue
import SystemSQLite
public import SystemFoundation

/// A store in a SQLite database, which may be your application's own.
///
/// ```swift
/// let queue = TaskQueue(persistence: .sqlite(at: url))
/// ```
///
/// Acknowledged changes survive a power cut: a call returns only after its changes are committed
/// and flushed to the disk. Concurrent callers share one transaction and one flush. Memory use does
/// not grow with the number of tasks.
///
/// ## The tables
///
/// The store creates its tables in the database, and touches no others. Their names start with
/// `steadfast_`, or with another prefix that you choose, so one database can contain several
/// stores. Opening the store migrates older versions of the tables in one transaction. If the
/// tables have a newer version, or another program made a table with one of these names, opening
/// fails and changes nothing.
///
/// The store sets the journal mode WAL, which is permanent. To back up a database that is in use,
/// use `vacuum into` or SQLite's backup interface. A copy of the file alone may miss changes that
/// are still in the `-wal` file beside it.
///
/// ## Processes
///
/// A store without ``sharing`` uses its tables alone. A lock file locks out other stores. The path
/// of the lock file is the real path of the database, followed by `-steadfast.lock`; another prefix
/// replaces the word `steadfast`. When the process ends, however suddenly, the next process
/// continues with the tasks at once. The store refuses a database with several names (hard links).
///
/// With ``sharing``, several processes on one machine use the tables. Their claims are leases that
/// expire by the machine's clock. A store checks for changes of other processes at each poll, and
/// also notices them within some milliseconds (``hints``). One process writes at a time, so more
/// processes do not make a queue faster.
///
/// Use a local disk. SQLite's locks do not work reliably over a network.
///
/// ## Threads
///
/// A store has four threads of its own: one that writes, two that look up tasks and, while a queue
/// runs, one that watches for changes of other processes. The threads of Swift's concurrency pool
/// never wait for the disk.
///
/// ## Failures
///
/// All errors are ``SQLiteError``, or errors of a payload's encoding. If another program writes for
/// more than 5 seconds, the error is transient, and a queue retries the call. A call that throws
/// stores nothing.
///
/// ## Privacy
///
/// The database stores payloads as plain bytes.
/// `Persistence.sealingPayloads(with:acceptsPlain:)` encrypts them.
public final class SQLiteStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// The database.
  public let url: URL
  /// How several processes use the tables at the same time; `nil` if one store uses them alone.
  public let sharing: StoreSharing?
  /// `true`: the processes that share a file are on one machine.
  public var hasOneClock: Bool { true }
  /// 64: a queue with short attempts claims up to 64 tasks at once.
  public var claimBatch: Int { 64 }
  package let use: (any StoreUse)?
  package var hasTransientErrors: Bool { true }

  let core: StoreCore

  /// Creates a store in an existing or a new database.
  ///
  /// This does not open the database yet. Its folder must exist.
  ///
  /// - Parameters:
  ///   - url: The database. Other programs may use its other tables.
  ///   - prefix: The prefix of the names of the tables: 1 to 40 ASCII letters, digits and
  ///     underscores, starting with a letter.
  ///   - sharing: How several processes use the tables; `nil` if this store uses them alone.
  public convenience init(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing? = nil
  ) {
    self.init(at: url, prefix: prefix, sharing: sharing) { Date().timeIntervalSince1970 }
  }

  /// Creates a store whose claims expire by a clock other than the machine's.
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

  /// A sequence that reports changes by other connections within some milliseconds.
  ///
  /// The connections may belong to other processes or to yours. On Linux, a thread waits for writes
  /// to the `-wal` file, and also checks once a second. Elsewhere, a store with ``sharing`` checks
  /// 25 times a second, and a store without ``sharing`` checks once a second. A check reads a
  /// number in shared memory. The sequence is `nil` in virtual time.
  public var hints: AsyncStream<Void>? {
    RealWork.taskExecutor == nil ? core.makeHints() : nil
  }

  /// Opens or creates the database, and creates missing tables.
  ///
  /// If the store is open, this does nothing.
  ///
  /// - Throws: A ``SQLiteError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// The call returns when the changes are as durable as `durability` requires.
  ///
  /// - Throws: A ``SQLiteError``, or an error of a payload's encoding.
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
  /// The store reads the tasks in the order of their IDs. A filter uses an index only if it has
  /// IDs, unique keys, or only states of unfinished tasks.
  ///
  /// - Throws: A ``SQLiteError``.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await core.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst)
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

  /// Counts the tasks by queue, name and state, with one statement that reads only indexes.
  ///
  /// - Throws: A ``SQLiteError``.
  public func census(at now: Date) async throws -> TaskCensus {
    try await core.census(at: now)
  }

  /// Returns the bytes that are stored under a name; `nil` if there are none.
  ///
  /// - Throws: A ``SQLiteError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.value(named: name)
  }

  /// Returns the values whose names begin with a prefix, in the order of their names.
  ///
  /// - Throws: A ``SQLiteError``.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await core.values(prefix: prefix)
  }

  /// Returns the memory of a task; it is empty if the task is not in the store.
  ///
  /// - Throws: A ``SQLiteError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.memory(of: id)
  }

  /// Closes the database.
  ///
  /// Later calls throw.
  ///
  /// When the last reference to a store is released, the store closes the database itself. Another
  /// store can then use the tables at once.
  public func close() async throws {
    try await core.close()
  }

  /// Removes the tables with all tasks and values; the database and its other tables stay.
  ///
  /// The store need not be open. The call fails if another program made the tables, if they have a
  /// newer version, or if another store has the tables open and not both stores are shared. An
  /// existing lock file stays. Later calls of other methods throw.
  ///
  /// - Throws: A ``SQLiteError``. The next call tries again.
  public func destroy() async throws {
    try await core.destroy()
  }
}

extension Persistence where Self == SQLiteStore {
  /// A store in a SQLite database.
  ///
  /// `prefix` is the prefix of the names of the tables. `sharing` sets how several processes
  /// use the tables at the same time; with `nil`, one store uses the tables alone.
  public static func sqlite(
    at url: URL,
    prefix: String = "steadfast",
    sharing: StoreSharing? = nil
  ) -> SQLiteStore {
    SQLiteStore(at: url, prefix: prefix, sharing: sharing)
  }
}

extension SQLiteStore {
  /// Returns a statement that adds a task within a program's own transaction.
  ///
  /// The statement inserts one row into the view `steadfast_insertion`, or into the view with your
  /// prefix. The store must have been opened once, by a version that creates the view. To find out
  /// whether the task was added or is a duplicate, then run
  /// `select count(*) from steadfast_insertion where id = ?` with the statement's first parameter.
  /// Don't use SQLite's `changes()`, which does not count insertions into a view.
  ///
  /// - Throws: A ``SQLiteError`` for a task that a statement can't add: one that isn't waiting, or
  ///   is a member of a batch. A `TaskQueueError` for an invalid task. An error of the payload's
  ///   encoding.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.location.checkArguments()
    if let objection = record.reasonNotInsertableByStatement {
      throw SQLiteError(.invalidArgument, url, objection)
    }
    return try InsertStatement(record, policy, prefix: core.location.prefix)
  }
}

/// The system's SQLite library.
enum Library {
  /// The oldest version that supports the store's statements, released in November 2021.
  private static let oldest: Int32 = 3_037_000

  /// Throws if the library can't run the statements of a store.
  static func checkVersion(for location: DatabaseLocation) throws(SQLiteError) {
    let version = sqlite3_libversion_number()
    guard version < oldest || sqlite3_threadsafe() == 0 else { return }
    throw SQLiteError(
      .unsuitableLibrary,
      location.url,
      "the store needs a thread-safe SQLite, version 3.37 or newer; the system has version "
        + "\(version / 1_000_000).\(version / 1_000 % 1_000)"
    )
  }
}
#endif
