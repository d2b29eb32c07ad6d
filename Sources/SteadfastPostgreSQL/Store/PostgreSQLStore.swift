#if PostgreSQL
import SteadfastDatabases
public import SteadfastQueue
public import SystemFoundation

/// A store in a PostgreSQL database, which many machines can share.
///
/// ```swift
/// let queue = TaskQueue(
///   persistence: .postgreSQL("host=db.example.com dbname=app")
/// )
/// ```
///
/// Acknowledged changes are as durable as the server's commits: with the server's defaults, a call
/// returns only after its changes are flushed to the disk. Concurrent callers share one transaction
/// and one flush. Memory use does not grow with the number of tasks.
///
/// ## The tables
///
/// The store creates its tables in the database, and touches no others. Their names start with
/// `steadfast_`, or with another prefix that you choose. The tables are in the first schema of the
/// search path, or in a schema that you choose. So one database can contain several stores. Opening
/// the store migrates older versions of the tables in one transaction. If the tables have a newer
/// version, or another program made a table with one of these names, opening fails and changes
/// nothing. If the store must not create tables, let an administrator run the statements of
/// ``tables(schema:prefix:)``, and create the store with `migrates: false`.
///
/// ## Machines
///
/// With ``sharing``, which is the default, the stores of several processes use the tables. Their
/// claims are leases that expire by the server's clock, so the clocks of the machines may differ.
/// A store checks for changes of other stores at each poll, and is also notified of them within
/// some milliseconds (``hints``).
///
/// A store without ``sharing`` uses its tables alone for as long as its connection lasts.
///
/// ## Connections
///
/// A store has up to five connections and as many threads: one each for writing, for claiming, for
/// extending claims, for looking up tasks, and for exchanging hints. The threads of Swift's
/// concurrency pool never wait for the server. The sessions use advisory locks, prepared statements
/// and notifications. So they need direct connections to the server, or a pooler in session mode.
///
/// ## Failures
///
/// All errors are ``PostgreSQLError``, or errors of a payload's encoding. The store reconnects if a
/// connection is lost, and repeats a transaction that collided with another one. If the server is
/// unavailable for more than some seconds, the error is transient, and a queue retries the call. If
/// a connection breaks while a change is being stored, the next connection reads from the database
/// whether the change was stored. A call that throws stores nothing, with two exceptions: the error
/// ``PostgreSQLError/Code/outcomeUnknown``, and a call that only extends claims. Such a call may
/// have extended the claims whose tasks no other session has locked.
///
/// ## Privacy
///
/// The database stores payloads as plain bytes.
/// `Persistence.sealingPayloads(with:acceptsPlain:)` encrypts them.
public final class PostgreSQLStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// How several stores use the tables at the same time; `nil` if one store uses them alone.
  public let sharing: StoreSharing?
  /// 64: a queue with short attempts claims up to 64 tasks at once.
  public var claimBatch: Int { 64 }
  /// The database and the server, without a password.
  public let description: String
  package let use: (any StoreUse)?
  package var hasTransientErrors: Bool { true }
  package func setWaiting(_ waits: Bool) { core.location.stop.set(!waits) }

  let core: StoreCore

  /// Creates a store in an existing database.
  ///
  /// This does not connect yet.
  ///
  /// - Parameters:
  ///   - connection: The connection string in libpq's format: `host=… dbname=… user=…`, or a URI
  ///     `postgresql://user@host/database`. Missing values come from libpq's environment variables,
  ///     and from its files for services and passwords.
  ///   - schema: The schema with the tables, which must exist; `nil` for the first schema of the
  ///     search path.
  ///   - prefix: The prefix of the names of the tables: 1 to 40 lowercase ASCII letters,
  ///     digits and underscores, starting with a letter.
  ///   - sharing: How several stores use the tables; `nil` if this store uses them alone.
  ///   - migrates: Whether the store creates its tables, and migrates older versions.
  public convenience init(
    _ connection: String,
    schema: String? = nil,
    prefix: String = "steadfast",
    sharing: StoreSharing? = StoreSharing(),
    migrates: Bool = true
  ) {
    let location = DatabaseLocation(
      connection,
      schema: schema,
      prefix: prefix,
      isShared: sharing != nil,
      migrates: migrates
    )
    self.init(location, sharing: sharing)
  }

  /// Creates a store for tests.
  ///
  /// The store's claims expire by a clock that is ahead of the server's. With `alwaysKeepsCursors`,
  /// claims read from cursors even if there are few dead rows.
  package convenience init(
    _ connection: String,
    prefix: String,
    sharing: StoreSharing?,
    clockOffset: (@Sendable () -> Duration)?,
    alwaysKeepsCursors: Bool = false
  ) {
    let location = DatabaseLocation(
      connection,
      prefix: prefix,
      isShared: sharing != nil,
      clockOffset: clockOffset,
      alwaysKeepsCursors: alwaysKeepsCursors
    )
    self.init(location, sharing: sharing)
  }

  private init(_ location: DatabaseLocation, sharing: StoreSharing?) {
    self.sharing = sharing
    description = location.name
    use = sharing == nil ? ExclusiveUse() : nil
    core = StoreCore(location, leaseDuration: sharing?.leaseDuration)
  }

  deinit { core.end() }

  /// Returns the statements that create the tables, for a program other than a store.
  ///
  /// Run the statements once, as the role that will own the tables. The statements begin and commit
  /// a transaction: run them with `psql`, or remove the first and the last statement for a tool
  /// that has its own transaction. Stores that use the tables with `migrates: false` need `usage`
  /// on the schema and on the sequence, `select`, `insert`, `update` and `delete` on the tables,
  /// and `execute` on the functions.
  ///
  /// - Parameters:
  ///   - schema: the schema with the tables, which must exist; by default the first schema of the
  ///     search path.
  ///   - prefix: the prefix of the names of the tables.
  /// - Returns: The statements.
  /// - Throws: A ``PostgreSQLError`` with the code ``PostgreSQLError/Code/invalidArgument`` if the
  ///   schema or the prefix is not valid.
  public static func tables(
    schema: String? = nil,
    prefix: String = "steadfast"
  ) throws(PostgreSQLError) -> String {
    let location = DatabaseLocation(
      "",
      schema: schema,
      prefix: prefix,
      isShared: true,
      migrates: false
    )
    try location.checkArguments()
    return location.script(from: 0)
  }

  /// A sequence that reports possible changes by other stores within some milliseconds.
  ///
  /// In a store that is not shared, the sequence reports that a statement of another connection may
  /// have added a task. The sequence is `nil` in virtual time.
  public var hints: AsyncStream<Void>? {
    guard RealWork.taskExecutor == nil else { return nil }
    return core.makeHints()
  }

  /// Connects, and creates missing tables.
  ///
  /// If the store is open, this does nothing.
  ///
  /// - Throws: A ``PostgreSQLError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// The call returns when the changes are as durable as `durability` requires.
  ///
  /// - Throws: A ``PostgreSQLError``, or an error of a payload's encoding.
  public func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await core.apply(batch, durability: durability)
  }

  /// Leases the first available tasks.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func claim(_ request: ClaimRequest) async throws -> Claim {
    try await core.claim(request)
  }

  /// Returns the tasks that match a filter.
  ///
  /// A filter uses an index if it has IDs or unique keys of one queue, or if it has only states
  /// that are either all finished or all unfinished. Other filters read the tasks in the order of
  /// their IDs.
  ///
  /// - Throws: A ``PostgreSQLError``.
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
  /// - Throws: A ``PostgreSQLError``.
  public func count(matching filter: TaskFilter) async throws -> Int {
    try await core.count(matching: filter)
  }

  /// Returns whether any task matches a filter.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func contains(_ filter: TaskFilter) async throws -> Bool {
    try await core.contains(filter)
  }

  /// Counts the tasks by queue, name and state, with one statement that reads only indexes.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func census(at now: Date) async throws -> TaskCensus {
    try await core.census(at: now)
  }

  /// Returns the bytes that are stored under a name; `nil` if there are none.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.value(named: name)
  }

  /// Returns the values whose names begin with a prefix, in the order of their names.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await core.values(prefix: prefix)
  }

  /// Returns the memory of a task; it is empty if the task is not in the store.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.memory(of: id)
  }

  /// Closes the connections.
  ///
  /// Later calls throw.
  ///
  /// When the last reference to a store is released, the store closes its connections itself.
  public func close() async throws {
    try await core.close()
  }

  /// Removes the tables with all tasks and values; the database and its other tables stay.
  ///
  /// The store need not be open. The call fails if another program made the tables, if they have a
  /// newer version, or if another store has the tables open and not both stores are shared. Later
  /// calls of other methods throw.
  ///
  /// - Throws: A ``PostgreSQLError``. The next call tries again.
  public func destroy() async throws {
    try await core.destroy()
  }
}

extension Persistence where Self == PostgreSQLStore {
  /// A store in a PostgreSQL database.
  ///
  /// `connection` is a connection string in libpq's format. `schema` and `prefix` set the names of
  /// the tables. `sharing` sets how several stores use the tables at the same time; with `nil`, one
  /// store uses them alone. With `migrates: false`, the store creates and migrates no tables.
  public static func postgreSQL(
    _ connection: String,
    schema: String? = nil,
    prefix: String = "steadfast",
    sharing: StoreSharing? = StoreSharing(),
    migrates: Bool = true
  ) -> PostgreSQLStore {
    PostgreSQLStore(
      connection,
      schema: schema,
      prefix: prefix,
      sharing: sharing,
      migrates: migrates
    )
  }
}

extension PostgreSQLStore {
  /// Returns a statement that adds a task within a program's own transaction.
  ///
  /// The statement calls the function `steadfast_insert`, or the function with your prefix, which a
  /// store creates when the store is opened. The statement returns one row with one value,
  /// `is_added`, which is `false` if the task is a duplicate. Queues are notified when your
  /// transaction is committed.
  ///
  /// - Throws: A ``PostgreSQLError`` for a task that a statement can't add: one that isn't waiting,
  ///   or is a member of a batch. A `TaskQueueError` for an invalid task. An error of the payload's
  ///   encoding.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.location.checkArguments()
    if let objection = record.reasonNotInsertableByStatement {
      throw PostgreSQLError(.invalidArgument, objection)
    }
    return try InsertStatement(record, policy, core.location)
  }
}

extension InsertStatement {
  /// Creates a statement that calls the insertion function in the schema of a location.
  ///
  /// The parameters have SQL types, so that a library can pass strings and numbers.
  init(_ record: TaskRecord, _ policy: UniquePolicy, _ location: DatabaseLocation) throws {
    let payload = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let values = record.definitionValues(
      payload: .bytes(payload),
      role: .text(policy.storedName),
      link: .ids(record.dependencies.tasks)
    )
    let marks = Schema.insertionTypes.enumerated().map { "$\($0 + 1)::\($1)" }
    let function = (location.quotedSchema.map { $0 + "." } ?? "") + location.prefix
    self.init(
      id: record.id,
      text: "select \(function)_insert(\(Schema.insertionVersion), "
        + "\(marks.joined(separator: ", "))) as is_added",
      parameters: (values
        + [.date(record.countedFrom), StoredMetadata.value(of: record.metadata)])
        .map(SQLParameter.init)
    )
  }
}

extension SQLParameter {
  /// Creates a parameter in a form that every library can pass: a date as the microseconds since
  /// 2000, which does not depend on a date format, and an ID or an array as a string.
  fileprivate init(_ value: SQLValue) {
    self =
      switch value {
      case .null: .null
      case .integer(let value): .integer(value)
      case .real(let value): .real(value)
      case .text(let text): .text(text)
      case .bytes(let bytes): .bytes(bytes)
      case .flag(let value): .integer(value ? 1 : 0)
      case .id(let id): .text(id.description)
      case .date(let date): .integer(SQLValue.microseconds(of: date))
      case .array(let elements, _):
        .text(Tables.arrayLiteral(of: elements.map(SQLParameter.init).compactMap(\.string)))
      }
  }

  private var string: String? { if case .text(let text) = self { text } else { nil } }
}
#endif
