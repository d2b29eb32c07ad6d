#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The errors of one file, worded for people.
struct JSONFileErrors: Sendable {
  let url: URL

  private var path: String { url.path }

  var closed: JSONFileError {
    JSONFileError(.closed, url, "the store of \(path) was closed; make a new one")
  }

  var forkedOff: JSONFileError {
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

  /// A repair that was given up.
  func repairing(_ error: SystemCallError) -> JSONFileError {
    let hint =
      error.number == ENOSPC
      ? "; make room for a copy of it, and for the file that takes its place" : ""
    return JSONFileError(
      .systemCall,
      url,
      "\(path) can't be repaired: \(error). It was not changed\(hint)"
    )
  }

  /// A repair whose end a power cut may take back.
  func repairedPerhaps(_ error: SystemCallError, copy: String) -> JSONFileError {
    JSONFileError(
      .outcomeUnknown,
      url,
      "\(path) was repaired, but a power cut may bring the damaged file back: \(error). Its copy is "
        + "\(copy); verify the file before it is used"
    )
  }

  /// Refuses limits that nothing could keep.
  func check(_ options: JSONFileStore.Options) throws(JSONFileError) {
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
  }

  func taskTooLarge(_ line: JournalBody, limit: Int, _ rule: String) -> JSONFileError {
    JSONFileError(
      .taskTooLarge,
      url,
      "a task or an error of \(line.bytes.count) bytes is too large for \(path): the limit is "
        + "\(limit), \(rule); keep large data in a file and its path in the task"
    )
  }

  func full(_ full: FileFull) -> JSONFileError {
    JSONFileError(
      .fileFull,
      url,
      "\(path) is full: it has \(full.size) bytes, a compaction would leave about "
        + "\(full.compactSize), the new tasks need \(full.needed), and its maxFileSize is "
        + "\(full.limit). Nothing of this call was stored; add tasks when others are done or removed, "
        + "keep fewer of those that have ended, or allow a larger file"
    )
  }

  func writing(_ failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused(let error):
      JSONFileError(
        .systemCall,
        url,
        "\(path) can't be written: \(error). Nothing of this call was stored\(advice(error))"
      )
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. Nothing of this call was stored; "
          + "put the file back, or make a new store"
      )
    case .poisoned(let error):
      JSONFileError(
        .outcomeUnknown,
        url,
        "\(path) can't be written: \(error). Whether the last changes are stored is unknown; "
          + "make a new store of the same file to see"
      )
    }
  }

  private func advice(_ error: SystemCallError) -> String {
    switch error.number {
    case ENOSPC, EDQUOT: "; free some space on its disk, and try again"
    case EFBIG: "; this process may not make a file so large: raise the limit (ulimit -f)"
    default: ""
    }
  }

  /// Turns what an operation throws into an error of this file.
  func translating<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch let error as FileLock.Failure {
      throw locking(error)
    } catch let error as JournalProblem {
      throw reading(error)
    } catch let error as Journal.Failure {
      throw writing(error)
    } catch let error as FileOpeningError {
      throw opening(error)
    } catch let error as SystemCallError {
      throw systemCall(error)
    }
  }

  private func locking(_ failure: FileLock.Failure) -> JSONFileError {
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
      opening(error)
    case .systemCall(let error):
      systemCall(error)
    }
  }

  private func opening(_ error: FileOpeningError) -> JSONFileError {
    switch error {
    case .unsafe(let reason):
      JSONFileError(.unsafeFile, url, "\(path) can't be used as a queue file: \(reason)")
    case .inUse:
      JSONFileError(
        .inUse,
        url,
        "\(path) is in use by another queue, whose lock file was deleted or replaced; wait until that "
          + "one is closed, or choose another file"
      )
    case .systemCall(let error):
      systemCall(error)
    }
  }

  private func reading(_ problem: JournalProblem) -> JSONFileError {
    switch problem {
    case .notAJournal:
      JSONFileError(
        .notAQueueFile,
        url,
        "\(path) is not a queue file of Steadfast: its first line is not the header of one. It was "
          + "not changed; choose another file"
      )
    case .newerVersion(let version):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: its format has version \(version), "
          + "and this one reads up to \(JournalEntry.formatVersion). It was not changed"
      )
    case .unknownKind(let kind, let line):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: line \(line) is of the kind "
          + "'\(kind)', which this one does not know. It was not changed"
      )
    case .damaged(let line, let byte, let reason):
      JSONFileError(
        .damaged,
        url,
        "\(path) is damaged at line \(line), byte \(byte): \(reason). It was not changed; "
          + "JSONFileStore.verify(at:) lists all that is wrong, and JSONFileStore.repair(at:) copies "
          + "the file aside and saves what can be read"
      )
    case .unreadable(let error):
      systemCall(error)
    }
  }

  private func systemCall(_ error: SystemCallError) -> JSONFileError {
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
      JSONFileError(.systemCall, url, "\(path) can't be opened: \(error)\(advice(error))")
    }
  }
}
