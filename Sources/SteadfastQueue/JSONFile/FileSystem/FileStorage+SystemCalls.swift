#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

// The system calls of the storage.
extension FileStorage {
  /// Opens a file, checks what it is, and returns whether it has other names.
  static func openAsItIs(
    _ path: String,
    _ flags: Int32
  ) throws(FileOpeningError) -> (descriptor: Int32, hasOtherNames: Bool) {
    let file: Int32
    do {
      file = try openDescriptor(path, flags | O_NOFOLLOW)
    } catch  where error.number == ELOOP {
      throw .unsafe("it is a symbolic link", advice: ownPath)
    } catch  where error.number == EISDIR || error.number == ENXIO {
      throw .unsafe(notRegular, advice: ownPath)
    } catch {
      throw .systemCall(error)
    }
    do {
      return (file, try refuseUnsafe(file))
    } catch {
      close(file)
      throw error
    }
  }

  private static var notRegular: String { "it is not a regular file" }
  private static var ownPath: String { "give the path of a file of its own" }

  /// Returns the path of the folder that a file is in.
  static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func openDescriptor(
    _ path: String,
    _ flags: Int32
  ) throws(SystemCallError) -> Int32 {
    Int32(
      try SystemCall.retryingInterrupted("open") {
        Int(systemOpen(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(0o600)))
      }
    )
  }

  /// Refuses a file that is unsafe to use.
  ///
  /// - Returns: Whether the file has other names.
  private static func refuseUnsafe(_ file: Int32) throws(FileOpeningError) -> Bool {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    // Android's 32-bit systems give the field another type.
    let mode = mode_t(status.st_mode)
    guard mode & S_IFMT == S_IFREG else { throw .unsafe(notRegular, advice: ownPath) }
    guard mode & S_IWOTH == 0 else {
      throw .unsafe("every user may write it", advice: "take that from them (chmod o-w)")
    }
    return status.st_nlink > 1
  }

  /// Gives a file the chosen permissions, unless it is another user's, and the chosen protection.
  static func protect(
    _ file: Int32,
    _ options: JSONFileStore.Options
  ) throws(SystemCallError) {
    let mode = mode_t(options.permissions.mode)
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    // This gives the permissions that the file mode creation mask has taken away.
    if status.st_mode & 0o777 != mode, status.st_uid == geteuid(), fchmod(file, mode) != 0 {
      throw .last("fchmod")
    }
    try SystemCall.protect(file, options.protection.number)
  }

  /// Gives a new file the chosen permissions and protection, and the owner and the group of another
  /// file, as far as this process may.
  ///
  /// So a file that root has repaired or compacted still belongs to the user whose queue it is. If
  /// another file has been put at the path, the owner and the group stay. The group comes first, so
  /// that no other group has the permissions in between. If it can't be given, only the owner has
  /// any.
  static func protectNew(
    _ file: Int32,
    like other: FileIdentity?,
    at path: String,
    _ options: JSONFileStore.Options,
    changeOwner: (Int32, uid_t, gid_t) -> Int32 = { fchown($0, $1, $2) }
  ) throws(SystemCallError) {
    var (status, own) = (stat(), stat())
    guard unsafe fstat(file, &own) == 0 else { throw .last("fstat") }
    guard unsafe lstat(path, &status) == 0, other == nil || other == FileIdentity(status) else {
      return try protect(file, options)
    }
    var options = options
    // A user who may not give files away may still choose among the groups of their own.
    let hasGroup =
      own.st_gid == status.st_gid || changeOwner(file, own.st_uid, status.st_gid) == 0
    if !hasGroup { options.permissions = .owner }
    try protect(file, options)
    guard own.st_uid != status.st_uid else { return }
    _ = changeOwner(file, status.st_uid, hasGroup ? status.st_gid : own.st_gid)
  }

  static func close(_ file: Int32) { _ = systemClose(file) }

  /// Takes the lock of a file, or returns `false` if another descriptor has it.
  static func lock(_ file: Int32, isShared: Bool = false) throws(FileOpeningError) -> Bool {
    let operation = (isShared ? LOCK_SH : LOCK_EX) | LOCK_NB
    do {
      _ = try SystemCall.retryingInterrupted("flock") { Int(flock(file, operation)) }
      return true
    } catch {
      if error.number == EWOULDBLOCK { return false }
      throw .systemCall(error)
    }
  }

  /// Gives up a lock that was taken when the count of forks was `forkCount`.
  ///
  /// A child that was forked since then shares the lock, even if it was forked only to begin
  /// another program. If this process only closed its descriptor, the child would still hold the
  /// lock. The child must not give the lock up by itself.
  static func unlock(_ file: Int32, _ forkCount: Int) {
    if forkCount == ForkCount.current { _ = flock(file, LOCK_UN) }
  }

  /// Gives up a lock that was taken when the count of forks was `forkCount`, and closes the file.
  static func unlockAndClose(_ file: Int32, _ forkCount: Int) {
    unlock(file, forkCount)
    close(file)
  }
}

// Methods above have the same names as these calls.
private func systemOpen(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemClose(_ file: Int32) -> Int32 { close(file) }
