import SteadfastTesting
import TestSupport
import Testing

/// Tests of sleeps that are cancelled individually.
///
/// Each sleep runs in an unstructured task, since a task group can only cancel all of its tasks.
@Suite(.timeLimit(.minutes(5))) struct VirtualClockCancellationTests {
  private let clock = VirtualClock()

  @Test(arguments: [Duration.seconds(60), .zero])
  func `a sleep in a cancelled task throws at once`(duration: Duration) async {
    await withThrowingTaskGroup(of: Void.self) { group in
      group.cancelAll()
      group.addTask { try await clock.sleep(for: duration) }
      await #expect(throws: CancellationError.self) { try await group.next() }
    }
    #expect(clock.pendingSleeps.isEmpty)
  }

  @Test func `cancellation ends a pending sleep, and leaves other sleeps pending`() async throws {
    // Unstructured, so that the test can cancel only this task.
    let cancelled = Task { try await clock.sleep(for: .seconds(1)) }
    try await clock.waitForSleepers(count: 1)
    async let other: Void = clock.sleep(for: .seconds(2))
    try await clock.waitForSleepers(count: 2)
    cancelled.cancel()
    await #expect(throws: CancellationError.self) { try await cancelled.value }
    #expect(clock.pendingSleeps.map(\.deadline.offset) == [.seconds(2)])
    clock.advance(by: .seconds(2))
    try await other
  }

  @Test func `cancelling a sleep that has already woken has no effect`() async throws {
    // Unstructured, so that the test can cancel only this task.
    let task = Task { try await clock.sleep(for: .seconds(1)) }
    try await clock.waitForSleepers()
    clock.advance(by: .seconds(1))
    task.cancel()
    try await task.value
  }

  @Test
  func `waitForSleepers() throws when it is cancelled, and later sleepers do not resume the call`()
    async throws
  {
    // Unstructured, so that the test can cancel only this task.
    let task = Task { try await clock.waitForSleepers(count: 2) }
    task.cancel()
    await #expect(throws: CancellationError.self) { try await task.value }
    async let first: Void = clock.sleep(for: .seconds(1))
    async let second: Void = clock.sleep(for: .seconds(1))
    try await clock.waitForSleepers(count: 2)
    clock.advance(by: .seconds(1))
    _ = try await (first, second)
  }

  @Test(.virtualTime)
  func `a suspended call of waitForSleepers() that is cancelled is not resumed twice`() async throws
  {
    let time = try VirtualTime.required
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await clock.waitForSleepers(count: 1) }
      // The other task is waiting by the time this sleep ends.
      try await time.clock.sleep(for: .seconds(1))
      group.cancelAll()
      await #expect(throws: CancellationError.self) { try await group.waitForAll() }
    }
    async let sleep: Void = clock.sleep(for: .seconds(1))
    try await clock.waitForSleepers(count: 1)
    clock.advance(by: .seconds(1))
    try await sleep
  }

  @Test func `waitForSleepers() returns when the requested number of tasks sleep`() async throws {
    try await withThrowingTaskGroup(of: Int.self) { group in
      for count in [3, 1, 2] {
        group.addTask {
          try await clock.waitForSleepers(count: count)
          return count
        }
      }
      for count in 1...3 {
        // Unstructured, since this sleep must continue while the group waits for its next result.
        let sleep = Task { try await clock.sleep(for: .seconds(60)) }
        let reached = try await group.next()
        #expect(reached == count)
        #expect(clock.pendingSleeps.count == count)
        withExtendedLifetime(sleep) {}
      }
    }
    clock.advance(by: .seconds(60))
  }

  @Test(arguments: 0..<10)
  func `a sleep that is cancelled just when it is due ends exactly once`(part: Int) async throws {
    // The ten cases make 200,000 sleeps. A sleep that ended twice would trap; a sleep that never
    // ended would block the wait for its task.
    let count = 200
    for _ in 0..<Soak.runs(short: 1000) / 10 {
      let sleeps = (0..<count).map { index in
        // Unstructured, so that the test can cancel each task individually.
        Task { try await clock.sleep(for: .nanoseconds(1 + index)) }
      }
      try await clock.waitForSleepers(count: count)
      async let cancelling: Void = cancelInReverse(sleeps)
      async let advancing: Void = advanceByNanosecond(times: count)
      _ = await (cancelling, advancing)
      for sleep in sleeps { _ = await sleep.result }
      #expect(clock.pendingSleeps.isEmpty)
    }
  }

  @Test(.timeLimit(.minutes(5)))
  func `a sleep ends even if the clock passes the deadline while the sleep starts`() async throws {
    for _ in 0..<Soak.runs(short: 2_000) {
      let clock = VirtualClock()
      async let sleeping: Void = sleepUntilHalfMinute(on: clock)
      async let advancing: Void = advanceToMinute(clock)
      await advancing
      try await sleeping
      #expect(clock.pendingSleeps.isEmpty)
    }
  }

  @concurrent private func sleepUntilHalfMinute(on clock: VirtualClock) async throws {
    try await clock.sleep(until: VirtualClock.Instant(offset: .seconds(30)))
  }

  @concurrent private func advanceToMinute(_ clock: VirtualClock) async {
    clock.advance(to: VirtualClock.Instant(offset: .seconds(60)))
  }

  @concurrent private func cancelInReverse(_ sleeps: [Task<Void, any Error>]) async {
    for sleep in sleeps.reversed() { sleep.cancel() }
  }

  @concurrent private func advanceByNanosecond(times count: Int) async {
    for _ in 0..<count { clock.advance(by: .nanoseconds(1)) }
  }
}
