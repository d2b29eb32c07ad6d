import SteadfastTesting
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

@Suite(.timeLimit(.minutes(5))) struct VirtualClockTests {
  private let clock = VirtualClock()

  @Test func `the time stands still until a test advances the clock`() {
    #expect(clock.now.offset == .zero)
    clock.advance(by: .seconds(5))
    #expect(clock.now.offset == .seconds(5))
    clock.advance(to: VirtualClock.Instant(offset: .seconds(7)))
    #expect(clock.now.offset == .seconds(7))
  }

  @Test func `a sleeper wakes at its deadline, and not earlier`() async throws {
    async let slept: Void = clock.sleep(for: .seconds(10))
    try await clock.waitForSleepers(count: 1)
    clock.advance(by: .seconds(10) - .nanoseconds(1))
    #expect(clock.pendingSleeps.map(\.deadline.offset) == [.seconds(10)])
    clock.advance(by: .nanoseconds(1))
    #expect(clock.pendingSleeps.isEmpty)
    try await slept
    #expect(clock.now.offset == .seconds(10))
  }

  @Test(arguments: [Duration.zero, .seconds(-1), Duration(attoseconds: .min)])
  func `a sleep whose deadline has passed returns at once`(duration: Duration) async throws {
    try await clock.sleep(for: duration)
    #expect(clock.pendingSleeps.isEmpty)
    #expect(clock.now.offset == .zero)
  }

  @Test func `a sleep until the latest instant ends when the time reaches that instant`()
    async throws
  {
    let farOff = clock.now.advanced(by: Duration(attoseconds: .max)).advanced(by: .seconds(1))
    #expect(farOff.offset == Duration(attoseconds: .max))
    async let slept: Void = clock.sleep(until: farOff)
    try await clock.waitForSleepers()
    clock.advance(to: farOff)
    try await slept
    clock.advance(by: .seconds(1))
    #expect(clock.now == farOff)
  }

  @Test func `pending sleeps are listed in the order of their deadlines`() async throws {
    await withThrowingTaskGroup(of: Void.self) { group in
      for seconds in [3, 1, 2, 1] {
        group.addTask { try await clock.sleep(for: .seconds(seconds)) }
      }
      try? await clock.waitForSleepers(count: 4)
      #expect(clock.pendingSleeps.map(\.deadline.offset) == [1, 1, 2, 3].map { .seconds($0) })
      #expect(clock.nextDeadline?.offset == .seconds(1))
      clock.advance(by: .seconds(2))
      #expect(clock.pendingSleeps.map(\.deadline.offset) == [.seconds(3)])
      group.cancelAll()
    }
    #expect(clock.nextDeadline == nil)
  }

  @Test func `advancing the clock to an instant in the past changes nothing`() {
    clock.advance(by: .seconds(5))
    clock.advance(to: VirtualClock.Instant(offset: .seconds(3)))
    #expect(clock.now.offset == .seconds(5))
  }

  @Test func `advancing the clock by a negative duration is a programming error`() async {
    await #expect(processExitsWith: .failure) {
      VirtualClock().advance(by: .seconds(-1))
    }
  }

  @Test func `advancing the clock advances its date too`() {
    let date = Date(timeIntervalSinceReferenceDate: 1_000)
    let clock = VirtualClock(date: date)
    #expect(clock.date == date)
    clock.advance(by: .milliseconds(86_400_500))
    #expect(clock.date == date.addingTimeInterval(86_400.5))
  }

  @Test(arguments: [-3_600, 3_600.25])
  func `setting the date changes neither the time nor the deadlines of sleepers`(step: Double)
    async throws
  {
    async let slept: Void = clock.sleep(for: .seconds(60))
    try await clock.waitForSleepers()
    clock.advance(by: .seconds(30))
    let stepped = clock.date.addingTimeInterval(step)
    clock.setDate(stepped)
    #expect(clock.date == stepped)
    #expect(clock.now.offset == .seconds(30))
    #expect(clock.pendingSleeps.map(\.deadline.offset) == [.seconds(60)])
    clock.advance(by: .seconds(30))
    try await slept
    #expect(clock.date == stepped.addingTimeInterval(30))
  }
}
