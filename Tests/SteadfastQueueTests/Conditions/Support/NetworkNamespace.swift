#if os(Linux)
import Foundation
import Synchronization

@testable import SteadfastQueue

/// A separate network, for one thread and the threads that it starts.
///
/// It starts with only the loopback interface, which is down. It exists until its thread has ended
/// and its last socket is closed.
final class NetworkNamespace: Sendable {
  private let jobs = Mutex<[@Sendable () -> Void]>([])
  private let hasJob = DispatchSemaphore(value: 0)
  private let isEnding = Mutex(false)

  /// The reason why tests can't create a separate network on this machine, or `nil` if they can.
  static let obstacle: String? = {
    guard geteuid() == 0 else { return "only root can create a separate network" }
    let found = Mutex<String?>(nil)
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      do {
        try leaveNetwork()
        try TestInterfaces.addPair()
      } catch {
        found.withLock { $0 = "can't create a separate network: \(error)" }
      }
      end.signal()
    }
    end.wait()
    return found.withLock { $0 }
  }()

  private init() {}

  /// Runs the body with a separate network.
  static func with(_ body: (NetworkNamespace) async throws -> Void) async throws {
    let namespace = NetworkNamespace()
    Thread.detachNewThread { namespace.doJobs() }
    defer {
      namespace.isEnding.withLock { $0 = true }
      namespace.hasJob.signal()
    }
    try await namespace.perform { try leaveNetwork() }
    try await body(namespace)
  }

  func perform<Result: Sendable>(
    _ job: @escaping @Sendable () throws -> Result
  ) async throws -> Result {
    try await withCheckedThrowingContinuation { continuation in
      jobs.withLock { $0.append { continuation.resume(with: .init(catching: job)) } }
      hasJob.signal()
    }
  }

  private func doJobs() {
    while true {
      hasJob.wait()
      if isEnding.withLock({ $0 }) { return }
      jobs.withLock { $0.removeFirst() }()
    }
  }

  /// Moves the calling thread to a new network with `unshare`, which Swift can't import.
  private static func leaveNetwork() throws {
    typealias Unshare = @convention(c) (Int32) -> Int32
    let newNetwork: Int32 = 0x4000_0000
    guard let symbol = unsafe dlsym(nil, "unshare") else {
      throw SystemCallError("dlsym", ENOSYS)
    }
    let unshare = unsafe unsafeBitCast(symbol, to: Unshare.self)
    guard unshare(newNetwork) == 0 else { throw SystemCallError.last("unshare") }
  }
}

/// The interfaces and routes of the calling thread's network.
enum TestInterfaces {
  /// The names of the interfaces at the two ends of an Ethernet cable.
  static let names = ["steady0", "steady1"]

  static func index(_ name: String = names[0]) throws -> UInt32 {
    let index = unsafe if_nametoindex(name)
    guard index != 0 else { throw SystemCallError.last("if_nametoindex") }
    return index
  }

  /// Disables IPv6 on new interfaces: the kernel reports their addresses at unpredictable times.
  static func disableIPv6() throws {
    // A kernel without IPv6 does not have the file.
    guard let file = FileHandle(forWritingAtPath: "/proc/sys/net/ipv6/conf/default/disable_ipv6")
    else { return }
    try file.write(contentsOf: Data("1".utf8))
    try file.close()
  }

  /// Adds the cable, with both ends down.
  static func addPair() throws {
    let ends = names.map {
      NetlinkMessage.interfaceBody(0, 0) + NetlinkMessage.attribute(3, Array($0.utf8) + [0])
    }
    let peer = NetlinkMessage.attribute(2, NetlinkMessage.attribute(1, ends[1]))
    let kind = NetlinkMessage.attribute(1, Array("veth".utf8))
    let cable = NetlinkMessage.attribute(18, kind + peer)
    try request(NetlinkMessage.Kind.newInterface, ends[0] + cable, creates: true)
  }

  static func set(_ name: String, isUp: Bool) throws {
    let body = try NetlinkMessage.interfaceBody(index(name), isUp ? 1 : 0, change: 1)
    try request(NetlinkMessage.Kind.newInterface, body)
  }

  static func remove() throws {
    try request(17, NetlinkMessage.interfaceBody(index(), 0))
  }

  static func add(_ route: RouteForm) throws {
    try request(NetlinkMessage.Kind.newRoute, route.body, creates: true)
  }

  static func remove(_ route: RouteForm) throws {
    try request(NetlinkMessage.Kind.removedRoute, route.body)
  }

  /// Adds the address 10.0.0.1/8 to an interface.
  static func addAddress() throws { try request(20, addressBody(), creates: true) }

  static func removeAddress() throws { try request(21, addressBody()) }

  private static func addressBody() throws -> [UInt8] {
    let address: [UInt8] = [10, 0, 0, 1]
    return try [InternetFamily.ipv4, 8, 0, 0] + index().bytes
      + NetlinkMessage.attribute(1, address) + NetlinkMessage.attribute(2, address)
  }

  /// Adds a shared hop, which the kernel calls a nexthop object, over an interface.
  static func addSharedHop(_ number: UInt32) throws {
    let interface = try NetlinkMessage.attribute(5, index().bytes)
    try request(104, sharedHopBody(number) + interface, creates: true)
  }

  static func removeSharedHop(_ number: UInt32) throws {
    try request(105, sharedHopBody(number, family: 0))
  }

  private static func sharedHopBody(
    _ number: UInt32,
    family: UInt8 = InternetFamily.ipv4
  ) -> [UInt8] {
    [family, 0, 0, 0] + UInt32(0).bytes + NetlinkMessage.attribute(1, number.bytes)
  }

  /// Requests a change from the kernel, and waits until the change is made.
  private static func request(_ type: UInt16, _ body: [UInt8], creates: Bool = false) throws {
    // 0x4 requests an acknowledgement; 0x600 creates the object, and fails if it exists.
    let flags = NetlinkMessage.Flag.request | 0x4 | (creates ? 0x600 : 0)
    let message = NetlinkMessage(type: type, flags: flags, sequence: 7, body: body)
    let socket = try NetlinkSocket.open(NetlinkSocket.Groups.none)
    try socket.send(message.bytes)
    guard case .datagram(let bytes) = try socket.receive(),
      let number = NetlinkMessage.all(in: bytes)?.first?.body.number(UInt32.self, at: 0)
    else { throw SystemCallError("netlink", EIO) }
    guard number == 0 else { throw SystemCallError("netlink", -Int32(bitPattern: number)) }
  }
}
#endif
