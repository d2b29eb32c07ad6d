import Dispatch
import Synchronization

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// The right to use a queue's file: an advisory lock on a file beside it, which holds the number of
/// the process that has it.
///
/// The lock file stays when the lock is given up. It is removed only by the one who has made it, when
/// the file beside it was refused, and while he has the lock: who has opened it by then finds that it
/// has no name any more, and opens it again. The system gives the lock up when the process ends,
/// however it ends. `flock` does not everywhere exclude a second opener in the same process, so that
/// a list of what this process holds stands beside it.
final class FileLock: Sendable {
  enum Failure: Error, Equatable {
    case heldByThisProcess
    /// The process that has the lock, where it could be read.
    case held(by: Int32?)
    case opening(FileOpeningError)
    case systemCall(SystemCallError)
  }

  private struct Holding {
    /// A child that was forked off has its parent's list, and holds nothing of it.
    let forkCount = ForkCount.current
    var isEnding = false
    /// Those who wait for a lock that is about to be given up.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[FileIdentity: Holding]>([:])

  /// The lock file, open.
  struct Opened {
    let descriptor: Int32
    let path: String
    /// Whether it was made for this.
    var isNew = false
    /// Whether it has other names: then it is locked, and left as it is.
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
  /// It waits for nobody but a holder in this process that is about to give it up.
  static func acquire(
    for path: String,
    _ options: JSONFileStore.Options = JSONFileStore.Options()
  ) throws(Failure) -> FileLock {
    for _ in 0..<FileStorage.mostAttempts {
      let file = try open(path + ".lock", options)
      let lock: FileLock?
      do throws(Failure) {
        lock = try take(file, options)
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
      throw .opening(
        .unsafe("the lock file beside it, \(path), is unfit, as \(reason)", advice: advice)
      )
    } catch {
      throw .opening(error)
    }
  }

  private static func make(
    _ path: String,
    _ options: JSONFileStore.Options
  ) throws(FileOpeningError) -> Opened {
    let file = try FileStorage.openAsItIs(path, O_RDWR | O_CREAT | O_EXCL).descriptor
    do {
      try FileStorage.protect(file, options)
    } catch {
      FileStorage.close(file)
      throw .systemCall(error)
    }
    return Opened(descriptor: file, path: path, isNew: true)
  }

  /// Tries for the lock with a file that was opened; `nil` if it is to be opened again.
  static func take(
    _ file: Opened,
    _ options: JSONFileStore.Options = JSONFileStore.Options()
  ) throws(Failure) -> FileLock? {
    let identity: FileIdentity
    do {
      identity = try FileIdentity(ofDescriptor: file.descriptor)
    } catch {
      throw .systemCall(error)
    }
    if let ending = try register(identity) {
      ending.wait()
      return nil
    }
    do throws(Failure) {
      if try lock(file, identity) { return FileLock(file, identity, options) }
    } catch {
      unregister(identity)
      throw error
    }
    unregister(identity)
    return nil
  }

  /// Gives the lock file the permissions that were chosen, when the file beside it was accepted.
  func protect() throws(SystemCallError) {
    guard !file.hasOtherNames else { return }
    try FileStorage.protect(descriptor.withLock { $0 }, options)
  }

  /// Gives the lock up, and removes its file if that was made for it.
  func discard() {
    if file.isNew, forkCount == ForkCount.current,
      let found = try? FileIdentity.lookUp(file.path), found.identity == identity
    {
      _ = unsafe unlink(file.path)
    }
    release()
  }

  /// Says that the lock is about to be given up, so that a second opener waits for that.
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
    // While the descriptor is open, no other file has the identity of one that has lost its name.
    if forkCount == ForkCount.current { Self.unregister(identity) }
    FileStorage.close(file)
  }

  // MARK: This process

  /// Notes that this process tries for the lock; returns what to wait for if it is about to be
  /// given up.
  private static func register(_ identity: FileIdentity) throws(Failure) -> DispatchSemaphore? {
    let result = holdings.withLock { holdings -> Result<DispatchSemaphore?, Failure> in
      guard let holding = holdings[identity], holding.forkCount == ForkCount.current else {
        holdings[identity] = Holding()
        return .success(nil)
      }
      guard holding.isEnding else { return .failure(.heldByThisProcess) }
      let semaphore = DispatchSemaphore(value: 0)
      holdings[identity]?.waiting.append(semaphore)
      return .success(semaphore)
    }
    return try result.get()
  }

  private static func unregister(_ identity: FileIdentity) {
    let holding = holdings.withLock { $0.removeValue(forKey: identity) }
    for semaphore in holding?.waiting ?? [] { semaphore.signal() }
  }

  // MARK: Other processes

  /// Whether the file that was locked still has its name.
  private static func lock(_ file: Opened, _ identity: FileIdentity) throws(Failure) -> Bool {
    let isFree: Bool
    do { isFree = try FileStorage.lock(file.descriptor) } catch { throw .opening(error) }
    guard isFree else { throw .held(by: holder(file.descriptor)) }
    do throws(SystemCallError) {
      guard try FileIdentity.lookUp(file.path)?.identity == identity else { return false }
    } catch {
      throw .systemCall(error)
    }
    if !file.hasOtherNames { writeHolder(file.descriptor) }
    return true
  }

  /// Says who has the lock, in a message to others.
  ///
  /// The lock is good without it: on a full disk, for instance, they are told no number.
  private static func writeHolder(_ file: Int32) {
    let text = Array("\(getpid())\n".utf8)
    // Where a number stands already, a full disk has room for another one.
    let written = unsafe text.withUnsafeBytes { unsafe pwrite(file, $0.baseAddress, $0.count, 0) }
    _ = ftruncate(file, off_t(max(0, written)))
  }

  private static func holder(_ file: Int32) -> Int32? {
    var text = [UInt8](repeating: 0, count: 16)
    let count = unsafe text.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, 16, 0) }
    guard count > 0,
      let process = Int32(String(decoding: text[..<count].prefix { $0 != 0x0A }, as: UTF8.self))
    else { return nil }
    // A child that was forked off may hold the lock when the process that took it has ended, and a
    // process of another container has another number here.
    return kill(process, 0) == 0 || errno != ESRCH ? process : nil
  }
}
