import Foundation
import SteadfastRetry
import Testing

@testable import SteadfastQueue

/// Random operations on a table, a reference, and the journal that would be written.
private struct Comparison {
  private var random: SplitMix64
  private var table = TaskTable()
  private var reference = ReferenceTable()
  private var leases: [Lease] = []
  private var lastNumber = 0
  private var now = Date.seconds(1000)
  private(set) var journal: Journal
  let storage = MemoryStorage()

  init(seed: UInt64) throws {
    random = SplitMix64(seed: seed)
    journal = try Journal.open(storage).journal
  }

  mutating func run(operations: Int) throws {
    for number in 0..<operations {
      try step()
      let expected = reference.entries.map(\.record).sorted { $0.id < $1.id }
      let found = table.tasks(matching: TaskFilter(), after: nil, limit: .max)
      try Self.requireSame(found, expected, "operation \(number)")
      for state in TaskState.allCases {
        let count = table.count(matching: TaskFilter(states: [state]))
        try #require(count == expected.count { $0.state == state }, "operation \(number)")
      }
    }
  }

  /// What a process finds that opens the file after this one was killed.
  func checkRestart() throws {
    var found = try JournalReader.read(storage.bytes).table
    var expected = reference
    for index in expected.entries.indices where expected.entries[index].lease != nil {
      expected.entries[index].lease = nil
      expected.entries[index].record.state = .waiting
      expected.entries[index].record.interruptionCount += 1
    }
    let records = expected.entries.map(\.record).sorted { $0.id < $1.id }
    try Self.requireSame(
      found.tasks(matching: TaskFilter(), after: nil, limit: .max),
      records,
      "after a restart"
    )
    let request = ClaimRequest(limit: .max, names: ["A": .max, "B": .max], now: .seconds(1e9))
    try #require(found.claim(request).tasks.map(\.record.id) == expected.claimable(request))
  }

  private static func requireSame(
    _ found: [TaskRecord],
    _ expected: [TaskRecord],
    _ moment: String
  ) throws {
    let difference = found.map(summary).difference(from: expected.map(summary))
    try #require(difference.isEmpty, "\(moment)")
  }

  private static func summary(_ record: TaskRecord) -> String {
    """
    \(record.id) \(record.name) \(record.priority.rawValue) \(record.state) \
    \(record.availableDate.timeIntervalSince1970) \(record.retryCount) \
    \(record.interruptionCount) \(record.uniqueKey ?? "-") \(record.lastError ?? "-") \
    \(record.failedDate?.timeIntervalSince1970 ?? 0) \
    \(record.finishedDate?.timeIntervalSince1970 ?? 0)
    """
  }

  // MARK: Operations

  private mutating func step() throws {
    now += Double(random.next() % 8)
    switch random.next() % 10 {
    case 0...3: try insert()
    case 4...5: try claim()
    case 6...7: try end()
    case 8: try control()
    default: try lookAfter()
    }
  }

  private mutating func apply(_ change: TaskChange, _ expected: ChangeOutcome) throws {
    let outcome = table.apply([change])[0]
    try #require(outcome == expected, "\(change)")
    switch outcome {
    case .done, .replaced: try journal.append([[JournalBody(.change(change))]])
    case .duplicate, .stale, .identityTaken, .batchRefused: break
    }
  }

  private mutating func insert() throws {
    lastNumber += 1
    let record = TaskRecord.make(
      lastNumber,
      name: random.next() % 2 == 0 ? "A" : "B",
      priority: TaskQueue.Priority(rawValue: Int(random.next() % 3)),
      available: (now.timeIntervalSince1970 + Double(random.next() % 20) - 5),
      key: random.next() % 2 == 0 ? "key \(random.next() % 5)" : nil
    )
    let policy: UniquePolicy = random.next() % 3 == 0 ? .replace : .keep
    try apply(
      .insert(record, onDuplicate: policy),
      reference.insert(record, onDuplicate: policy)
    )
  }

  private mutating func claim() throws {
    let request = ClaimRequest(
      limit: Int(random.next() % 4),
      names: random.next() % 3 == 0 ? ["A": 1] : ["A": 2, "B": .max],
      now: now
    )
    let expected = reference.claimable(request)
    let claim = table.claim(request)
    try #require(claim.tasks.map(\.record.id) == expected)
    for task in claim.tasks {
      reference.lease(task.lease)
      leases.append(task.lease)
    }
    try journal.append([claim.tasks.map { JournalBody(beginningOf: $0.lease.id) }])
  }

  private mutating func end() throws {
    guard !leases.isEmpty else { return }
    // Now and then the lease stays in the list, and is used a second time when it is stale.
    let index = Int(random.next() % UInt64(leases.count))
    let lease = leases[index]
    if random.next() % 5 != 0 { leases.remove(at: index) }
    let keeps = random.next() % 2 == 0
    let (now, failure) = (now, TaskFailure(reason: "no \(lease.token)", date: now))
    func note(_ record: inout TaskRecord) {
      record.lastError = failure.reason
      record.failedDate = failure.date
    }
    switch random.next() % 8 {
    case 5:
      try apply(
        .cancel(.claimed(lease), at: now, keeps: keeps),
        reference.change(lease, to: .cancelled, keeps: keeps, at: now)
      )
    case 6:
      try apply(.pause(.claimed(lease)), reference.change(lease, to: .paused))
    case 7:
      try apply(
        .restart(.claimed(lease), availableDate: now),
        reference.change(lease, to: .waiting) { Self.makeNew(&$0, now) }
      )
    case 0:
      try apply(
        .succeed(lease, at: now, keeps: keeps),
        reference.change(lease, to: .succeeded, keeps: keeps, at: now)
      )
    case 1:
      try apply(
        .abandon(lease, failure: failure, keeps: keeps),
        reference.change(lease, to: .abandoned, keeps: keeps, at: now, note)
      )
    case 2:
      try apply(
        .release(lease),
        reference.change(lease, to: .waiting, keepsPlace: true)
      )
    case 3:
      try apply(
        .park(lease, failure: failure),
        reference.change(lease, to: .parked, note)
      )
    default:
      let date = now + Double(random.next() % 9)
      let expected = reference.change(lease, to: .waiting) { record in
        record.availableDate = date
        record.retryCount = 4
        record.interruptionCount = 0
        note(&record)
      }
      try apply(
        .retry(lease, availableDate: date, retryCount: 4, failure: failure),
        expected
      )
    }
  }

  /// What a user does to a task, whatever its state.
  private mutating func control() throws {
    let id = TaskID.numbered(1 + Int(random.next() % UInt64(max(1, lastNumber))))
    let keeps = random.next() % 2 == 0
    let now = now
    switch random.next() % 6 {
    case 0:
      try apply(
        .cancel(.unclaimed(id), at: now, keeps: keeps),
        reference.change(
          id,
          in: [.waiting, .parked, .paused],
          to: .cancelled,
          keeps: keeps,
          at: now
        )
      )
    case 1:
      try apply(
        .pause(.unclaimed(id)),
        reference.change(id, in: [.waiting, .parked], to: .paused)
      )
    case 2:
      try apply(.resume(id), reference.change(id, in: [.paused], to: .waiting))
    case 3:
      try apply(
        .restart(.unclaimed(id), availableDate: now),
        reference.change(id, in: Self.atRest, to: .waiting) { Self.makeNew(&$0, now) }
      )
    case 4:
      let date = now + Double(random.next() % 20) - 10
      let state = reference.record(of: id)?.state ?? .waiting
      try apply(
        .reschedule(.unclaimed(id), availableDate: date),
        reference.change(id, in: [.waiting, .parked, .paused], to: state) {
          $0.availableDate = date
        }
      )
    default:
      let ended = Self.atRest.filter(\.isFinished)
      try apply(.remove(id), reference.change(id, in: ended, to: .waiting, keeps: false))
    }
  }

  private static let atRest = Set(TaskState.allCases.filter { $0 != .running })

  private static func makeNew(_ record: inout TaskRecord, _ now: Date) {
    record.availableDate = now
    record.retryCount = 0
    record.interruptionCount = 0
    record.lastError = nil
    record.failedDate = nil
    record.finishedDate = nil
    if let expiry = record.expiryDate, expiry <= now { record.dropExpiry() }
  }

  private mutating func lookAfter() throws {
    switch random.next() % 5 {
    case 0, 1:
      reference.unpark("A")
      try apply(.unpark(name: "A"), .done)
    case 2:
      now -= Double(random.next() % 40)
      reference.rebase(to: now)
      try apply(.rebase(now), .done)
    default:
      let state: TaskState = random.next() % 2 == 0 ? .succeeded : .abandoned
      let date = random.next() % 2 == 0 ? now - 50 : nil
      let count = random.next() % 2 == 0 ? Int(random.next() % 6) : nil
      reference.prune(state, endedBefore: date, keepingLatest: count)
      try apply(.prune(state, endedBefore: date, keepingLatest: count), .done)
    }
  }
}

@Suite struct TaskTableModelTests {
  @Test(arguments: 0..<20 as Range<UInt64>)
  func `a table does what its reference does, and a restart finds the same`(seed: UInt64) throws {
    var comparison = try Comparison(seed: seed)
    for _ in 0..<10 {
      try comparison.run(operations: 30)
      try comparison.checkRestart()
    }
  }
}
