#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Makes the errors of one file, with messages for people.
struct JSONFileErrors: Sendable {
  let url: URL

  var path: String { url.path }

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

  /// The error of a repair that was given up, and changed nothing.
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

  /// The error of a repair that was done, but that a power cut may undo.
  func repairedPerhaps(_ error: SystemCallError, copy: String) -> JSONFileError {
    JSONFileError(
      .outcomeUnknown,
      url,
      "\(path) was repaired, but a power cut may bring the damaged file back: \(error). Its copy is "
        + "\(copy); verify the file before it is used"
    )
  }

  /// Refuses a URL that names no file.
  ///
  /// If the bytes of the path are not UTF-8, `url.path` is empty, or cut short at a zero.
  func checkURL() throws(JSONFileError) {
    let reason: String
    if !url.isFileURL {
      reason = "it is not the URL of a file; make one with URL(filePath:)"
    } else if path.isEmpty || path.utf8.contains(0) {
      reason = "its path is no text in UTF-8 without zeros; give the file another name"
    } else if ["%00", "%2F"].contains(where: url.absoluteString.uppercased().contains) {
      reason = "its path has an escaped zero or slash (%00, %2F); give the file another name"
    } else {
      return
    }
    throw JSONFileError(.invalidURL, url, "\(url.absoluteString) can't be used: \(reason)")
  }

  /// Refuses limits below 1 byte, because nothing could meet them, and more space than can be told
  /// from damage.
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
    let most = JournalSource.maxReservation
    guard let space = options.reservedSpace, !(1...most ~= space) else { return }
    throw JSONFileError(
      .invalidOptions,
      url,
      "the store of \(path) has a reservedSpace of \(space) bytes; give 1 to \(most), or nil for none"
    )
  }

  func taskTooLarge(_ line: JournalBody, limit: Int, _ rule: String) -> JSONFileError {
    JSONFileError(
      .taskTooLarge,
      url,
      "a task or an error of \(line.bytes.count) bytes is too large for \(path): the limit is "
        + "\(limit), \(rule); keep large data in a file and its path in the task"
    )
  }

  /// The error of a file without room for new tasks.
  ///
  /// If a compaction would have made room and has failed, `failedCompaction` says why.
  func full(
    _ full: FileFull,
    failedCompaction: JSONFileStatistics.FailedCompaction? = nil
  ) -> JSONFileError {
    let advice =
      if let failedCompaction {
        "The compaction has failed: \(failedCompaction.reason)"
      } else {
        "Add tasks when others are done or removed, keep fewer of those that have ended, or allow a "
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

  /// The announcement that a compaction has failed, and the file keeps growing.
  func failedCompaction(_ failure: JSONFileStatistics.FailedCompaction) -> String {
    "\(path) can't be compacted: \(failure.reason). It goes on growing, and nothing is lost; another "
      + "compaction is tried when it has \(failure.nextSize) bytes, or its tasks take half as much"
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
        "\(path) was deleted, moved or replaced while it was in use. Nothing of this call was stored. "
          + "The store still has its tasks in memory: look at them, and put the file back, or make a "
          + "new store to see what is at its path now"
      )
    case .changed(let size, let expected):
      JSONFileError(
        .changed,
        url,
        "\(path) was changed by another program while it was in use: it has \(size) bytes, and "
          + "\(expected) were written. Nothing of this call was stored. The store still has its tasks "
          + "in memory: look at them, and put the file back as it was, or make a new store to see "
          + "what the file holds"
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

  /// The error of a store that is closed now.
  func closing(_ failure: Journal.Failure) -> JSONFileError {
    switch failure {
    case .refused, .poisoned: writing(failure)
    case .displaced:
      JSONFileError(
        .displaced,
        url,
        "\(path) was deleted, moved or replaced while it was in use. The store is closed, and its "
          + "tasks are in the file that was there; put that one back, or make a new store to see what "
          + "is at its path now"
      )
    case .changed(let size, let expected):
      JSONFileError(
        .changed,
        url,
        "\(path) was changed by another program while it was in use: it has \(size) bytes, and "
          + "\(expected) were written. The store is closed, and has left the file as it is; "
          + "JSONFileStore.verify(at:) tells what it holds"
      )
    }
  }

  /// The error of a closing that has stored everything except the last line.
  func unsealed(_ failure: Journal.Failure) -> JSONFileError {
    JSONFileError(
      .systemCall,
      url,
      "\(path) is closed, but its last line, which says so, can't be written: "
        + "\(reason(of: failure)). All that was acknowledged is stored"
    )
  }

  /// Returns why something has failed, for a message that already names the file.
  func reason(of error: any Error) -> String {
    switch error {
    case Journal.Failure.refused(let error), Journal.Failure.poisoned(let error),
      FileOpeningError.systemCall(let error):
      "\(error)"
    case let error as Journal.Failure: writing(error).message
    case FileOpeningError.obstructed(let reason): "\(path).new is in its way: \(reason)"
    case let error as FileOpeningError: opening(error).message
    case let error as SystemCallError: "\(error)"
    case let error as Compaction.Unreadable: error.description
    default: "\(type(of: error)) was thrown"
    }
  }

  func advice(_ error: SystemCallError) -> String {
    switch error.number {
    case ENOSPC, EDQUOT: "; free some space on its disk, and try again"
    case EFBIG: "; this process may not make a file so large: raise the limit (ulimit -f)"
    default: ""
    }
  }
}
