/// Reports whether a condition holds, such as network access.
///
/// ``NetworkMonitor`` reports network access. Write a monitor of your own for any other condition
/// of the machine or the program:
///
/// ```swift
/// struct ChargerMonitor: ConditionMonitor {
///   func values() -> AsyncStream<Bool> {
///     AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
///       let charger = Charger { continuation.yield($0) }
///       continuation.onTermination = { _ in charger.disconnect() }
///       charger.connect()
///     }
///   }
/// }
/// ```
public protocol ConditionMonitor: Sendable {
  /// Returns a stream that reports whether the condition holds: first its current state, then each
  /// change.
  ///
  /// Each call returns a new stream. The first element of the stream arrives without waiting for a
  /// change. Each further element is the opposite of the previous one. The stream buffers only the
  /// newest element, so a slow consumer may miss a change and its reversal, and then gets the same
  /// element again.
  ///
  /// The stream ends when the Swift task that awaits an element is cancelled, or when nothing
  /// refers to the stream and its iterators any longer. Then the monitor stops, and releases the
  /// resources of this stream, such as threads, files and observers.
  func values() -> AsyncStream<Bool>
}

/// Reports whether the machine has a route to the internet.
///
/// The condition holds when the system has a route by which a packet for any address on the
/// internet would leave the machine. This does not prove that a server answers: the router behind
/// the route may have lost its own connection, a firewall may drop the packets, a captive portal
/// may answer in place of the server, or names may not be resolved. So a request that is made while
/// the condition holds can still fail, and still needs retries. While the condition does not hold,
/// a request would certainly fail, because the machine is offline.
///
/// | system | holds when |
/// | --- | --- |
/// | Linux | the main table has a default route, IPv4 or IPv6, over an interface that is up |
/// | Apple's systems | `NWPathMonitor` says that the path is `satisfied` |
/// | others, such as Android | always: the only element of the stream is `true` |
///
/// On Linux, the interface must also be running: its cable is plugged in, or its radio is
/// connected. The loopback interface does not count, and neither do routes that refuse packets
/// (`unreachable`, `prohibit`, `blackhole`). The routing table is that of the network namespace of
/// the thread that calls ``values()``. A machine whose own rules put its default route into a table
/// other than `main` counts as offline: do not use this monitor there.
///
/// If the system refuses to report the state of the network, the stream's element is `true`. For
/// example, a sandbox may forbid the sockets that the monitor needs (`AF_NETLINK`), or the process
/// may have no file descriptors left. An attempt without a network fails and is retried, but a task
/// that waits for a network whose state is never reported would never be performed.
///
/// The monitor does not poll. On Linux, each stream has up to four file descriptors and one thread,
/// which sleeps until the kernel reports a change of an interface, an address or a default route.
/// Each change costs a few system calls, and reading the routing table up to the first default
/// route.
///
/// - Note: This package's authors have never run the monitor on Apple's systems.
public struct NetworkMonitor: ConditionMonitor {
  /// Makes a monitor; it does nothing until ``values()`` is called.
  public init() {}

  /// Returns a stream that reports whether a route leads to the internet: first the current state,
  /// then each change.
  ///
  /// The monitoring of this stream ends, and its thread and its file descriptors are released, when
  /// the Swift task that awaits an element is cancelled, or when nothing refers to the stream and
  /// its iterators any longer.
  public func values() -> AsyncStream<Bool> {
    #if os(Linux)
    return RouteMonitor.values()
    #elseif canImport(Network)
    return PathMonitor.values()
    #else
    return AsyncStream { $0.yield(true) }
    #endif
  }
}
