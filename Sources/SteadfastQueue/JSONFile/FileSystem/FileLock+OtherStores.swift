#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The lock for other stores of this package.
extension FileLock {
  /// Why a store can't have the lock.
  package struct Refusal: Error {
    /// Whether another store has it, in this process or another one.
    package let isHeld: Bool
    /// What is wrong, for a person to read.
    package let reason: String
  }

  /// Takes the lock of a store in a file that is there, until the last reference is gone.
  ///
  /// The lock file has `name` and `.lock` behind the file's real path, so that no symbolic link
  /// leads to another lock. A file with two real names is refused, as each would have a lock of its
  /// own. A shared lock keeps only those out that are not.
  package static func acquire(
    forStoreIn file: String,
    named name: String,
    isShared: Bool
  ) throws(Refusal) -> FileLock {
    let path = (try realPath(of: file) ?? file) + name
    let lockFile = "its lock file, \(path).lock"
    do throws(Failure) {
      return try acquire(for: path, isShared: isShared)
    } catch {
      switch error {
      case .heldByThisProcess:
        throw Refusal(isHeld: true, reason: "another store of this process uses it")
      case .held(let process):
        let name = process.map { "the process \($0)" } ?? "another process"
        throw Refusal(isHeld: true, reason: "\(name) uses it")
      case .systemCall(let error):
        throw Refusal(isHeld: false, reason: "\(lockFile), can't be locked: \(error)")
      case .opening(.unsafe(let reason, let advice)):
        throw Refusal(isHeld: false, reason: "\(file) can't be opened: \(reason); \(advice)")
      case .opening(let error):
        throw Refusal(isHeld: false, reason: "\(lockFile), can't be opened: \(error)")
      }
    }
  }

  /// Refuses a file with two real names, before anything is changed under one of them.
  package static func refuseOtherNames(ofStoreIn file: String) throws(Refusal) {
    _ = try realPath(of: file)
  }

  /// Returns the only real path of a file; `nil` if there is no file.
  private static func realPath(of file: String) throws(Refusal) -> String? {
    guard let found = unsafe realpath(file, nil) else {
      guard errno != ENOENT else { return nil }
      throw lookUpFailed(file, "realpath")
    }
    defer { unsafe free(found) }
    let path = unsafe String(cString: found)
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else {
      guard errno != ENOENT else { return nil }
      throw lookUpFailed(file, "lstat")
    }
    guard status.st_nlink <= 1 else {
      throw Refusal(
        isHeld: false,
        reason: "\(file) can't be opened: it has another name, a hard link, under which another "
          + "store could use it at the same time; remove that one, or make a copy"
      )
    }
    return path
  }

  private static func lookUpFailed(_ file: String, _ call: String) -> Refusal {
    let error = SystemCallError.last(call)
    return Refusal(isHeld: false, reason: "\(file) can't be looked up: \(error)")
  }
}
