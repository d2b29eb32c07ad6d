#if os(Linux)
import SystemC

/// A socket on which the kernel reports changes of the network (netlink(7)).
///
/// The reports are about the network namespace of the thread that opens the socket.
struct NetlinkSocket: ~Copyable {
  enum Received: Equatable {
    case datagram([UInt8])
    /// A datagram was lost, because it exceeded the capacity of the socket or of the buffer.
    case lost
    case nothing
  }

  /// The groups of changes that the kernel reports (linux/rtnetlink.h).
  enum Groups {
    static let none: UInt32 = 0
    /// Reports about interfaces, about addresses and routes of IPv4 and IPv6, and about hops that
    /// routes share.
    static let all: UInt32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400 | 1 << 31
  }

  /// The maximum size of the datagrams in which the kernel sends the lists that this program
  /// requests.
  private static let bufferLength = 32 * 1_024

  let descriptor: Int32

  private init(descriptor: Int32) { self.descriptor = descriptor }

  deinit { _ = close(descriptor) }

  /// Opens a socket that receives the reports of these groups from now on.
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
    guard unsafe withKernelAddress(groups, { unsafe bind(descriptor, $0, $1) }) == 0 else {
      throw .last("bind")
    }
    // A socket that is connected to the kernel refuses what other programs send to it.
    guard unsafe withKernelAddress(Groups.none, { unsafe connect(descriptor, $0, $1) }) == 0 else {
      throw .last("connect")
    }
  }

  /// Calls `body` with the kernel's address: `sockaddr_nl`, as netlink(7) shows it.
  private borrowing func withKernelAddress(
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
    _ = try SystemCall.repeatingWhileInterrupted("send") { systemSend(file, bytes) }
  }

  /// Receives a datagram if one is available, without waiting.
  borrowing func receive(
    upTo bufferLength: Int = bufferLength
  ) throws(SystemCallError) -> Received {
    while true {
      var length = 0
      // The buffer needs no initial bytes: only the received bytes become part of the array.
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

// The method `send` above hides the system call `send`, so this function makes the call.
private func systemSend(_ file: Int32, _ bytes: [UInt8]) -> Int {
  unsafe send(file, bytes, bytes.count, 0)
}

/// A message between the kernel and a program: 16 bytes of header, and a body (netlink(7)).
///
/// The numbers in a message are in the byte order of the machine.
struct NetlinkMessage: Equatable {
  private static let headerLength = 16

  let type: UInt16
  let flags: UInt16
  /// The number of the request; each reply of the kernel repeats the number of its request.
  let sequence: UInt32
  let body: ArraySlice<UInt8>

  init(type: UInt16, flags: UInt16, sequence: UInt32, body: [UInt8]) {
    self.type = type
    self.flags = flags
    self.sequence = sequence
    self.body = body[...]
  }

  /// Reads the message at the start of the bytes; returns `nil` if the message is incomplete.
  private init?(at bytes: ArraySlice<UInt8>) {
    guard let length = bytes.number(UInt32.self, at: 0).flatMap({ Int(exactly: $0) }),
      length >= Self.headerLength, length <= bytes.count,
      let type = bytes.number(UInt16.self, at: 4), let flags = bytes.number(UInt16.self, at: 6),
      let sequence = bytes.number(UInt32.self, at: 8)
    else { return nil }
    self.type = type
    self.flags = flags
    self.sequence = sequence
    body = bytes.prefix(length).dropFirst(Self.headerLength)
  }

  /// The bytes of the message, as the program sends them to the kernel.
  var bytes: [UInt8] {
    let length = UInt32(Self.headerLength + body.count)
    return length.bytes + type.bytes + flags.bytes + sequence.bytes + UInt32(0).bytes + body
  }

  /// Returns the messages of a datagram, or `nil` if one of them is incomplete.
  static func all(in datagram: [UInt8]) -> [NetlinkMessage]? {
    var messages: [NetlinkMessage] = []
    var rest = datagram[...]
    while !rest.isEmpty {
      guard let message = NetlinkMessage(at: rest) else { return nil }
      messages.append(message)
      rest = rest.dropFirst(aligned(headerLength + message.body.count))
    }
    return messages
  }
}

extension NetlinkMessage {
  /// The types of messages and of requests (linux/netlink.h, linux/rtnetlink.h).
  enum Kind {
    static let error: UInt16 = 2
    static let done: UInt16 = 3
    static let newInterface: UInt16 = 16
    static let listInterfaces: UInt16 = 18
    static let newRoute: UInt16 = 24
    static let removedRoute: UInt16 = 25
    static let listRoutes: UInt16 = 26
  }

  /// The flags of a message (linux/netlink.h).
  enum Flag {
    static let request: UInt16 = 0x1
    /// The flag of a reply whose items changed while they were listed, so the list may have gaps.
    static let interrupted: UInt16 = 0x10
    /// The flag of a request to list all items.
    static let list: UInt16 = 0x300
  }
}

/// A part of a message that has a type, a length and a value (rtnetlink(7)).
struct NetlinkAttribute: Equatable {
  private static let headerLength = 4
  /// The bits of a type that are flags rather than a part of the type's number (the complement of
  /// `NLA_TYPE_MASK` in linux/netlink.h).
  private static let describingBits: UInt16 = 0xC000

  let type: UInt16
  let value: ArraySlice<UInt8>

  /// Returns the attributes that the bytes consist of, or `nil` if one of them is incomplete.
  static func all(in bytes: ArraySlice<UInt8>) -> [NetlinkAttribute]? {
    var attributes: [NetlinkAttribute] = []
    var rest = bytes
    while !rest.isEmpty {
      guard let length = rest.number(UInt16.self, at: 0).map(Int.init),
        let type = rest.number(UInt16.self, at: 2),
        length >= headerLength, length <= rest.count
      else { return nil }
      let value = rest.prefix(length).dropFirst(headerLength)
      attributes.append(NetlinkAttribute(type: type & ~describingBits, value: value))
      rest = rest.dropFirst(aligned(length))
    }
    return attributes
  }
}

/// Returns the length of a message or an attribute, rounded up to the four bytes to which the next
/// one is aligned.
private func aligned(_ length: Int) -> Int { (length + 3) & ~3 }

extension ArraySlice<UInt8> {
  /// Returns the number at an offset, or `nil` if the bytes end before the number does.
  func number<Number: FixedWidthInteger & UnsignedInteger>(
    _ type: Number.Type,
    at offset: Int
  ) -> Number? {
    let bytes = dropFirst(offset).prefix(MemoryLayout<Number>.size)
    guard bytes.count == MemoryLayout<Number>.size else { return nil }
    return Number(littleEndian: bytes.reversed().reduce(0) { $0 << 8 | Number($1) })
  }
}

extension FixedWidthInteger where Self: UnsignedInteger {
  /// The number in the byte order of the machine.
  var bytes: [UInt8] {
    let number = littleEndian
    return (0..<MemoryLayout<Self>.size).map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
  }
}
#endif
