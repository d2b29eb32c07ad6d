#if os(Linux)
/// An interface of the machine, as the kernel lists it (`ifinfomsg` in rtnetlink(7)).
struct NetworkInterface: Equatable {
  private static let length = 16

  let index: UInt32
  private let flags: UInt32

  /// Reads the body of a message, or returns `nil` if it is too short.
  init?(_ body: ArraySlice<UInt8>) {
    guard body.count >= Self.length, let index = body.number(UInt32.self, at: 4),
      let flags = body.number(UInt32.self, at: 8)
    else { return nil }
    self.index = index
    self.flags = flags
  }

  /// Whether packets can leave the machine by this interface.
  ///
  /// A user has brought it up, it is running, so that its cable is plugged in, and it does not lead
  /// back to the machine (netdevice(7)).
  var leadsOutside: Bool {
    let (up, loopback, running): (UInt32, UInt32, UInt32) = (0x1, 0x8, 0x40)
    return flags & (up | running | loopback) == up | running
  }
}

/// An entry of a routing table, as the kernel lists it (`rtmsg` in rtnetlink(7)).
struct Route: Equatable {
  private static let length = 12
  private static let mainTable: UInt32 = 254
  private static let unicast: UInt8 = 1
  /// The kernel does not use a route with one of these: it is dead, or its link is down.
  private static let unusable: UInt32 = 0x1 | 0x10

  /// One of the ways that a route takes.
  private struct Hop: Equatable {
    let interface: UInt32
    let flags: UInt32
  }

  private enum AttributeType {
    static let interface: UInt16 = 4
    static let hops: UInt16 = 9
    static let table: UInt16 = 15
    static let sharedHop: UInt16 = 30
  }

  private let isInternet: Bool
  private let prefixLength: UInt8
  private let type: UInt8
  private let flags: UInt32
  private var table: UInt32
  private var hops: [Hop] = []
  private var hasSharedHop = false

  /// Reads the body of a message, or returns `nil` if it is not well formed.
  init?(_ body: ArraySlice<UInt8>) {
    guard let attributes = NetlinkAttribute.all(in: body.dropFirst(Self.length)),
      let family = body.number(UInt8.self, at: 0), let prefix = body.number(UInt8.self, at: 1),
      let table = body.number(UInt8.self, at: 4), let type = body.number(UInt8.self, at: 7),
      let flags = body.number(UInt32.self, at: 8)
    else { return nil }
    isInternet = [InternetFamily.ipv4, InternetFamily.ipv6].contains(family)
    prefixLength = prefix
    self.type = type
    self.flags = flags
    self.table = UInt32(table)
    for attribute in attributes {
      guard take(attribute) else { return nil }
    }
  }

  /// Returns whether the attribute is well formed.
  private mutating func take(_ attribute: NetlinkAttribute) -> Bool {
    switch attribute.type {
    case AttributeType.interface:
      guard let index = attribute.value.number(UInt32.self, at: 0) else { return false }
      hops.append(Hop(interface: index, flags: 0))
    case AttributeType.table:
      // Numbers beyond 255 have no room in the header.
      guard let number = attribute.value.number(UInt32.self, at: 0) else { return false }
      table = number
    case AttributeType.sharedHop:
      hasSharedHop = true
    case AttributeType.hops:
      return takeHops(attribute.value)
    default:
      break
    }
    return true
  }

  /// Takes the hops of a route that has several (`rtnexthop` in rtnetlink(7)).
  ///
  /// - Returns: Whether they are well formed.
  private mutating func takeHops(_ bytes: ArraySlice<UInt8>) -> Bool {
    var rest = bytes
    while !rest.isEmpty {
      guard let length = rest.number(UInt16.self, at: 0).map(Int.init), length >= 8,
        length <= rest.count, let flags = rest.number(UInt8.self, at: 2),
        let interface = rest.number(UInt32.self, at: 4)
      else { return false }
      hops.append(Hop(interface: interface, flags: UInt32(flags)))
      rest = rest.dropFirst((length + 3) & ~3)
    }
    return true
  }

  /// Whether this is a default route, of the table that is used if no rule names another.
  var isDefault: Bool { isInternet && prefixLength == 0 && table == Self.mainTable }

  /// Returns whether packets to the internet can take this route, by one of the interfaces.
  func leadsOutside(by interfaces: Set<UInt32>) -> Bool {
    guard isDefault, type == Self.unicast, flags & Self.unusable == 0 else { return false }
    // The kernel may name a hop that routes share by its number alone. It removes the hop, and the
    // route with it, when the interface goes down.
    if hops.isEmpty { return hasSharedHop }
    return hops.contains { $0.flags & Self.unusable == 0 && interfaces.contains($0.interface) }
  }
}

/// The numbers of the families of addresses (sys/socket.h on Linux).
enum InternetFamily {
  static let ipv4: UInt8 = 2
  static let ipv6: UInt8 = 10
}
#endif
