import Synchronization
import SystemC

/// The files of a journal in the real file system.
///
/// A file is opened only if it is a regular file that not every user may write. Open files are
/// locked, in addition to the lock file: if a user deletes the lock file, another process could
/// create and lock a new one.
final class FileStorage: JournalStorage {
  private let path: String
  private let options: JSONFileStore.Options
  /// The identity of the file that was last opened, created or renamed with each name.
  private let identities = Mutex<[JournalFileName: FileIdentity]>([:])
  /// The open folder; `nil` unless it was opened for the next flush.
  private let folder = Mutex<FolderDescriptor?>(nil)

  init(path: String, _ options: JSONFileStore.Options = JSONFileStore.Options()) {
    self.path = path
    self.options = options
  }

  var isSizeLimited: Bool { SystemCall.limitsFileSizes }

  func path(of name: JournalFileName) -> String {
    switch name {
    case .journal: path
    case .replacement: path + ".new"
    case .copy(let number): path + ".damaged-\(number)"
    case .torn(let number): path + ".torn-\(number)"
    case .otherProgramsFile(let number): path + ".new-\(number)"
    }
  }

  func open(_ name: JournalFileName) throws(FileOpeningError) -> (any JournalFile)? {
    do {
      return try openUntilInPlace(name) { () throws(FileOpeningError) in
        try openAndLock(name, flags: O_RDWR)
      }
    } catch .systemCall(let error) where error.number == ENOENT {
      return nil
    }
  }

  /// Opens a file, and opens it again if another file is at its path by then.
  ///
  /// Until this process has the lock, the process that has it may replace the file.
  func openUntilInPlace<File>(
    _ name: JournalFileName,
    _ open: () throws(FileOpeningError) -> File
  ) throws(FileOpeningError) -> File {
    for _ in 0..<Self.maxAttempts {
      let file = try open()
      do throws(SystemCallError) {
        if case .atItsPath = try location(of: name) { return file }
      } catch {
        throw .systemCall(error)
      }
    }
    throw .unstable
  }

  /// The maximum number of attempts to open a file that is replaced each time.
  static var maxAttempts: Int { 100 }

  func create(_ name: JournalFileName) throws(FileOpeningError) -> any JournalFile {
    let file = try openAndLock(name, flags: O_RDWR | O_CREAT | O_EXCL)
    // The new file gets the owner and the group of the open journal. The identity of the journal is
    // passed, because another file may be at the journal's path now.
    let journal = identities.withLock { $0[.journal] }
    do {
      try file.protectAsNew(like: journal, at: path(of: .journal))
    } catch {
      throw .systemCall(error)
    }
    return file
  }

  private func openAndLock(
    _ name: JournalFileName,
    flags: Int32
  ) throws(FileOpeningError) -> OpenFile {
    let (descriptor, hasOtherNames) = try Self.openChecked(at: path(of: name), flags: flags)
    let file = OpenFile(descriptor, options, hasOtherNames: hasOtherNames)
    guard try Self.lock(descriptor) else { throw .inUse }
    let identity: FileIdentity
    do { identity = try FileIdentity(ofDescriptor: descriptor) } catch { throw .systemCall(error) }
    identities.withLock { $0[name] = identity }
    return file
  }

  func rename(_ name: JournalFileName, to other: JournalFileName) throws(SystemCallError) {
    guard systemRename(path(of: name), to: path(of: other)) == 0 else { throw .last("rename") }
    identities.withLock { $0[other] = $0.removeValue(forKey: name) }
  }

  func location(of name: JournalFileName) throws(SystemCallError) -> JournalLocation {
    guard let identity = identities.withLock({ $0[name] }),
      let (found, size) = try FileIdentity.lookUp(path(of: name)), found == identity
    else { return .notAtItsPath }
    return .atItsPath(size: size)
  }

  func hasLockFile(_ name: JournalFileName) throws(SystemCallError) -> Bool {
    try FileIdentity.lookUp(path(of: name) + ".lock") != nil
  }

  func remove(_ name: JournalFileName) throws(SystemCallError) {
    guard unsafe unlink(path(of: name)) == 0 || errno == ENOENT else { throw .last("unlink") }
  }

  func openFolder() throws(SystemCallError) {
    let opened = FolderDescriptor(
      try Self.openDescriptor(at: Self.folderPath(of: path), flags: O_RDONLY | O_DIRECTORY)
    )
    folder.withLock { $0 = opened }
  }

  func synchronizeFolder() throws(SystemCallError) {
    if folder.withLock({ $0 == nil }) { try openFolder() }
    guard let opened = folder.withLock({ $0.take() }) else { return }
    try opened.synchronize()
  }
}

/// A folder that is open, so that it can be flushed.
private final class FolderDescriptor: Sendable {
  private let descriptor: Int32

  init(_ descriptor: Int32) { self.descriptor = descriptor }

  deinit { FileStorage.close(descriptor) }

  func synchronize() throws(SystemCallError) {
    try SystemCall.flush(descriptor, reportedAs: "fsync of the folder")
  }
}

// In the class, `rename` would mean the class's own method.
private func systemRename(_ path: String, to other: String) -> Int32 {
  unsafe rename(path, other)
}

extension FileStorage {
  /// Returns options with the current permissions and protection of a file, or `nil` if there is no
  /// file.
  ///
  /// The file is not locked here.
  static func currentOptions(
    ofFileAt path: String
  ) throws(FileOpeningError) -> JSONFileStore.Options? {
    let file: Int32
    do {
      file = try openChecked(at: path, flags: O_RDONLY).descriptor
    } catch .systemCall(let error) where error.number == ENOENT {
      return nil
    }
    defer { close(file) }
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    var options = JSONFileStore.Options()
    options.permissions = JSONFileStore.Permissions(mode: UInt16(status.st_mode & 0o777))
    if let number = SystemCall.protectionClass(of: file) {
      options.protection = JSONFileStore.Protection(number: number)
    }
    return options
  }
}

// System calls.
extension FileStorage {
  /// Opens a file, throws an error if it is unsafe to use, and returns whether it has other names
  /// (hard links).
  static func openChecked(
    at path: String,
    flags: Int32
  ) throws(FileOpeningError) -> (descriptor: Int32, hasOtherNames: Bool) {
    let file: Int32
    do {
      file = try openDescriptor(at: path, flags: flags | O_NOFOLLOW)
    } catch  where error.number == ELOOP {
      throw .unsafe("it is a symbolic link", advice: ownPath)
    } catch  where error.number == EISDIR || error.number == ENXIO {
      throw .unsafe(notRegular, advice: ownPath)
    } catch {
      throw .systemCall(error)
    }
    do {
      return (file, try hasOtherNames(checkingSafetyOf: file))
    } catch {
      close(file)
      throw error
    }
  }

  private static var notRegular: String { "it is not a regular file" }
  private static var ownPath: String { "give the path of a separate file" }

  /// Returns the path of the folder that contains a file.
  static func folderPath(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  static func openDescriptor(
    at path: String,
    flags: Int32
  ) throws(SystemCallError) -> Int32 {
    Int32(
      try SystemCall.repeatingWhileInterrupted("open") {
        Int(systemOpen(path, flags | O_CLOEXEC | O_NONBLOCK, mode_t(0o600)))
      }
    )
  }

  /// Throws an error if a file is unsafe to use.
  ///
  /// - Returns: Whether the file has other names (hard links).
  private static func hasOtherNames(checkingSafetyOf file: Int32) throws(FileOpeningError) -> Bool {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    // On Android's 32-bit systems, the field has another type.
    let mode = mode_t(status.st_mode)
    guard mode & S_IFMT == S_IFREG else { throw .unsafe(notRegular, advice: ownPath) }
    guard mode & S_IWOTH == 0 else {
      throw .unsafe("every user may write it", advice: "revoke that permission (chmod o-w)")
    }
    return status.st_nlink > 1
  }

  /// Sets a file's data protection class and, if this process's user owns the file, its
  /// permissions.
  static func protect(
    _ file: Int32,
    with options: JSONFileStore.Options
  ) throws(SystemCallError) {
    let mode = mode_t(options.permissions.mode)
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    // For a new file, this restores permissions that the `umask` has removed.
    if status.st_mode & 0o777 != mode, status.st_uid == geteuid(), fchmod(file, mode) != 0 {
      throw .last("fchmod")
    }
    try SystemCall.setProtectionClass(of: file, to: options.protection.number)
  }

  /// Sets a new file's permissions and data protection class, and gives it the owner and group of
  /// the file at a path, if this process may do that.
  ///
  /// So a file that root has repaired or compacted still belongs to the queue's user. If `other` is
  /// given, and is not the file at the path, the owner and group are not changed. The group is set
  /// before the permissions, so that the wrong group never has them. If the group can't be set,
  /// only the owner gets permissions.
  static func protectNewFile(
    _ file: Int32,
    like other: FileIdentity?,
    at path: String,
    with options: JSONFileStore.Options,
    changeOwner: (Int32, uid_t, gid_t) -> Int32 = { fchown($0, $1, $2) }
  ) throws(SystemCallError) {
    var (status, own) = (stat(), stat())
    guard unsafe fstat(file, &own) == 0 else { throw .last("fstat") }
    guard unsafe lstat(path, &status) == 0, other == nil || other == FileIdentity(status) else {
      return try protect(file, with: options)
    }
    var options = options
    // A user who may not give files away may still give them to another of their own groups.
    let hasGroup =
      own.st_gid == status.st_gid || changeOwner(file, own.st_uid, status.st_gid) == 0
    if !hasGroup { options.permissions = .owner }
    try protect(file, with: options)
    guard own.st_uid != status.st_uid else { return }
    _ = changeOwner(file, status.st_uid, hasGroup ? status.st_gid : own.st_gid)
  }

  static func close(_ file: Int32) { _ = systemClose(file) }

  /// Locks a file; returns `false` if it is already locked through another descriptor.
  static func lock(_ file: Int32, isShared: Bool = false) throws(FileOpeningError) -> Bool {
    let operation = (isShared ? LOCK_SH : LOCK_EX) | LOCK_NB
    do {
      _ = try SystemCall.repeatingWhileInterrupted("flock") { Int(flock(file, operation)) }
      return true
    } catch {
      if error.number == EWOULDBLOCK { return false }
      throw .systemCall(error)
    }
  }

  /// Releases a lock that was acquired when the count of forks was `forkCount`.
  ///
  /// A child process that was forked since then shares the lock, even if it is about to start
  /// another program. So the lock is released explicitly: closing the descriptor would not release
  /// it while the child has it open. In the child, this does nothing, because the parent still
  /// needs the lock.
  static func unlock(_ file: Int32, lockedAtForkCount forkCount: Int) {
    if forkCount == ForkCount.current { _ = flock(file, LOCK_UN) }
  }

  /// Releases a lock that was acquired when the count of forks was `forkCount`, and closes the
  /// file.
  static func unlockAndClose(_ file: Int32, lockedAtForkCount forkCount: Int) {
    unlock(file, lockedAtForkCount: forkCount)
    close(file)
  }
}

// In the type, `open` and `close` would mean the type's own methods.
private func systemOpen(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 {
  unsafe open(path, flags, mode)
}
private func systemClose(_ file: Int32) -> Int32 { close(file) }

/// An open file in the real file system.
final class OpenFile: JournalFile {
  /// The maximum number of bytes for one system call: Darwin refuses more.
  private static let maxBytesPerCall = Int(Int32.max)

  /// The file's descriptor; -1 once the file is closed.
  private let descriptor: Atomic<Int32>
  private let forkCount = ForkCount.current
  private let options: JSONFileStore.Options
  let hasOtherNames: Bool

  init(_ file: Int32, _ options: JSONFileStore.Options, hasOtherNames: Bool) {
    descriptor = Atomic(file)
    self.options = options
    self.hasOtherNames = hasOtherNames
  }

  deinit { close() }

  /// Sets a new file's permissions, and gives it the owner and group of another file, if there is
  /// one.
  func protectAsNew(like other: FileIdentity?, at path: String) throws(SystemCallError) {
    guard let other else { return try protect() }
    try FileStorage.protectNewFile(
      descriptor.load(ordering: .acquiring),
      like: other,
      at: path,
      with: options
    )
  }

  func size() throws(SystemCallError) -> Int {
    var status = stat()
    guard unsafe fstat(descriptor.load(ordering: .acquiring), &status) == 0 else {
      throw .last("fstat")
    }
    return Int(status.st_size)
  }

  func read(_ count: Int, at offset: Int) throws(SystemCallError) -> [UInt8] {
    let file = descriptor.load(ordering: .acquiring)
    var failure: SystemCallError?
    // The buffer is not initialized: only the bytes that were read are used.
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, done in
      guard let start = buffer.baseAddress else { return }
      do throws(SystemCallError) {
        while done < count {
          let size = min(count - done, Self.maxBytesPerCall)
          let part = try SystemCall.repeatingWhileInterrupted("read") {
            unsafe pread(file, start.advanced(by: done), size, off_t(offset + done))
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
    let file = descriptor.load(ordering: .acquiring)
    return try SystemCall.repeatingWhileInterrupted("write") {
      unsafe bytes.withUnsafeBytes { bytes in
        guard let start = bytes.baseAddress else { return 0 }
        return unsafe pwrite(file, start, min(bytes.count, Self.maxBytesPerCall), off_t(offset))
      }
    }
  }

  func truncate(to size: Int) throws(SystemCallError) {
    let file = descriptor.load(ordering: .acquiring)
    _ = try SystemCall.repeatingWhileInterrupted("ftruncate") { Int(ftruncate(file, off_t(size))) }
  }

  /// Flushes the file; a flush that a signal has interrupted is repeated.
  ///
  /// After any other error, the flush is not repeated: the system may have dropped bytes that it
  /// could not write.
  func synchronize() throws(SystemCallError) {
    try SystemCall.flushBytes(of: descriptor.load(ordering: .acquiring))
  }

  /// Sets the file's permissions, unless the file has other names (hard links).
  func protect() throws(SystemCallError) {
    guard !hasOtherNames else { return }
    try FileStorage.protect(descriptor.load(ordering: .acquiring), with: options)
  }

  func close() {
    let file = descriptor.exchange(-1, ordering: .acquiringAndReleasing)
    if file >= 0 { FileStorage.unlockAndClose(file, lockedAtForkCount: forkCount) }
  }
}
