#if SQLite
import SteadfastQueue

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
#endif
