import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The real file system behind a journal.
///
/// A file is opened only if it is what this code would have made: a regular file, not a link, with
/// one name, that not every user may write. While it is open it is locked: the lock file beside it
/// may be deleted by somebody who tidies up, and the next opener would make, and lock, another one.
final class FileStorage: JournalStorage {
  private let path: String
  private let options: JSONFileStore.Options
  /// Which file was given which name.
  private let identities = Mutex<[JournalFileName: FileIdentity]>([:])

  init(path: String, _ options: JSONFileStore.Options = JSONFileStore.Options()) {
    self.path = path
    self.options = options
  }

  func path(_ name: JournalFileName) -> String {
    switch name {
    case .journal: path
    case .replacement: path + ".new"
    case .copy(let number): path + ".damaged-\(number)"
    }
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    while true {
      let file: OpenFile
      do {
        file = try openLocked(name, O_RDWR)
      } catch .systemCall(let error) where error.number == ENOENT {
        return nil
      }
      // A holder of the lock may have put another file in its place before it let go of this one.
      do throws(SystemCallError) {
        if try isInPlace(name) { return file }
      } catch {
        throw .systemCall(error)
      }
    }
  }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    try openLocked(name, O_RDWR | O_CREAT | O_EXCL)
  }

  private func openLocked(
    _ name: JournalFileName,
    _ flags: Int32
  ) throws(FileOpeningError) -> OpenFile {
    let descriptor = try Self.open(path(name), flags, options)
    let file = OpenFile(descriptor)
    guard try Self.lock(descriptor) else { throw .inUse }
    let identity: FileIdentity
    do { identity = try FileIdentity(ofDescriptor: descriptor) } catch { throw .systemCall(error) }
    identities.withLock { $0[name] = identity }
    return file
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    guard systemRename(path(name), path(other)) == 0 else { throw .last("rename") }
    identities.withLock { $0[other] = $0.removeValue(forKey: name) }
  }

  func isInPlace(_ name: JournalFileName) throws(SystemCallError) -> Bool {
    guard let identity = identities.withLock({ $0[name] }) else { return false }
    return try FileIdentity(ofPath: path(name)) == identity
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    guard unsafe unlink(path(name)) == 0 || errno == ENOENT else { throw .last("unlink") }
  }

  func synchronizeFolder() throws(SystemCallError) {
    let folder = try Self.openDescriptor(Self.folder(of: path), O_RDONLY | O_DIRECTORY)
    defer { Self.close(folder) }
    guard fsync(folder) == 0 else { throw .last("fsync of the folder") }
  }
}

/// A file of the real file system.
private final class OpenFile: JournalFile {
  private let descriptor: Mutex<Int32>
  private let forkCount = ForkCount.current

  init(_ file: Int32) { descriptor = Mutex(file) }

  deinit { close() }

  func size() throws(SystemCallError) -> Int {
    var status = stat()
    guard unsafe fstat(descriptor.withLock { $0 }, &status) == 0 else { throw .last("fstat") }
    return Int(status.st_size)
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    let file = descriptor.withLock { $0 }
    var failure: SystemCallError?
    // Only what was read into counts: nothing need be written there before.
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, done in
      do throws(SystemCallError) {
        while done < count {
          let part = try FileStorage.retryingInterrupted("read") {
            unsafe pread(
              file,
              buffer.baseAddress?.advanced(by: done),
              count - done,
              off_t(offset + done)
            )
          }
          guard part > 0 else { break }
          done += part
        }
      } catch {
        failure = error
      }
    }
    if let failure { throw failure }
    return bytes
  }

  func write(_ bytes: ArraySlice<UInt8>, at offset: Int) throws(SystemCallError) -> Int {
    let file = descriptor.withLock { $0 }
    return try FileStorage.retryingInterrupted("write") {
      unsafe bytes.withUnsafeBytes {
        unsafe pwrite(file, $0.baseAddress, $0.count, off_t(offset))
      }
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    let file = descriptor.withLock { $0 }
    _ = try FileStorage.retryingInterrupted("ftruncate") { Int(ftruncate(file, off_t(size))) }
  }

  func synchronize() throws(SystemCallError) {
    let file = descriptor.withLock { $0 }
    #if canImport(Darwin)
    // fsync leaves the bytes in the drive's cache there; not every file system has the other. After
    // an error of the disk it might succeed though nothing was stored.
    if fcntl(file, F_FULLFSYNC) == 0 { return }
    guard [ENOTSUP, EINVAL, ENOTTY].contains(errno) else { throw .last("fcntl(F_FULLFSYNC)") }
    guard fsync(file) == 0 else { throw .last("fsync") }
    #else
    guard fdatasync(file) == 0 else { throw .last("fdatasync") }
    #endif
  }

  func close() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    if file >= 0 { FileStorage.unlockAndClose(file, forkCount) }
  }
}

// MARK: - System calls

extension FileStorage {
  /// Opens a file, checks what it is, and sees to it that only those may use it who are to.
  static func open(
    _ path: String,
    _ flags: Int32,
    _ options: JSONFileStore.Options = JSONFileStore.Options()
  ) throws(FileOpeningError) -> Int32 {
    let file = try openAsItIs(path, flags)
    do {
      try protect(file, options)
    } catch {
      close(file)
      throw error
    }
    return file
  }

  /// Opens a file and checks what it is.
  static func openAsItIs(_ path: String, _ flags: Int32) throws(FileOpeningError) -> Int32 {
    let file: Int32
    do {
      file = try openDescriptor(path, flags | O_NOFOLLOW)
    } catch  where error.number == ELOOP {
      throw .unsafe("it is a symbolic link; \(ownPath)")
    } catch  where error.number == EISDIR || error.number == ENXIO {
      throw .unsafe(notRegular)
    } catch {
      throw .systemCall(error)
    }
    do {
      try refuseUnsafe(file)
    } catch {
      close(file)
      throw error
    }
    return file
  }

  private static var notRegular: String { "it is not a regular file; \(ownPath)" }
  private static var ownPath: String { "give the path of a file of its own" }

  /// The folder that a path names a file in.
  private static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  private static func openDescriptor(
    _ path: String,
    _ flags: Int32
  ) throws(SystemCallError) -> Int32 {
    Int32(
      try retryingInterrupted("open") {
        Int(systemOpen(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(0o600)))
      }
    )
  }

  private static func refuseUnsafe(_ file: Int32) throws(FileOpeningError) {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .unsafe(notRegular) }
    guard status.st_nlink <= 1 else { throw .unsafe("it has more than one name; \(ownPath)") }
    guard status.st_mode & S_IWOTH == 0 else {
      throw .unsafe("every user may write it; take that from them (chmod o-w)")
    }
  }

  /// Gives a file the permissions and the protection that were chosen, unless it is another user's.
  private static func protect(
    _ file: Int32,
    _ options: JSONFileStore.Options
  ) throws(FileOpeningError) {
    let mode = mode_t(options.permissions.mode)
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    // What the mode creation mask has taken away is given here.
    if status.st_mode & 0o777 != mode, status.st_uid == geteuid(), fchmod(file, mode) != 0 {
      throw .systemCall(.last("fchmod"))
    }
    // A Mac and the simulator have no such classes, or none that means something.
    #if (os(iOS) || os(tvOS) || os(watchOS) || os(visionOS)) && !targetEnvironment(simulator)
    let number = options.protection.number
    guard fcntl(file, F_GETPROTECTIONCLASS) != number,
      fcntl(file, F_SETPROTECTIONCLASS, number) != 0
    else { return }
    // Nor has every file system of a device, an external one for instance.
    guard errno == ENOTSUP else { throw .systemCall(.last("fcntl(F_SETPROTECTIONCLASS)")) }
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

  /// Gives a lock up that was taken at this count of forks, and the descriptor.
  ///
  /// A child that was forked off meanwhile, if only to begin another program, shares the lock: it
  /// would hold it on if this process only closed its descriptor, and must not end it by itself.
  static func unlockAndClose(_ file: Int32, _ forkCount: Int) {
    if forkCount == ForkCount.current { _ = flock(file, LOCK_UN) }
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
private func systemRename(_ path: String, _ other: String) -> Int32 {
  unsafe rename(path, other)
}
