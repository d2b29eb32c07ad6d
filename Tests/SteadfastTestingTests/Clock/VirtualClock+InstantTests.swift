import SteadfastTesting
import Testing

@Suite struct InstantTests {
  private static let longest = Duration(attoseconds: .max)
  private static let mostNegative = Duration(attoseconds: .min)

  @Test(arguments: [
    (Duration.seconds(1), Duration.seconds(2), Duration.seconds(3)),
    (.seconds(1), .seconds(-2), .seconds(-1)),
    (longest, .nanoseconds(1), longest),
    (longest, longest, longest),
    (mostNegative, .nanoseconds(-1), mostNegative),
    (mostNegative, mostNegative, mostNegative),
    (longest, mostNegative, Duration(attoseconds: -1)),
  ])
  func `advancing an instant stops at the earliest and the latest instant`(
    offset: Duration,
    step: Duration,
    sum: Duration
  ) {
    #expect(VirtualClock.Instant(offset: offset).advanced(by: step).offset == sum)
  }

  @Test(arguments: [
    (Duration.seconds(1), Duration.seconds(3), Duration.seconds(2)),
    (.seconds(3), .seconds(1), .seconds(-2)),
    (mostNegative, longest, longest),
    (longest, mostNegative, mostNegative),
    (.zero, mostNegative, mostNegative),
    (.seconds(1), mostNegative, mostNegative),
  ])
  func `the time between two instants never overflows`(
    start: Duration,
    end: Duration,
    between: Duration
  ) {
    let start = VirtualClock.Instant(offset: start)
    #expect(start.duration(to: VirtualClock.Instant(offset: end)) == between)
  }

  @Test func `the description of an instant is its offset in seconds`() {
    #expect("\(VirtualClock.Instant(offset: .milliseconds(1_500)))" == "1.5 seconds")
  }
}
