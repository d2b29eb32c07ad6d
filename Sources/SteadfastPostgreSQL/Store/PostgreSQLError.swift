#if PostgreSQL
public import SteadfastQueue
public import SystemFoundation

/// An error of a PostgreSQL store: what failed, why, and what to do about it.
///
/// The message names the database and the server. It never shows a password or a payload.
public struct PostgreSQLError: PersistenceError, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, as in `noDatabase`.
    public var description: String { name }

    /// The connection string, the schema's name or the prefix is not valid, or a statement can't
    /// add a task.
    ///
    /// No connection was made.
    public static let invalidArgument = Code("invalidArgument")
    /// The server can't be reached, is starting or stopping, or has no connection left.
    ///
    /// A queue retries the call.
    public static let unreachable = Code("unreachable")
    /// The server has no database of this name.
    ///
    /// If the server's messages are not in English, the code is ``unreachable``.
    public static let noDatabase = Code("noDatabase")
    /// The database has no schema of this name.
    public static let noSchema = Code("noSchema")
    /// The server rejects this user, for example because the password is wrong.
    ///
    /// If the server's messages are not in English, the code is ``unreachable``.
    public static let notAllowed = Code("notAllowed")
    /// The connection can't be encrypted, or the server can't be trusted, as the connection string
    /// requires.
    ///
    /// The server has no TLS, its certificate is not the expected one, or a file of certificates
    /// can't be read. If the connection string names several hosts, the store waits instead for a
    /// host that it can trust (``unreachable``).
    public static let tlsFailed = Code("tlsFailed")
    /// The user lacks a privilege in the database.
    public static let noPrivilege = Code("noPrivilege")
    /// The server or the session is read-only, for example because the server is a standby.
    ///
    /// Instead, a store waits for a writable server (``unreachable``) if it was connected to such a
    /// server before, or if its connection string names several hosts.
    public static let readOnly = Code("readOnly")
    /// The server is too old, its database can't store all characters, or a pooler in front of it
    /// gives each transaction another session.
    public static let unsuitableServer = Code("unsuitableServer")
    /// The tables were made by a newer version of this library.
    ///
    /// They were not changed.
    public static let newerVersion = Code("newerVersion")
    /// The tables are missing or have an older version, and the store may not change that.
    ///
    /// The error's ``PostgreSQLError/statements`` create or migrate them.
    public static let tablesMissing = Code("tablesMissing")
    /// Another program made a table with a name that this library uses.
    ///
    /// The table was not changed. Choose another prefix for the names of the tables.
    public static let foreignTable = Code("foreignTable")
    /// Another store uses the tables, and at least one of the two is not shared.
    public static let inUse = Code("inUse")
    /// The server could not complete the call: other sessions blocked it, or it took too long.
    ///
    /// The call stored nothing, except extensions of claims. A queue retries the call.
    public static let busy = Code("busy")
    /// The connection was lost while a call was being stored, and the store can't find out whether
    /// it was stored.
    ///
    /// The store looks for the answer until the server is available, or until the queue or the
    /// store ends. A queue does not retry the call: its run ends.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The server has no space left.
    ///
    /// The call stored nothing.
    public static let full = Code("full")
    /// A row of a queue has a value that this version does not know.
    public static let damaged = Code("damaged")
    /// The server refused an operation for another reason, such as a payload or a key that is too
    /// long for it.
    ///
    /// The call stored nothing.
    public static let refused = Code("refused")
    /// The store was closed or destroyed, or belongs to the parent of this forked process.
    public static let closed = Code("closed")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do about it, for a person to read.
  public let message: String
  /// The statements that create missing tables, or migrate older ones.
  ///
  /// The value is `nil` if the code is not ``Code/tablesMissing``, or if the tables were deleted
  /// while the store was open.
  public let statements: String?

  init(_ code: Code, _ message: String, statements: String? = nil) {
    self.code = code
    self.message = message
    self.statements = statements
  }

  /// Whether the same call may succeed later.
  public var isTransient: Bool { [.unreachable, .busy].contains(code) }

  /// Whether the connection string is probably wrong: no host has its name, or no folder its path.
  public internal(set) var isProbablyLasting = false

  /// The message.
  public var description: String { message }
}

extension PostgreSQLError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}
#endif
