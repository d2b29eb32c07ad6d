#if SQLite
import SteadfastQueue
import SystemC

/// A thread that triggers checks for changes by other connections.
///
/// The thread waits for writes to the write-ahead log, and does not read the database.
struct DatabaseWatcher: Sendable {
  /// The interval between checks while nothing writes to the watched log.
  private static let longestInterval = Duration.seconds(1)

  private let logPath: String
  private let intervalWithoutFile: Duration
  private let stop: StopSignal
  private let check: @Sendable () -> Void

  /// Starts the thread, which calls `check` until the thread is stopped.
  ///
  /// - Parameters:
  ///   - logPath: The write-ahead log of the database.
  ///   - intervalWithoutFile: The interval between checks where the log can't be watched.
  ///   - check: Makes another thread check for changes.
  /// - Returns: A signal that stops the thread.
  /// - Throws: The error of the system if it can't provide a thread or a descriptor.
  static func start(
    watchingLogAt logPath: String,
    intervalWithoutFile: Duration,
    check: @escaping @Sendable () -> Void
  ) throws(SystemCallError) -> StopSignal {
    let stop = try StopSignal()
    let watcher = DatabaseWatcher(
      logPath: logPath,
      intervalWithoutFile: intervalWithoutFile,
      stop: stop,
      check: check
    )
    try SystemThread.start { watcher.run() }
    return stop
  }

  private func run() {
    let clock = ContinuousClock()
    let start = clock.now
    func now() -> Duration { start.duration(to: clock.now) }
    let file = FileWatcher()
    var schedule = CheckSchedule(longest: startWatching(with: file), now: now())
    while true {
      let found: StopSignal.WaitResult
      do throws(SystemCallError) {
        found = try stop.wait(
          for: schedule.awaitsFile ? file.descriptor : nil,
          milliseconds: max(.zero, schedule.nextCheck - now()).milliseconds
        )
      } catch {
        // The system has no memory for the call. The queue continues to poll.
        return
      }
      switch found {
      case .stop: return
      case .input:
        file.clear()
        schedule.recordWrite(at: now())
      case .nothing:
        // The log does not exist before the database is opened, and may be replaced later.
        if schedule.isSlow { schedule.longest = startWatching(with: file) }
        check()
        schedule.recordCheck(at: now())
      }
    }
  }

  /// Starts to watch the log if the system can, and returns the interval between checks while
  /// nothing is written.
  private func startWatching(with file: borrowing FileWatcher) -> Duration {
    file.watchFile(at: logPath) ? Self.longestInterval : intervalWithoutFile
  }
}

extension Duration {
  /// The milliseconds, rounded up so that a wait is not too short.
  fileprivate var milliseconds: Int32 {
    Int32(clamping: Int64((self / .milliseconds(1)).rounded(.up)))
  }
}

/// Reports writes to a file, on Linux only.
///
/// The file may be missing, and may be created and deleted at any time.
struct FileWatcher: ~Copyable {
  #if os(Linux)
  /// A descriptor that becomes readable after a write; `nil` if writes are not reported.
  let descriptor: Int32?

  init() {
    #if canImport(Glibc)
    let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
    #else
    let flags = IN_CLOEXEC | IN_NONBLOCK
    #endif
    let descriptor = inotify_init1(flags)
    // Each user has a limited number of descriptors. Without a descriptor, the checks are more
    // frequent.
    self.descriptor = descriptor < 0 ? nil : descriptor
  }

  deinit { if let descriptor { _ = close(descriptor) } }

  /// Starts or continues to watch the file at a path, and returns whether it is watched.
  func watchFile(at path: String) -> Bool {
    guard let descriptor else { return false }
    return unsafe inotify_add_watch(descriptor, path, UInt32(IN_MODIFY)) >= 0
  }

  /// Discards the reported writes.
  func clear() {
    guard let descriptor else { return }
    unsafe withUnsafeTemporaryAllocation(byteCount: 4_096, alignment: 8) { buffer in
      // This read may leave some reports. If so, they end the next wait at once.
      _ = unsafe read(descriptor, buffer.baseAddress, buffer.count)
    }
  }
  #else
  /// `nil`: writes are not reported.
  var descriptor: Int32? { nil }

  /// Returns `false`: no file is watched.
  func watchFile(at _: String) -> Bool { false }

  /// Does nothing.
  func clear() {}
  #endif
}

/// Decides when to check for changes by other connections.
///
/// The system reports a write to the file before the transaction is committed. The flush comes
/// between the report and the commit, and may take long. So the first check follows the report at
/// once, and more checks follow at intervals that double, up to the interval without writes. All
/// times are durations since the same arbitrary start.
struct CheckSchedule: Equatable {
  /// The shortest interval between two checks.
  static let shortest = Duration.milliseconds(1)

  /// The interval between checks without writes to the file.
  var longest: Duration
  /// The interval after the next check.
  private var interval: Duration
  private var lastCheck: Duration
  /// The time of the next check.
  private(set) var nextCheck: Duration

  /// Creates the schedule of a thread that checks for the first time now.
  init(longest: Duration, now: Duration) {
    self.longest = longest
    interval = longest
    lastCheck = now - Self.shortest
    nextCheck = now
  }

  /// Whether a write to the file could make the next check earlier.
  var awaitsFile: Bool { nextCheck > lastCheck + Self.shortest }

  /// Whether the last write to the file was long ago.
  var isSlow: Bool { interval >= longest }

  /// Records a write to the file.
  mutating func recordWrite(at now: Duration) {
    interval = Self.shortest
    nextCheck = min(nextCheck, max(now, lastCheck + Self.shortest))
  }

  /// Records a check.
  mutating func recordCheck(at now: Duration) {
    lastCheck = now
    nextCheck = now + interval
    interval = min(interval * 2, longest)
  }
}
#endif
