#if os(Linux)
import SteadfastRetry
import TestSupport
import Testing

@testable import SteadfastQueue

@Suite struct NetlinkMessageTests {
  private static let interfaces = [
    NetlinkMessage.interface(1, 0x49), .interface(2, 0x41), .done(sequence: 1),
  ]
  private static let route = RouteForm(
    hops: [(2, 0), (3, 1)],
    otherAttributes: NetlinkMessage.attribute(15, UInt32(254).bytes)
  )
  private static let routes = [route.message(), RouteForm(interface: 2).message()]

  private func joinedBytes(of messages: [NetlinkMessage]) -> [UInt8] { messages.flatMap(\.bytes) }

  @Test func `a datagram may contain several messages`() {
    #expect(NetlinkMessage.all(in: joinedBytes(of: Self.interfaces)) == Self.interfaces)
    #expect(NetlinkMessage.all(in: []) == [])
  }

  @Test func `each message but the last is padded to a multiple of four bytes`() {
    let odd = NetlinkMessage(type: 9, flags: 1, sequence: 3, body: [1, 2, 3])
    #expect(NetlinkMessage.all(in: odd.bytes + [0] + odd.bytes) == [odd, odd])
  }

  @Test func `numbers are in the byte order of the machine`() {
    #expect(UInt32(0x0102_0304).bytes[...].number(UInt32.self, at: 0) == 0x0102_0304)
    let bytes: [UInt8] = unsafe withUnsafeBytes(of: UInt32(0x0102_0304)) { unsafe Array($0) }
    #expect(UInt32(0x0102_0304).bytes == bytes)
    #expect(bytes[...].number(UInt32.self, at: 1) == nil)
  }

  @Test func `a datagram that is cut within a message is rejected`() {
    let whole = joinedBytes(of: Self.interfaces)
    var ends: Set<Int> = [0]
    for message in Self.interfaces { ends.insert((ends.max() ?? 0) + message.bytes.count) }
    for length in 0...whole.count {
      let messages = NetlinkMessage.all(in: Array(whole.prefix(length)))
      #expect((messages != nil) == ends.contains(length), "\(length) bytes")
    }
  }

  @Test(arguments: [0, 15, 0xFFFF_FFFF] as [UInt32])
  func `a message with an impossible length is rejected`(length: UInt32) {
    let rest = joinedBytes(of: Self.interfaces).dropFirst(4)
    #expect(NetlinkMessage.all(in: length.bytes + rest) == nil)
  }

  @Test(arguments: [0, 3, 0xFFFF] as [UInt16])
  func `an attribute with an impossible length is rejected`(length: UInt16) {
    let bytes = length.bytes + UInt16(4).bytes + UInt32(2).bytes
    #expect(NetlinkAttribute.all(in: bytes[...]) == nil)
  }

  @Test func `the flags of an attribute aren't part of its type`() {
    let bytes = NetlinkMessage.attribute(0x8012, [1])
    #expect(NetlinkAttribute.all(in: bytes[...]) == [NetlinkAttribute(type: 0x12, value: [1])])
  }

  @Test func `a route that is cut within an attribute is rejected`() {
    let body = Self.route.body
    let ends: Set<Int> = [12, 32, 40]
    #expect(body.count == 40)
    for length in 0...body.count {
      #expect((Route(body.prefix(length)) != nil) == ends.contains(length), "\(length) bytes")
    }
    for length in 0..<16 {
      #expect(NetworkInterface(NetlinkMessage.interfaceBody(1, 1).prefix(length)) == nil)
    }
  }

  // Reading beyond the end of a datagram, or an overflow, would crash the process.
  @Test func `random datagrams don't crash the reader`() {
    let seed = Soak.seed ?? 1
    for run in 0..<UInt64(Soak.runs(short: 3_000)) {
      var generator = SplitMix64(seed: seed &+ run)
      var datagram = joinedBytes(
        of: [Self.interfaces, Self.routes].randomElement(using: &generator) ?? []
      )
      if run % 5 == 0 {
        datagram = (0..<80).map { _ in UInt8.random(in: 0...255, using: &generator) }
      }
      for _ in 0..<Int.random(in: 0...4, using: &generator) {
        let index = datagram.indices.randomElement(using: &generator) ?? 0
        let byte = UInt8.random(in: 0...255, using: &generator)
        datagram[index] = [0, 1, 4, 255, byte].randomElement(using: &generator) ?? byte
      }
      datagram = Array(datagram.prefix(Int.random(in: 0...datagram.count, using: &generator)))
      readInEveryWay(datagram)
    }
  }

  private func readInEveryWay(_ datagram: [UInt8]) {
    var watch = RouteWatch()
    _ = watch.apply(RouteReading.Outcome(holds: true, isSure: true))
    watch.apply(.datagram(datagram))
    for end in 0...2 {
      var reading = RouteReading()
      for sequence in 1..<(1 + UInt32(end)) {
        _ = reading.nextStep(after: NetlinkMessage.done(sequence: sequence).bytes)
      }
      _ = reading.nextStep(after: datagram)
    }
    for start in 0..<min(4, datagram.count) {
      _ = Route(datagram.dropFirst(start))
      _ = NetworkInterface(datagram.dropFirst(start))
    }
  }
}
#endif
