#if PostgreSQL
import SteadfastDatabases
public import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A store in a PostgreSQL database, which many machines may share.
///
/// ```swift
/// let queue = TaskQueue(
///   persistence: .postgreSQL("host=db.example.com dbname=app")
/// )
/// ```
///
/// What was acknowledged is as durable as the server makes a commit: with its defaults, a change is
/// flushed to the disk before the call that made it returns. Concurrent callers share one
/// transaction and one flush. Memory does not grow with the number of tasks.
///
/// ## The tables
///
/// The store makes its tables in the database, and touches no others. Their names begin with
/// `steadfast_`, or with another word that you choose, and they are in the first schema of the
/// search path, or in one that you choose. So several stores can be in one database. Older versions
/// of the tables are brought to the present one when the store is opened, in one transaction. A
/// newer version, and a table of that name that another program has made, are refused and left as
/// they are. If the store must not make tables, let a person run ``tables(schema:prefix:)``, and
/// make the store with `migrates: false`.
///
/// ## Machines
///
/// With ``sharing``, as by default, the stores of several processes use the tables. Their claims
/// are leases, which the server's clock ends, so the clocks of the machines may differ. Another
/// store hears of a change within some milliseconds (``hints``), in addition to the looks at each
/// poll.
///
/// A store without ``sharing`` is the only one to use its tables, as long as its connection lasts.
///
/// ## Connections
///
/// A store has up to five connections and as many threads: one each that writes, claims, extends
/// claims, looks tasks up, and exchanges hints. None of the threads that Swift's tasks share waits
/// for the server. The sessions use advisory locks, prepared statements and notifications. So they
/// need a connection of their own to the server, or a pooler in session mode.
///
/// ## Failures
///
/// All errors are ``PostgreSQLError``, or errors of what a payload encodes. A connection that is
/// lost is made again, and a transaction that has collided with another one is repeated. If the
/// server stays away for more than some seconds, the error is transient, and a queue makes the call
/// again. If a connection breaks while a change is being stored, the next connection reads from the
/// database whether it was. When a call has thrown, nothing of it is stored, unless the error is
/// ``PostgreSQLError/Code/outcomeUnknown``, or the call extends claims and does nothing else. Then
/// those claims may have been extended whose tasks no other session has locked.
///
/// ## Privacy
///
/// The payloads stand in the database as plain bytes.
/// `Persistence.sealingPayloads(with:acceptsPlain:)` encrypts them.
public final class PostgreSQLStore: Persistence, UnsharedStore, CustomStringConvertible {
  /// How several stores use the tables at the same time; `nil` if one store uses them alone.
  public let sharing: StoreSharing?
  /// 64: a queue whose attempts are short claims up to 64 tasks at once.
  public var claimBatch: Int { 64 }
  /// The database and the server, without a password.
  public let description: String
  package let use: (any StoreUse)?
  package var hasTransientErrors: Bool { true }

  let core: StoreCore

  /// Makes a store in a database that exists.
  ///
  /// This does not connect yet.
  ///
  /// - Parameters:
  ///   - connection: Where the database is, as libpq reads it: `host=… dbname=… user=…`, or a URI
  ///     `postgresql://user@host/database`. What it leaves out comes from libpq's environment
  ///     variables and from its files for services and passwords.
  ///   - schema: The schema with the tables, which must exist; `nil` for the first one of the
  ///     search path.
  ///   - prefix: The word with which the names of the tables begin: 1 to 40 small letters of ASCII,
  ///     digits and underscores, the first of them a letter.
  ///   - sharing: How several stores use the tables; `nil` if this store uses them alone.
  ///   - migrates: Whether the store makes its tables, and brings older ones to the present
  ///     version.
  public convenience init(
    _ connection: String,
    schema: String? = nil,
    prefix: String = "steadfast",
    sharing: StoreSharing? = StoreSharing(),
    migrates: Bool = true
  ) {
    let place = DatabaseLocation(
      connection,
      schema: schema,
      prefix: prefix,
      isShared: sharing != nil,
      migrates: migrates
    )
    self.init(place, sharing: sharing)
  }

  /// Makes a store whose claims run out by a clock that is ahead of the server's, and read from the
  /// places that earlier ones have come to, although few rows are gone.
  package convenience init(
    _ connection: String,
    prefix: String,
    sharing: StoreSharing?,
    clockOffset: (@Sendable () -> Duration)?,
    alwaysKeepsPlaces: Bool = false
  ) {
    let place = DatabaseLocation(
      connection,
      prefix: prefix,
      isShared: sharing != nil,
      clockOffset: clockOffset,
      alwaysKeepsPlaces: alwaysKeepsPlaces
    )
    self.init(place, sharing: sharing)
  }

  private init(_ place: DatabaseLocation, sharing: StoreSharing?) {
    self.sharing = sharing
    description = place.name
    use = sharing == nil ? ExclusiveUse() : nil
    core = StoreCore(place, leaseDuration: sharing?.leaseDuration)
  }

  deinit { core.end() }

  /// The statements that make the tables, for the program that makes them in place of a store.
  ///
  /// Run them once, as the role that is to own the tables. They begin and commit a transaction:
  /// give them to `psql`, or take the first and the last statement away for a tool that has its
  /// own. Stores that use the tables with `migrates: false` need `usage` on the schema and on the
  /// sequence, `select`, `insert`, `update` and `delete` on the tables, and `execute` on the
  /// functions.
  ///
  /// - Parameters:
  ///   - schema: the schema with the tables, which must be there; by default the first one of the
  ///     search path.
  ///   - prefix: the word with which the names of the tables begin.
  /// - Returns: The statements.
  /// - Throws: A ``PostgreSQLError`` with the code ``PostgreSQLError/Code/invalidArgument`` if no
  ///   tables can have these names.
  public static func tables(
    schema: String? = nil,
    prefix: String = "steadfast"
  ) throws(PostgreSQLError) -> String {
    let place = DatabaseLocation(
      "",
      schema: schema,
      prefix: prefix,
      isShared: true,
      migrates: false
    )
    try place.check()
    return place.script(from: 0)
  }

  /// Tells that another store may have changed the tables, some milliseconds later.
  ///
  /// In a store that is not shared, it tells that a statement of another connection may have added
  /// a task. It is `nil` in virtual time.
  public var hints: AsyncStream<Void>? {
    guard RealWork.taskExecutor == nil else { return nil }
    return core.hints()
  }

  /// Connects, and makes the tables if they are missing.
  ///
  /// If it is open, this does nothing.
  ///
  /// - Throws: A ``PostgreSQLError``. The next call tries again.
  public func open() async throws { try await core.open() }

  /// Stores a batch of changes, and returns an outcome for each.
  ///
  /// It returns when the changes are as durable as `durability` asks for.
  ///
  /// - Throws: A ``PostgreSQLError``, or what a payload's encoding throws.
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
  /// Filters with IDs, with unique keys of one queue, or with nothing but states use an index, if
  /// all of the states are of tasks that have ended, or none. Others read the tasks in the order of
  /// their IDs.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    try await core.tasks(matching: filter, after: id, limit: limit)
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

  /// Returns the bytes that the store holds under a name; `nil` if there are none.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func value(named name: String) async throws -> [UInt8]? {
    try await core.value(named: name)
  }

  /// Returns what a task remembers; nothing if it is not in the store.
  ///
  /// - Throws: A ``PostgreSQLError``.
  public func memory(of id: TaskID) async throws -> TaskMemory {
    try await core.memory(of: id)
  }

  /// Closes the connections.
  ///
  /// Later calls throw.
  ///
  /// When the last reference to a store is gone, the store does the same by itself.
  public func close() async throws {
    try await core.close()
  }

  /// Removes the tables with all tasks and values; the database and its other tables stay.
  ///
  /// The store need not be open. Tables that this library has not made, those of a newer version,
  /// and those that another store has open are left alone, unless both stores are shared. Later
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
  /// `connection` says where the database is, as libpq reads it. `schema` and `prefix` say how the
  /// tables are called. `sharing` says how several stores use them at the same time; with `nil`,
  /// one store uses them alone. With `migrates: false`, the store makes no tables.
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
  /// Returns the statement with which a program adds a task within its own transaction.
  ///
  /// It calls the function `steadfast_insert`, or that of your prefix, which a store makes when it
  /// is opened. Its one row has one value, `is_added`: whether the task was added, or another one
  /// stands for it. Queues learn of it when your transaction is committed.
  ///
  /// - Throws: A ``PostgreSQLError`` for a task that a statement can't add: one that does not wait,
  ///   or is a member of a batch. A `TaskQueueError` for one that makes no sense; what a payload's
  ///   encoding throws.
  public func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try core.place.check()
    if let objection = record.objectionToStatement {
      throw PostgreSQLError(.invalidArgument, objection)
    }
    return try InsertStatement(record, policy, core.place)
  }
}

extension InsertStatement {
  /// Makes the statement that calls the function of the tables at a place.
  init(_ record: TaskRecord, _ policy: UniquePolicy, _ place: DatabaseLocation) throws {
    let payload = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let values = Self.values(of: record, policy, payload)
    let marks = values.enumerated().map { "$\($0 + 1)::\($1.type)" }
    let function = (place.quotedSchema.map { $0 + "." } ?? "") + place.prefix
    self.init(
      id: record.id,
      text: "select \(function)_insert(\(Schema.insertionForm), "
        + "\(marks.joined(separator: ", "))) as is_added",
      parameters: values.map(\.value)
    )
  }

  /// The parameters and their types, so that texts and numbers are enough for any library.
  private static func values(
    of record: TaskRecord,
    _ policy: UniquePolicy,
    _ payload: [UInt8]
  ) -> [(type: String, value: SQLParameter)] {
    func key(_ text: String?) -> SQLParameter {
      .init(text: StoredKey.text(of: text, in: record.queue))
    }
    func texts(_ texts: some Collection<String>) -> SQLParameter { .text(Tables.literal(texts)) }
    let limit: Int64? = if case .atMost(let count) = record.maxRetries { Int64(count) } else { nil }
    return [
      ("uuid", .text(record.id.description)),
      ("text", .text(record.name)),
      ("text", .text(record.queue)),
      ("bytea", .bytes(payload)),
      ("text", .text(record.payload.format.rawValue)),
      ("bigint", .integer(Int64(record.payload.version))),
      ("bigint", .integer(Int64(record.priority.rawValue))),
      ("bigint", .init(date: record.createdDate)),
      ("bigint", .init(date: record.availableDate)),
      ("bigint", .init(integer: limit)),
      ("bigint", .integer(record.usesBackoff ? 1 : 0)),
      ("text", key(record.uniqueKey)),
      ("text", .text(policy.storedName)),
      ("bigint", .init(date: record.uniqueUntil)),
      ("bigint", .init(date: record.latestDate)),
      ("text", key(record.orderKey)),
      ("bigint", .integer(record.blocksOrderOnFailure ? 1 : 0)),
      ("text[]", texts(record.conditions.map(\.rawValue))),
      ("text", .text(record.dependencies.rule.rawValue)),
      ("uuid[]", texts(record.dependencies.tasks.map(\.description))),
      ("text[]", texts(record.tags)),
      ("bigint", .init(integer: record.timeLimit?.microseconds)),
      ("bigint", .init(date: record.expiryDate)),
      ("bigint", .init(date: record.countedFrom)),
    ]
  }
}

extension SQLParameter {
  fileprivate init(text: String?) { self = text.map { .text($0) } ?? .null }
  fileprivate init(integer: Int64?) { self = integer.map { .integer($0) } ?? .null }
  /// Whole microseconds since 2000, since programs write dates in many ways.
  fileprivate init(date: Date?) { self.init(integer: date.map(SQLValue.microseconds)) }
}
#endif
