import Synchronization
import SystemC

/// A signal with which a system or a user asks a process to end.
public struct UnixSignal: Sendable, Hashable {
  /// What `kill`, a container's engine and the system send.
  public static let sigterm = UnixSignal(number: SIGTERM)
  /// What a terminal sends for Ctrl-C.
  public static let sigint = UnixSignal(number: SIGINT)
  /// What a terminal sends when it is closed.
  public static let sighup = UnixSignal(number: SIGHUP)

  private let number: Int32

  /// Performs a body, which a signal ends through `stop`.
  ///
  /// - Returns: What the body returns; `nil` if it throws because of an earlier shutdown.
  /// - Throws: What the body throws; a `SystemCallError` if the process has too many open files
  ///   or threads.
  static func watch<Result>(
    _ signals: [UnixSignal],
    during body: () async throws -> Result,
    stop: @escaping @Sendable () -> Void
  ) async throws -> Result? {
    let watcher = try watches.withLock { try $0.add(Set(signals), stop) }
    defer { watches.withLock { $0.remove(watcher) } }
    do {
      return try await body()
    } catch let error as TaskQueueError where error.code == .shutDown {
      return nil
    }
  }
}

/// The end of a pipe into which the handler of signals writes their numbers.
private let signalPipe = Atomic<Int32>(-1)

/// Handles a signal: between any two instructions of the thread that gets it, so it may only write.
private func handle(_ signal: Int32) {
  let former = errno
  var number = UInt8(truncatingIfNeeded: signal)
  _ = unsafe write(signalPipe.load(ordering: .relaxed), &number, 1)
  errno = former
}

extension UnixSignal {
  private static let watches = Mutex(Watches())

  /// Who watches the signals of the process.
  private struct Watches {
    private var watchers: [Int: (signals: Set<UnixSignal>, body: @Sendable () -> Void)] = [:]
    private var lastWatcher = 0
    /// What the signals that are watched did before.
    private var former: [UnixSignal: sigaction] = [:]
    /// Whether a thread reads the pipe, which it does for as long as the process lives.
    private var isReading = false

    /// Calls a body for each of the signals, which have no other effect during this.
    ///
    /// - Returns: The number of the watcher.
    mutating func add(
      _ signals: Set<UnixSignal>,
      _ body: @escaping @Sendable () -> Void
    ) throws(SystemCallError) -> Int {
      if !isReading { try Self.beginReading() }
      isReading = true
      for signal in signals where former[signal] == nil {
        var action = sigaction()
        unsafe sigaction(signal.number, nil, &action)
        former[signal] = action
        _ = SystemC.signal(signal.number, handle)
      }
      lastWatcher += 1
      watchers[lastWatcher] = (signals, body)
      return lastWatcher
    }

    /// Removes a watcher; signals that have no other watcher have their former effect again.
    mutating func remove(_ watcher: Int) {
      let signals = watchers.removeValue(forKey: watcher)?.signals ?? []
      for signal in signals where !watchers.values.contains(where: { $0.signals.contains(signal) })
      {
        guard var action = former.removeValue(forKey: signal) else { continue }
        unsafe sigaction(signal.number, &action, nil)
      }
    }

    private func bodies(of number: UInt8) -> [@Sendable () -> Void] {
      let signal = UnixSignal(number: Int32(number))
      return watchers.values.filter { $0.signals.contains(signal) }.map(\.body)
    }

    /// Makes the pipe, and starts a thread that reads it: handlers may occupy all other threads.
    private static func beginReading() throws(SystemCallError) {
      var ends: [Int32] = [-1, -1]
      guard unsafe pipe(&ends) == 0 else { throw .last("pipe") }
      for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
      // If thousands of signals come at once, the last ones are dropped.
      _ = fcntl(ends[1], F_SETFL, O_NONBLOCK)
      let reader = ends[0]
      do {
        try SystemThread.start {
          var number = 0 as UInt8
          while true {
            if unsafe read(reader, &number, 1) == 1 {
              for body in watches.withLock({ $0.bodies(of: number) }) { body() }
            } else if errno != EINTR {
              return
            }
          }
        }
      } catch {
        for end in ends { _ = close(end) }
        throw error
      }
      signalPipe.store(ends[1], ordering: .relaxed)
    }
  }
}
