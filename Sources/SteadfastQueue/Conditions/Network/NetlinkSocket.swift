#if os(Linux)
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// A socket by which the kernel tells of the network (netlink(7)), in the namespace of the thread
/// that opens it.
struct NetlinkSocket: ~Copyable {
  enum Received: Equatable {
    case datagram([UInt8])
    /// There was more than the socket, or the buffer, has room for.
    case lost
    case nothing
  }

  /// Which changes the kernel reports, unasked (linux/rtnetlink.h).
  enum Groups {
    static let none: UInt32 = 0
    /// Interfaces; the addresses and the routes of IPv4 and IPv6; hops that routes share.
    static let all: UInt32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 1 << 31
  }

  /// The kernel makes no datagram larger than this, unless it is asked for other lists.
  private static let bufferLength = 32 * 1_024

  let descriptor: Int32

  private init(descriptor: Int32) { self.descriptor = descriptor }

  deinit { _ = close(descriptor) }

  /// Opens a socket that gets the reports of these groups from now on.
  static func open(_ groups: UInt32) throws(SystemCallError) -> NetlinkSocket {
    let file = socket(AF_NETLINK, datagrams | closedByExec, 0)
    guard file >= 0 else { throw .last("socket") }
    let netlink = NetlinkSocket(descriptor: file)
    try netlink.subscribe(to: groups)
    return netlink
  }

  #if canImport(Glibc)
  private static var datagrams: Int32 { Int32(SOCK_RAW.rawValue) }
  private static var closedByExec: Int32 { Int32(SOCK_CLOEXEC.rawValue) }
  #else
  private static var datagrams: Int32 { SOCK_RAW }
  private static var closedByExec: Int32 { SOCK_CLOEXEC }
  #endif

  private borrowing func subscribe(to groups: UInt32) throws(SystemCallError) {
    guard unsafe withAddress(groups, { unsafe bind(descriptor, $0, $1) }) == 0 else {
      throw .last("bind")
    }
    // From now on, the socket refuses what other programs send to it.
    guard unsafe withAddress(Groups.none, { unsafe connect(descriptor, $0, $1) }) == 0 else {
      throw .last("connect")
    }
  }

  /// Calls `body` with the kernel's address: `sockaddr_nl`, as netlink(7) shows it.
  private borrowing func withAddress(
    _ groups: UInt32,
    _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
  ) -> Int32 {
    let address = UInt16(AF_NETLINK).bytes + UInt16(0).bytes + UInt32(0).bytes + groups.bytes
    return unsafe address.withUnsafeBytes { bytes in
      guard let start = bytes.baseAddress else { return -1 }
      // The kernel copies the bytes, whatever their alignment.
      return unsafe body(start.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
    }
  }

  borrowing func send(_ bytes: [UInt8]) throws(SystemCallError) {
    let file = descriptor
    _ = try SystemCall.retryingInterrupted("send") { systemSend(file, bytes) }
  }

  /// Takes a datagram if there is one, without waiting.
  borrowing func receive(
    upTo bufferLength: Int = bufferLength
  ) throws(SystemCallError) -> Received {
    while true {
      var length = 0
      // The buffer needs no initial bytes: only those that were received count.
      let bytes = unsafe [UInt8](unsafeUninitializedCapacity: bufferLength) { buffer, count in
        length = unsafe recv(
          descriptor,
          buffer.baseAddress,
          buffer.count,
          Int32(MSG_DONTWAIT) | Int32(MSG_TRUNC)
        )
        count = min(max(length, 0), buffer.count)
      }
      let error = errno
      if length > bytes.count { return .lost }
      if length >= 0 { return .datagram(bytes) }
      switch error {
      case EINTR: continue
      case EAGAIN: return .nothing
      case ENOBUFS: return .lost
      default: throw SystemCallError("recv", error)
      }
    }
  }
}

// A method above has the same name as this call.
private func systemSend(_ file: Int32, _ bytes: [UInt8]) -> Int {
  unsafe send(file, bytes, bytes.count, 0)
}
#endif
