import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests dates and durations at and beyond the bounds that every store can represent.
@Suite(.virtualTime) struct DateBoundsTests {
  private let clock: VirtualClock

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// The first second of the year 10000, and the second before it.
  private static let late = Date.seconds(253_402_300_800)
  private static let last = Date.seconds(253_402_300_799)
  private static let early = Date.distantPast - 1
  private static let long = Duration.seconds(100_000_000_001)
  private static let forever = Duration.seconds(Int64.max)

  private typealias Enqueuing = @Sendable (TaskQueue) async throws -> Void

  /// Calls with a date or a duration beyond the bounds, each with a word that the error contains.
  private static let calls: [(String, Enqueuing)] = [
    ("availableDate", { try await $0.enqueue(Note("a"), availableDate: DateBoundsTests.late) }),
    ("availableDate", { try await $0.enqueue(Note("a"), availableDate: DateBoundsTests.early) }),
    ("availableDate", { try await $0.enqueue(Note("a"), availableDate: .seconds(1e300)) }),
    ("expiryDate", { try await $0.enqueue(Note("a"), options: .init(expiryDate: late)) }),
    ("expiryDate", { _ = try await $0.update(.numbered(1), expiryDate: late) }),
    ("timeLimit", { _ = try await $0.update(.numbered(1), timeLimit: long) }),
    ("delay", { try await $0.enqueue(Note("a"), delay: DateBoundsTests.long) }),
    ("timeLimit", { try await $0.enqueue(Note("a"), options: .init(timeLimit: long)) }),
    ("delay", { try await $0.enqueue(Note("a"), delay: DateBoundsTests.forever) }),
    ("timeLimit", { try await $0.enqueue(Note("a"), options: .init(timeLimit: forever)) }),
    ("timeLimit", { _ = try await $0.update(.numbered(1), timeLimit: forever) }),
    ("interval", { _ in _ = try ScheduleRule.every(forever) }),
    (
      "uniqueFor",
      { try await $0.enqueue(Note("a"), uniqueKey: "k", options: .init(uniqueFor: long)) }
    ),
    (
      "maxDelay",
      { try await $0.enqueue(Note("a"), uniqueKey: "k", options: .init(maxDelay: long)) }
    ),
    ("reschedule", { _ = try await $0.reschedule(.numbered(1), to: late) }),
    ("reschedule", { _ = try await $0.reschedule(matching: .unfinished, to: late) }),
  ]

  @Test(arguments: DateBoundsTests.calls.indices)
  func `a date or duration out of bounds is refused, and the error names the value and the bound`(
    index: Int
  ) async throws {
    let (word, call) = Self.calls[index]
    let queue = TaskQueue(clock: clock)
    let error = await queueError { try await call(queue) }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains(word) == true)
    let names = ["9999", "100000000000"].contains { error?.message.contains($0) == true }
    #expect(names, "\(error?.message ?? "")")
    #expect(try await queue.count == 0)
  }

  @Test(arguments: StoreKind.allCases)
  func `dates and durations at their bounds are stored unchanged`(
    kind: StoreKind
  ) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store, clock: clock)
      for date in [Date.distantPast, .distantFuture, Self.last] {
        try await queue.enqueue(Note("a"), availableDate: date)
      }
      let longest = Duration.seconds(100_000_000_000)
      let options = TaskOptions(
        delay: longest,
        expiryDate: Self.last,
        timeLimit: longest,
        uniqueFor: longest,
        maxDelay: longest
      )
      try await queue.enqueue(Note("b"), uniqueKey: "k", options: options)
      let tasks = try await queue.tasks()
      #expect(tasks.dropLast().map(\.availableDate) == [.distantPast, .distantFuture, Self.last])
      let task = try #require(tasks.last)
      #expect(task.timeLimit == longest)
      #expect(task.expiryDate == Self.last)
      for date in [task.availableDate, task.uniqueUntil, task.latestDate] {
        let distance = try #require(date).timeIntervalSince(clock.date)
        #expect(abs(distance - 1e11) < 0.001)
      }
    }
  }

  @Test(arguments: StoreKind.allCases)
  func `a store rejects a change with a date beyond the bounds`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let lease = Lease(id: .numbered(1), token: 1)
      let id = TaskTarget.unclaimed(.numbered(1))
      for date in [Self.late, Self.early] {
        let failure = TaskFailure(reason: "", date: date)
        func failed(_ count: Int) -> TaskRecord {
          var record = TaskRecord.make(1)
          record.note(failure)
          for _ in 1..<count { record.note(TaskFailure(reason: "", date: .seconds(0))) }
          return record
        }
        func updated(_ update: TaskUpdate) -> TaskRecord {
          var record = TaskRecord.make(1)
          record.apply(update)
          return record
        }
        let seconds = date.timeIntervalSince1970
        let changes: [(String, TaskChange)] = [
          ("createdDate", .insert(.make(1, created: seconds), onDuplicate: .keep)),
          ("availableDate", .insert(.make(1, available: seconds), onDuplicate: .keep)),
          ("uniqueUntil", .insert(.make(1, key: "k", uniqueFor: seconds), onDuplicate: .keep)),
          ("latestDate", .insert(.make(1, key: "k", maxDelay: seconds), onDuplicate: .keep)),
          ("expiryDate", .insert(updated(TaskUpdate(expiryDate: date)), onDuplicate: .keep)),
          ("timeLimit", .insert(updated(TaskUpdate(timeLimit: Self.long)), onDuplicate: .keep)),
          ("failedDate", .insert(failed(1), onDuplicate: .keep)),
          ("earlier failure", .insert(failed(2), onDuplicate: .keep)),
          ("end", .succeed(lease, at: date, retains: true)),
          ("end", .cancel(id, at: date, retains: true)),
          ("availableDate", .retry(lease, availableDate: date, retryCount: 0, failure: nil)),
          (
            "failure",
            .retry(lease, availableDate: .seconds(0), retryCount: 0, failure: failure)
          ),
          ("failure", .abandon(lease, failure: failure, retains: true)),
          ("failure", .park(lease, failure: failure)),
          ("availableDate", .restart(id, availableDate: date)),
          ("availableDate", .reschedule(id, availableDate: date)),
          ("rebase", .rebase(date)),
          (
            "endedBefore", .prune(.succeeded, endedBefore: date, keepingLatest: 1, now: .seconds(0))
          ),
          ("now", .prune(.succeeded, endedBefore: nil, keepingLatest: 1, now: date)),
          ("expiryDate", .update(.numbered(1), TaskUpdate(expiryDate: date))),
        ]
        for (word, change) in changes {
          let error = await queueError { try await store.apply([change], durability: .durable) }
          #expect(error?.code == .invalidArgument, "\(change)")
          #expect(error?.message.contains(word) == true, "\(change): \(error?.message ?? "")")
        }
      }
      let count = try await store.count(matching: TaskFilter())
      #expect(count == 0)
    }
  }

  @Test func `a duration has at most the microseconds of the longest storable duration`() {
    let most: Int64 = 100_000_000_000_000_000
    #expect(Duration.seconds(Int64.max).microseconds == most)
    #expect(Duration.seconds(Int64.min).microseconds == -most)
    #expect(Duration.nanoseconds(1).microseconds == 1)
    #expect(Duration.milliseconds(-1).microseconds == -1_000)
  }

  // MARK: Computed dates

  @Test func `dates that the queue computes stay within the bounds`() async throws {
    let huge = Duration.seconds(Int64.max)
    var configuration = TaskQueueConfiguration(backoff: .constant(huge))
    configuration.abandonedRetention = Retention(maxAge: huge)
    let shared = SharedStore(StoreSharing(leaseDuration: huge))
    let queue = TaskQueue(
      persistence: shared.process(),
      configuration: configuration,
      clock: clock
    )
    await queue.register(Note.self) { note, _ in
      switch note.text {
      case "snooze": throw TaskSnoozed(for: huge)
      case "retry": throw Later(retryDecision: .retry(after: huge))
      case "stop": throw Later(retryDecision: .stop)
      default: throw Refusal()
      }
    }
    await queue.register(handler: FarHandler())
    try await queue.enqueue(contentsOf: ["snooze", "retry", "backoff", "stop"].map(Note.init))
    try await queue.enqueue(Far())
    try await queue.runAvailable()
    let waiting = try await queue.tasks(matching: TaskFilter(states: [.waiting]))
    #expect(waiting.map(\.availableDate) == Array(repeating: Self.last, count: 4))
    #expect(try await queue.tasks(matching: .deadLetters).count == 1)
  }

  @Test(arguments: [1e12, -1e12, 1e300])
  func `tasks can be added, performed and ended whatever the date of the clock`(seconds: Double)
    async throws
  {
    let clock = VirtualClock(date: .seconds(seconds))
    var configuration = TaskQueueConfiguration()
    configuration.succeededRetention = .forever
    let queue = TaskQueue(configuration: configuration, clock: clock)
    await queue.register(Note.self) { _, _ in }
    try await queue.enqueue(Note("a"))
    let nearest = seconds > 0 ? Self.last : .distantPast
    try await queue.runAvailable()
    let task = try #require(try await queue.tasks(matching: TaskFilter()).first)
    #expect(task.state == .succeeded)
    #expect(task.createdDate == nearest)
    #expect(task.finishedDate == nearest)
  }

  // MARK: Files of earlier versions

  @Test func `a file with dates beyond the bounds can be opened, and its tasks are unchanged`()
    async throws
  {
    let clock = clock
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "queue.jsonl")
      var text = try JournalText()
      var long = TaskRecord.make(2)
      long.apply(TaskUpdate(timeLimit: .seconds(Int64(1) << 50), expiryDate: .seconds(1e15)))
      try text.add(
        .change(.insert(.make(1, available: 1e300), onDuplicate: .keep)),
        .change(.insert(long, onDuplicate: .keep)),
        .change(.insert(.make(3), onDuplicate: .keep)),
        .change(.reschedule(.unclaimed(.numbered(3)), availableDate: .seconds(1e13)))
      )
      try Data(text.bytes).write(to: url)
      for _ in 1...2 {
        let store = JSONFileStore(at: url)
        let tasks = try await store.tasks(matching: TaskFilter(), after: nil, limit: 9)
        #expect(tasks.map(\.availableDate) == [.seconds(1e300), .seconds(0), .seconds(1e13)])
        #expect(tasks.map(\.expiryDate) == [nil, .seconds(1e15), nil])
        try await store.close()
      }
      // The tasks can be performed and changed like others.
      let store = JSONFileStore(at: url)
      let queue = TaskQueue(persistence: store, clock: clock)
      await queue.register(Note.self) { _, _ in }
      #expect(try await queue.runAvailable() == 1)
      let isRescheduled = try await queue.performNow(.numbered(1))
      #expect(isRescheduled)
      #expect(try await queue.runAvailable() == 1)
      #expect(try await queue.tasks().map(\.id) == [.numbered(3)])
      try await store.close()
    }
  }
}

private struct Later: RetryAwareError {
  let retryDecision: RetryDecision
}

private struct Far: TaskPayload {}

/// A handler that chooses a retry date far beyond the bounds.
private struct FarHandler: TaskHandler {
  func perform(_ payload: Far, in context: TaskContext) async throws { throw Refusal() }

  func retryDate(
    of payload: Far,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    .seconds(1e300)
  }
}
