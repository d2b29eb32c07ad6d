import Dispatch
import Synchronization
import SystemC

/// A lock that protects a queue's file from other queues and processes: an advisory lock on a lock
/// file beside it.
///
/// The lock file contains the ID of the process that has the lock. It normally stays after the lock
/// is released. Only ``discard()`` removes it, if it was created for this lock. A process that has
/// opened the lock file before it was removed finds, after locking it, that it is no longer at its
/// path, and opens the path again. If a file at that path has other contents, an error is thrown,
/// and the file is not changed.
///
/// The system releases the lock when the process ends. On some systems, `flock` does not exclude a
/// second lock in the same process. So this class also keeps a list of the process's locks.
///
/// Any number of locks that are shared can be held at the same time. A lock that is not shared
/// excludes all others.
package final class FileLock: Sendable {
  enum Failure: Error, Equatable {
    case heldByThisProcess
    /// Another process has the lock. The ID of the process is `nil` if it could not be read.
    case held(by: Int32?)
    case opening(FileOpeningError)
    case systemCall(SystemCallError)
  }

  /// A lock that this process has, or is acquiring.
  private struct Holding {
    /// The fork count when the lock was added to the list.
    ///
    /// A forked child has a copy of its parent's list, but none of the parent's locks.
    let forkCount = ForkCount.current
    let isShared: Bool
    /// The number of `FileLock`s in this process that share the lock; 1 if the lock is not shared.
    var count = 1
    var isEnding = false
    /// The semaphores of the callers that wait until the lock is released.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[FileIdentity: Holding]>([:])

  /// An open lock file.
  struct Opened {
    let descriptor: Int32
    let path: String
    /// Whether the file was created for this lock.
    var isNew = false
    /// Whether the file has other names (hard links).
    ///
    /// A file with other names is locked, but not changed.
    var hasOtherNames = false
  }

  private let file: Opened
  private let options: JSONFileStore.Options
  private let identity: FileIdentity
  private let descriptor: Mutex<Int32>
  private let forkCount = ForkCount.current

  private init(_ file: Opened, _ identity: FileIdentity, _ options: JSONFileStore.Options) {
    self.file = file
    self.options = options
    descriptor = Mutex(file.descriptor)
    self.identity = identity
  }

  deinit { release() }

  /// Acquires the lock of the file at a path.
  ///
  /// If the lock is taken, the call throws, unless both locks are shared. It waits only if this
  /// process has the lock and is about to release it.
  static func acquire(
    for path: String,
    _ options: JSONFileStore.Options = JSONFileStore.Options(),
    isShared: Bool = false
  ) throws(Failure) -> FileLock {
    for _ in 0..<FileStorage.maxAttempts {
      let file = try openOrCreateLockFile(at: path + suffix, with: options)
      let lock: FileLock?
      do throws(Failure) {
        lock = try tryToAcquire(with: file, options, isShared: isShared)
      } catch {
        FileStorage.unlockAndClose(file.descriptor, lockedAtForkCount: ForkCount.current)
        throw error
      }
      if let lock { return lock }
      FileStorage.unlockAndClose(file.descriptor, lockedAtForkCount: ForkCount.current)
    }
    throw .opening(.unstable)
  }

  private static func openOrCreateLockFile(
    at path: String,
    with options: JSONFileStore.Options
  ) throws(Failure) -> Opened {
    do throws(FileOpeningError) {
      for _ in 0..<FileStorage.maxAttempts {
        do {
          let (file, hasOtherNames) = try FileStorage.openChecked(at: path, flags: O_RDWR)
          return Opened(descriptor: file, path: path, hasOtherNames: hasOtherNames)
        } catch .systemCall(let error) where error.number == ENOENT {}
        do {
          return try createLockFile(at: path, with: options)
        } catch .systemCall(let error) where error.number == EEXIST {}
      }
      throw .unstable
    } catch .unsafe(let reason, let advice) {
      throw unusableLockFileError(at: path, reason: reason, advice: advice)
    } catch {
      throw .opening(error)
    }
  }

  /// Returns the error for a file that is at the lock file's path but can't be used as a lock file.
  static func unusableLockFileError(at path: String, reason: String, advice: String) -> Failure {
    .opening(.unsafe("the lock file beside it, \(path), can't be used: \(reason)", advice: advice))
  }

  private static let suffix = ".lock"

  private static func createLockFile(
    at path: String,
    with options: JSONFileStore.Options
  ) throws(FileOpeningError) -> Opened {
    let file = try FileStorage.openChecked(at: path, flags: O_RDWR | O_CREAT | O_EXCL).descriptor
    do {
      // The lock file gets the owner and group of whatever file is at the queue's path. That is
      // safe, because a lock file contains no secrets.
      let owned = String(path.dropLast(suffix.count))
      try FileStorage.protectNewFile(file, like: nil, at: owned, with: options)
    } catch {
      FileStorage.close(file)
      throw .systemCall(error)
    }
    return Opened(descriptor: file, path: path, isNew: true)
  }

  /// Tries to acquire the lock with an open lock file.
  ///
  /// - Returns: `nil` if the caller should open the lock file again.
  static func tryToAcquire(
    with file: Opened,
    _ options: JSONFileStore.Options = JSONFileStore.Options(),
    isShared: Bool = false
  ) throws(Failure) -> FileLock? {
    let identity: FileIdentity
    do {
      identity = try FileIdentity(ofDescriptor: file.descriptor)
    } catch {
      throw .systemCall(error)
    }
    if let ending = try register(identity, isShared: isShared) {
      ending.wait()
      return nil
    }
    do throws(Failure) {
      if try lockIfInPlace(file, identity: identity, isShared: isShared) {
        return FileLock(file, identity, options)
      }
    } catch {
      unregister(identity)
      throw error
    }
    unregister(identity)
    return nil
  }

  /// Sets the lock file's permissions.
  ///
  /// Call this after the queue's file was opened without an error.
  func protect() throws(SystemCallError) {
    guard !file.hasOtherNames else { return }
    try FileStorage.protect(descriptor.withLock { $0 }, with: options)
  }

  /// Releases the lock, and removes the lock file if it was created for this lock.
  func discard() {
    if file.isNew, forkCount == ForkCount.current,
      let found = try? FileIdentity.lookUp(file.path), found.identity == identity
    {
      _ = unsafe unlink(file.path)
    }
    release()
  }

  /// Announces that the lock is about to be released, so that other callers in this process wait
  /// for it.
  func announceRelease() {
    Self.holdings.withLock { $0[identity]?.isEnding = true }
  }

  func release() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    guard file >= 0 else { return }
    FileStorage.unlock(file, lockedAtForkCount: forkCount)
    // The lock is removed from the list before the descriptor is closed. Once a removed lock file
    // is closed, the system may give its identity to a new file.
    if forkCount == ForkCount.current { Self.unregister(identity) }
    FileStorage.close(file)
  }

  // MARK: This process

  /// Adds a lock to the list of this process's locks, or throws if the list already contains it.
  ///
  /// - Returns: A semaphore to wait for, if this process has the lock and is about to release it;
  ///   otherwise `nil`.
  private static func register(
    _ identity: FileIdentity,
    isShared: Bool
  ) throws(Failure) -> DispatchSemaphore? {
    let result = holdings.withLock { holdings -> Result<DispatchSemaphore?, Failure> in
      guard let holding = holdings[identity], holding.forkCount == ForkCount.current else {
        holdings[identity] = Holding(isShared: isShared)
        return .success(nil)
      }
      guard holding.isEnding else {
        guard isShared, holding.isShared else { return .failure(.heldByThisProcess) }
        holdings[identity]?.count += 1
        return .success(nil)
      }
      let semaphore = DispatchSemaphore(value: 0)
      holdings[identity]?.waiting.append(semaphore)
      return .success(semaphore)
    }
    return try result.get()
  }

  private static func unregister(_ identity: FileIdentity) {
    let holding = holdings.withLock { holdings -> Holding? in
      holdings[identity]?.count -= 1
      guard holdings[identity]?.count == 0 else { return nil }
      return holdings.removeValue(forKey: identity)
    }
    for semaphore in holding?.waiting ?? [] { semaphore.signal() }
  }

  // MARK: Other processes

  /// Locks an open lock file; returns `false` if the file is no longer at its path.
  private static func lockIfInPlace(
    _ file: Opened,
    identity: FileIdentity,
    isShared: Bool
  ) throws(Failure) -> Bool {
    let isFree: Bool
    do {
      isFree = try FileStorage.lock(file.descriptor, isShared: isShared)
    } catch {
      throw .opening(error)
    }
    guard isFree else { throw .held(by: holderProcessID(in: file.descriptor)) }
    do throws(SystemCallError) {
      guard try FileIdentity.lookUp(file.path)?.identity == identity else { return false }
    } catch {
      throw .systemCall(error)
    }
    try checkContents(of: file)
    if !file.hasOtherNames { writeProcessID(to: file.descriptor) }
    return true
  }
}

/// The contents of a lock file: the ID of the process that has the lock.
extension FileLock {
  /// The maximum size of a lock file, in bytes.
  private static let maxLength = 32

  /// Throws an error if a file contains something other than a process ID.
  ///
  /// A file with other contents may belong to another program, and must not be changed. Digits,
  /// line feeds and zeros are allowed. There may be zeros after a power cut, or if processes that
  /// share the lock write their IDs at the same time.
  static func checkContents(of file: Opened) throws(Failure) {
    let bytes: [UInt8]
    do {
      bytes = try readStart(of: file.descriptor, count: maxLength + 1)
    } catch {
      throw .systemCall(error)
    }
    guard bytes.count <= maxLength,
      bytes.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || $0 == 0x0A || $0 == 0 })
    else {
      throw unusableLockFileError(
        at: file.path,
        reason: "it contains something other than a process ID",
        advice: "it was not changed; move it away, or choose another file"
      )
    }
  }

  /// Writes this process's ID to the lock file.
  ///
  /// Other processes show the ID in their error messages.
  ///
  /// The lock is valid even if this fails, for example on a full disk. Then the messages contain no
  /// ID.
  static func writeProcessID(to file: Int32) {
    let text = Array("\(getpid())\n".utf8)
    // The file is not truncated before the write, so that overwriting an ID needs no new space on a
    // full disk.
    let written = unsafe pwrite(file, text, text.count, 0)
    _ = ftruncate(file, off_t(max(0, written)))
  }

  /// Returns the process ID in a lock file; `nil` if there is none, or no process with the ID is
  /// running.
  static func holderProcessID(in file: Int32) -> Int32? {
    guard let text = try? readStart(of: file, count: maxLength), !text.isEmpty,
      let process = Int32(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self))
    else { return nil }
    // The ID may be useless here: if the process that wrote it has ended, and its forked child
    // still has the lock, or if the process runs in another container, in which IDs are different.
    return kill(process, 0) == 0 || errno != ESRCH ? process : nil
  }

  private static func readStart(of file: Int32, count: Int) throws(SystemCallError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let length = try SystemCall.repeatingWhileInterrupted("read") {
      unsafe pread(file, &bytes, count, 0)
    }
    return Array(bytes.prefix(length))
  }
}

/// Locks for other stores of this package.
extension FileLock {
  /// The reason that a store can't acquire the lock.
  package struct Refusal: Error {
    /// Whether the reason is that another store has the lock, in this process or another one.
    package let isHeld: Bool
    /// The problem, in plain English.
    package let reason: String
  }

  /// Acquires a lock for a store in an existing file.
  ///
  /// The lock is released with its last reference.
  ///
  /// The path of the lock file is the file's real path, with `name` and `.lock` appended. So a
  /// store that opens the file through a symbolic link uses the same lock. A file with a second
  /// name, a hard link, is refused, because each name would have its own lock. A shared lock
  /// excludes only locks that are not shared.
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

  /// Throws an error if a file has a second name, a hard link.
  package static func refuseOtherNames(ofStoreIn file: String) throws(Refusal) {
    _ = try realPath(of: file)
  }

  /// Returns the real path of a file; `nil` if there is no file.
  ///
  /// Throws an error if the file has a second name.
  private static func realPath(of file: String) throws(Refusal) -> String? {
    guard let found = unsafe realpath(file, nil) else {
      guard errno != ENOENT else { return nil }
      throw lookUpFailedError(of: file, in: "realpath")
    }
    defer { unsafe free(found) }
    let path = unsafe String(cString: found)
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else {
      guard errno != ENOENT else { return nil }
      throw lookUpFailedError(of: file, in: "lstat")
    }
    guard status.st_nlink <= 1 else {
      throw Refusal(
        isHeld: false,
        reason: "\(file) can't be opened: it has another name, a hard link, with which another "
          + "store could open it at the same time; remove the other name, or use a copy of the file"
      )
    }
    return path
  }

  private static func lookUpFailedError(of file: String, in call: String) -> Refusal {
    let error = SystemCallError.last(call)
    return Refusal(isHeld: false, reason: "\(file) can't be looked up: \(error)")
  }
}

/// The identity of a file, which does not change when the file is renamed.
package struct FileIdentity: Hashable, Sendable {
  private let device: UInt64
  private let node: UInt64

  init(_ status: stat) {
    // Darwin's device numbers are signed.
    device = UInt64(truncatingIfNeeded: status.st_dev)
    node = UInt64(status.st_ino)
  }

  init(ofDescriptor file: Int32) throws(SystemCallError) {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .last("fstat") }
    self.init(status)
  }

  /// Returns the identity and the size in bytes of the file at a path; `nil` if there is no file.
  static func lookUp(
    _ path: String
  ) throws(SystemCallError) -> (identity: FileIdentity, size: Int)? {
    let status = try unsafe status(of: path, callName: "lstat") { unsafe lstat($0, $1) }
    guard let status else { return nil }
    return (FileIdentity(status), Int(status.st_size))
  }

  /// Returns the identity of the file at a path, following symbolic links; `nil` if there is no
  /// file.
  package static func following(_ path: String) throws(SystemCallError) -> FileIdentity? {
    try unsafe status(of: path, callName: "stat") { unsafe stat($0, $1) }.map(FileIdentity.init)
  }

  private static func status(
    of path: String,
    callName name: String,
    _ call: (UnsafePointer<CChar>, UnsafeMutablePointer<stat>) -> Int32
  ) throws(SystemCallError) -> stat? {
    var status = stat()
    guard unsafe call(path, &status) == 0 else {
      if errno == ENOENT || errno == ENOTDIR { return nil }
      throw .last(name)
    }
    return status
  }
}
