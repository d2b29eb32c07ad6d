#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// An error of a queue's file: what failed, why, and what to do about it.
///
/// The message names the file, and the line and byte if there is one. It never shows a payload.
public struct JSONFileError: Error, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, as in `inUse`.
    public var description: String { name }

    /// Another queue, in this process or another one, has the file open.
    public static let inUse = Code("inUse")
    /// The file is of another format, or its header is bad and no later line is good.
    ///
    /// It was not changed.
    public static let notAQueueFile = Code("notAQueueFile")
    /// The file was written by a newer version of this library.
    ///
    /// It was not changed.
    public static let newerVersion = Code("newerVersion")
    /// The file was changed or damaged after it was written.
    ///
    /// It was not changed. ``JSONFileStore/verify(at:)`` lists everything that is wrong, and
    /// ``JSONFileStore/repair(at:)`` saves what can be read.
    public static let damaged = Code("damaged")
    /// The file, or a file beside it that the store needs, is not safe to use.
    ///
    /// The file and its lock file must be regular files that are not writable by every user. The
    /// same holds for a file at the path plus `.new`, where a compaction writes. That file must not
    /// be the file of another queue either. A file that has the lock file's name must hold nothing
    /// but the number of a process. A symbolic link is refused too. The owner of a file is not
    /// checked.
    public static let unsafeFile = Code("unsafeFile")
    /// The URL names no file, or its path is not text in UTF-8.
    ///
    /// Nothing was opened or made.
    public static let invalidURL = Code("invalidURL")
    /// The operating system refused an operation.
    ///
    /// Nothing was stored.
    public static let systemCall = Code("systemCall")
    /// The disk failed, and it is unknown whether the last changes are stored.
    ///
    /// The store takes no further calls. Open the file with a new store to see what is there.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The file was deleted, moved or replaced while it was open, and not by its store.
    ///
    /// Nothing of the call was stored. The tasks are in the file that was there. When that file is
    /// back in its place, the store goes on.
    public static let displaced = Code("displaced")
    /// Another program wrote the file while it was open, so its size is not the expected one.
    ///
    /// Nothing of the call was stored. The store has its tasks in memory, and still returns them.
    /// When the file is as it was, the store goes on. ``JSONFileStore/close()`` makes the file
    /// durable as it is. A change that leaves the size as it is causes no such error;
    /// ``JSONFileStore/verify()`` finds it.
    public static let changed = Code("changed")
    /// A task is larger than the format, or ``JSONFileStore/Options/maxTaskSize``, allows.
    ///
    /// Nothing was stored.
    public static let taskTooLarge = Code("taskTooLarge")
    /// The file would become larger than ``JSONFileStore/Options/maxFileSize``.
    ///
    /// Nothing was stored. There is room again when tasks are done or removed.
    public static let fileFull = Code("fileFull")
    /// A size in ``JSONFileStore/Options`` is less than 1 byte, or too large.
    ///
    /// Nothing was opened or made.
    public static let invalidOptions = Code("invalidOptions")
    /// The store was closed.
    public static let closed = Code("closed")
  }

  /// The kind of the error.
  public let code: Code
  /// The file.
  public let url: URL
  /// What is wrong and what to do about it, for a person to read.
  public let message: String

  init(_ code: Code, _ url: URL, _ message: String) {
    self.code = code
    self.url = url
    self.message = message
  }

  /// The message.
  public var description: String { message }
}

extension JSONFileError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}
