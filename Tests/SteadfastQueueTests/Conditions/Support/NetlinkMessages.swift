#if os(Linux)
@testable import SteadfastQueue

extension NetlinkMessage {
  /// The kernel's message that lists an interface.
  static func interface(_ index: UInt32, _ flags: UInt32, sequence: UInt32 = 1) -> NetlinkMessage {
    NetlinkMessage(
      type: Kind.newInterface,
      flags: 2,
      sequence: sequence,
      body: interfaceBody(index, flags) + attribute(3, Array("eth0".utf8) + [0])
    )
  }

  /// The kernel's message that ends a list, with an error number.
  static func done(sequence: UInt32, error: Int32 = 0) -> NetlinkMessage {
    let body = UInt32(bitPattern: error).bytes
    return NetlinkMessage(type: Kind.done, flags: 2, sequence: sequence, body: body)
  }

  static func interfaceBody(
    _ index: UInt32,
    _ flags: UInt32,
    change: UInt32 = 0
  ) -> [UInt8] {
    UInt32(0).bytes + index.bytes + flags.bytes + change.bytes
  }

  static func attribute(_ type: UInt16, _ value: [UInt8]) -> [UInt8] {
    let padding = Array(repeating: UInt8(0), count: (4 - value.count % 4) % 4)
    return UInt16(4 + value.count).bytes + type.bytes + value + padding
  }
}

/// The body of a message that lists a route or, as a request, adds one.
struct RouteForm: Sendable {
  var family = InternetFamily.ipv4
  var prefixLength: UInt8 = 0
  var table: UInt8 = 254
  var type: UInt8 = 1
  var flags: UInt32 = 0
  /// The index of the interface, if the route has one hop.
  var interface: UInt32?
  /// The interface and the flags of each hop, if the route has several.
  var hops: [(interface: UInt32, flags: UInt8)] = []
  var otherAttributes: [UInt8] = []

  var body: [UInt8] {
    // Scope 253: the next hop is on the link. Origin 4: an administrator added the route.
    let hasHop = interface != nil || !hops.isEmpty
    let scope: UInt8 = hasHop && family == InternetFamily.ipv4 ? 253 : 0
    let header = [family, prefixLength, 0, 0, table, 4, scope, type] + flags.bytes
    let destination =
      prefixLength == 0 ? [] : NetlinkMessage.attribute(1, [10] + Array(repeating: 0, count: 3))
    let single = interface.map { NetlinkMessage.attribute(4, $0.bytes) } ?? []
    let several: [UInt8] = hops.flatMap { hop in
      UInt16(8).bytes + [hop.flags, 0] + hop.interface.bytes
    }
    return header + destination + single
      + (several.isEmpty ? [] : NetlinkMessage.attribute(9, several)) + otherAttributes
  }

  func message(
    sequence: UInt32 = 2,
    type: UInt16 = NetlinkMessage.Kind.newRoute,
    flags: UInt16 = 2
  ) -> NetlinkMessage {
    NetlinkMessage(type: type, flags: flags, sequence: sequence, body: body)
  }
}
#endif
