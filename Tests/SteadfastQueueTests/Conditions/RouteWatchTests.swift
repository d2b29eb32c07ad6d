#if os(Linux)
import Testing

@testable import SteadfastQueue

@Suite struct RouteWatchTests {
  private typealias Answer = RouteReading.Answer

  private let online = Answer(holds: true, isSure: true)
  private let offline = Answer(holds: false, isSure: true)

  /// A watch that has told its first value, and waits.
  private func waiting(_ answer: RouteReading.Answer? = nil) -> RouteWatch {
    var watch = RouteWatch()
    _ = watch.take(answer ?? online)
    return watch
  }

  private func report(_ messages: NetlinkMessage...) -> NetlinkSocket.Received {
    .datagram(messages.flatMap(\.bytes))
  }

  @Test func `it reads first, tells what it read, and waits`() {
    var watch = RouteWatch()
    #expect(watch.next == .read)
    #expect(watch.take(offline) == false)
    #expect(watch.next == .wait)
  }

  @Test func `it tells only what has changed`() {
    var watch = waiting()
    let told = [online, offline, offline, online].map { answer in
      watch.take(.lost)
      return watch.take(answer)
    }
    #expect(told == [nil, false, nil, true])
  }

  @Test func `it takes all reports that are there before it reads`() {
    var watch = waiting()
    for _ in 1...5 {
      watch.take(report(.interface(2, 0x41)))
      #expect(watch.next == .take)
    }
    watch.take(.nothing)
    #expect(watch.next == .read)
  }

  @Test func `reports without an end do not keep it from reading`() {
    var watch = waiting()
    var count = 0
    while watch.next != .read, count < 10_000 {
      watch.take(.lost)
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
  func `it reads after a report that may matter`(message: NetlinkMessage) {
    var watch = waiting()
    watch.take(report(message))
    #expect(watch.next == .take)
  }

  @Test func `it reads after reports that were lost, or that can't be read`() {
    for received in [NetlinkSocket.Received.lost, .datagram([1, 2, 3])] {
      var watch = waiting()
      watch.take(received)
      #expect(watch.next == .take)
    }
  }

  @Test(arguments: [
    RouteForm(prefixLength: 8, interface: 2).message(),
    RouteForm(table: 255, interface: 2).message(type: NetlinkMessage.Kind.removedRoute),
  ])
  func `it does not read when another route has changed, unless it is unsure`(
    message: NetlinkMessage
  ) {
    var watch = waiting()
    watch.take(report(message))
    #expect(watch.next == .wait)
    var unsure = RouteWatch()
    while unsure.next == .read { _ = unsure.take(.unknown) }
    unsure.take(report(message))
    #expect(unsure.next == .take)
  }

  @Test func `an unsure answer is believed when it comes the fourth time in a row`() {
    var watch = RouteWatch()
    let told = (1...4).map { _ in
      #expect(watch.next == .read)
      return watch.take(Answer(holds: false, isSure: false))
    }
    #expect(told == [nil, nil, nil, false])
    #expect(watch.next == .wait)
  }

  @Test func `a sure answer after an unsure one is told`() {
    var watch = RouteWatch()
    #expect(watch.take(.unknown) == nil)
    #expect(watch.take(offline) == false)
    #expect(watch.next == .wait)
  }

  @Test func `a watch that fails says that the condition holds`() {
    var new = RouteWatch()
    #expect(new.fail() == true)
    var offline = waiting(self.offline)
    #expect(offline.fail() == true)
    var online = waiting()
    #expect(online.fail() == nil)
  }
}
#endif
