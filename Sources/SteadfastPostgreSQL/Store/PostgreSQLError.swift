#if PostgreSQL
public import SteadfastQueue

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

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

    /// The connection string can't be read, the schema has no name, or the prefix is not a word.
    ///
    /// Nothing was connected to.
    public static let invalidArgument = Code("invalidArgument")
    /// The server can't be reached, is starting or stopping, or has no connection left.
    ///
    /// A queue makes the call again.
    public static let unreachable = Code("unreachable")
    /// The server has no database of this name.
    ///
    /// If its messages are in another language than English, the code is ``unreachable``.
    public static let noDatabase = Code("noDatabase")
    /// The database has no schema of this name.
    public static let noSchema = Code("noSchema")
    /// The server does not let this user in, for example because the password is wrong.
    ///
    /// If its messages are in another language than English, the code is ``unreachable``.
    public static let notAllowed = Code("notAllowed")
    /// The connection can't be encrypted or the server not trusted, as the connection string asks.
    ///
    /// The server has no TLS, its certificate is not the expected one, or a file of certificates
    /// can't be read. A store whose connection string names several hosts waits for one that can be
    /// trusted (``unreachable``).
    public static let tlsFailed = Code("tlsFailed")
    /// The user lacks a privilege in the database.
    public static let noPrivilege = Code("noPrivilege")
    /// The server or the session takes no changes, as a standby.
    ///
    /// A store that has found a server that does waits for one (``unreachable``), and so does one
    /// whose connection string names several hosts.
    public static let readOnly = Code("readOnly")
    /// The server is too old, its database does not hold all characters, or a pooler before it
    /// gives each transaction another session.
    public static let unsuitableServer = Code("unsuitableServer")
    /// The tables were made by a newer version of this library.
    ///
    /// They were not changed.
    public static let newerVersion = Code("newerVersion")
    /// The tables are missing or of an older version, and the store may not make them.
    ///
    /// The error's ``PostgreSQLError/statements`` make them.
    public static let tablesMissing = Code("tablesMissing")
    /// A table has the name of one of this library's, and was made by another program.
    ///
    /// It was not changed. Choose another prefix for the names of the tables.
    public static let foreignTable = Code("foreignTable")
    /// Another store uses the tables, and at least one of the two is not shared.
    public static let inUse = Code("inUse")
    /// The server could not make the call now: other sessions were in its way, or it took too long.
    ///
    /// Nothing of the call was stored, but for extensions of claims, and a queue makes it again.
    public static let busy = Code("busy")
    /// The connection was lost when a call was about to be stored, and the server could not say
    /// whether it was.
    ///
    /// A queue makes the call again.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The server has no room left.
    ///
    /// Nothing of the call was stored.
    public static let full = Code("full")
    /// A row of a queue has a value that this version does not know.
    public static let damaged = Code("damaged")
    /// The server refused an operation for another reason, such as a payload or a key that is too
    /// long for it.
    ///
    /// Nothing of the call was stored.
    public static let refused = Code("refused")
    /// The store was closed or destroyed, or belongs to the parent of this forked process.
    public static let closed = Code("closed")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do about it, for a person to read.
  public let message: String
  /// The statements that make the tables, or bring them to the present version, if those are
  /// missing.
  ///
  /// It is `nil` for an error of another kind than ``Code/tablesMissing``, and if the tables were
  /// deleted while the store was open.
  public let statements: String?

  init(_ code: Code, _ message: String, statements: String? = nil) {
    self.code = code
    self.message = message
    self.statements = statements
  }

  /// Whether the same call may succeed a little later.
  public var isTransient: Bool { [.unreachable, .busy, .outcomeUnknown].contains(code) }

  /// The message.
  public var description: String { message }
}

extension PostgreSQLError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}
#endif
