#if os(Linux)
/// The monitoring of the routes on Linux, on a thread of its own.
struct RouteMonitor: Sendable {
  /// Opens a socket for the reports of some groups.
  typealias Open = @Sendable (_ groups: UInt32) throws(SystemCallError) -> NetlinkSocket

  private let open: Open
  private let stop: StopSignal
  private let tell: @Sendable (Bool) -> Void

  /// Begins to monitor the routes, and returns whether there is one to the internet, and each
  /// change.
  ///
  /// It calls `didEnd` when the thread has closed its sockets, or could not be started.
  static func values(
    open: @escaping Open = { groups throws(SystemCallError) in try NetlinkSocket.open(groups) },
    didEnd: @escaping @Sendable () -> Void = {}
  ) -> AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      do throws(SystemCallError) {
        let stop = try StopSignal()
        continuation.onTermination = { _ in stop.stop() }
        let monitor = RouteMonitor(open: open, stop: stop) { continuation.yield($0) }
        try SystemThread.start {
          monitor.run()
          didEnd()
        }
      } catch {
        continuation.yield(RouteReading.Answer.unknown.holds)
        didEnd()
      }
    }
  }

  private func run() {
    var watch = RouteWatch()
    do throws(SystemCallError) {
      // The reports begin before the first reading, so that no change is missed.
      try monitor(open(NetlinkSocket.Groups.all), &watch)
    } catch {
      if let holds = watch.fail() { tell(holds) }
    }
  }

  /// Follows the reports, and returns when it is stopped.
  private func monitor(
    _ reports: consuming NetlinkSocket,
    _ watch: inout RouteWatch
  ) throws(SystemCallError) {
    while true {
      let step = watch.next
      switch step {
      case .wait, .take:
        let milliseconds: Int32 = step == .wait ? -1 : 0
        switch try stop.wait(for: reports.descriptor, milliseconds: milliseconds) {
        case .stop: return
        case .input: watch.take(try reports.receive())
        case .nothing: watch.take(.nothing)
        }
      case .read:
        guard let answer = read() else { return }
        if let holds = watch.take(answer) { tell(holds) }
      }
    }
  }

  /// Reads the routes, and returns `nil` if it is stopped during this.
  ///
  /// Each reading has a socket of its own, because an answer that was not read to its end would be
  /// in the way of the next one.
  private func read() -> RouteReading.Answer? {
    do throws(SystemCallError) {
      return try read(from: open(NetlinkSocket.Groups.none))
    } catch {
      return .unknown
    }
  }

  private func read(
    from socket: consuming NetlinkSocket
  ) throws(SystemCallError) -> RouteReading.Answer? {
    var reading = RouteReading()
    var step = reading.begin()
    while true {
      switch step {
      case .send(let request):
        try socket.send(request)
        step = .receive
      case .receive:
        guard try stop.wait(for: socket.descriptor, milliseconds: -1) == .input else { return nil }
        switch try socket.receive() {
        case .datagram(let bytes): step = reading.take(bytes)
        case .lost: step = .end(.unknown)
        case .nothing: continue
        }
      case .end(let answer):
        return answer
      }
    }
  }
}
#endif
