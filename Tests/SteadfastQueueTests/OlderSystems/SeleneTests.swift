import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests the behaviour that the README and the headers of Selene, an older library, promise.
///
/// The intended differences: A task is cancelled when the budget is used up, not always after 30 s.
/// A task has no completion handler that it could forget to call.
@Suite(.virtualTime) struct SeleneTests {
  let time: VirtualTime
  let log = Log<String>()
  var clock: VirtualClock { time.clock }

  init() throws { time = try #require(VirtualTime.current) }

  func scheduler(
    _ store: any Persistence = InMemoryStore(),
    minimumInterval: Duration = .zero
  ) -> BackgroundScheduler {
    BackgroundScheduler(persistence: store, minimumInterval: minimumInterval, clock: clock)
  }

  /// Registers a task that works for some seconds, and then logs its own name.
  func register(
    _ name: String,
    with scheduler: BackgroundScheduler,
    _ priority: BackgroundPriority = .normal,
    expected: Int = 1,
    takes seconds: Int? = nil,
    result: BackgroundResult = .noData
  ) async {
    let seconds = seconds ?? expected
    await scheduler.register(
      name,
      priority: priority,
      expectedDuration: .seconds(expected)
    ) { [log, clock = time.clock] in
      try await clock.sleep(for: .seconds(seconds))
      log.add(name)
      return result
    }
  }

  // MARK: The scheduling policy

  @Test func `of tasks with scores 3, 2, 1 that run 20, 5, 10 s, the first two fit 30 s`()
    async throws
  {
    let scheduler = scheduler()
    await register("x", with: scheduler, .normal, expected: 20)
    await register("y", with: scheduler, .low, expected: 5)
    await register("z", with: scheduler, .veryLow, expected: 10)
    #expect(try await scheduler.run(within: .seconds(30)) == .noData)
    #expect(log.entries == ["y", "x"])
    // The tasks that fit run at the same time.
    #expect(clock.now.offset == .seconds(20))
  }

  @Test func `priorities range from very low to very high and don't change`() async throws {
    let scheduler = scheduler()
    for (index, priority) in BackgroundPriority.allCases.enumerated() {
      await register("\(index)", with: scheduler, priority)
    }
    #expect(try await scheduler.status.map(\.name) == ["4", "3", "2", "1", "0"])
    #expect(try await scheduler.run(within: .seconds(2)) == .noData)
    #expect(log.entries == ["4", "3"])
  }

  @Test func `the average duration starts as expected, then is the average of the last 3 runs`()
    async throws
  {
    let scheduler = scheduler()
    let durations = FIFO([4, 8, 6, 1, 100])
    await scheduler.register("a", expectedDuration: .seconds(9)) { [clock = time.clock] in
      try await clock.sleep(for: .seconds(durations.next()))
      return .noData
    }
    func average() async throws -> Duration { try await scheduler.status[0].averageDuration }
    #expect(try await average() == .seconds(9))
    for expected in [4.0, 6, 6, 5] {
      _ = try await scheduler.run(within: .seconds(30))
      #expect(try await average() == .seconds(expected))
    }
    // A run that is cancelled at the end of the budget counts with the whole budget.
    #expect(try await scheduler.run(within: .seconds(30)) == .failed)
    #expect(try await average() == .seconds(37.0 / 3))
  }

  @Test func `the number of averaged runs can be chosen`() async throws {
    let scheduler = scheduler()
    let durations = FIFO([4, 8])
    await scheduler.register("a", expectedDuration: .seconds(9), averaging: 1) {
      [clock = time.clock] in
      try await clock.sleep(for: .seconds(durations.next()))
      return .noData
    }
    for _ in 1...2 { _ = try await scheduler.run(within: .seconds(30)) }
    #expect(try await scheduler.status[0].averageDuration == .seconds(8))
  }

  @Test func `a task whose last run is longer ago runs first`() async throws {
    let scheduler = scheduler()
    await register("a", with: scheduler)
    await register("b", with: scheduler)
    for _ in 1...4 {
      _ = try await scheduler.run(within: .seconds(1))
      clock.advance(by: .seconds(60))
    }
    #expect(log.entries == ["a", "b", "a", "b"])
  }

  @Test func `in 1,000 passes no task starves, and important tasks run more often`()
    async throws
  {
    let scheduler = scheduler()
    for (index, priority) in BackgroundPriority.allCases.enumerated() {
      // Some tasks need nearly the whole budget; one needs more.
      await register("\(index)", with: scheduler, priority, expected: [29, 1, 20, 40, 28][index])
    }
    for _ in 1...1_000 {
      _ = try await scheduler.run(within: .seconds(30))
      clock.advance(by: .seconds(900))
    }
    let runs = Dictionary(grouping: log.entries, by: \.self).mapValues(\.count)
    // The fourth task is always cut short.
    #expect(Set(runs.keys) == ["0", "1", "2", "4"])
    for status in try await scheduler.status {
      let last = try #require(status.lastRunDate)
      #expect(clock.date.timeIntervalSince(last) < 20 * 930, "\(status)")
    }
    #expect(runs["4", default: 0] > runs["0", default: 0])
    #expect(runs["0", default: 0] > 50)
  }

  // MARK: Results

  @Test(arguments: [
    ([BackgroundResult.noData, .noData], BackgroundResult.noData),
    ([.noData, .newData], .newData),
    ([.failed, .newData], .newData),
    ([.failed, .noData], .failed),
    ([], .noData),
  ])
  func `a pass has new data if any task has new data`(
    results: [BackgroundResult],
    combined: BackgroundResult
  ) async throws {
    let scheduler = scheduler()
    for (index, result) in results.enumerated() {
      await register("\(index)", with: scheduler, result: result)
    }
    #expect(try await scheduler.run(within: .seconds(30)) == combined)
  }

  @Test func `a task that throws has failed, and its status has the error`() async throws {
    struct Offline: Error {}
    let scheduler = scheduler()
    await scheduler.register("a", expectedDuration: .zero) { throw Offline() }
    #expect(try await scheduler.run(within: .seconds(30)) == .failed)
    #expect(try await scheduler.status[0].lastError == "Offline()")
    await register("a", with: scheduler)
    #expect(try await scheduler.run(within: .seconds(30)) == .noData)
    #expect(try await scheduler.status[0].lastError == nil)
  }

  @Test func `a task that overruns is cancelled at the end of the budget`() async throws {
    let scheduler = scheduler()
    await register("long", with: scheduler, expected: 1, takes: 1_000)
    await register("short", with: scheduler, result: .newData)
    #expect(try await scheduler.run(within: .seconds(30)) == .newData)
    #expect(clock.now.offset == .seconds(30))
    #expect(log.entries == ["short"])
  }

  // MARK: State

  @Test(arguments: StoreKind.allCases)
  func `the history survives a restart, and new tasks are added to it`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = scheduler(store)
      await register("old", with: first, expected: 9, takes: 4)
      _ = try await first.run(within: .seconds(30))
      let second = scheduler(store)
      await register("old", with: second, .veryHigh, expected: 9)
      await register("new", with: second, .veryLow)
      let status = try await second.status
      #expect(status.map(\.name) == ["old", "new"])
      #expect(status[0].averageDuration == .seconds(4))
      #expect(status[0].lastRunDate == clock.date - 4)
      // Another scheduler on the store has its own history.
      let other = BackgroundScheduler(name: "other", persistence: store, clock: clock)
      await register("old", with: other, expected: 9)
      #expect(try await other.status[0].lastRunDate == nil)
    }
  }

  @Test func `a task that crashes the process is not the first in each pass`() async throws {
    let store = InMemoryStore()
    let first = scheduler(store)
    await register("bad", with: first, expected: 20, takes: 1_000)
    await register("good", with: first, expected: 20)
    let pass = Task(executorPreference: time.executor) {
      try await first.run(within: .seconds(30))
    }
    try await clock.sleep(for: .seconds(10))
    // The process ends here, before it has stored the end of the pass.
    let second = scheduler(store)
    await register("bad", with: second, expected: 20)
    await register("good", with: second, expected: 20)
    _ = try await second.run(within: .seconds(25))
    #expect(log.entries == ["good"])
    pass.cancel()
    _ = await pass.result
  }

  @Test(arguments: [
    ("", 1, 3, "empty"), ("a", -1, 3, "expectedDuration"), ("a", 1, 0, "0 runs"),
    ("a", 1, 101, "101 runs"),
  ])
  func `a task with invalid arguments is rejected`(
    name: String,
    seconds: Int,
    count: Int,
    part: String
  ) async throws {
    let scheduler = scheduler()
    await scheduler.register(
      name,
      expectedDuration: .seconds(seconds),
      averaging: count
    ) { .noData }
    let error = await queueError { try await scheduler.run(within: .seconds(30)) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains(part) == true)
  }

  @Test func `a scheduler with invalid arguments throws`() async throws {
    let unnamed = BackgroundScheduler(name: "", clock: clock)
    #expect(
      await queueError { try await unnamed.run(within: .seconds(1)) }?.code == .invalidArgument
    )
    let negative = scheduler(minimumInterval: .seconds(-1))
    #expect(
      await queueError { try await negative.run(within: .seconds(1)) }?.code == .invalidArgument
    )
  }
}

/// Numbers, each of which is returned once, in order.
private final class FIFO: Sendable {
  private let numbers: Log<Int>
  private let taken = Counter()

  init(_ numbers: [Int]) {
    self.numbers = Log()
    for number in numbers { self.numbers.add(number) }
  }

  func next() -> Int {
    numbers.entries[taken.add(1) - 1]
  }
}
