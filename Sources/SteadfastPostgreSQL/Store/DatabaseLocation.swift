#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// The location of the tables, how they are used, and the errors that name the location.
struct DatabaseLocation: Sendable {
  /// The oldest server version that supports the store's statements.
  static let oldestServer = 13

  let connection: Result<ConnectionString, ConnectionString.ParsingError>
  /// The schema with the tables; `nil` for the first schema of the search path.
  let schema: String?
  /// The prefix of the names of the tables.
  let prefix: String
  /// Whether several stores use the tables.
  let isShared: Bool
  /// Whether the store creates its tables, and migrates older versions.
  let migrates: Bool
  /// In tests, how far the clock of the claims is ahead of the server's clock.
  let clockOffset: (@Sendable () -> Duration)?
  /// In tests, whether claims use cursors even if there are few dead rows.
  let alwaysKeepsCursors: Bool
  /// Whether the queue needs the results of calls at once.
  let stop = StopFlag()
  /// Whether the store is being closed.
  let close = StopFlag()

  init(
    _ string: String,
    schema: String? = nil,
    prefix: String = "steadfast",
    isShared: Bool = true,
    migrates: Bool = true,
    clockOffset: (@Sendable () -> Duration)? = nil,
    alwaysKeepsCursors: Bool = false
  ) {
    connection = Result { () throws(ConnectionString.ParsingError) in try ConnectionString(string) }
    self.schema = schema
    self.prefix = prefix
    self.isShared = isShared
    self.migrates = migrates
    self.clockOffset = clockOffset
    self.alwaysKeepsCursors = alwaysKeepsCursors
  }

  /// A description of the database for messages.
  var name: String { (try? connection.get().description) ?? "a database" }

  /// Whether the connection string names several hosts, which can replace each other.
  var hasSeveralHosts: Bool { (try? connection.get().hasSeveralHosts) ?? false }

  /// Whether the only host is a folder for sockets that does not exist.
  private var isFolderMissing: Bool {
    guard !hasSeveralHosts, let parameters = try? connection.get().parameters,
      let host = parameters.first(where: { $0.name == "host" })?.value, host.hasPrefix("/")
    else { return false }
    return !FileManager.default.fileExists(atPath: host)
  }

  /// A description of the tables for messages.
  var tables: String { "the tables \(schema.map { "\($0)." } ?? "")\(prefix)_… in \(name)" }

  /// The schema in quotation marks, if one was chosen.
  var quotedSchema: String? { schema.map { "\"" + $0.escaping(["\""], with: "\"") + "\"" } }

  /// The channel on which the stores notify each other of changes.
  var channel: String { "\(prefix)_hint" }

  /// Throws if the connection string, the schema or the prefix is not valid.
  func checkArguments() throws(PostgreSQLError) {
    if case .failure(let error) = connection {
      throw unreadableStringError(because: error.reason)
    }
    let isWord =
      (prefix.utf8.first.map { (0x61...0x7A).contains($0) } ?? false) && prefix.utf8.count <= 40
      && prefix.utf8.allSatisfy { byte in
        byte == UInt8(ascii: "_") || (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte)
      }
    guard isWord, !prefix.hasPrefix("pg_") else {
      throw PostgreSQLError(
        .invalidArgument,
        "'\(prefix)' is not a valid prefix for the names of tables; use 1 to 40 lowercase ASCII "
          + "letters, digits and underscores, starting with a letter, but not with pg_"
      )
    }
    guard schema.map({ (1...63).contains($0.utf8.count) && !$0.utf8.contains(0) }) ?? true else {
      throw PostgreSQLError(
        .invalidArgument,
        "'\(schema ?? "")' is not a valid name of a schema; use 1 to 63 bytes of UTF-8 without a NUL"
      )
    }
  }

  private func unreadableStringError(because reason: String) -> PostgreSQLError {
    PostgreSQLError(
      .invalidArgument,
      "the connection string can't be read: \(reason). Write the string in the form \"host=… "
        + "dbname=… user=…\" or \"postgresql://user@host/database\""
    )
  }

  var closedError: PostgreSQLError {
    PostgreSQLError(.closed, "the store in \(name) was closed; make a new store")
  }

  // MARK: Errors

  /// Returns the error to throw to a caller.
  func errorForCaller(_ error: any Error) -> any Error {
    switch error {
    case let failure as PostgreSQLFailure: storeError(for: failure)
    case let refusal as Schema.Refusal: storeError(for: refusal)
    case let row as UnreadableRow:
      PostgreSQLError(
        .damaged,
        (row.id.map { "the row of the task \($0) in \(name) " } ?? "a row of \(name) ") + row.reason
          + ": a newer version wrote the row, or another program changed it. Update the package "
          + "Steadfast, or repair the row"
      )
    case is UnknownChange:
      PostgreSQLError(
        .refused,
        "the store in \(name) does not know this kind of change; use all modules of the package in "
          + "one version"
      )
    default: error
    }
  }

  private func storeError(for refusal: Schema.Refusal) -> PostgreSQLError {
    switch refusal {
    case .newerVersion(let version):
      PostgreSQLError(
        .newerVersion,
        "\(tables) were made by a newer version of Steadfast: they have version \(version), and "
          + "this package knows versions up to \(Schema().version). The tables were not changed; "
          + "update the package Steadfast"
      )
    case .foreignTable(let table):
      PostgreSQLError(
        .foreignTable,
        "\(name) has a table or sequence \(table) that was not made by Steadfast. Nothing was "
          + "changed; choose another prefix for the tables"
      )
    case .olderVersion(let version):
      PostgreSQLError(
        .tablesMissing,
        "\(tables) \(version == 0 ? "are missing" : "have version \(version)"), and this store may "
          + "not change the tables. Run the error's `statements`, or create the store with "
          + "migrates: true",
        statements: script(from: version)
      )
    }
  }

  /// Returns the statements that migrate the tables to the current version.
  func script(from version: Int) -> String {
    // The insertion function keeps the search path with which it is created.
    let path =
      quotedSchema.map { "set local search_path = \($0);\n" }
      ?? "select set_config('search_path', quote_ident(current_schema()), true);\n"
    let script = Schema().script(from: version)
    return "begin;\n" + path + script.replacing("steadfast_", with: "\(prefix)_") + "\ncommit;\n"
  }

  /// Returns the error for the failure of a call on a connection.
  func storeError(for failure: PostgreSQLFailure) -> PostgreSQLError {
    let reason = failure.reason
    switch failure.state {
    case "42501":
      return PostgreSQLError(
        .noPrivilege,
        "the user lacks a privilege in \(name): \(reason); the article \"Many machines on "
          + "PostgreSQL\" lists what is needed"
      )
    // Each session started on a writable server, so a standby may be replacing that server now.
    case "25006": return PostgreSQLError(.unreachable, readOnlyError.message)
    case "26000", "42P05": return pooledSessionError(because: reason)
    case "53100":
      return PostgreSQLError(
        .full,
        "the disk of \(name) is full: \(reason). Nothing was stored; free space on the server"
      )
    case "53200":
      return PostgreSQLError(
        .full,
        "the server of \(name) has too little memory for a call: \(reason). Nothing was stored; free "
          + "memory on the server"
      )
    case "54000":
      return PostgreSQLError(
        .refused,
        "a payload, a name or a key is too long for \(name): \(reason). Shorten it; the article "
          + "\"Many machines on PostgreSQL\" names the limits"
      )
    case "42P01":
      return PostgreSQLError(.tablesMissing, "\(tables) were deleted: \(reason); make a new store")
    default: break
    }
    if failure.isConnectionLost {
      return PostgreSQLError(.unreachable, "the connection to \(name) was lost: \(reason)")
    }
    if failure.isTemporary || failure.isCollision {
      return PostgreSQLError(.busy, "\(name) is busy: \(reason)")
    }
    return PostgreSQLError(
      .refused,
      "PostgreSQL refused an operation in \(name): \(reason) (SQLSTATE \(failure.state))"
    )
  }

  /// Returns the error for a session that lacks the state that the store created in it.
  func pooledSessionError(because reason: String) -> PostgreSQLError {
    PostgreSQLError(
      .unsuitableServer,
      "a pooler in front of \(name) gives each transaction another session, which lacks the store's "
        + "state (\(reason)). Let the pooler pool whole sessions, as pool_mode=session does in "
        + "PgBouncer, or connect to the server directly"
    )
  }

  var readOnlyError: PostgreSQLError {
    PostgreSQLError(
      .readOnly,
      "\(name) accepts no changes: the server is a standby, or the session is read-only. Connect to "
        + "the primary, for example with target_session_attrs=read-write and all hosts"
    )
  }

  /// Substrings of the messages with which a server rejects a user.
  private static let refusals = [
    "authentication failed", "no password supplied", "no pg_hba.conf entry",
    "pg_hba.conf rejects connection", "not permitted to log in", "permission denied for database",
  ]

  /// Substrings of the messages for a connection that can't be encrypted, or a server that can't be
  /// trusted.
  private static let failuresOfTLS = [
    "certificate verify failed", "does not match host name", "server does not support SSL",
    "certificate file \"", "private key file \"",
  ]

  /// Returns the error for a failed attempt to connect.
  ///
  /// libpq provides no code for such a failure, only the server's message. So if a server's
  /// messages are not in English, the error is ``PostgreSQLError/Code/unreachable``.
  func connectError(for failure: PostgreSQLFailure) -> PostgreSQLError {
    let text = failure.text
    func mentions(_ words: String...) -> Bool { words.contains { text.contains($0) } }
    // libpq indents further lines, which give advice or report other hosts.
    let reason = text.split { $0.isNewline || $0 == "\t" }.joined(separator: "; ")
    var unreachable = PostgreSQLError(.unreachable, "\(name) can't be reached: \(reason)")
    unreachable.isProbablyLasting =
      mentions("could not translate host name")
      || (mentions("No such file or directory") && isFolderMissing)
    // The server, a database and a role each have a limit.
    if mentions("too many connections", "too many clients") { return unreachable }
    if mentions("database \"") && mentions("does not exist") {
      return PostgreSQLError(
        .noDatabase,
        "there is no database to connect to: \(reason). Make the database with createdb, or name "
          + "another database"
      )
    }
    if Self.refusals.contains(where: { text.contains($0) })
      || (mentions("role \"") && mentions("does not exist"))
    {
      return PostgreSQLError(
        .notAllowed,
        "the server rejects the user: \(reason). Check the user, the password and the server's "
          + "pg_hba.conf"
      )
    }
    if !hasSeveralHosts, Self.failuresOfTLS.contains(where: { text.contains($0) }) {
      return PostgreSQLError(
        .tlsFailed,
        "the connection to \(name) can't be secured: \(reason). Check sslmode, sslrootcert and the "
          + "host's name in the connection string, and the server's certificate"
      )
    }
    if mentions("connection option", "invalid port number", "invalid sslmode value") {
      return unreadableStringError(because: ConnectionString.withoutQuotations(text))
    }
    if mentions("session is read-only", "server is in hot standby mode") { return readOnlyError }
    return unreachable
  }
}

extension DatabaseLocation {
  /// Locks out other stores until the connection is closed.
  ///
  /// Shared stores don't lock out each other. This waits for up to 2 seconds, because the session
  /// of a killed process may be just ending.
  ///
  /// - Throws: ``PostgreSQLError/Code/inUse`` if another store has the tables open, and not both
  ///   stores are shared.
  func lockOutOtherStores(on database: Connection) throws {
    let function = isShared ? "pg_advisory_lock_shared" : "pg_advisory_lock"
    do throws(PostgreSQLFailure) {
      try database.send("set lock_timeout = '2s'")
      try database.send(
        "select \(function)(hashtextextended(current_schema() || '.' || $1, 1))",
        .text(prefix)
      )
      try database.send("set lock_timeout = '10s'")
      try database.flush()
    } catch {
      guard error.state == "55P03" else { throw error }
      throw PostgreSQLError(
        .inUse,
        "\(tables) are in use by another store, and only stores with the argument 'sharing' can "
          + "use the same tables. Close the other store first, or give both stores the argument"
      )
    }
  }
}
#endif
