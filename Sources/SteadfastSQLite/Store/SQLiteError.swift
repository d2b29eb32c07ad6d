#if SQLite
public import SteadfastQueue
public import SystemFoundation

/// An error of a SQLite store: what failed, why, and what to do about it.
///
/// The message names the database. It never shows a payload.
public struct SQLiteError: PersistenceError, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, as in `inUse`.
    public var description: String { name }

    /// The database can't be opened or made, for example because its folder does not exist.
    public static let cannotOpen = Code("cannotOpen")
    /// The file is not a SQLite database, or is an encrypted one.
    ///
    /// It was not changed.
    public static let notADatabase = Code("notADatabase")
    /// The database, or a row of a queue, is damaged.
    public static let damaged = Code("damaged")
    /// This user can't write to the database, or its disk is read-only.
    public static let readOnly = Code("readOnly")
    /// The tables were made by a newer version of this library.
    ///
    /// They were not changed.
    public static let newerVersion = Code("newerVersion")
    /// Another program made a table with a name that this library uses.
    ///
    /// The table was not changed. Choose another prefix for the names of the tables.
    public static let foreignTable = Code("foreignTable")
    /// Another store uses the tables, and at least one of the two is not shared.
    public static let inUse = Code("inUse")
    /// The database is busy: another program has blocked writes for 5 seconds.
    ///
    /// A queue retries the call.
    public static let busy = Code("busy")
    /// The disk has no space for the database to grow.
    ///
    /// The call stored nothing.
    public static let full = Code("full")
    /// The file was deleted, moved or replaced while it was open.
    ///
    /// The call stored nothing. The store no longer works: create a new one.
    public static let displaced = Code("displaced")
    /// The URL does not name a file, the prefix is not valid, or a statement can't add a task.
    ///
    /// Nothing was opened or created.
    public static let invalidArgument = Code("invalidArgument")
    /// The system's SQLite library is too old, or lacks what the store needs.
    public static let unsuitableLibrary = Code("unsuitableLibrary")
    /// SQLite refused an operation for another reason.
    ///
    /// The call stored nothing.
    public static let refused = Code("refused")
    /// The store was closed or destroyed, or belongs to the parent of this forked process.
    public static let closed = Code("closed")
  }

  /// The kind of the error.
  public let code: Code
  /// The database.
  public let url: URL
  /// What is wrong and what to do about it, for a person to read.
  public let message: String

  init(_ code: Code, _ url: URL, _ message: String) {
    self.code = code
    self.url = url
    self.message = message
  }

  /// Whether the same call may succeed later; `true` only if the database is busy.
  public var isTransient: Bool { code == .busy }

  /// The message.
  public var description: String { message }
}

extension SQLiteError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}
#endif
