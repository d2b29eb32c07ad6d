#if os(Linux)
import Testing

@testable import SteadfastQueue

@Suite struct RouteTests {
  private static let ipv6 = InternetFamily.ipv6
  private static func table(_ number: UInt32) -> [UInt8] {
    NetlinkMessage.attribute(15, number.bytes)
  }

  @Test(arguments: [
    RouteForm(interface: 2),
    RouteForm(family: ipv6, interface: 2),
    RouteForm(hops: [(9, 0), (2, 0)]),
    RouteForm(table: 0, interface: 2, otherAttributes: table(254)),
    // The route uses a shared hop, so the kernel reports only the hop's number.
    RouteForm(otherAttributes: NetlinkMessage.attribute(30, UInt32(1).bytes)),
  ])
  func `a default route leads to the internet if its interface does`(form: RouteForm) throws {
    #expect(try #require(Route(form.body[...])).leadsToInternet(through: [2, 3]))
  }

  @Test(arguments: [
    RouteForm(interface: 9),
    RouteForm(),
    RouteForm(prefixLength: 8, interface: 2),
    RouteForm(table: 255, interface: 2),
    RouteForm(interface: 2, otherAttributes: table(1_000)),
    RouteForm(family: 7, interface: 2),
    RouteForm(flags: 0x1, interface: 2),
    RouteForm(flags: 0x10, interface: 2),
    RouteForm(hops: [(2, 0x1), (3, 0x10), (9, 0)]),
    RouteForm(flags: 0x1, otherAttributes: NetlinkMessage.attribute(30, UInt32(1).bytes)),
  ])
  func `any route but a default route does not lead to the internet`(form: RouteForm) throws {
    #expect(try !#require(Route(form.body[...])).leadsToInternet(through: [2, 3]))
  }

  // The route types local, broadcast, blackhole, unreachable, prohibit and throw.
  @Test(arguments: [2, 3, 6, 7, 8, 9] as [UInt8])
  func `a default route that rejects packets does not lead to the internet`(type: UInt8) throws {
    let form = RouteForm(type: type, interface: 2)
    #expect(try !#require(Route(form.body[...])).leadsToInternet(through: [2]))
  }

  @Test(arguments: [
    RouteForm(otherAttributes: NetlinkMessage.attribute(4, [1, 2])),
    RouteForm(otherAttributes: NetlinkMessage.attribute(15, [1])),
    RouteForm(otherAttributes: NetlinkMessage.attribute(9, [7, 0, 0, 0, 2, 0, 0, 0])),
    RouteForm(otherAttributes: NetlinkMessage.attribute(9, [12, 0, 0, 0, 2, 0, 0, 0])),
    RouteForm(otherAttributes: NetlinkMessage.attribute(9, [0, 0])),
  ])
  func `a route with an attribute that is too short is rejected`(form: RouteForm) {
    #expect(Route(form.body[...]) == nil)
  }

  private static let flags: [(UInt32, Bool)] = [
    (0x41, true), (0x1_1043, true), (0x1, false), (0x40, false), (0x49, false), (0, false),
  ]

  @Test(arguments: flags)
  func `an interface leads to the internet if it is up, running and not the loopback`(
    flags: UInt32,
    leads: Bool
  ) throws {
    let interface = try #require(NetworkInterface(NetlinkMessage.interfaceBody(5, flags)[...]))
    #expect(interface.leadsOutside == leads)
    #expect(interface.index == 5)
  }
}
#endif
