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

  private struct Holding {
    /// A child that was forked off has its parent's list, and holds nothing of it.
    let forkCount = ForkCount.current
    var isEnding = false
    /// Those who wait for a lock that is about to be given up.
    var waiting: [DispatchSemaphore] = []
  }

  private static let holdings = Mutex<[FileIdentity: Holding]>([:])

  private let identity: FileIdentity
  private let descriptor: Mutex<Int32>
  private let forkCount = ForkCount.current

  private init(_ file: Int32, _ identity: FileIdentity) {
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
      } catch .unsafe(let reason) {
        throw .opening(.unsafe("the lock file beside it, \(lockPath), is unfit, as \(reason)"))
      } catch {
        throw .opening(error)
      }
      let lock: FileLock?
      do throws(Failure) {
        lock = try take(file, path: lockPath)
      } catch {
        FileStorage.unlockAndClose(file, ForkCount.current)
        throw error
      }
      if let lock { return lock }
      FileStorage.unlockAndClose(file, ForkCount.current)
    }
  }

  /// Tries for the lock with a file that was opened; `nil` if it is to be opened anew.
  private static func take(_ file: Int32, path: String) throws(Failure) -> FileLock? {
    let identity: FileIdentity
    do { identity = try FileIdentity(ofDescriptor: file) } catch { throw .systemCall(error) }
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
    FileStorage.unlockAndClose(file, forkCount)
    if forkCount == ForkCount.current { Self.unregister(identity) }
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

  /// Whether the file that was locked still bears the name.
  private static func lock(
    _ file: Int32,
    _ identity: FileIdentity,
    path: String
  ) throws(Failure) -> Bool {
    let isFree: Bool
    do { isFree = try FileStorage.lock(file) } catch { throw .opening(error) }
    guard isFree else { throw .held(by: holder(file)) }
    let text = Array("\(getpid())\n".utf8)
    do throws(SystemCallError) {
      guard try FileIdentity(ofPath: path) == identity else { return false }
      _ = try FileStorage.retryingInterrupted("ftruncate") { Int(ftruncate(file, 0)) }
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
    guard count > 0,
      let process = Int32(String(decoding: text[..<count].prefix { $0 != 0x0A }, as: UTF8.self))
    else { return nil }
    // A child that was forked off may hold the lock when the process that took it has ended, and a
    // process of another container has another number here.
    return kill(process, 0) == 0 || errno != ESRCH ? process : nil
  }
}
