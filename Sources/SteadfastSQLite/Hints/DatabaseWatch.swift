#if SQLite
import SteadfastQueue
import SystemC

/// Lets a thread look whether another connection has changed the database.
///
/// It waits for what is written to the log beside the database, and reads no database itself.
struct DatabaseWatch: Sendable {
  /// How long nothing is looked at, while the log is watched and nothing is written to it.
  private static let longestInterval = Duration.seconds(1)

  private let logPath: String
  private let intervalWithoutFile: Duration
  private let stop: StopSignal
  private let look: @Sendable () -> Void

  /// Starts the thread, which calls `look` until it is stopped.
  ///
  /// - Parameters:
  ///   - logPath: The write-ahead log of the database.
  ///   - intervalWithoutFile: How long nothing is looked at where the log can't be watched.
  ///   - look: Makes another thread look.
  /// - Returns: What stops it.
  /// - Throws: The error of the system, which has no thread or no descriptor for it.
  static func start(
    _ logPath: String,
    intervalWithoutFile: Duration,
    look: @escaping @Sendable () -> Void
  ) throws(SystemCallError) -> StopSignal {
    let stop = try StopSignal()
    let watch = DatabaseWatch(
      logPath: logPath,
      intervalWithoutFile: intervalWithoutFile,
      stop: stop,
      look: look
    )
    try SystemThread.start { watch.run() }
    return stop
  }

  private func run() {
    let clock = ContinuousClock()
    let start = clock.now
    func now() -> Duration { start.duration(to: clock.now) }
    let file = FileWatch()
    var schedule = LookSchedule(longest: longestInterval(file), now: now())
    while true {
      let found: StopSignal.Found
      do throws(SystemCallError) {
        found = try stop.wait(
          for: schedule.awaitsFile ? file.descriptor : nil,
          milliseconds: max(.zero, schedule.nextLook - now()).milliseconds
        )
      } catch {
        // The system has no memory for the call. The queue's own looks go on.
        return
      }
      switch found {
      case .stop: return
      case .input:
        file.clear()
        schedule.fileChanged(at: now())
      case .nothing:
        // The log is not there before the database is opened, and may be another one later.
        if schedule.isSlow { schedule.longest = longestInterval(file) }
        look()
        schedule.looked(at: now())
      }
    }
  }

  /// Watches the log, if the system can, and returns how long nothing is looked at without a sign.
  private func longestInterval(_ file: borrowing FileWatch) -> Duration {
    file.follow(logPath) ? Self.longestInterval : intervalWithoutFile
  }
}

extension Duration {
  /// The milliseconds, rounded up so that a wait is not too short.
  fileprivate var milliseconds: Int32 {
    Int32(clamping: Int64((self / .milliseconds(1)).rounded(.up)))
  }
}

/// Tells when something is written to a file, where the system can: on Linux.
///
/// The file may be missing, and may come and go.
struct FileWatch: ~Copyable {
  #if os(Linux)
  /// What becomes readable when something is written; `nil` if nothing tells.
  let descriptor: Int32?

  init() {
    #if canImport(Glibc)
    let flags = Int32(IN_CLOEXEC) | Int32(IN_NONBLOCK)
    #else
    let flags = IN_CLOEXEC | IN_NONBLOCK
    #endif
    let descriptor = inotify_init1(flags)
    // A user has a limited number of them. Without one, the file is looked at more often.
    self.descriptor = descriptor < 0 ? nil : descriptor
  }

  deinit { if let descriptor { _ = close(descriptor) } }

  /// Begins to watch the file with a path, or goes on, and returns whether it is watched.
  func follow(_ path: String) -> Bool {
    guard let descriptor else { return false }
    return unsafe inotify_add_watch(descriptor, path, UInt32(IN_MODIFY)) >= 0
  }

  /// Forgets what has become readable.
  func clear() {
    guard let descriptor else { return }
    unsafe withUnsafeTemporaryAllocation(byteCount: 4_096, alignment: 8) { buffer in
      // It is not read to its end: what is left ends the next wait at once.
      _ = unsafe read(descriptor, buffer.baseAddress, buffer.count)
    }
  }
  #else
  /// Nothing tells.
  var descriptor: Int32? { nil }

  /// Returns `false`: no file is watched.
  func follow(_: String) -> Bool { false }

  /// Does nothing.
  func clear() {}
  #endif
}

/// Decides when to look whether another connection has changed the database.
///
/// The file tells that something is written to it before that is committed: the flush comes between
/// the two, which may take long. So a look follows at once, and others at intervals that double,
/// until they are as long as those without a sign. Times are durations since any one start.
struct LookSchedule: Equatable {
  /// The shortest interval between two looks.
  static let shortest = Duration.milliseconds(1)

  /// The interval between looks without a sign of the file.
  var longest: Duration
  /// The interval after the next look.
  private var interval: Duration
  private var lastLook: Duration
  /// When to look.
  private(set) var nextLook: Duration

  /// Makes the schedule of a thread that looks for the first time now.
  init(longest: Duration, now: Duration) {
    self.longest = longest
    interval = longest
    lastLook = now - Self.shortest
    nextLook = now
  }

  /// Whether a sign of the file would bring the next look forward.
  var awaitsFile: Bool { nextLook > lastLook + Self.shortest }

  /// Whether the file has given no sign for long.
  var isSlow: Bool { interval >= longest }

  /// Notes that something was written to the file.
  mutating func fileChanged(at now: Duration) {
    interval = Self.shortest
    nextLook = min(nextLook, max(now, lastLook + Self.shortest))
  }

  /// Notes that the look was made.
  mutating func looked(at now: Duration) {
    lastLook = now
    nextLook = now + interval
    interval = min(interval * 2, longest)
  }
}
#endif
