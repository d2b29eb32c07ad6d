#if os(Linux)
/// A message between the kernel and a program: 16 bytes of header, and a body (netlink(7)).
///
/// Its numbers are in the byte order of the machine.
struct NetlinkMessage: Equatable {
  private static let headerLength = 16

  let type: UInt16
  let flags: UInt16
  /// The kernel answers a request with messages that have its number.
  let sequence: UInt32
  let body: ArraySlice<UInt8>

  init(type: UInt16, flags: UInt16, sequence: UInt32, body: [UInt8]) {
    self.type = type
    self.flags = flags
    self.sequence = sequence
    self.body = body[...]
  }

  /// Reads the message at the beginning of the bytes, or returns `nil` if there is no whole one.
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

  /// The message as it is sent.
  var bytes: [UInt8] {
    let length = UInt32(Self.headerLength + body.count)
    return length.bytes + type.bytes + flags.bytes + sequence.bytes + UInt32(0).bytes + body
  }

  /// Returns the messages of a datagram, or `nil` if it has others than whole ones.
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
  /// What a message is, and what is asked for (linux/netlink.h, linux/rtnetlink.h).
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
    /// In an answer: what is listed was changed during this, so the list may have gaps.
    static let interrupted: UInt16 = 0x10
    /// In a request: list all.
    static let list: UInt16 = 0x300
  }
}

/// A part of a message: four bytes of header, and a value (rtnetlink(7)).
struct NetlinkAttribute: Equatable {
  private static let headerLength = 4
  /// The bits of a type that only describe the value (`NLA_TYPE_MASK` in linux/netlink.h).
  private static let describingBits: UInt16 = 0xC000

  let type: UInt16
  let value: ArraySlice<UInt8>

  /// Returns the attributes that the bytes consist of, or `nil` if they are others than whole ones.
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

/// Where the next message or attribute begins: both are aligned to four bytes.
private func aligned(_ length: Int) -> Int { (length + 3) & ~3 }

extension ArraySlice<UInt8> {
  /// Returns the number at an offset, or `nil` if the bytes end before it does.
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
