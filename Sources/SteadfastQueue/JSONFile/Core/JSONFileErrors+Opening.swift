#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

// The errors of a file that can't be opened, and the translation of every failure to its error.
extension JSONFileErrors {
  /// Performs `body`, and translates what it throws to an error of this file.
  func translating<Result>(_ body: () throws -> Result) throws -> Result {
    do {
      return try body()
    } catch let error as FileLock.Failure {
      throw locking(error)
    } catch let error as JournalProblem {
      throw reading(error)
    } catch let error as Journal.Failure {
      throw writing(error)
    } catch let error as Journal.Unsealed {
      throw unsealed(error.reason)
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

  func opening(_ error: FileOpeningError) -> JSONFileError {
    switch error {
    case .unsafe(let reason, let advice):
      JSONFileError(.unsafeFile, url, "\(path) can't be used as a queue file: \(reason); \(advice)")
    case .unstable:
      JSONFileError(
        .unsafeFile,
        url,
        "\(path) can't be used as a queue file: whenever it is opened, its name is that of another "
          + "file. Its file system numbers files anew all the time; use a local disk"
      )
    case .obstructed(let reason):
      JSONFileError(
        .unsafeFile,
        url,
        "\(path) can't be used: \(path).new, where a new file is written before it takes its place, "
          + "is in the way: \(reason). It was not changed; move it away"
      )
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
          + "and this one reads up to \(JournalEntry.formatVersion). It was not changed; update the "
          + "package Steadfast"
      )
    case .unknownKind(let kind, let line):
      JSONFileError(
        .newerVersion,
        url,
        "\(path) was written by a newer version of Steadfast: line \(line) is of the kind "
          + "'\(kind)', which this one does not know. It was not changed; update the package Steadfast"
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
