#if os(Linux)
/// Decides what to ask the kernel for, and whether its answers have a route to the internet.
///
/// This is a value. It asks for the interfaces first, and then for the routes of IPv4 and of IPv6.
/// It ends at the first route that leads outside. So the list of the routes is read to its end only
/// while there is none.
struct RouteReading {
  struct Answer: Equatable {
    let holds: Bool
    /// Whether the answer stays right until the kernel reports a change.
    let isSure: Bool

    /// The answer if the kernel refuses one, or gives one that can't be read.
    static let unknown = Answer(holds: true, isSure: false)
  }

  enum Step: Equatable {
    case send([UInt8])
    case receive
    case end(Answer)
  }

  /// The lists, by the numbers of the requests.
  private enum List: UInt32 {
    case interfaces = 1
    case ipv4Routes
    case ipv6Routes

    /// The type of the request, and its body, of which only the family is set.
    var request: NetlinkMessage {
      let (type, family, length) =
        switch self {
        case .interfaces: (NetlinkMessage.Kind.listInterfaces, UInt8(0), 16)
        case .ipv4Routes: (NetlinkMessage.Kind.listRoutes, InternetFamily.ipv4, 12)
        case .ipv6Routes: (NetlinkMessage.Kind.listRoutes, InternetFamily.ipv6, 12)
        }
      return NetlinkMessage(
        type: type,
        flags: NetlinkMessage.Flag.request | NetlinkMessage.Flag.list,
        sequence: rawValue,
        body: [family] + Array(repeating: 0, count: length - 1)
      )
    }
  }

  private var list = List.interfaces
  private var interfaces: Set<UInt32> = []
  private var wasInterrupted = false

  /// Returns the first step.
  func begin() -> Step { .send(list.request.bytes) }

  /// Takes in a datagram, and returns the next step.
  mutating func take(_ datagram: [UInt8]) -> Step {
    guard let messages = NetlinkMessage.all(in: datagram) else { return .end(.unknown) }
    for message in messages where message.sequence == list.rawValue {
      if message.flags & NetlinkMessage.Flag.interrupted != 0 { wasInterrupted = true }
      if let step = take(message) { return step }
    }
    return .receive
  }

  /// Returns the next step, or `nil` if the next message tells.
  private mutating func take(_ message: NetlinkMessage) -> Step? {
    switch message.type {
    case NetlinkMessage.Kind.newInterface where list == .interfaces:
      guard let interface = NetworkInterface(message.body) else { return .end(.unknown) }
      if interface.leadsOutside { interfaces.insert(interface.index) }
    case NetlinkMessage.Kind.newRoute where list != .interfaces:
      guard let route = Route(message.body) else { return .end(.unknown) }
      if route.leadsOutside(by: interfaces) { return .end(Answer(holds: true, isSure: true)) }
    case NetlinkMessage.Kind.error, NetlinkMessage.Kind.done:
      // Both begin with the number of an error, or zero. A list may end with one.
      guard let number = message.body.number(UInt32.self, at: 0) else { return .end(.unknown) }
      return endList(isWhole: number == 0)
    default:
      break
    }
    return nil
  }

  private mutating func endList(isWhole: Bool) -> Step {
    switch list {
    case .interfaces, .ipv4Routes:
      guard isWhole else { return .end(.unknown) }
      list = list == .interfaces ? .ipv4Routes : .ipv6Routes
      return .send(list.request.bytes)
    case .ipv6Routes:
      // A kernel without IPv6 refuses to list its routes, and has none.
      return .end(Answer(holds: false, isSure: !wasInterrupted))
    }
  }
}
#endif
