import Dispatch
import Synchronization
import SystemC

/// The right to use a queue's file: an advisory lock on a lock file beside it.
///
/// The lock file contains the ID of the process that has the lock. It stays after the lock is
/// released. Only the `FileLock` that created the file removes it, and only while it has the lock:
/// when the queue's file was refused, or when work on a closed file has ended. A process that has
/// already opened the lock file then finds that the file no longer has its name, and opens it
/// again. A file of that name with other contents is refused, and stays as it is.
///
/// The system releases the lock when the process ends, however it ends. On some systems, `flock`
/// does not exclude a second opener in the same process. A list of this process's locks does.
///
/// A lock can be shared with others whose locks are shared as well.
package final class FileLock: Sendable {
  enum Failure: Error, Equatable {
    case heldByThisProcess
    /// Another process has the lock; its ID, if it could be read.
    case held(by: Int32?)
    case opening(FileOpeningError)
    case systemCall(SystemCallError)
  }

  private struct Holding {
    /// A forked child has a copy of its parent's list, but none of its locks.
    let forkCount = ForkCount.current
    let isShared: Bool
    /// The number of owners in this process; 1 if the lock is not shared.
    var count = 1
    var isEnding = false
    /// The callers that wait for a lock that is about to be released.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[FileIdentity: Holding]>([:])

  /// An open lock file.
  struct Opened {
    let descriptor: Int32
    let path: String
    /// Whether the file was created for this lock.
    var isNew = false
    /// Whether the file has other names.
    ///
    /// Such a file is locked, but not changed.
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
  /// The call waits only for an owner in this process that is about to release the lock.
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

  /// Opens the lock file, or creates it.
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

  /// The failure for a file that has the lock file's name but must not be changed.
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
      // A lock file contains nothing that the owner of the queue's file must not see.
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

  /// Sets the lock file's permissions, after the queue's file was accepted.
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

  /// Announces that the lock is about to be released, so that a second opener waits for it.
  func announceRelease() {
    Self.holdings.withLock { $0[identity]?.isEnding = true }
  }

  /// Releases the lock.
  func release() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    guard file >= 0 else { return }
    FileStorage.unlock(file, lockedAtForkCount: forkCount)
    // The order matters: while the descriptor is open, no other file can get the identity of a
    // removed lock file.
    if forkCount == ForkCount.current { Self.unregister(identity) }
    FileStorage.close(file)
  }

  // MARK: This process

  /// Records that this process tries to acquire the lock.
  ///
  /// - Returns: The semaphore to wait for, if this process has the lock and is about to release it.
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

  /// Locks the file, and returns whether the file still has its name.
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

  /// Refuses a locked file whose contents are not those of a lock file, and does not change it.
  ///
  /// Such a file may belong to another queue or program. A lock file contains digits and line
  /// feeds. It may also contain zeros: after a power cut, or if processes that share the lock write
  /// their IDs at the same time.
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

  /// Writes this process's ID into the lock file, for the messages of other processes.
  ///
  /// The lock is valid without it. On a full disk, for example, those messages show no ID.
  static func writeProcessID(to file: Int32) {
    let text = Array("\(getpid())\n".utf8)
    // Overwriting an existing ID needs no additional space on a full disk.
    let written = unsafe pwrite(file, text, text.count, 0)
    _ = ftruncate(file, off_t(max(0, written)))
  }

  /// Returns the ID of the process that has the lock, or `nil` if it is unknown.
  static func holderProcessID(in file: Int32) -> Int32? {
    guard let text = try? readStart(of: file, count: maxLength), !text.isEmpty,
      let process = Int32(String(decoding: text.prefix { $0 != 0x0A }, as: UTF8.self))
    else { return nil }
    // The ID may match no process here: a forked child may still have the lock after the process
    // that acquired it has ended, and a process of another container has another ID here.
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
    /// Whether another store has the lock, in this process or another one.
    package let isHeld: Bool
    /// The problem, for people to read.
    package let reason: String
  }

  /// Acquires the lock of a store in an existing file, until the last reference is released.
  ///
  /// The name of the lock file is the file's real path, `name` and `.lock`, so that no symbolic
  /// link leads to another lock. A file with two real names is refused, because each would have its
  /// own lock. A shared lock excludes only locks that are not shared.
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

  /// Refuses a file with two real names, before it is changed under one of them.
  package static func refuseOtherNames(ofStoreIn file: String) throws(Refusal) {
    _ = try realPath(of: file)
  }

  /// Returns the only real path of a file; `nil` if there is no file.
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

/// The identity of a file, independent of its name.
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

  /// Returns the file at a path and its size in bytes, or `nil` if there is none.
  static func lookUp(
    _ path: String
  ) throws(SystemCallError) -> (identity: FileIdentity, size: Int)? {
    let status = try unsafe status(of: path, callName: "lstat") { unsafe lstat($0, $1) }
    guard let status else { return nil }
    return (FileIdentity(status), Int(status.st_size))
  }

  /// Returns the file that a path leads to, following links, or `nil` if there is none.
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
