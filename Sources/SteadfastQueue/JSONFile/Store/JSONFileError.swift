import SystemC
public import SystemFoundation

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

    /// The code's name, such as `inUse`.
    public var description: String { name }

    /// Another queue, in this process or another one, has the file open.
    public static let inUse = Code("inUse")
    /// The file has another format, or its header is bad and no later line is good.
    ///
    /// It was not changed.
    public static let notAQueueFile = Code("notAQueueFile")
    /// The file was written by a newer version of this library.
    ///
    /// It was not changed.
    public static let newerVersion = Code("newerVersion")
    /// The file was changed or damaged after it was written.
    ///
    /// It was not changed. ``JSONFileStore/verify(at:)`` lists every problem, and
    /// ``JSONFileStore/repair(at:)`` saves everything that can be read.
    public static let damaged = Code("damaged")
    /// The file, or a file beside it that the store needs, is not safe to use.
    ///
    /// The file and its lock file must be regular files that are not writable by every user. The
    /// same applies to a file at the path plus `.new`, where a compaction writes. That file must
    /// not belong to another queue either. A file that has the lock file's name must contain only a
    /// process ID. A symbolic link is refused too. The owner of a file is not checked.
    public static let unsafeFile = Code("unsafeFile")
    /// The URL does not name a file, or its path is not UTF-8 text.
    ///
    /// Nothing was opened or created.
    public static let invalidURL = Code("invalidURL")
    /// The operating system refused an operation.
    ///
    /// Nothing was stored.
    public static let systemCall = Code("systemCall")
    /// The disk failed, and it is unknown whether the last changes are stored.
    ///
    /// The store accepts no further calls. Open the file with a new store to see its contents.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// The file was deleted, moved or replaced while it was open, and not by its store.
    ///
    /// Nothing of the call was stored. The tasks are in the original file. The store continues when
    /// that file is back in its place.
    public static let displaced = Code("displaced")
    /// Another program wrote to the file while it was open, so its size is not the expected one.
    ///
    /// Nothing of the call was stored. The store has its tasks in memory, and still returns them.
    /// The store continues when the file is restored. ``JSONFileStore/close()`` makes the file
    /// durable without changing it. A change that does not affect the size causes no such error;
    /// ``JSONFileStore/verify()`` finds it.
    public static let changed = Code("changed")
    /// A task is larger than the format, or ``JSONFileStore/Options/maxTaskSize``, allows.
    ///
    /// Nothing was stored.
    public static let taskTooLarge = Code("taskTooLarge")
    /// The file would become larger than ``JSONFileStore/Options/maxFileSize``.
    ///
    /// Nothing was stored. Space becomes available when tasks end or are removed.
    public static let fileFull = Code("fileFull")
    /// A size in ``JSONFileStore/Options`` is less than 1 byte, or too large.
    ///
    /// Nothing was opened or created.
    public static let invalidOptions = Code("invalidOptions")
    /// The store was closed.
    public static let closed = Code("closed")
  }

  /// The kind of the error.
  public let code: Code
  /// The file.
  public let url: URL
  /// The problem and its solution, for people to read.
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

/// Makes the errors of one file, with messages for people.
struct JSONFileErrors: Sendable {
  let url: URL

  var path: String { url.path }

  var closed: JSONFileError {
    JSONFileError(.closed, url, "the store of \(path) was closed; make a new one")
  }

  var usedByForkedChild: JSONFileError {
    JSONFileError(
      .inUse,
      url,
      "\(path) was opened before this process was forked off, and is in use by its parent; add tasks "
        + "there, or choose another file"
    )
  }

  var missing: JSONFileError {
    JSONFileError(.systemCall, url, "there is no file at \(path); check the path")
  }

  /// Returns the error of a repair that was abandoned, and changed nothing.
  func repairFailedError(because error: SystemCallError) -> JSONFileError {
    let hint =
      error.number == ENOSPC
      ? "; free space for a copy of the file and for its replacement, and repair it again" : ""
    return JSONFileError(
      .systemCall,
      url,
      "\(path) can't be repaired: \(error). The file was not changed\(hint)"
    )
  }

  /// Returns the error of a repair that was done, but that a power cut may undo.
  func repairUncertainError(because error: SystemCallError, copy: String) -> JSONFileError {
    JSONFileError(
      .outcomeUnknown,
      url,
      "\(path) was repaired, but a power cut may restore the damaged file: \(error). The damaged "
        + "file was copied to \(copy); verify \(path) before you use it"
    )
  }

  /// Refuses a URL that does not name a file.
  ///
  /// If the bytes of the path are not UTF-8, `url.path` is empty, or ends early at a zero.
  func checkURL() throws(JSONFileError) {
    let reason: String
    if !url.isFileURL {
      reason = "it is not the URL of a file; make one with URL(filePath:)"
    } else if path.isEmpty || path.utf8.contains(0) {
      reason = "its path is not UTF-8 text without zeros; give the file another name"
    } else if ["%00", "%2F"].contains(where: url.absoluteString.uppercased().contains) {
      reason = "its path has an escaped zero or slash (%00, %2F); give the file another name"
    } else {
      return
    }
    throw JSONFileError(.invalidURL, url, "\(url.absoluteString) can't be used: \(reason)")
  }

  /// Refuses limits below 1 byte, because nothing could meet them, and a reservation that could not
  /// be distinguished from damage.
  func checkSizes(in options: JSONFileStore.Options) throws(JSONFileError) {
    for (name, limit) in [
      ("maxTaskSize", options.maxTaskSize), ("maxFileSize", options.maxFileSize),
    ] {
      guard let limit, limit < 1 else { continue }
      throw JSONFileError(
        .invalidOptions,
        url,
        "the store of \(path) has a \(name) of \(limit) bytes; give 1 or more, or nil for no limit of "
          + "your own"
      )
    }
    let most = JournalSource.maxReservation
    guard let space = options.reservedSpace, !(1...most ~= space) else { return }
    throw JSONFileError(
      .invalidOptions,
      url,
      "the store of \(path) has a reservedSpace of \(space) bytes; give 1 to \(most), or nil for none"
    )
  }

  func taskTooLargeError(_ line: JournalBody, limit: Int, setBy rule: String) -> JSONFileError {
    JSONFileError(
      .taskTooLarge,
      url,
      "a task or an error of \(line.bytes.count) bytes is too large for \(path): the limit is "
        + "\(limit), \(rule); keep large data in a file and its path in the task"
    )
  }

  /// Returns the error of a file that has no space for new tasks.
  ///
  /// If a compaction would have freed enough space but failed, `failedCompaction` gives the reason.
  func fileFullError(
    _ full: FileFull,
    failedCompaction: JSONFileStatistics.FailedCompaction? = nil
  ) -> JSONFileError {
    let advice =
      if let failedCompaction {
        "The compaction has failed: \(failedCompaction.reason)"
      } else {
        "Add tasks when others are done or removed, retain fewer ended tasks, or allow a "
          + "larger file"
      }
    return JSONFileError(
      .fileFull,
      url,
      "\(path) is full: it has \(full.size) bytes, a compaction would leave about "
        + "\(full.compactSize), the new tasks need \(full.needed), and its maxFileSize is "
        + "\(full.limit). Nothing of this call was stored. \(advice)"
    )
  }

  /// Returns the message that a compaction has failed, and that the file continues to grow.
  func compactionFailedMessage(because failure: JSONFileStatistics.FailedCompaction) -> String {
    "\(path) can't be compacted: \(failure.reason). Nothing is lost, but the file continues to "
      + "grow; the store tries again when the file has \(failure.nextSize) bytes, or its tasks have "
      + "shrunk to half their size"
  }

  func writeFailedError(because failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused(let error):
      JSONFileError(
        .systemCall,
        url,
        "\(path) can't be written: \(error). Nothing of this call was stored\(advice(after: error))"
      )
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. Nothing of this call was stored. "
          + "The store still has its tasks in memory: read them, then put the file back, or make a "
          + "new store for the file that is at its path now"
      )
    case .changed(let size, let expected):
      JSONFileError(
        .changed,
        url,
        "\(path) was changed by another program while it was in use: it has \(size) bytes instead of "
          + "\(expected). Nothing of this call was stored. The store still has its tasks "
          + "in memory: read them, then restore the file, or make a new store to read "
          + "the file's contents"
      )
    case .poisoned(let error):
      JSONFileError(
        .outcomeUnknown,
        url,
        "\(path) can't be written: \(error). It is unknown whether the last changes are stored; "
          + "make a new store of the same file to see what it contains"
      )
    }
  }

  /// Returns the error of closing a store; the store is closed nevertheless.
  func closeFailedError(because failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused, .poisoned: writeFailedError(because: failure)
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. The store is closed, and its "
          + "tasks are in the original file; put that file back, or make a new store for the file that "
          + "is at its path now"
      )
    case .changed(let size, let expected):
      JSONFileError(
        .changed,
        url,
        "\(path) was changed by another program while it was in use: it has \(size) bytes instead of "
          + "\(expected). The store is closed, and did not change the file; "
          + "JSONFileStore.verify(at:) reports its contents"
      )
    }
  }

  /// Returns the error of a closing that has stored everything except the last line.
  func sealMissingError(because failure: Journal.Failure) -> JSONFileError {
    JSONFileError(
      .systemCall,
      url,
      "\(path) is closed, but the last line, which records the closing, can't be written: "
        + "\(reason(of: failure)). All that was acknowledged is stored"
    )
  }

  /// Returns the reason of a failure, for a message that already names the file.
  func reason(of error: any Error) -> String {
    switch error {
    case Journal.Failure.refused(let error), Journal.Failure.poisoned(let error),
      FileOpeningError.systemCall(let error):
      "\(error)"
    case let error as Journal.Failure: writeFailedError(because: error).message
    case FileOpeningError.obstructed(let reason): "\(path).new is in the way: \(reason)"
    case let error as FileOpeningError: openFailedError(because: error).message
    case let error as SystemCallError: "\(error)"
    case let error as Compaction.Unreadable: error.description
    default: "\(type(of: error)) was thrown"
    }
  }

  func advice(after error: SystemCallError) -> String {
    switch error.number {
    case ENOSPC, EDQUOT: "; free some space on its disk, and try again"
    case EFBIG: "; this process may not make a file so large: raise the limit (ulimit -f)"
    default: ""
    }
  }
}

// The errors of a file that can't be opened, and the translation of all failures.
extension JSONFileErrors {
  /// Performs `body`, and translates its error to an error of this file.
  func translateErrors<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch let error as FileLock.Failure {
      throw lockFailedError(because: error)
    } catch let error as JournalProblem {
      throw readFailedError(because: error)
    } catch let error as Journal.Failure {
      throw writeFailedError(because: error)
    } catch let error as Journal.Unsealed {
      throw sealMissingError(because: error.reason)
    } catch let error as FileOpeningError {
      throw openFailedError(because: error)
    } catch let error as SystemCallError {
      throw systemCallFailedError(because: error)
    }
  }

  private func lockFailedError(because failure: FileLock.Failure) -> JSONFileError {
    switch failure {
    case .heldByThisProcess:
      JSONFileError(
        .inUse,
        url,
        "\(path) is in use by another queue of this process; share that queue, or close its store"
      )
    case .held(by: let process?):
      JSONFileError(
        .inUse,
        url,
        "\(path) is in use by process \(process); wait until it ends, or choose another file"
      )
    case .held(by: nil):
      JSONFileError(
        .inUse,
        url,
        "\(path) is in use by another process; wait until it ends, or choose another file"
      )
    case .opening(let error):
      openFailedError(because: error)
    case .systemCall(let error):
      systemCallFailedError(because: error)
    }
  }

  func openFailedError(because error: FileOpeningError) -> JSONFileError {
    switch error {
    case .unsafe(let reason, let advice):
      JSONFileError(.unsafeFile, url, "\(path) can't be used as a queue file: \(reason); \(advice)")
    case .unstable:
      JSONFileError(
        .unsafeFile,
        url,
        "\(path) can't be used as a queue file: each time it is opened, its name belongs to another "
          + "file. Its file system keeps renumbering files; use a local disk"
      )
    case .obstructed(let reason):
      JSONFileError(
        .unsafeFile,
        url,
        "\(path) can't be used: a new file is first written to \(path).new, where another file is in "
          + "the way: \(reason). That file was not changed; move it away"
      )
    case .inUse:
      JSONFileError(
        .inUse,
        url,
        "\(path) is in use by another queue, whose lock file was deleted or replaced; wait until "
          + "that queue is closed, or choose another file"
      )
    case .systemCall(let error):
      systemCallFailedError(because: error)
    }
  }

  private func readFailedError(because problem: JournalProblem) -> JSONFileError {
    switch problem {
    case .notAJournal:
      JSONFileError(
        .notAQueueFile,
        url,
        "\(path) is not a queue file of Steadfast: its first line is not the expected header. The "
          + "file was not changed; choose another one"
      )
    case .newerVersion(let version):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: its format has version \(version), "
          + "and this version reads up to \(JournalEntry.formatVersion). The file was not changed; "
          + "update the package Steadfast"
      )
    case .unknownKind(let kind, let line):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: line \(line) is of the kind "
          + "'\(kind)', which is unknown to this version. The file was not changed; update the "
          + "package Steadfast"
      )
    case .damaged(let line, let byte, let reason):
      JSONFileError(
        .damaged,
        url,
        "\(path) is damaged at line \(line), byte \(byte): \(reason). The file was not changed; "
          + "JSONFileStore.verify(at:) lists every problem, and JSONFileStore.repair(at:) copies "
          + "the file and saves everything that can be read"
      )
    case .unreadable(let error):
      systemCallFailedError(because: error)
    }
  }

  private func systemCallFailedError(because error: SystemCallError) -> JSONFileError {
    switch error.number {
    case ENOENT, ENOTDIR:
      JSONFileError(
        .systemCall,
        url,
        "the folder of \(path) does not exist; make it, or choose another file"
      )
    case EACCES, EROFS:
      JSONFileError(
        .systemCall,
        url,
        "\(path) and its folder can't be written by this user: \(error); change their "
          + "permissions, or choose another file"
      )
    default:
      JSONFileError(.systemCall, url, "\(path) can't be opened: \(error)\(advice(after: error))")
    }
  }
}
