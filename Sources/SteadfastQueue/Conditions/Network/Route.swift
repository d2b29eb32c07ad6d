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

/// Decides when the routes are read, and what the consumer is told.
///
/// This is a value. The kernel's reports say only that the routes must be read again, so none of
/// them needs to arrive. Reports that come at the same time cause one reading.
struct RouteWatch {
  enum Step: Equatable {
    /// Wait for a report.
    case wait
    /// Take a report that is there already.
    case take
    case read
  }

  /// How many reports are taken before a reading that is due, because they might never end.
  private static var mostReports: Int { 1_000 }
  /// How many unsure answers follow each other before one of them is believed.
  private static var mostTries: Int { 4 }

  private var isDue = true
  private var isSure = false
  private var reports = 0
  private var tries = 0
  private var told: Bool?

  var next: Step {
    guard isDue else { return .wait }
    return reports == 0 || reports >= Self.mostReports ? .read : .take
  }

  /// Takes in what the socket had.
  mutating func take(_ received: NetlinkSocket.Received) {
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

  /// Takes in what was read.
  ///
  /// - Returns: What the consumer is told, if anything.
  mutating func take(_ answer: RouteReading.Answer) -> Bool? {
    (isSure, reports) = (answer.isSure, 0)
    tries = isSure ? 0 : tries + 1
    isDue = !isSure && tries < Self.mostTries
    guard !isDue else { return nil }
    tries = 0
    return tell(answer.holds)
  }

  /// Ends the watch, because the kernel reports no changes any more.
  ///
  /// - Returns: What the consumer is told, if anything.
  mutating func fail() -> Bool? { tell(RouteReading.Answer.unknown.holds) }

  private mutating func tell(_ holds: Bool) -> Bool? {
    guard told != holds else { return nil }
    told = holds
    return holds
  }

  /// Returns whether a report may tell of a change that matters.
  ///
  /// That a route has gone is not always reported by itself: it goes with its address, or with its
  /// interface. A router changes other routes than the default one all the time.
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

/// The monitoring of the routes on Linux, on a thread of its own.
struct RouteMonitor: Sendable {
  /// Opens a socket for the reports of some groups.
  typealias Open = @Sendable (_ groups: UInt32) throws(SystemCallError) -> NetlinkSocket

  private let open: Open
  private let stop: StopSignal
  private let tell: @Sendable (Bool) -> Void

  /// Begins to monitor the routes, and returns whether there is one to the internet, and each
  /// change.
  ///
  /// It calls `didEnd` when the thread has closed its sockets, or could not be started.
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
        continuation.yield(RouteReading.Answer.unknown.holds)
        didEnd()
      }
    }
  }

  private func run() {
    var watch = RouteWatch()
    do throws(SystemCallError) {
      // The reports begin before the first reading, so that no change is missed.
      try monitor(open(NetlinkSocket.Groups.all), &watch)
    } catch {
      if let holds = watch.fail() { tell(holds) }
    }
  }

  /// Follows the reports, and returns when it is stopped.
  private func monitor(
    _ reports: consuming NetlinkSocket,
    _ watch: inout RouteWatch
  ) throws(SystemCallError) {
    while true {
      let step = watch.next
      switch step {
      case .wait, .take:
        let milliseconds: Int32 = step == .wait ? -1 : 0
        switch try stop.wait(for: reports.descriptor, milliseconds: milliseconds) {
        case .stop: return
        case .input: watch.take(try reports.receive())
        case .nothing: watch.take(.nothing)
        }
      case .read:
        guard let answer = read() else { return }
        if let holds = watch.take(answer) { tell(holds) }
      }
    }
  }

  /// Reads the routes, and returns `nil` if it is stopped during this.
  ///
  /// Each reading has a socket of its own, because an answer that was not read to its end would be
  /// in the way of the next one.
  private func read() -> RouteReading.Answer? {
    do throws(SystemCallError) {
      return try read(from: open(NetlinkSocket.Groups.none))
    } catch {
      return .unknown
    }
  }

  private func read(
    from socket: consuming NetlinkSocket
  ) throws(SystemCallError) -> RouteReading.Answer? {
    var reading = RouteReading()
    var step = reading.begin()
    while true {
      switch step {
      case .send(let request):
        try socket.send(request)
        step = .receive
      case .receive:
        guard try stop.wait(for: socket.descriptor, milliseconds: -1) == .input else { return nil }
        switch try socket.receive() {
        case .datagram(let bytes): step = reading.take(bytes)
        case .lost: step = .end(.unknown)
        case .nothing: continue
        }
      case .end(let answer):
        return answer
      }
    }
  }
}
#endif
