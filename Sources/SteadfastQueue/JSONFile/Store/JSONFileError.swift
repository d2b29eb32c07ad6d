import SystemC
public import SystemFoundation

/// An error of a ``JSONFileStore``, with a message that says what failed, why, and what to do.
///
/// The message names the file and, for damage, the line and the byte. It never contains a payload.
public struct JSONFileError: Error, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, such as `inUse`.
    public var description: String { name }

    /// Another queue in this process, or another process, has the file open.
    public static let inUse = Code("inUse")
    /// The file has another format, or its first line is damaged and no other line can be read.
    ///
    /// It was not changed.
    public static let notAQueueFile = Code("notAQueueFile")
    /// The file was written by a newer version of this library.
    ///
    /// It was not changed.
    public static let newerVersion = Code("newerVersion")
    /// The file differs from what was written: it was edited or damaged.
    ///
    /// It was not changed. ``JSONFileStore/verify(at:)`` lists every problem, and
    /// ``JSONFileStore/repair(at:)`` saves everything that can be read.
    public static let damaged = Code("damaged")
    /// The file, or another file that the store needs, is not safe to use.
    ///
    /// The file, its lock file (`.lock`) and the file of a compaction (`.new`) must be regular
    /// files that not every user may write. A symbolic link is refused. The lock file must contain
    /// only a process ID, and the file of a compaction must not be in use by another queue. The
    /// owners of the files are not checked.
    public static let unsafeFile = Code("unsafeFile")
    /// The URL does not name a file, or its path is not UTF-8 text.
    ///
    /// Nothing was opened or created.
    public static let invalidURL = Code("invalidURL")
    /// A system call failed, for example because the disk is full.
    ///
    /// Nothing was stored.
    public static let systemCall = Code("systemCall")
    /// A write or flush failed, and it is unknown whether the last changes are stored.
    ///
    /// The store accepts no further calls. Make a new store of the file to see its contents.
    public static let outcomeUnknown = Code("outcomeUnknown")
    /// Another program deleted, moved or replaced the file while it was open.
    ///
    /// The call stored nothing. The tasks are in the original file. When that file is back at its
    /// path, the store accepts changes again.
    public static let displaced = Code("displaced")
    /// Another program changed the size of the file while it was open.
    ///
    /// The call stored nothing. The store still returns its tasks, which are in memory. When the
    /// file is restored, the store accepts changes again. ``JSONFileStore/close()`` flushes the
    /// file without changing it. If another program changes bytes but not the size, no error is
    /// thrown; ``JSONFileStore/verify()`` finds the change.
    public static let changed = Code("changed")
    /// A task is larger than ``JSONFileStore/Options/maxTaskSize`` or the format allows.
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
  /// The problem and its solution, in plain English.
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

/// Makes the errors of one file, with their messages.
struct JSONFileErrors: Sendable {
  let url: URL

  var path: String { url.path }

  var closed: JSONFileError {
    JSONFileError(.closed, url, "the store of \(path) was closed; make a new store")
  }

  var usedByForkedChild: JSONFileError {
    JSONFileError(
      .inUse,
      url,
      "\(path) is in use by the parent of this forked process, which opened the file before the "
        + "fork; add tasks in the parent, or choose another file"
    )
  }

  var missing: JSONFileError {
    JSONFileError(.systemCall, url, "there is no file at \(path); check the path")
  }

  /// Returns the error of a repair that has failed, and left the file unchanged.
  func repairFailedError(because error: SystemCallError) -> JSONFileError {
    let hint =
      error.number == ENOSPC
      ? "; free space for two more files of its size, and repair the file again" : ""
    return JSONFileError(
      .systemCall,
      url,
      "\(path) can't be repaired: \(error). The file was not changed\(hint)"
    )
  }

  /// Returns the error of a repair that has replaced the file, but that a power cut may undo.
  func repairUncertainError(because error: SystemCallError, copy: String) -> JSONFileError {
    JSONFileError(
      .outcomeUnknown,
      url,
      "\(path) was repaired, but a power cut may restore the damaged file: \(error). The damaged "
        + "file was copied to \(copy); verify \(path) before you use it"
    )
  }

  /// Throws an error if the URL can't be used as the path of a file.
  ///
  /// If the bytes of the path are not UTF-8, `url.path` is empty.
  func checkURL() throws(JSONFileError) {
    let reason: String
    if !url.isFileURL {
      reason = "it is not the URL of a file; make a URL with URL(filePath:)"
    } else if path.isEmpty {
      reason = "its path is empty, or is not UTF-8; give the file another path"
    } else if path.utf8.contains(0) {
      reason = "its path contains a zero; give the file another path"
    } else if ["%00", "%2F"].contains(where: url.absoluteString.uppercased().contains) {
      reason = "its path contains %00 or %2F; give the file another path"
    } else {
      return
    }
    throw JSONFileError(.invalidURL, url, "\(url.absoluteString) can't be used: \(reason)")
  }

  /// Throws an error if a size in the options is out of range.
  func checkSizes(in options: JSONFileStore.Options) throws(JSONFileError) {
    for (name, limit) in [
      ("maxTaskSize", options.maxTaskSize), ("maxFileSize", options.maxFileSize),
    ] {
      guard let limit, limit < 1 else { continue }
      throw JSONFileError(
        .invalidOptions,
        url,
        "the store of \(path) has a \(name) of \(limit) bytes; give 1 or more, or nil"
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

  /// Returns the error of a change whose line is longer than a limit.
  ///
  /// `rule` is the name of the limit.
  func taskTooLargeError(
    _ change: TaskChange,
    lineLength: Int,
    limit: Int,
    setBy rule: String
  ) -> JSONFileError {
    let (subject, advice) =
      switch change {
      case .insert, .update: ("a task", "keep large data in a file and its path in the task")
      default: ("a change", "shorten the error, the name or the value that it stores")
      }
    return JSONFileError(
      .taskTooLarge,
      url,
      "\(subject) of \(lineLength) bytes is too large for \(path): \(rule) is \(limit); \(advice)"
    )
  }

  /// Returns the error of a call whose lines don't fit into the file.
  ///
  /// `failedCompaction` is the failure of the compaction that would have freed enough space, if
  /// there was one.
  func fileFullError(
    _ full: FileFull,
    failedCompaction: JSONFileStatistics.FailedCompaction? = nil
  ) -> JSONFileError {
    let advice =
      if let failedCompaction {
        "Compacting the file has failed: \(failedCompaction.reason)"
      } else {
        "Add tasks when others are done or removed, retain fewer ended tasks, or allow a "
          + "larger file"
      }
    return JSONFileError(
      .fileFull,
      url,
      "\(path) is full: it has \(full.size) bytes, a compaction would leave about "
        + "\(full.compactSize), this call needs \(full.needed) more, and the store's maxFileSize is "
        + "\(full.limit). The call stored nothing. \(advice)"
    )
  }

  /// Returns the warning that a compaction has failed, and that the file continues to grow.
  func compactionFailedMessage(because failure: JSONFileStatistics.FailedCompaction) -> String {
    "\(path) can't be compacted: \(failure.reason). Nothing is lost, but the file continues to "
      + "grow; the store tries again when the file has \(failure.nextSize) bytes, or its tasks need "
      + "half as much space"
  }

  func writeFailedError(because failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused(let error):
      JSONFileError(
        .systemCall,
        url,
        "\(path) can't be written: \(error). The call stored nothing\(advice(after: error))"
      )
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. The call stored nothing. The "
          + "store still has its tasks in memory: read them if you need them, then put the file back, "
          + "or make a new store, which opens the file that is at the path now"
      )
    case .changed(let size, let expected):
      JSONFileError(
        .changed,
        url,
        "\(path) was changed by another program while it was in use: it has \(size) bytes instead of "
          + "\(expected). The call stored nothing. The store still has its tasks in memory: read them if "
          + "you need them, then restore the file, or make a new store, which opens the changed file"
      )
    case .poisoned(let error):
      JSONFileError(
        .outcomeUnknown,
        url,
        "\(path) can't be written: \(error). It is unknown whether the last changes are stored; "
          + "make a new store of the file, and check its tasks"
      )
    }
  }

  /// Returns the error of closing a store; the store is closed despite the error.
  func closeFailedError(because failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused, .poisoned: writeFailedError(because: failure)
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. The store is closed, and its "
          + "tasks are in the original file; put that file back, or make a new store, which opens the "
          + "file that is at the path now"
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

  /// Returns the error of closing a store whose contents are stored, except for the line that
  /// records the closing.
  func sealMissingError(because failure: Journal.Failure) -> JSONFileError {
    JSONFileError(
      .systemCall,
      url,
      "\(path) is closed, but the last line, which records the closing, can't be written: "
        + "\(reason(of: failure)). All acknowledged changes are stored"
    )
  }

  /// Returns the description of an error, for a message that already names the file.
  func reason(of error: any Error) -> String {
    switch error {
    case Journal.Failure.refused(let error), Journal.Failure.poisoned(let error),
      FileOpeningError.systemCall(let error):
      "\(error)"
    case let error as Journal.Failure: writeFailedError(because: error).message
    case FileOpeningError.obstructed(let reason):
      "another file is at \(path).new, where the new file is written: \(reason)"
    case let error as FileOpeningError: openFailedError(because: error).message
    case let error as SystemCallError: "\(error)"
    case let error as Compaction.Unreadable: error.description
    default: "\(type(of: error)) was thrown"
    }
  }

  func advice(after error: SystemCallError) -> String {
    switch error.number {
    case ENOSPC, EDQUOT: "; free some space on its disk, and try again"
    case EFBIG: "; raise the limit for the size of this process's files (ulimit -f)"
    default: ""
    }
  }
}

// The errors of a file that can't be opened, and the translation of internal errors.
extension JSONFileErrors {
  /// Performs `body`, and turns the error that it throws into a ``JSONFileError``.
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
        "\(path) is in use by another queue in this process; use that queue, or close its store"
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
        "\(path) can't be used as a queue file: each time that it was opened, another file was at its "
          + "path. Perhaps its file system gives files new numbers (inodes); use a local disk"
      )
    case .obstructed(let reason):
      JSONFileError(
        .unsafeFile,
        url,
        "\(path) can't be used, because another file is at \(path).new, where the store writes new "
          + "files: \(reason). The other file was not changed; move it away"
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
          + "and this version of Steadfast reads versions up to \(JournalEntry.formatVersion). The file "
          + "was not changed; update the package Steadfast"
      )
    case .unknownKind(let kind, let line):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: line \(line) has the kind "
          + "'\(kind)', which this version does not know. The file was not changed; update the "
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
        "the folder of \(path) does not exist; create the folder, or choose another file"
      )
    case EACCES:
      JSONFileError(
        .systemCall,
        url,
        "this user may not write to \(path) or its folder: \(error); change their permissions, or "
          + "choose another file"
      )
    case EROFS:
      JSONFileError(
        .systemCall,
        url,
        "\(path) is on a read-only file system: \(error); choose another file"
      )
    default:
      JSONFileError(.systemCall, url, "\(path) can't be opened: \(error)\(advice(after: error))")
    }
  }
}
