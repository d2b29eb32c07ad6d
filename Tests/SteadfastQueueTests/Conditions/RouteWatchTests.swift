#if os(Linux)
import Testing

@testable import SteadfastQueue

@Suite struct RouteWatchTests {
  private typealias Outcome = RouteReading.Outcome

  private let online = Outcome(holds: true, isSure: true)
  private let offline = Outcome(holds: false, isSure: true)

  /// A watch that has reported its first value and is waiting.
  private func waitingWatch(after answer: RouteReading.Outcome? = nil) -> RouteWatch {
    var watch = RouteWatch()
    _ = watch.apply(answer ?? online)
    return watch
  }

  private func kernelReport(of messages: NetlinkMessage...) -> NetlinkSocket.Received {
    .datagram(messages.flatMap(\.bytes))
  }

  @Test func `a new route watch reads the routes, reports the result and waits`() {
    var watch = RouteWatch()
    #expect(watch.next == .read)
    #expect(watch.apply(offline) == false)
    #expect(watch.next == .wait)
  }

  @Test func `a route watch reports only changes of the result`() {
    var watch = waitingWatch()
    let reported = [online, offline, offline, online].map { answer in
      watch.apply(.lost)
      return watch.apply(answer)
    }
    #expect(reported == [nil, false, nil, true])
  }

  @Test func `a route watch receives all pending reports before it reads the routes`() {
    var watch = waitingWatch()
    for _ in 1...5 {
      watch.apply(kernelReport(of: .interface(2, 0x41)))
      #expect(watch.next == .take)
    }
    watch.apply(.nothing)
    #expect(watch.next == .read)
  }

  @Test func `an endless series of reports does not keep a route watch from reading the routes`() {
    var watch = waitingWatch()
    var count = 0
    while watch.next != .read, count < 10_000 {
      watch.apply(.lost)
      count += 1
    }
    #expect(count == 1_000)
  }

  @Test(arguments: [
    RouteForm(interface: 2).message(),
    RouteForm(interface: 2).message(type: NetlinkMessage.Kind.removedRoute),
    RouteForm(family: InternetFamily.ipv6, type: 7).message(),
    .interface(2, 0), NetlinkMessage(type: 17, flags: 0, sequence: 0, body: []),
    NetlinkMessage(type: 21, flags: 0, sequence: 0, body: []),
    NetlinkMessage(type: NetlinkMessage.Kind.newRoute, flags: 0, sequence: 0, body: [2]),
  ])
  func `a route watch reads the routes again after a report of a relevant change`(
    message: NetlinkMessage
  ) {
    var watch = waitingWatch()
    watch.apply(kernelReport(of: message))
    #expect(watch.next == .take)
  }

  @Test func `a route watch reads the routes again after lost or malformed reports`() {
    for received in [NetlinkSocket.Received.lost, .datagram([1, 2, 3])] {
      var watch = waitingWatch()
      watch.apply(received)
      #expect(watch.next == .take)
    }
  }

  @Test(arguments: [
    RouteForm(prefixLength: 8, interface: 2).message(),
    RouteForm(table: 255, interface: 2).message(type: NetlinkMessage.Kind.removedRoute),
  ])
  func `a route watch ignores changes of irrelevant routes, unless its result is uncertain`(
    message: NetlinkMessage
  ) {
    var watch = waitingWatch()
    watch.apply(kernelReport(of: message))
    #expect(watch.next == .wait)
    var unsure = RouteWatch()
    while unsure.next == .read { _ = unsure.apply(.unknown) }
    unsure.apply(kernelReport(of: message))
    #expect(unsure.next == .take)
  }

  @Test func `an uncertain result is reported only if it is the fourth in a row`() {
    var watch = RouteWatch()
    let reported = (1...4).map { _ in
      #expect(watch.next == .read)
      return watch.apply(Outcome(holds: false, isSure: false))
    }
    #expect(reported == [nil, nil, nil, false])
    #expect(watch.next == .wait)
  }

  @Test func `a certain result after an uncertain one is reported at once`() {
    var watch = RouteWatch()
    #expect(watch.apply(.unknown) == nil)
    #expect(watch.apply(offline) == false)
    #expect(watch.next == .wait)
  }

  @Test func `a route watch that fails reports the condition as met`() {
    var new = RouteWatch()
    #expect(new.fail() == true)
    var offline = waitingWatch(after: self.offline)
    #expect(offline.fail() == true)
    var online = waitingWatch()
    #expect(online.fail() == nil)
  }
}
#endif
