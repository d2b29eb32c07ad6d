#if os(Linux)
import Foundation
import Synchronization

@testable import SteadfastQueue

/// A network of its own, in which a thread lives, and the threads that it starts.
///
/// It begins with the loopback interface alone, which is down. It goes when its last socket does.
final class NetworkNamespace: Sendable {
  private let jobs = Mutex<[@Sendable () -> Void]>([])
  private let hasJob = DispatchSemaphore(value: 0)
  private let isEnding = Mutex(false)

  /// Why no test can have a network of its own here, or `nil` if one can.
  static let obstacle: String? = {
    guard geteuid() == 0 else { return "only root may make a network of its own" }
    let found = Mutex<String?>(nil)
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      do {
        try leaveNetwork()
        try TestInterfaces.addPair()
      } catch {
        found.withLock { $0 = "no network of its own: \(error)" }
      }
      end.signal()
    }
    end.wait()
    return found.withLock { $0 }
  }()

  private init() {}

  /// Has the body use a network of its own.
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

  /// Performs a job on the thread that lives in the network.
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

  /// Gives the calling thread a network of its own (`unshare` of sched.h, which Swift can't
  /// import).
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

/// The interfaces and routes of the network in which the calling thread lives.
enum TestInterfaces {
  /// An Ethernet cable, with an interface at each end.
  static let names = ["steady0", "steady1"]

  static func index(_ name: String = names[0]) throws -> UInt32 {
    let index = unsafe if_nametoindex(name)
    guard index != 0 else { throw SystemCallError.last("if_nametoindex") }
    return index
  }

  /// Has new interfaces get no addresses of IPv6, whose reports come at times of their own.
  static func disableIPv6() throws {
    // A kernel without IPv6 does not have the file.
    guard let file = FileHandle(forWritingAtPath: "/proc/sys/net/ipv6/conf/default/disable_ipv6")
    else { return }
    try file.write(contentsOf: Data("1".utf8))
    try file.close()
  }

  /// Adds the cable and its two ends, which are down.
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

  /// Adds a hop that routes share, over an interface.
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

  /// Has the kernel make a change, which it has done when this returns.
  private static func request(_ type: UInt16, _ body: [UInt8], creates: Bool = false) throws {
    // An acknowledgement is asked for, and that what is new is created and not there yet.
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
