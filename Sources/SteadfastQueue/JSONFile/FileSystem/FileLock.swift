import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// The right to use a queue's file: an advisory lock on a lock file beside it.
///
/// The lock file holds the number of the process that has the lock. It stays when the lock is given
/// up. Only the `FileLock` that made the file removes it, and only while it holds the lock: when
/// the queue's file was refused, or when work on a closed file has ended. A process that has opened
/// the lock file by then finds that it has no name any more, and opens it again. A file of that
/// name that holds something else is refused, and stays as it is.
///
/// The system gives the lock up when the process ends, however it ends. On some systems, `flock`
/// does not exclude a second opener in the same process. A list of the locks that this process
/// holds excludes it.
///
/// A lock can be shared: then others can have it too, if theirs is shared as well.
package final class FileLock: Sendable {
  enum Failure: Error, Equatable {
    case heldByThisProcess
    /// Another process has the lock: its number, if that could be read.
    case held(by: Int32?)
    case opening(FileOpeningError)
    case systemCall(SystemCallError)
  }

  private struct Holding {
    /// A forked child has a copy of its parent's list, but holds none of the locks in it.
    let forkCount = ForkCount.current
    let isShared: Bool
    /// How many share the lock in this process; one, if it is not shared.
    var count = 1
    var isEnding = false
    /// The callers that wait for a lock that is about to be given up.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[FileIdentity: Holding]>([:])

  /// An open lock file.
  struct Opened {
    let descriptor: Int32
    let path: String
    /// Whether the file was made for this lock.
    var isNew = false
    /// Whether the file has other names.
    ///
    /// Such a file is locked, but left as it is.
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

  /// Takes the lock of the file at a path.
  ///
  /// It waits only for a holder in this process that is about to give the lock up.
  static func acquire(
    for path: String,
    _ options: JSONFileStore.Options = JSONFileStore.Options(),
    isShared: Bool = false
  ) throws(Failure) -> FileLock {
    for _ in 0..<FileStorage.mostAttempts {
      let file = try open(path + suffix, options)
      let lock: FileLock?
      do throws(Failure) {
        lock = try take(file, options, isShared: isShared)
      } catch {
        FileStorage.unlockAndClose(file.descriptor, ForkCount.current)
        throw error
      }
      if let lock { return lock }
      FileStorage.unlockAndClose(file.descriptor, ForkCount.current)
    }
    throw .opening(.unstable)
  }

  /// Opens the lock file, or makes it.
  private static func open(
    _ path: String,
    _ options: JSONFileStore.Options
  ) throws(Failure) -> Opened {
    do throws(FileOpeningError) {
      for _ in 0..<FileStorage.mostAttempts {
        do {
          let (file, hasOtherNames) = try FileStorage.openAsItIs(path, O_RDWR)
          return Opened(descriptor: file, path: path, hasOtherNames: hasOtherNames)
        } catch .systemCall(let error) where error.number == ENOENT {}
        do {
          return try make(path, options)
        } catch .systemCall(let error) where error.number == EEXIST {}
      }
      throw .unstable
    } catch .unsafe(let reason, let advice) {
      throw unfit(path, reason, advice: advice)
    } catch {
      throw .opening(error)
    }
  }

  /// The failure of a file that has the lock file's name and must stay as it is.
  static func unfit(_ path: String, _ reason: String, advice: String) -> Failure {
    .opening(.unsafe("the lock file beside it, \(path), is unfit, as \(reason)", advice: advice))
  }

  private static let suffix = ".lock"

  private static func make(
    _ path: String,
    _ options: JSONFileStore.Options
  ) throws(FileOpeningError) -> Opened {
    let file = try FileStorage.openAsItIs(path, O_RDWR | O_CREAT | O_EXCL).descriptor
    do {
      // It holds nothing that its owner must not see.
      let owned = String(path.dropLast(suffix.count))
      try FileStorage.protectNew(file, like: nil, at: owned, options)
    } catch {
      FileStorage.close(file)
      throw .systemCall(error)
    }
    return Opened(descriptor: file, path: path, isNew: true)
  }

  /// Tries to take the lock with an open lock file.
  ///
  /// - Returns: `nil` if the caller is to open the lock file again.
  static func take(
    _ file: Opened,
    _ options: JSONFileStore.Options = JSONFileStore.Options(),
    isShared: Bool = false
  ) throws(Failure) -> FileLock? {
    let identity: FileIdentity
    do {
      identity = try FileIdentity(ofDescriptor: file.descriptor)
    } catch {
      throw .systemCall(error)
    }
    if let ending = try register(identity, isShared) {
      ending.wait()
      return nil
    }
    do throws(Failure) {
      if try lock(file, identity, isShared) { return FileLock(file, identity, options) }
    } catch {
      unregister(identity)
      throw error
    }
    unregister(identity)
    return nil
  }

  /// Gives the lock file the chosen permissions, after the queue's file was accepted.
  func protect() throws(SystemCallError) {
    guard !file.hasOtherNames else { return }
    try FileStorage.protect(descriptor.withLock { $0 }, options)
  }

  /// Gives the lock up, and removes the lock file if it was made for this lock.
  func discard() {
    if file.isNew, forkCount == ForkCount.current,
      let found = try? FileIdentity.lookUp(file.path), found.identity == identity
    {
      _ = unsafe unlink(file.path)
    }
    release()
  }

  /// Notes that the lock is about to be given up, so that a second opener waits for it.
  func beginRelease() {
    Self.holdings.withLock { $0[identity]?.isEnding = true }
  }

  /// Gives the lock up.
  func release() {
    let file = descriptor.withLock { descriptor in
      defer { descriptor = -1 }
      return descriptor
    }
    guard file >= 0 else { return }
    FileStorage.unlock(file, forkCount)
    // The order matters: while the descriptor is open, no other file can have the identity of a
    // lock file that was removed.
    if forkCount == ForkCount.current { Self.unregister(identity) }
    FileStorage.close(file)
  }

  // MARK: This process

  /// Notes that this process tries to take the lock.
  ///
  /// - Returns: What to wait for, if this process has the lock and is about to give it up.
  private static func register(
    _ identity: FileIdentity,
    _ isShared: Bool
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

  /// Locks the file, and returns whether it still has its name.
  private static func lock(
    _ file: Opened,
    _ identity: FileIdentity,
    _ isShared: Bool
  ) throws(Failure) -> Bool {
    let isFree: Bool
    do {
      isFree = try FileStorage.lock(file.descriptor, isShared: isShared)
    } catch {
      throw .opening(error)
    }
    guard isFree else { throw .held(by: holder(file.descriptor)) }
    do throws(SystemCallError) {
      guard try FileIdentity.lookUp(file.path)?.identity == identity else { return false }
    } catch {
      throw .systemCall(error)
    }
    try refuseOtherContents(file)
    if !file.hasOtherNames { writeHolder(file.descriptor) }
    return true
  }
}
