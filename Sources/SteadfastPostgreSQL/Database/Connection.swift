#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import Synchronization
import SystemPostgreSQL
import SystemC

/// A connection to the server; one thread uses it.
///
/// Statements are buffered until a result is needed, and are then sent together. So a transaction
/// costs a round trip for each result that it needs, and not for each statement.
@safe final class Connection {
  /// The words of a statement that are replaced before the statement is sent.
  struct Substitutions: Sendable {
    /// The word that replaces `steadfast` at the start of the names of the tables.
    var prefix = "steadfast"
    /// The expression for the current time, which replaces `store_clock()`.
    var clock = "clock_timestamp()"
  }

  private let handle: OpaquePointer
  private let substitutions: Substitutions
  /// Whether to stop waiting for a response soon.
  private let stop: StopFlag
  /// How long to wait for a response after ``stop`` was set, in milliseconds.
  private static let lastPatience: Int32 = 5_000
  /// The names of the prepared statements, by their SQL.
  private var names: [StatementText: String] = [:]
  private var nameCount = 0
  /// The statements that were prepared since the last result.
  private var newStatements: [String] = []
  /// For each statement that was sent since the last result, whether its result is needed.
  private var sent: [Bool] = []
  /// Whether responses may still arrive that no call reads.
  ///
  /// libpq considers such a connection usable.
  private var isOutOfSync = false
  /// How long to wait for a response of the server, in milliseconds.
  ///
  /// An available server ends a statement much earlier (``SessionSettings``).
  var patience: Int32 = 120_000
  /// The maximum number of bytes in a statement's values.
  ///
  /// If a server receives 1 GiB or more, the server discards the bytes and closes the connection.
  var mostBytes = 1_000_000_000

  /// Connects; the `connect_timeout` of the parameters applies to each host separately.
  init(
    _ parameters: [(name: String, value: String)],
    _ substitutions: Substitutions = Substitutions(),
    _ stop: StopFlag = StopFlag()
  )
    throws(PostgreSQLFailure)
  {
    guard let handle = unsafe Self.connect(parameters) else {
      throw PostgreSQLFailure(state: "53200", text: "out of memory", isConnectionLost: true)
    }
    unsafe self.handle = handle
    self.substitutions = substitutions
    self.stop = stop
    guard unsafe PQstatus(handle) == CONNECTION_OK else { throw failure() }
    unsafe PQsetNoticeProcessor(handle, { _, _ in }, nil)
    guard unsafe PQenterPipelineMode(handle) == 1 else { throw failure() }
  }

  deinit { unsafe PQfinish(handle) }

  private static func connect(_ parameters: [(name: String, value: String)]) -> OpaquePointer? {
    let names = unsafe parameters.map { unsafe strdup($0.name) }
    let values = unsafe parameters.map { unsafe strdup($0.value) }
    defer { unsafe (names + values).forEach { unsafe free($0) } }
    let nameList = unsafe names.map { unsafe UnsafePointer($0) } + [nil]
    let valueList = unsafe values.map { unsafe UnsafePointer($0) } + [nil]
    return unsafe PQconnectdbParams(nameList, valueList, 0)
  }

  private func failure() -> PostgreSQLFailure {
    PostgreSQLFailure(
      state: "",
      text: unsafe String(cString: PQerrorMessage(handle)),
      isConnectionLost: isLost
    )
  }

  /// Whether the connection is unusable.
  var isLost: Bool { unsafe isOutOfSync || PQstatus(handle) == CONNECTION_BAD }

  /// Whether no transaction is in progress, according to the responses received so far.
  var isIdle: Bool { unsafe PQtransactionStatus(handle) == PQTRANS_IDLE }

  /// The version of the server, as in 150018 for 15.18.
  var serverVersion: Int { Int(unsafe PQserverVersion(handle)) }

  /// The descriptor of the connection, for waiting.
  var descriptor: Int32 { unsafe PQsocket(handle) }

  /// Returns the SQL after the substitutions.
  func adaptedSQL(_ sql: String) -> String {
    let sql = sql.replacing("store_clock()", with: substitutions.clock)
    guard substitutions.prefix != "steadfast" else { return sql }
    return sql.replacing("steadfast_", with: substitutions.prefix + "_")
  }

  // MARK: Sending

  /// Runs statements without parameters, and ignores their results.
  func execute(_ script: String) throws(PostgreSQLFailure) {
    // A script can't be sent in pipeline mode.
    try flush()
    guard unsafe PQexitPipelineMode(handle) == 1 else { throw failure() }
    defer { unsafe PQenterPipelineMode(handle) }
    guard unsafe PQsendQuery(handle, adaptedSQL(script)) == 1 else { throw failure() }
    var firstFailure: PostgreSQLFailure?
    while let rows = try nextRows() { firstFailure = firstFailure ?? rows.failureIfAny }
    if let firstFailure { throw failureWithCurrentState(firstFailure) }
  }

  /// Buffers a statement whose result is ignored, until the next result is needed.
  func send(_ sql: String, _ values: SQLValue...) throws(PostgreSQLFailure) {
    try send(sql, values, isWanted: false)
  }

  /// Buffers a statement until the next result is needed.
  ///
  /// `isWanted` is `true` if the result of this statement is needed.
  func send(_ sql: String, _ values: [SQLValue], isWanted: Bool) throws(PostgreSQLFailure) {
    let name = try preparedName(of: sql)
    var bytes: [UInt8] = []
    var starts: [Int?] = []
    var lengths: [Int32] = []
    for value in values {
      let start = bytes.count
      let count = value.append(to: &bytes)
      guard bytes.count <= mostBytes else {
        throw PostgreSQLFailure(
          state: "54000",
          text: "the values of a statement have \(bytes.count) bytes or more, but PostgreSQL "
            + "accepts less than 1 GiB"
        )
      }
      starts.append(count.map { _ in start })
      lengths.append(Int32(count ?? 0))
    }
    // Even an empty value must have an address.
    bytes.append(0)
    let formats = [Int32](repeating: 1, count: values.count)
    let code = unsafe bytes.withUnsafeBytes { buffer in
      let pointers = unsafe starts.map { start -> UnsafePointer<CChar>? in
        guard let start, let base = buffer.baseAddress else { return nil }
        return unsafe (base + start).assumingMemoryBound(to: CChar.self)
      }
      return unsafe PQsendQueryPrepared(
        handle,
        name,
        Int32(values.count),
        pointers,
        lengths,
        formats,
        1
      )
    }
    guard code == 1 else { throw failure() }
    sent.append(isWanted)
  }

  private func preparedName(of sql: String) throws(PostgreSQLFailure) -> String {
    if let name = names[StatementText(sql)] { return name }
    nameCount += 1
    let name = "s\(nameCount)"
    guard unsafe PQsendPrepare(handle, name, adaptedSQL(sql), 0, nil) == 1 else { throw failure() }
    names[StatementText(sql)] = name
    newStatements.append(sql)
    sent.append(false)
    return name
  }

  // MARK: Results

  /// Waits for the results of all sent statements.
  ///
  /// - Returns: The results that are needed.
  @discardableResult
  func flush() throws(PostgreSQLFailure) -> [Rows] {
    guard !sent.isEmpty else { return [] }
    let expected = sent
    sent = []
    guard unsafe PQpipelineSync(handle) == 1 else {
      isOutOfSync = true
      throw failure()
    }
    var wanted: [Rows] = []
    var firstFailure: PostgreSQLFailure?
    var count = 0
    while true {
      // The results of each statement end with `nil`.
      guard let rows = try nextRows() else { continue }
      if rows.status == PGRES_PIPELINE_SYNC { break }
      defer { count += 1 }
      guard firstFailure == nil else { continue }
      firstFailure = rows.failureIfAny
      if firstFailure == nil, count < expected.count, expected[count] { wanted.append(rows) }
    }
    if let firstFailure {
      // After a failure, the server may not have prepared these statements.
      for sql in newStatements { names[StatementText(sql)] = nil }
      newStatements = []
      throw failureWithCurrentState(firstFailure)
    }
    newStatements = []
    return wanted
  }

  private func nextRows() throws(PostgreSQLFailure) -> Rows? {
    while unsafe PQisBusy(handle) == 1 { try waitForInput() }
    if let result = unsafe PQgetResult(handle) {
      let rows = unsafe Rows(result)
      guard isLost else { return rows }
      let failure = rows.failure
      throw PostgreSQLFailure(state: failure.state, text: failure.text, isConnectionLost: true)
    }
    guard !isLost else { throw failure() }
    return nil
  }

  private func waitForInput() throws(PostgreSQLFailure) {
    var file = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    // Wait for up to a second at a time, to notice when to stop.
    var left = patience
    var result: Int32 = 0
    while result == 0, left > 0 {
      result = unsafe poll(&file, 1, min(left, 1_000))
      left -= 1_000
      if stop.isSet { left = min(left, Self.lastPatience) }
    }
    switch result {
    case 0:
      isOutOfSync = true
      throw PostgreSQLFailure(
        state: "08006",
        text: stop.isSet
          ? "the server has not answered before the queue had to end"
          : "the server has not answered for \(patience / 1_000) s",
        isConnectionLost: true
      )
    case -1 where errno != EINTR:
      isOutOfSync = true
      throw PostgreSQLFailure(
        state: "08006",
        text: "waiting for the server failed",
        isConnectionLost: true
      )
    default: try consumeInput()
    }
  }

  private func consumeInput() throws(PostgreSQLFailure) {
    guard unsafe PQconsumeInput(handle) == 1 else {
      isOutOfSync = true
      let failure = failure()
      throw PostgreSQLFailure(state: failure.state, text: failure.text, isConnectionLost: true)
    }
  }

  /// Returns a failure that says whether the connection is unusable now.
  private func failureWithCurrentState(_ failure: PostgreSQLFailure) -> PostgreSQLFailure {
    var failure = failure
    failure.isConnectionLost = isLost
    return failure
  }

  // MARK: Notifications

  /// Removes the received notifications.
  ///
  /// - Returns: Their payloads.
  func takeNotifications() throws(PostgreSQLFailure) -> [String] {
    try consumeInput()
    var texts: [String] = []
    while let notification = unsafe PQnotifies(handle) {
      unsafe texts.append(String(cString: notification.pointee.extra))
      unsafe PQfreemem(notification)
    }
    return texts
  }
}

extension Connection: TaskDatabase {
  static let columns = TaskColumns.names.map { name in
    // As `jsonb`, the metadata would begin with a version number.
    name == "metadata" ? "task.metadata::text" : "task.\(name)"
  }.joined(separator: ", ")

  static func lists(of ids: [TaskID]) -> [SQLValue] { [.ids(ids)] }

  func send(_ sql: String, _ values: [SQLValue]) throws(PostgreSQLFailure) {
    try send(sql, values, isWanted: false)
  }

  /// Runs a statement, and returns its rows.
  func rows(_ sql: String, _ values: [SQLValue]) throws(PostgreSQLFailure) -> Rows {
    try send(sql, values, isWanted: true)
    guard let rows = try flush().last else {
      throw PostgreSQLFailure(state: "08P01", text: "the server has sent no result")
    }
    return rows
  }

  func run(_ sql: String, _ values: [SQLValue]) throws(PostgreSQLFailure) -> Int {
    try rows(sql, values).changedCount
  }

  func forEachRow(of sql: String, _ values: [SQLValue], _ body: (Row) throws -> Bool) throws {
    let rows = try rows(sql, values)
    for number in 0..<rows.count where try !body(rows[number]) { return }
  }
}

extension Rows {
  /// Reads each row with `read`.
  func map<Value>(_ read: (Row) throws -> Value) rethrows -> [Value] {
    try (0..<count).map { try read(self[$0]) }
  }
}

/// A flag that any thread can set.
final class StopFlag: Sendable {
  private let flag = Atomic(false)

  var isSet: Bool { flag.load(ordering: .relaxed) }
  func set(_ value: Bool) { flag.store(value, ordering: .relaxed) }
}

/// The error of libpq or of the server for a failed call.
struct PostgreSQLFailure: Error, Equatable {
  /// The five characters of SQLSTATE; empty if libpq itself has failed.
  let state: String
  let text: String
  /// The name of the constraint that a change would violate; empty if there is none.
  var constraint = ""
  /// Whether the connection is unusable.
  var isConnectionLost = false

  /// The first line of the text, without its severity.
  var reason: String {
    let line = text.split(separator: "\n").first ?? ""
    for word in ["ERROR:  ", "FATAL:  "] {
      if let range = line.firstRange(of: word) { return String(line[range.upperBound...]) }
    }
    return line.isEmpty ? "no reason was given" : String(line)
  }

  /// Whether the transaction collided with another one, and may succeed if it is repeated at once.
  ///
  /// For example, another session has inserted the same key, or there was a deadlock.
  var isCollision: Bool {
    ["23505", "23503", "40001", "40P01"].contains(state) && !isMismatch
  }

  /// Whether a plain change can't be made as it was sent.
  ///
  /// The statement divided by zero because it changed too few rows, or would add a second task with
  /// the same ID.
  var isMismatch: Bool {
    state == "22012" || state == "23505" && constraint.hasSuffix("_task_pkey")
  }

  /// Whether the server is unavailable, is starting or stopping, or has no capacity for the call.
  var isTemporary: Bool {
    isConnectionLost || ["08", "40", "57"].contains(state.prefix(2))
      || ["53300", "55P03", "55006"].contains(state)
  }

  /// Whether the server no longer accepts changes, like a former primary.
  var isReadOnly: Bool { state == "25006" }

  /// Whether the server has ended a statement that took too long or waited too long for a lock.
  var tookTooLong: Bool { !isConnectionLost && ["57014", "55P03"].contains(state) }

  /// Whether a statement names a table or a column that does not exist.
  var isMissingTableOrColumn: Bool { ["42P01", "42703"].contains(state) }
}
#endif
