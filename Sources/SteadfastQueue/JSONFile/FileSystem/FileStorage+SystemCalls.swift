#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

// What the storage asks of the system.
extension FileStorage {
  /// Opens a file, checks what it is, and tells whether it has other names.
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

  /// The folder that a path names a file in.
  static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func openDescriptor(
    _ path: String,
    _ flags: Int32
  ) throws(SystemCallError) -> Int32 {
    Int32(
      try retryingInterrupted("open") {
        Int(systemOpen(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(0o600)))
      }
    )
  }

  /// Whether the file has other names.
  private static func refuseUnsafe(_ file: Int32) throws(FileOpeningError) -> Bool {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .unsafe(notRegular, advice: ownPath) }
    guard status.st_mode & S_IWOTH == 0 else {
      throw .unsafe("every user may write it", advice: "take that from them (chmod o-w)")
    }
    return status.st_nlink > 1
  }

  /// Gives a file the permissions and the protection that were chosen, unless it is another user's.
  static func protect(
    _ file: Int32,
    _ options: JSONFileStore.Options
  ) throws(SystemCallError) {
    let mode = mode_t(options.permissions.mode)
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    // What the mode creation mask has taken away is given here.
    if status.st_mode & 0o777 != mode, status.st_uid == geteuid(), fchmod(file, mode) != 0 {
      throw .last("fchmod")
    }
    // A Mac and the simulator have no such classes, or none that means something.
    #if (os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)) && !targetEnvironment(simulator)
    let number = options.protection.number
    guard fcntl(file, F_GETPROTECTIONCLASS) != number,
      fcntl(file, F_SETPROTECTIONCLASS, number) != 0
    else { return }
    // Nor has every file system of a device, an external one for instance.
    guard errno == ENOTSUP else { throw .last("fcntl(F_SETPROTECTIONCLASS)") }
    #endif
  }

  static func close(_ file: Int32) { _ = systemClose(file) }

  /// Takes the lock of a file, or says that another descriptor has it.
  static func lock(_ file: Int32) throws(FileOpeningError) -> Bool {
    do {
      _ = try retryingInterrupted("flock") { Int(flock(file, LOCK_EX | LOCK_NB)) }
      return true
    } catch {
      if error.number == EWOULDBLOCK { return false }
      throw .systemCall(error)
    }
  }

  /// Gives a lock up that was taken at this count of forks.
  ///
  /// A child that was forked off meanwhile, if only to begin another program, shares the lock: it
  /// would hold it on if this process only closed its descriptor, and must not end it by itself.
  static func unlock(_ file: Int32, _ forkCount: Int) {
    if forkCount == ForkCount.current { _ = flock(file, LOCK_UN) }
  }

  /// Gives a lock up that was taken at this count of forks, and the descriptor.
  static func unlockAndClose(_ file: Int32, _ forkCount: Int) {
    unlock(file, forkCount)
    close(file)
  }

  static func retryingInterrupted(
    _ call: String,
    _ body: () -> Int
  ) throws(SystemCallError) -> Int {
    while true {
      let result = body()
      if result >= 0 { return result }
      guard errno == EINTR else { throw .last(call) }
    }
  }
}

// The names of these calls are also names of methods above.
private func systemOpen(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemClose(_ file: Int32) -> Int32 { close(file) }
