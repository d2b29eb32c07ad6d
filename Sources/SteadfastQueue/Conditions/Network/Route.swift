#if os(Linux)
/// An interface of the machine, as the kernel lists it (`ifinfomsg` in rtnetlink(7)).
struct NetworkInterface: Equatable {
  private static let length = 16

  let index: UInt32
  private let flags: UInt32

  /// Reads the body of a message, or returns `nil` if the body is too short.
  init?(_ body: ArraySlice<UInt8>) {
    guard body.count >= Self.length, let index = body.number(UInt32.self, at: 4),
      let flags = body.number(UInt32.self, at: 8)
    else { return nil }
    self.index = index
    self.flags = flags
  }

  /// Whether packets can leave the machine through this interface.
  ///
  /// That is the case if the interface is enabled and running (for example, its cable is plugged
  /// in), and if it is not a loopback interface (netdevice(7)).
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
  /// The flags of a route that the kernel does not use, because the route is dead or its link is
  /// down.
  private static let unusable: UInt32 = 0x1 | 0x10

  /// One of the interfaces to which a route may send a packet.
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

  /// Reads the body of a message, or returns `nil` if the body is malformed.
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
      guard readAttribute(attribute) else { return nil }
    }
  }

  /// Reads an attribute, and returns whether it is well formed.
  private mutating func readAttribute(_ attribute: NetlinkAttribute) -> Bool {
    switch attribute.type {
    case AttributeType.interface:
      guard let index = attribute.value.number(UInt32.self, at: 0) else { return false }
      hops.append(Hop(interface: index, flags: 0))
    case AttributeType.table:
      // The number of a table that is above 255 does not fit into the header.
      guard let number = attribute.value.number(UInt32.self, at: 0) else { return false }
      table = number
    case AttributeType.sharedHop:
      hasSharedHop = true
    case AttributeType.hops:
      return readHops(attribute.value)
    default:
      break
    }
    return true
  }

  /// Reads the hops of a route that has several (`rtnexthop` in rtnetlink(7)).
  ///
  /// - Returns: Whether the hops are well formed.
  private mutating func readHops(_ bytes: ArraySlice<UInt8>) -> Bool {
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

  /// Whether this is a default route in the main table.
  ///
  /// The kernel uses the main table unless a rule names another one.
  var isDefault: Bool { isInternet && prefixLength == 0 && table == Self.mainTable }

  /// Returns whether packets to the internet can take this route through one of the interfaces.
  func leadsToInternet(through interfaces: Set<UInt32>) -> Bool {
    guard isDefault, type == Self.unicast, flags & Self.unusable == 0 else { return false }
    // If routes share a hop, the kernel may report only the hop's number. When the interface goes
    // down, the kernel removes the hop and its routes.
    if hops.isEmpty { return hasSharedHop }
    return hops.contains { $0.flags & Self.unusable == 0 && interfaces.contains($0.interface) }
  }
}

/// The numbers of the families of addresses (sys/socket.h on Linux).
enum InternetFamily {
  static let ipv4: UInt8 = 2
  static let ipv6: UInt8 = 10
}

/// Decides which requests to send to the kernel, and whether the kernel's replies show a route to
/// the internet.
///
/// This type does no input or output itself. The interfaces are requested first, then the IPv4
/// routes, and then the IPv6 routes. Reading ends at the first route that leads outside, so the
/// whole list of routes is read only if there is none.
struct RouteReading {
  struct Outcome: Equatable {
    let holds: Bool
    /// Whether the result stays valid until the kernel reports a change.
    let isSure: Bool

    /// The result to assume if the kernel refuses a request, or if its reply can't be read.
    static let unknown = Outcome(holds: true, isSure: false)
  }

  enum Step: Equatable {
    case send([UInt8])
    case receive
    case end(Outcome)
  }

  /// The lists that are requested from the kernel; the raw value is the number of the request.
  private enum List: UInt32 {
    case interfaces = 1
    case ipv4Routes
    case ipv6Routes

    /// The request for this list; its body consists of zeros, except for the address family.
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
  func firstStep() -> Step { .send(list.request.bytes) }

  /// Reads a datagram, and returns the next step.
  mutating func nextStep(after datagram: [UInt8]) -> Step {
    guard let messages = NetlinkMessage.all(in: datagram) else { return .end(.unknown) }
    for message in messages where message.sequence == list.rawValue {
      if message.flags & NetlinkMessage.Flag.interrupted != 0 { wasInterrupted = true }
      if let step = nextStep(afterMessage: message) { return step }
    }
    return .receive
  }

  /// Reads a message, and returns the next step; `nil` if the next message must be read first.
  private mutating func nextStep(afterMessage message: NetlinkMessage) -> Step? {
    switch message.type {
    case NetlinkMessage.Kind.newInterface where list == .interfaces:
      guard let interface = NetworkInterface(message.body) else { return .end(.unknown) }
      if interface.leadsOutside { interfaces.insert(interface.index) }
    case NetlinkMessage.Kind.newRoute where list != .interfaces:
      guard let route = Route(message.body) else { return .end(.unknown) }
      if route.leadsToInternet(through: interfaces) {
        return .end(Outcome(holds: true, isSure: true))
      }
    case NetlinkMessage.Kind.error, NetlinkMessage.Kind.done:
      // Both messages start with an error number, or with zero. A list may end with an error.
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
      // A kernel without IPv6 refuses to list the routes of IPv6, and has no such routes.
      return .end(Outcome(holds: false, isSure: !wasInterrupted))
    }
  }
}

/// Decides when to read the routes, and when to report a change.
///
/// This type does no input or output itself. A report of the kernel only causes the routes to be
/// read again, so a lost report does no harm. If several reports arrive together, the routes are
/// read once.
struct RouteWatch {
  enum Step: Equatable {
    /// Wait for a report.
    case wait
    /// Receive a report that has already arrived.
    case take
    case read
  }

  /// The maximum number of reports to receive before the routes are read.
  ///
  /// Without a maximum, an endless series of reports could prevent the routes from ever being read.
  private static var maxReportCount: Int { 1_000 }
  /// The number of consecutive unsure results after which the last one is accepted.
  private static var maxTryCount: Int { 4 }

  private var isDue = true
  private var isSure = false
  private var reports = 0
  private var tries = 0
  private var reported: Bool?

  var next: Step {
    guard isDue else { return .wait }
    return reports == 0 || reports >= Self.maxReportCount ? .read : .take
  }

  /// Records what was received from the socket.
  mutating func apply(_ received: NetlinkSocket.Received) {
    switch received {
    case .datagram(let bytes):
      isDue = isDue || !isSure || Self.mayMatter(bytes)
      reports += 1
    case .lost:
      isDue = true
      reports += 1
    case .nothing:
      reports = 0
    }
  }

  /// Records the result of reading the routes.
  ///
  /// - Returns: The value to report; `nil` if it has not changed, or if the routes must be read
  ///   again.
  mutating func apply(_ outcome: RouteReading.Outcome) -> Bool? {
    (isSure, reports) = (outcome.isSure, 0)
    tries = isSure ? 0 : tries + 1
    isDue = !isSure && tries < Self.maxTryCount
    guard !isDue else { return nil }
    tries = 0
    return valueToReport(for: outcome.holds)
  }

  /// Records that the kernel no longer reports changes.
  ///
  /// - Returns: The value to report; `nil` if it has not changed.
  mutating func fail() -> Bool? { valueToReport(for: RouteReading.Outcome.unknown.holds) }

  private mutating func valueToReport(for holds: Bool) -> Bool? {
    guard reported != holds else { return nil }
    reported = holds
    return holds
  }

  /// Returns whether a report of the kernel may mean that a default route was added or removed.
  ///
  /// The kernel does not always report that a route was removed: it may report only the removal of
  /// the route's address or interface. Reports about other routes don't matter: on a router, such
  /// routes change constantly.
  private static func mayMatter(_ report: [UInt8]) -> Bool {
    guard let messages = NetlinkMessage.all(in: report) else { return true }
    return messages.contains { message in
      switch message.type {
      case NetlinkMessage.Kind.newRoute, NetlinkMessage.Kind.removedRoute:
        Route(message.body)?.isDefault ?? true
      default:
        true
      }
    }
  }
}

/// Monitors the routes on Linux, on its own thread.
struct RouteMonitor: Sendable {
  /// Opens a socket that receives the kernel's reports of these groups.
  typealias Open = @Sendable (_ groups: UInt32) throws(SystemCallError) -> NetlinkSocket

  private let open: Open
  private let stop: StopSignal
  private let report: @Sendable (Bool) -> Void

  /// Returns a stream that reports whether a route leads to the internet: first the current state,
  /// then each change.
  ///
  /// `didEnd` is called when the thread has closed its sockets, or if no thread could be started.
  static func values(
    open: @escaping Open = { groups throws(SystemCallError) in try NetlinkSocket.open(groups) },
    didEnd: @escaping @Sendable () -> Void = {}
  ) -> AsyncStream<Bool> {
    AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
      do throws(SystemCallError) {
        let stop = try StopSignal()
        continuation.onTermination = { _ in stop.stop() }
        let monitor = RouteMonitor(open: open, stop: stop) { continuation.yield($0) }
        try SystemThread.start {
          monitor.run()
          didEnd()
        }
      } catch {
        continuation.yield(RouteReading.Outcome.unknown.holds)
        didEnd()
      }
    }
  }

  private func run() {
    var watch = RouteWatch()
    do throws(SystemCallError) {
      // Reports are requested before the first reading, so that no change is missed.
      try applyReports(of: open(NetlinkSocket.Groups.all), to: &watch)
    } catch {
      if let holds = watch.fail() { report(holds) }
    }
  }

  /// Passes the kernel's reports to the watch, and reads the routes when needed, until the monitor
  /// is stopped.
  private func applyReports(
    of reports: consuming NetlinkSocket,
    to watch: inout RouteWatch
  ) throws(SystemCallError) {
    while true {
      let step = watch.next
      switch step {
      case .wait, .take:
        let milliseconds: Int32 = step == .wait ? -1 : 0
        switch try stop.wait(for: reports.descriptor, milliseconds: milliseconds) {
        case .stop: return
        case .input: watch.apply(try reports.receive())
        case .nothing: watch.apply(.nothing)
        }
      case .read:
        guard let outcome = readRoutes() else { return }
        if let holds = watch.apply(outcome) { report(holds) }
      }
    }
  }

  /// Reads the routes; returns `nil` if the monitor is stopped before the end.
  ///
  /// Each call uses a new socket, because the unread rest of a reply would get in the way of the
  /// next call.
  private func readRoutes() -> RouteReading.Outcome? {
    do throws(SystemCallError) {
      return try readRoutes(from: open(NetlinkSocket.Groups.none))
    } catch {
      return .unknown
    }
  }

  private func readRoutes(
    from socket: consuming NetlinkSocket
  ) throws(SystemCallError) -> RouteReading.Outcome? {
    var reading = RouteReading()
    var step = reading.firstStep()
    while true {
      switch step {
      case .send(let request):
        try socket.send(request)
        step = .receive
      case .receive:
        guard try stop.wait(for: socket.descriptor, milliseconds: -1) == .input else { return nil }
        switch try socket.receive() {
        case .datagram(let bytes): step = reading.nextStep(after: bytes)
        case .lost: step = .end(.unknown)
        case .nothing: continue
        }
      case .end(let outcome):
        return outcome
      }
    }
  }
}
#endif
