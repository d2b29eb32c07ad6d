#if os(Linux)
import Foundation
import Testing

@testable import SteadfastQueue

/// Monitors a separate network.
///
/// The tests change its interfaces and routes.
@Suite(
  .enabled(if: NetworkNamespace.obstacle == nil, "\(NetworkNamespace.obstacle ?? "")"),
  .timeLimit(.minutes(5))
)
struct NetworkChangeTests {
  // The flag for reports of IPv4 routes. The kernel reports interfaces at unpredictable times.
  private let ipv4Routes: UInt32 = 0x40

  /// Adds a cable whose ends are up, and a default route over the cable, and waits for the report.
  private func connectCable(
    in namespace: NetworkNamespace,
    family: UInt8 = InternetFamily.ipv4
  ) async throws -> RouteForm {
    let values = try await namespace.perform { RouteMonitor.values() }
    var iterator = values.makeAsyncIterator()
    #expect(await iterator.next() == false)
    let route = try await namespace.perform {
      if family != InternetFamily.ipv6 { try TestInterfaces.disableIPv6() }
      try TestInterfaces.addPair()
      for name in TestInterfaces.names { try TestInterfaces.set(name, isUp: true) }
      let route = try RouteForm(family: family, interface: TestInterfaces.index())
      try TestInterfaces.add(route)
      return route
    }
    #expect(await iterator.next() == true)
    return route
  }

  /// The first value of a new stream.
  private func firstValue(in namespace: NetworkNamespace) async throws -> Bool? {
    let values = try await namespace.perform { RouteMonitor.values() }
    return await values.first { _ in true }
  }

  @Test(arguments: [InternetFamily.ipv4, InternetFamily.ipv6])
  func `the monitor reports each added or removed default route`(family: UInt8) async throws {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace, family: family)
      let values = try await namespace.perform { RouteMonitor.values() }
      var iterator = values.makeAsyncIterator()
      #expect(await iterator.next() == true)
      for _ in 1...20 {
        try await namespace.perform { try TestInterfaces.remove(route) }
        #expect(await iterator.next() == false)
        try await namespace.perform { try TestInterfaces.add(route) }
        #expect(await iterator.next() == true)
      }
    }
  }

  @Test func `the monitor reports an unplugged cable and a removed interface`()
    async throws
  {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      let values = try await namespace.perform { RouteMonitor.values() }
      var iterator = values.makeAsyncIterator()
      #expect(await iterator.next() == true)
      try await namespace.perform { try TestInterfaces.set(TestInterfaces.names[1], isUp: false) }
      #expect(await iterator.next() == false)
      try await namespace.perform { try TestInterfaces.set(TestInterfaces.names[1], isUp: true) }
      #expect(await iterator.next() == true)
      // The kernel also removes the route, but reports only that the interface is down.
      try await namespace.perform { try TestInterfaces.set(TestInterfaces.names[0], isUp: false) }
      #expect(await iterator.next() == false)
      try await namespace.perform {
        try TestInterfaces.set(TestInterfaces.names[0], isUp: true)
        try TestInterfaces.add(route)
      }
      #expect(await iterator.next() == true)
      try await namespace.perform { try TestInterfaces.remove() }
      #expect(await iterator.next() == false)
    }
  }

  // When the kernel removes a route with its address or hop, it reports only the address or hop.
  @Test func `the monitor reports the loss of a route whose last address or shared hop is removed`()
    async throws
  {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      let values = try await namespace.perform { RouteMonitor.values() }
      var iterator = values.makeAsyncIterator()
      #expect(await iterator.next() == true)
      try await namespace.perform {
        try TestInterfaces.addAddress()
        try TestInterfaces.removeAddress()
      }
      #expect(await iterator.next() == false)
      let number = UInt32(7).bytes
      try await namespace.perform {
        try TestInterfaces.addSharedHop(7)
        try TestInterfaces.add(RouteForm(otherAttributes: NetlinkMessage.attribute(30, number)))
      }
      #expect(await iterator.next() == true)
      try await namespace.perform { try TestInterfaces.removeSharedHop(7) }
      #expect(await iterator.next() == false)
      try await namespace.perform {
        try TestInterfaces.addAddress()
        try TestInterfaces.add(route)
      }
      #expect(await iterator.next() == true)
    }
  }

  @Test func `a default route may have several hops`() async throws {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      try await namespace.perform { try TestInterfaces.remove(route) }
      #expect(try await firstValue(in: namespace) == false)
      try await namespace.perform {
        let hops = try TestInterfaces.names.map { (try TestInterfaces.index($0), UInt8(0)) }
        try TestInterfaces.add(RouteForm(hops: hops))
      }
      #expect(try await firstValue(in: namespace) == true)
    }
  }

  // The route types blackhole, unreachable and prohibit.
  @Test(arguments: [6, 7, 8] as [UInt8], [InternetFamily.ipv4, InternetFamily.ipv6])
  func `a default route that rejects packets doesn't count as a connection`(
    type: UInt8,
    family: UInt8
  )
    async throws
  {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace, family: family)
      try await namespace.perform {
        try TestInterfaces.remove(route)
        try TestInterfaces.add(RouteForm(family: family, type: type))
      }
      #expect(try await firstValue(in: namespace) == false)
    }
  }

  @Test
  func `a route of another table or destination, or over the loopback, doesn't count`()
    async throws
  {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      try await namespace.perform {
        try TestInterfaces.set("lo", isUp: true)
        try TestInterfaces.remove(route)
        try TestInterfaces.add(RouteForm(table: 100, interface: route.interface))
        try TestInterfaces.add(RouteForm(prefixLength: 8, interface: route.interface))
        try TestInterfaces.add(RouteForm(interface: TestInterfaces.index("lo")))
      }
      #expect(try await firstValue(in: namespace) == false)
    }
  }

  @Test func `a report that is longer than the buffer is lost`() async throws {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      let received = try await namespace.perform {
        let socket = try NetlinkSocket.open(ipv4Routes)
        try TestInterfaces.remove(route)
        return try [socket.receive(upTo: 16), socket.receive()]
      }
      #expect(received == [.lost, .nothing])
    }
  }

  @Test func `a socket whose buffer overflows reports the loss and continues`() async throws {
    try await NetworkNamespace.with { namespace in
      let route = try await connectCable(in: namespace)
      let received = try await namespace.perform {
        let socket = try NetlinkSocket.open(ipv4Routes)
        var length: Int32 = 2_048
        let size = socklen_t(MemoryLayout<Int32>.size)
        try #require(
          unsafe setsockopt(socket.descriptor, SOL_SOCKET, SO_RCVBUF, &length, size) == 0
        )
        for _ in 1...100 {
          try TestInterfaces.remove(route)
          try TestInterfaces.add(route)
        }
        var received: [NetlinkSocket.Received] = []
        while received.last != .nothing { received.append(try socket.receive()) }
        try TestInterfaces.remove(route)
        received.append(try socket.receive())
        return received
      }
      #expect(received.count { $0 == .lost } == 1)
      guard case .datagram = received.last else {
        Issue.record("\(String(describing: received.last))")
        return
      }
    }
  }
}
#endif
