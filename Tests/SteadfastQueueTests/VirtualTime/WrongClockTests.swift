import Foundation
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

private struct Call: TaskPayload {
  /// The handler's action before it returns.
  enum Act: Codable { case nothing, fail, snooze, failAndSnooze, pauseLimit, sleep, complete }

  var act = Act.nothing
  /// When a sleep ends; if `nil`, after ten minutes.
  var end: Date?
  var account = 1
  var key: String?
  var uniqueKey: String? { key }
}

/// Tests a clock that is a day ahead during a call or an event, and is then corrected.
@Suite(.virtualTime(.manual), .timeLimit(.minutes(5))) struct WrongClockTests {
  enum Case: CaseIterable {
    case plain, dateThatHasPassed, delay, debounce, debounceAtMost, retry, snooze, snoozeAfterRetry
    case limitWithKey, pausedLimit, sleep, completion, restart, reschedule, rescheduleAfterRetry
    // In these cases, the caller chooses the date, which is a day and ten minutes away.
    case date, rescheduleToDate, dateAfterRetry, sleepUntilDate

    /// The seconds between the correction of the clock and the task's attempt.
    var seconds: Double {
      switch self {
      case .plain, .dateThatHasPassed, .restart, .reschedule, .rescheduleAfterRetry: 0
      case .date, .rescheduleToDate, .dateAfterRetry, .sleepUntilDate: WrongClockTests.day + 600
      default: 600
      }
    }
  }

  fileprivate static let day = 86_400.0
  static let tenMinutes = Duration.seconds(600)

  /// All stores whose dates come from the queue's clock alone.
  static var kinds: [StoreKind] {
    let kinds = StoreKind.allCases.contains(.file) ? [] : [StoreKind.memory, .file]
    #if PostgreSQL
    return kinds + StoreKind.allCases.filter { $0 != .sharedPostgreSQL }
    #else
    return kinds + StoreKind.allCases
    #endif
  }

  let time: VirtualTime
  let done = Counter()
  private let attempts = Counter()

  init() throws { time = try #require(VirtualTime.current) }

  private func queue(_ store: any Persistence, _ test: Case? = nil) async -> TaskQueue {
    let limit =
      test == .limitWithKey
      ? RateLimit.atMost(1, per: Self.tenMinutes, of: Call.self, key: \.account)
      : .atMost(1_000, per: .seconds(60), of: Call.self)
    let queue = TaskQueue(
      persistence: store,
      configuration: TaskQueueConfiguration(
        backoff: .constant(Self.tenMinutes),
        rateLimits: [limit],
        notice: nil
      ),
      clock: time.clock
    )
    await queue.register(Call.self) { [done, attempts] call, context in
      let isFirst = attempts.add(1) == 1
      switch call.act {
      case .nothing: break
      case .fail: if isFirst { throw Refusal() }
      case .snooze: if isFirst { throw TaskSnoozed(for: Self.tenMinutes) }
      case .failAndSnooze:
        if isFirst { throw Refusal() }
        if attempts.value == 2 { throw TaskSnoozed(for: Self.tenMinutes) }
      case .pauseLimit:
        if isFirst { throw TaskSnoozed(for: Self.tenMinutes, scope: .rateLimit) }
      case .sleep:
        if let end = call.end {
          try await context.sleep("nap", until: end)
        } else {
          try await context.sleep("nap", for: Self.tenMinutes)
        }
      case .complete:
        do {
          try await context.completion("answer", within: Self.tenMinutes) { _ in }
        } catch let error as CompletionFailed {
          #expect(error.hasTimedOut)
        }
      }
      done.add(1)
    }
    return queue
  }

  // MARK: Durations and dates

  @Test(arguments: Case.allCases, kinds)
  func `once the clock is corrected, durations count from now, and chosen dates don't move`(
    test: Case,
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = await queue(store, test)
      try await withRunning(queue) {
        let id = try await prepare(test, queue)
        await time.advance(by: .seconds(1))
        step(days: 1)
        try await act(test, id, queue) { await time.advance(by: .zero) }
        step(days: -1)
        await queue.resume()
        // The queue notices the correction within a minute.
        try await expectDone(test, within: 60)
      }
    }
  }

  @Test(arguments: Case.allCases, kinds)
  func `if the clock was corrected while no process ran, durations count from the next start`(
    test: Case,
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let first = await queue(store, test)
      let id = try await prepare(test, first)
      try await first.runAvailable()
      await first.shutDown()
      step(days: 1)
      let second = await queue(store, test)
      try await act(test, id, second) { try await second.runAvailable() }
      await second.shutDown()
      step(days: -1)
      let third = await queue(store, test)
      try await withRunning(third) {
        await time.advance(by: .zero)
        try await expectDone(test, within: 0)
      }
    }
  }

  func step(days: Double) { time.clock.setDate(time.clock.date + days * Self.day) }

  /// Enqueues the task that must exist before the clock is wrong, if the case needs one.
  private func prepare(_ test: Case, _ queue: TaskQueue) async throws -> TaskID? {
    switch test {
    case .restart:
      return try await queue.enqueue(
        Call(act: .fail),
        options: TaskOptions(maxRetries: 0)
      ).id
    case .reschedule, .rescheduleToDate:
      let later = time.clock.date + 30 * Self.day
      return try await queue.enqueue(Call(), options: TaskOptions(availableDate: later)).id
    default: return nil
    }
  }

  /// Performs the calls of the case while the clock is wrong.
  ///
  /// `settle` performs the available tasks.
  private func act(
    _ test: Case,
    _ id: TaskID?,
    _ queue: TaskQueue,
    _ settle: () async throws -> Void
  ) async throws {
    let date = time.clock.date + 600
    func enqueue(_ call: Call, _ options: TaskOptions = TaskOptions()) async throws -> TaskID {
      try await queue.enqueue(call, options: options).id
    }
    if test == .plain || test == .dateThatHasPassed { await queue.pause() }
    var id = id
    switch test {
    case .plain: id = try await enqueue(Call())
    case .dateThatHasPassed:
      id = try await enqueue(Call(), TaskOptions(availableDate: time.clock.date - 60))
    case .delay: id = try await enqueue(Call(), TaskOptions(delay: Self.tenMinutes))
    case .debounce, .debounceAtMost:
      let maxDelay: Duration? = test == .debounceAtMost ? Self.tenMinutes : nil
      for delay in [Self.tenMinutes, test == .debounce ? Self.tenMinutes : .seconds(550)] {
        await time.advance(by: .seconds(100))
        let options = TaskOptions(delay: delay, onDuplicate: .replace, maxDelay: maxDelay)
        id = try await enqueue(Call(key: "a"), options)
      }
    case .retry, .rescheduleAfterRetry, .dateAfterRetry: id = try await enqueue(Call(act: .fail))
    case .snooze: id = try await enqueue(Call(act: .snooze))
    case .snoozeAfterRetry:
      id = try await enqueue(Call(act: .failAndSnooze))
      try await settle()
      await time.advance(by: Self.tenMinutes)
    case .limitWithKey: try await queue.enqueue(contentsOf: [Call(), Call()])
    case .pausedLimit: id = try await enqueue(Call(act: .pauseLimit))
    case .sleep: id = try await enqueue(Call(act: .sleep))
    case .completion: id = try await enqueue(Call(act: .complete))
    case .date: id = try await enqueue(Call(), TaskOptions(availableDate: date))
    case .sleepUntilDate: id = try await enqueue(Call(act: .sleep, end: date))
    case .restart, .reschedule, .rescheduleToDate: break
    }
    try await settle()
    if test.seconds == 0 { await queue.pause() }
    switch test {
    case .restart: #expect(try await queue.retry(#require(id)))
    case .reschedule, .rescheduleAfterRetry: #expect(try await queue.performNow(#require(id)))
    case .rescheduleToDate, .dateAfterRetry:
      #expect(try await queue.reschedule(#require(id), to: date))
    default: break
    }
  }

  /// Expects that the task is performed when the case says, and not before.
  private func expectDone(_ test: Case, within seconds: Double) async throws {
    let before = test == .limitWithKey ? 1 : 0
    if test.seconds > 0 {
      await time.advance(by: .seconds(test.seconds - 1))
      #expect(done.value == before)
    }
    await time.advance(by: .seconds(seconds + 1))
    #expect(done.value == before + 1)
  }
}

// MARK: - Unique keys, and clocks that no claim has seen

extension WrongClockTests {
  @Test(arguments: kinds, [false, true])
  func `a succeeded task deduplicates for its unique period, even if the clock is corrected`(
    kind: StoreKind,
    isNewProcess: Bool
  ) async throws {
    try await kind.withStore { store in
      var queue = await queue(store)
      func enqueue() async throws -> Bool {
        let options = TaskOptions(uniqueFor: Self.tenMinutes)
        return try await queue.enqueue(Call(key: "a"), options: options).isNew
      }
      try await queue.runAvailable()
      step(days: 1)
      #expect(try await enqueue())
      try await queue.runAvailable()
      step(days: -1)
      if isNewProcess {
        await queue.shutDown()
        queue = await self.queue(store)
      }
      try await queue.runAvailable()
      await time.advance(by: Self.tenMinutes - .seconds(1))
      #expect(try await !enqueue())
      await time.advance(by: .seconds(1))
      #expect(try await enqueue())
      try await queue.runAvailable()
      #expect(done.value == 2)
    }
  }

  /// The clock is set ahead and corrected again between two claims.
  @Test(arguments: [false, true])
  func `a task that was added while the clock was briefly ahead is performed`(
    isRunning: Bool
  ) async throws {
    let queue = await queue(InMemoryStore())
    try await queue.runAvailable()
    @Sendable func addWithWrongClock(delay: Duration?) async throws {
      step(days: 1)
      try await queue.enqueue(Call(), options: TaskOptions(delay: delay))
      step(days: -1)
    }
    if isRunning {
      try await withRunning(queue) {
        await time.advance(by: .seconds(1))
        try await addWithWrongClock(delay: Self.tenMinutes)
        // The queue checks the clock within a minute, and the delay counts from that check.
        await time.advance(by: .seconds(660))
        #expect(done.value == 1)
      }
    } else {
      try await addWithWrongClock(delay: nil)
      try await queue.runAvailable()
      #expect(done.value == 1)
    }
  }
}
