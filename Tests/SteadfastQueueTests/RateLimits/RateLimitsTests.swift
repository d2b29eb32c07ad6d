import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

private struct Mail: TaskPayload {
  static let formerTaskNames = ["OldMail"]
  var account: Int
}

/// The same payload without a former name.
private struct PlainMail: TaskPayload {
  static let taskName = Mail.taskName
  var account: Int
}

@Suite struct RateLimitsTests {
  private let second: Int64 = 1_000_000

  private func record(_ name: String) -> TaskRecord { .make(1, name: name) }

  private func mail(_ account: Int) -> TaskRecord {
    record(Mail.taskName).replacing(
      payload: StoredPayload(Array("{\"account\":\(account)}".utf8), format: .json)
    )
  }

  private func admission(
    _ limits: RateLimits,
    _ records: [TaskRecord],
    at now: Int64
  ) throws -> RateLimits.Admission {
    var limits = limits
    if case .missing(let names) = limits.admit(records, at: now) {
      for name in names { _ = limits.cacheValue(named: name, bytes: nil, at: now) }
    }
    guard case .decided(let admission) = limits.admit(records, at: now) else {
      throw Undecided()
    }
    return admission
  }

  private struct Undecided: Error {}

  @Test func `a task is admitted only if all its limits have capacity`() throws {
    var limits = RateLimits(
      [
        .atMost(3, per: .seconds(1)), .atMost(2, per: .seconds(60), of: Mail.self),
        .atMost(1, per: .seconds(60), named: "Other"),
      ],
      tolerance: 0
    )
    for name in limits.missingValues { _ = limits.cacheValue(named: name, bytes: nil, at: 0) }
    let records = [mail(1), mail(2), mail(3), record("OldMail"), record("Other")]
    let admission = try admission(limits, records, at: second)
    #expect(admission.admitted == [0, 1, 4])
    #expect(admission.released == [2, 3] && admission.postponed.isEmpty)
    #expect(
      admission.writes.map(\.valueName) == [
        "steadfast.limit", "steadfast.limit/Mail", "steadfast.limit/Other",
      ]
    )
    limits.recordWrites(of: admission, decidedAt: 0, at: 0)
    let request = limits.requestWithinLimits(
      ClaimRequest(limit: 5, names: [Mail.taskName: 9, "Free": 9], otherNames: 0, now: .now),
      at: second
    )
    #expect(request.limit == 0)
    #expect(request.room(for: Mail.taskName) == 0 && request.room(for: "Free") == 9)
    #expect(limits.usedUpLimits(at: second).map(\.until) == [2 * second, 61 * second, 61 * second])
    // The first limit has capacity again. Tasks that can't start are excluded from the claim.
    let later = limits.requestWithinLimits(
      ClaimRequest(limit: 5, names: [:], otherNames: 7, now: .now),
      at: 2 * second
    )
    #expect(later.limit == 3 && later.room(for: "OldMail") == 0 && later.room(for: "Free") == 7)
  }

  @Test func `several limits for the same tasks share one history of starts`() throws {
    var limits = RateLimits(
      [.atMost(2, per: .seconds(1)), .atMost(3, per: .seconds(60))],
      tolerance: 0
    )
    #expect(limits.missingValues == ["steadfast.limit"])
    _ = limits.cacheValue(named: "steadfast.limit", bytes: nil, at: 0)
    limits.recordWrites(
      of: try admission(limits, [mail(1), mail(2), mail(3)], at: 0),
      decidedAt: 0,
      at: 0
    )
    #expect(limits.usedUpLimits(at: 0).map(\.until) == [second])
    limits.recordWrites(
      of: try admission(limits, [mail(3)], at: second),
      decidedAt: second,
      at: second
    )
    #expect(limits.usedUpLimits(at: second).map(\.until) == [60 * second])
  }

  @Test func `limits of a type and of the type's name share one history of starts`() throws {
    var limits = RateLimits(
      [
        .atMost(6, per: .seconds(60), of: Mail.self),
        .atMost(2, per: .seconds(1), named: Mail.taskName),
      ],
      tolerance: 0
    )
    #expect(limits.missingValues == ["steadfast.limit/Mail"])
    var started: [Int] = []
    for number in 0..<61 {
      let records = [mail(1), record("OldMail"), mail(3)]
      let admission = try admission(limits, records, at: Int64(number) * second)
      started += admission.admitted.map { _ in number }
      limits.recordWrites(of: admission, decidedAt: 0, at: 0)
    }
    #expect(started == [0, 0, 1, 1, 2, 2, 60, 60])
  }

  @Test func `each limit with keys has its own stored values`() {
    let limits = RateLimits(
      [
        .atMost(1, per: .seconds(1), of: Mail.self, key: \.account),
        .atMost(1, per: .seconds(1), of: PlainMail.self, key: \.account),
      ],
      tolerance: 0
    )
    #expect(Set(limits.historyIDs(of: mail(1)).map(\.valueName)).count == 2)
  }

  @Test func `names that Swift considers equal share a limit`() throws {
    let names = ["\u{e9}", "e\u{301}"]
    let limits = RateLimits(names.map { .atMost(1, per: .seconds(1), named: $0) }, tolerance: 0)
    #expect(limits.scopes.count == 1)
    #expect(try admission(limits, names.reversed().map(record), at: 0).admitted == [0])
  }

  @Test
  func `tasks whose key's limit is used up are postponed until the key's next start is allowed`()
    throws
  {
    var limits = RateLimits(
      [.atMost(2, per: .seconds(10), of: Mail.self, key: \.account)],
      tolerance: 0
    )
    #expect(limits.missingValues == [])
    let records = [1, 1, 1, 1, 1, 2].map(mail)
    for name in Set(limits.historyIDs(of: mail(1)) + limits.historyIDs(of: mail(2))).map(
      \.valueName
    ) {
      _ = limits.cacheValue(named: name, bytes: nil, at: 0)
    }
    let first = try admission(limits, records, at: 0)
    #expect(first.admitted == [0, 1, 5] && first.released == [])
    #expect(first.postponed.map(\.index) == [2, 3, 4])
    #expect(first.postponed.map(\.until) == [10, 10, 10].map { $0 * second })
    limits.recordWrites(of: first, decidedAt: 0, at: 0)
    let next = try admission(limits, [mail(1)], at: second)
    #expect(next.postponed.map(\.until) == [10 * second])
    // Once starts are allowed again, no task of the key is waiting.
    limits.recordWrites(of: next, decidedAt: 0, at: 0)
    let last = try admission(limits, [mail(1)], at: 30 * second)
    limits.recordWrites(of: last, decidedAt: 30 * second, at: 30 * second)
    #expect(limits.postponedUntilFree.isEmpty)
  }

  @Test
  func `a task far behind others with its key is tried again only when a start may be free for it`()
    throws
  {
    var limits = RateLimits(
      [.atMost(1, per: .seconds(10), of: Mail.self, key: \.account)],
      tolerance: 0
    )
    for name in limits.historyIDs(of: mail(1)).map(\.valueName) {
      _ = limits.cacheValue(named: name, bytes: nil, at: 0)
    }
    limits.recordWrites(of: try admission(limits, [mail(1)], at: 0), decidedAt: 0, at: 0)
    func waiting(_ priority: TaskQueue.Priority = .normal, since date: Int64 = 0) -> TaskRecord {
      TaskRecord(
        id: .numbered(1),
        name: Mail.taskName,
        payload: mail(1).payload,
        priority: priority,
        createdDate: Date(microseconds: 0),
        availableDate: Date(microseconds: date)
      )
    }
    // Tasks that are denied for the first time retry when the next start is free.
    let new = try admission(limits, (0..<40).map { _ in waiting() }, at: second)
    #expect(Set(new.postponed.map(\.until)) == [10 * second])
    // Tasks that were denied before also retry then if few tasks are ahead of them.
    let later = try admission(limits, (0..<40).map { _ in waiting(since: 1) }, at: second)
    #expect(later.postponed.prefix(16).allSatisfy { $0.until == 10 * second })
    #expect(later.postponed[16].until == 170 * second + 1)
    #expect(later.postponed[39].until == 330 * second + 1)
    limits.recordWrites(of: later, decidedAt: second, at: second)
    // Tasks with a lower priority are not ahead.
    let urgent = try admission(limits, [waiting(.high, since: 1)], at: second)
    #expect(urgent.postponed.map(\.until) == [10 * second])
    let idle = try admission(limits, [waiting(.low, since: 1)], at: second)
    #expect(idle.postponed.map(\.until) == [330 * second + 1])
  }

  @Test func `an invalid stored value counts as a limit that was just used up`() throws {
    var limits = RateLimits([.atMost(2, per: .seconds(10))], tolerance: 0)
    let needsMending = limits.cacheValue(named: "steadfast.limit", bytes: [9, 9], at: 5 * second)
    #expect(needsMending)
    #expect(limits.usedUpLimits(at: 5 * second).map(\.until) == [15 * second])
    let later = try admission(limits, [mail(1)], at: 15 * second)
    #expect(later.admitted == [0] && later.writes[0].old == [9, 9])
    // Storing the repaired value lets the next process count from the same date.
    let mended = limits.mendValue(named: "steadfast.limit", bytes: [9, 9], at: 5 * second)
    #expect(try admission(limits, [mail(1)], at: 15 * second).writes[0].old == mended)
    var next = RateLimits([.atMost(2, per: .seconds(10))], tolerance: 0)
    let needsMendingAgain = next.cacheValue(
      named: "steadfast.limit",
      bytes: mended,
      at: 14 * second
    )
    #expect(!needsMendingAgain)
    #expect(next.usedUpLimits(at: 14 * second).map(\.until) == [15 * second])
  }

  @Test
  func `if a limit's stored value is full, tasks with other keys wait until a stored key expires`()
    throws
  {
    var limits = RateLimits(
      [.atMost(1, per: .seconds(10), of: Mail.self, key: \.account)],
      tolerance: 0,
      maxValueSize: 100
    )
    let place = try #require(limits.historyIDs(of: mail(1)).first)
    var full = StartHistories()
    for key in 1...3 as ClosedRange<UInt64> { full[key] = StartHistory(starts: [0]) }
    _ = limits.cacheValue(named: place.valueName, bytes: full.bytes, at: 0)
    let first = try admission(limits, [mail(1)], at: second)
    #expect(first.postponed.map(\.until) == [11 * second])
    // By then, the starts of the other keys have expired.
    let later = try admission(limits, [mail(1)], at: 11 * second)
    #expect(later.admitted == [0])
  }

  @Test func `a task that can't be decoded is admitted, so that it can be parked`() throws {
    let limits = RateLimits(
      [.atMost(1, per: .seconds(10), of: Mail.self, key: \.account)],
      tolerance: 0
    )
    let records = Array(repeating: record(Mail.taskName), count: 3)
    #expect(try admission(limits, records, at: 0).admitted == [0, 1, 2])
  }

  @Test func `a snooze pauses the limit of the task's key, else of its name, else of the queue`() {
    let all = RateLimit.atMost(1, per: .seconds(1))
    let named = RateLimit.atMost(1, per: .seconds(1), of: Mail.self)
    let keyed = RateLimit.atMost(1, per: .seconds(1), of: Mail.self, key: \.account)
    func paused(_ limits: [RateLimit]) -> [Int] {
      RateLimits(limits, tolerance: 0).historiesToPause(for: mail(1)).map(\.scope)
    }
    #expect(paused([]) == [] && paused([all]) == [0] && paused([all, named]) == [1])
    #expect(paused([all, named, keyed]) == [2])
    #expect(paused([.atMost(1, per: .seconds(1), named: "b")]) == [])
  }

  @Test func `the hash values of keys are evenly distributed and constant`() {
    #expect(RateLimits.storedNumber(ofKey: "") == RateLimits.storedNumber(ofKey: ""))
    let numbers = (0..<10_000).map { RateLimits.storedNumber(ofKey: "account \($0)") }
    #expect(Set(numbers).count == 10_000)
    let parts = Dictionary(grouping: numbers) { $0 % 256 }.mapValues(\.count)
    #expect(parts.count == 256 && parts.values.allSatisfy { (10...80).contains($0) })
  }

  @Test(arguments: [
    (RateLimit.atMost(0, per: .seconds(1)), "0 starts"),
    (.atMost(-1, per: .seconds(1)), "-1 starts"),
    (.atMost(1, per: .zero), "interval"),
    (.atMost(1, per: .microseconds(999)), "interval"),
    (.atMost(1, per: .seconds(10_001 * 86_400)), "interval"),
    (.atMost(.max, per: .seconds(1)), "more than a queue can start"),
    (.atMost(1_025, per: .milliseconds(1)), "more than a queue can start"),
    (.atMost(1, per: .seconds(1), named: ""), "0 bytes"),
    (.atMost(1, per: .seconds(1), named: String(repeating: "a", count: 513)), "513 bytes"),
    (.atMost(1, per: .seconds(1), named: "a\0"), "NUL"),
  ])
  func `an invalid limit is rejected`(limit: RateLimit, part: String) async throws {
    let queue = TaskQueue(configuration: TaskQueueConfiguration(rateLimits: [limit]))
    let error = await queueError { try await queue.open() }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains(part) == true, "\(error?.message ?? "")")
  }

  @Test func `a limit's description has its count and interval`() {
    #expect("\(RateLimit.atMost(100, per: .seconds(60)))" == "100 per 60.0 seconds")
    #expect(
      "\(RateLimit.atMost(5, per: .seconds(1), of: Mail.self, key: \.account))"
        == "5 per 1.0 seconds of \(Mail.taskName) with one key"
    )
  }
}
