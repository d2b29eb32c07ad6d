#if os(Linux)
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
#endif
