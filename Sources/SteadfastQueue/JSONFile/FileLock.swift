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
/// The lock file is never removed: whoever waits for it would be left with a lock on a file that
/// has no name. The system gives the lock up when the process ends, however it ends. `flock` does
/// not everywhere exclude a second opener in the same process, so that a list of what this process
/// holds stands beside it.
final class FileLock: Sendable {
  enum Failure: Error, Equatable {
    case heldByThisProcess
    /// The process that has the lock, where it could be read.
    case held(by: Int32?)
    case opening(FileOpeningError)
    case systemCall(SystemCallError)
  }

  private struct Identity: Hashable {
    let device: UInt64
    let node: UInt64
  }

  private struct Holding {
    var isEnding = false
    /// Those who wait for a lock that is about to be given up.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[Identity: Holding]>([:])

  private let identity: Identity
  private let descriptor: Mutex<Int32>

  private init(_ file: Int32, _ identity: Identity) {
    descriptor = Mutex(file)
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
    let lockPath = path + ".lock"
    while true {
      let file: Int32
      do throws(FileOpeningError) {
        file = try FileStorage.open(lockPath, O_RDWR | O_CREAT, options)
      } catch { throw .opening(error) }
      let lock: FileLock?
      do throws(Failure) {
        lock = try take(file, path: lockPath)
      } catch {
        FileStorage.close(file)
        throw error
      }
      if let lock { return lock }
      FileStorage.close(file)
    }
  }

  /// Tries for the lock with a file that was opened; `nil` if it is to be opened anew.
  private static func take(_ file: Int32, path: String) throws(Failure) -> FileLock? {
    let identity = try identity(ofDescriptor: file)
    if let ending = try register(identity) {
      ending.wait()
      return nil
    }
    do throws(Failure) {
      if try lock(file, identity, path: path) { return FileLock(file, identity) }
    } catch {
      unregister(identity)
      throw error
    }
    unregister(identity)
    return nil
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
    FileStorage.close(file)
    Self.unregister(identity)
  }

  // MARK: This process

  /// Notes that this process tries for the lock; returns what to wait for if it is about to be
  /// given up.
  private static func register(_ identity: Identity) throws(Failure) -> DispatchSemaphore? {
    let result = holdings.withLock { holdings -> Result<DispatchSemaphore?, Failure> in
      guard let holding = holdings[identity] else {
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

  private static func unregister(_ identity: Identity) {
    let holding = holdings.withLock { $0.removeValue(forKey: identity) }
    for semaphore in holding?.waiting ?? [] { semaphore.signal() }
  }

  // MARK: Other processes

  /// Whether the file that was locked still bears the name.
  private static func lock(
    _ file: Int32,
    _ identity: Identity,
    path: String
  ) throws(Failure) -> Bool {
    guard flock(file, LOCK_EX | LOCK_NB) == 0 else {
      let error = SystemCallError.last("flock")
      throw error.number == EWOULDBLOCK ? .held(by: holder(file)) : .systemCall(error)
    }
    guard try Self.identity(ofPath: path) == identity else { return false }
    let text = Array("\(getpid())\n".utf8)
    guard ftruncate(file, 0) == 0 else { throw .systemCall(.last("ftruncate")) }
    do throws(SystemCallError) {
      _ = try FileStorage.retryingInterrupted("write") {
        unsafe text.withUnsafeBytes { unsafe pwrite(file, $0.baseAddress, $0.count, 0) }
      }
    } catch {
      throw .systemCall(error)
    }
    return true
  }

  private static func holder(_ file: Int32) -> Int32? {
    var text = [UInt8](repeating: 0, count: 16)
    let count = unsafe text.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, 16, 0) }
    guard count > 0 else { return nil }
    return Int32(String(decoding: text[..<count].prefix { $0 != 0x0A }, as: UTF8.self))
  }

  private static func identity(ofDescriptor file: Int32) throws(Failure) -> Identity {
    var status = stat()
    guard unsafe fstat(file, &status) == 0 else { throw .systemCall(.last("fstat")) }
    return Identity(device: UInt64(status.st_dev), node: UInt64(status.st_ino))
  }

  private static func identity(ofPath path: String) throws(Failure) -> Identity? {
    var status = stat()
    guard unsafe lstat(path, &status) == 0 else {
      if errno == ENOENT { return nil }
      throw .systemCall(.last("lstat"))
    }
    return Identity(device: UInt64(status.st_dev), node: UInt64(status.st_ino))
  }
}
