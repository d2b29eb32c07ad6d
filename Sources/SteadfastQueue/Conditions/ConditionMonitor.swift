/// Tells whether a condition holds, such as that there is a network.
///
/// ``NetworkMonitor`` is one. Write your own for any other condition of the machine or the program:
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
  /// Begins to monitor the condition, and returns whether it holds now, and each change.
  ///
  /// Each call returns a stream of its own. Its first element comes without waiting for a change.
  /// Each further element tells the opposite of the one before. The stream buffers one element, the
  /// newest, so a consumer that is slow may miss a change and the one that reverted it, and then
  /// gets an element that it already had.
  ///
  /// The stream ends when its consumer does: when the Swift task that awaits an element is
  /// cancelled, or when nothing refers to the stream and its iterators any more. Then the monitor
  /// stops, and releases what it held for this stream: threads, files, observers.
  func values() -> AsyncStream<Bool>
}

/// Tells whether the machine has a route to the internet.
///
/// The condition holds when the system has a route by which a packet for any address on the
/// internet would leave the machine. This is no proof that a server answers: the router behind the
/// route may have lost its own connection, a firewall may drop the packets, a captive portal may
/// answer in place of the server, and names may not be resolved. So a request that is made while
/// the condition holds still fails at times, and needs its retries. What the condition can tell is
/// that a request would fail, because the machine is offline.
///
/// | system | holds when |
/// | --- | --- |
/// | Linux | the main table has a default route, IPv4 or IPv6, over an interface that is up |
/// | Apple's systems | `NWPathMonitor` says that the path is `satisfied` |
/// | others, such as Android | always: the stream says `true`, and nothing after it |
///
/// On Linux, the interface must also be running: its cable is plugged in, or its radio is
/// connected. The loopback interface does not count, and neither do routes that refuse packets
/// (`unreachable`, `prohibit`, `blackhole`). The routing table is that of the network namespace of
/// the thread that calls ``values()``. A machine that keeps its default route in another table than
/// `main`, by rules of its own, is taken to be offline: do not use this monitor there.
///
/// If the system refuses to tell, the stream says `true`. A sandbox may forbid the sockets that
/// this needs (`AF_NETLINK`), and the process may have no file descriptors left. Work that is tried
/// without a network fails and is retried; work that waits for a network that nothing reports would
/// never be done.
///
/// Nothing is polled. On Linux, each stream has one thread, which sleeps until the kernel reports a
/// change of an interface, an address or a default route, and up to four file descriptors. A change
/// costs it a few system calls, and a look at the routing table as far as the first default route.
///
/// - Note: On Apple's systems, the monitor was never run by this package's authors.
public struct NetworkMonitor: ConditionMonitor {
  /// Makes a monitor; it does nothing until ``values()`` is called.
  public init() {}

  /// Begins to monitor the routes, and returns whether there is one to the internet, and each
  /// change.
  ///
  /// The monitoring of this stream ends, and its thread and its file descriptors are released, when
  /// the Swift task that awaits an element is cancelled, or when nothing refers to the stream and
  /// its iterators any more.
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
