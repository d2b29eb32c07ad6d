#if os(Linux)
import Testing

@testable import SteadfastQueue

@Suite struct RouteReadingTests {
  private typealias Outcome = RouteReading.Outcome

  /// Passes the datagrams to a reader of the routes, and returns the reader's last step.
  private func lastStep(applying datagrams: [[NetlinkMessage]]) -> RouteReading.Step {
    var reading = RouteReading()
    var step = reading.firstStep()
    for datagram in datagrams { step = reading.nextStep(after: datagram.flatMap(\.bytes)) }
    return step
  }

  private func request(sentBy step: RouteReading.Step) throws -> NetlinkMessage {
    guard case .send(let bytes) = step else {
      Issue.record("\(step)")
      throw CancellationError()
    }
    return try #require(NetlinkMessage.all(in: bytes)?.first)
  }

  @Test func `reading the routes requests the interfaces, then the routes of each family`() throws {
    let requests = try [
      request(sentBy: lastStep(applying: [])),
      request(sentBy: lastStep(applying: [[.done(sequence: 1)]])),
      request(sentBy: lastStep(applying: [[.done(sequence: 1)], [.done(sequence: 2)]])),
    ]
    #expect(requests.map(\.type) == [18, 26, 26])
    #expect(requests.map(\.sequence) == [1, 2, 3])
    #expect(requests.map(\.flags) == [0x301, 0x301, 0x301])
    #expect(requests.map { $0.body.first } == [0, 2, 10])
    #expect(requests.map(\.body.count) == [16, 12, 12])
  }

  @Test func `reading the routes ends at the first route that leads to the internet`() {
    let interfaces = [NetlinkMessage.interface(1, 0x49), .interface(2, 0x41), .done(sequence: 1)]
    let other = RouteForm(prefixLength: 8, interface: 2).message()
    #expect(lastStep(applying: [interfaces, [other]]) == .receive)
    let found = RouteReading.Step.end(Outcome(holds: true, isSure: true))
    #expect(lastStep(applying: [interfaces, [other, RouteForm(interface: 2).message()]]) == found)
    let ipv6 = RouteForm(family: InternetFamily.ipv6, interface: 2).message(sequence: 3)
    #expect(lastStep(applying: [interfaces, [.done(sequence: 2)], [ipv6]]) == found)
  }

  @Test func `a list may span several datagrams`() {
    let route = RouteForm(interface: 3).message()
    let datagrams: [[NetlinkMessage]] = [
      [.interface(1, 0x49)], [.interface(2, 0)], [.interface(3, 0x41)],
      [.done(sequence: 1)], [route],
    ]
    #expect(lastStep(applying: datagrams) == .end(Outcome(holds: true, isSure: true)))
  }

  @Test func `without a route that leads to the internet, the condition is not met`() {
    let route = RouteForm(interface: 2).message()
    let datagrams: [[NetlinkMessage]] = [
      [.interface(1, 0x49), .interface(2, 0x1), .done(sequence: 1)],
      [route, .done(sequence: 2)],
      [.done(sequence: 3)],
    ]
    #expect(lastStep(applying: datagrams) == .end(Outcome(holds: false, isSure: true)))
  }

  @Test(arguments: 1...3 as ClosedRange<UInt32>)
  func `if a list was interrupted, the result that no route was found is uncertain`(
    list: UInt32
  ) {
    let datagrams = (1...3).map { (sequence: UInt32) in
      let done = NetlinkMessage.done(sequence: sequence)
      let flags = done.flags | (sequence == list ? NetlinkMessage.Flag.interrupted : 0)
      let body = Array(done.body)
      return [NetlinkMessage(type: done.type, flags: flags, sequence: sequence, body: body)]
    }
    #expect(lastStep(applying: datagrams) == .end(Outcome(holds: false, isSure: false)))
  }

  @Test func `messages that belong to another request are ignored`() {
    let route = RouteForm(interface: 2)
    let datagrams: [[NetlinkMessage]] = [
      [.interface(2, 0x41), .done(sequence: 9), .done(sequence: 1)],
      [route.message(sequence: 0), route.message(sequence: 1), .done(sequence: 1)],
    ]
    #expect(lastStep(applying: datagrams) == .receive)
  }

  @Test(arguments: [NetlinkMessage.Kind.error, NetlinkMessage.Kind.done])
  func `if the kernel refuses a list, the result is unknown, unless only IPv6 is refused`(
    type: UInt16
  ) {
    func refusal(ofRequest sequence: UInt32) -> [NetlinkMessage] {
      let number = UInt32(bitPattern: -95)
      return [NetlinkMessage(type: type, flags: 0, sequence: sequence, body: number.bytes)]
    }
    #expect(lastStep(applying: [refusal(ofRequest: 1)]) == .end(.unknown))
    #expect(lastStep(applying: [[.done(sequence: 1)], refusal(ofRequest: 2)]) == .end(.unknown))
    let datagrams = [[.done(sequence: 1)], [.done(sequence: 2)], refusal(ofRequest: 3)]
    #expect(lastStep(applying: datagrams) == .end(Outcome(holds: false, isSure: true)))
  }

  @Test(arguments: [1, 2] as [UInt16])
  func `messages that are too short make the result unknown`(list: UInt16) {
    let type = list == 1 ? NetlinkMessage.Kind.newInterface : NetlinkMessage.Kind.newRoute
    let before: [[NetlinkMessage]] = list == 1 ? [] : [[.done(sequence: 1)]]
    for type in [type, NetlinkMessage.Kind.done, NetlinkMessage.Kind.error] {
      let message = NetlinkMessage(type: type, flags: 2, sequence: UInt32(list), body: [2, 0])
      #expect(lastStep(applying: before + [[message]]) == .end(.unknown))
    }
    var reading = RouteReading()
    #expect(reading.nextStep(after: [1, 2, 3]) == .end(.unknown))
  }
}
#endif
