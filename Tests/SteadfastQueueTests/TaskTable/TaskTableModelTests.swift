import Foundation
import SteadfastRetry
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Performs random operations on a table, a reference implementation and a journal.
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
      let expected = reference.records
      let found = table.tasks(matching: TaskFilter(queue: nil), after: nil, limit: .max)
      try Self.requireSame(found, expected, "operation \(number)")
      for state in TaskState.allCases {
        for queue in [nil, "", "q"] {
          let filter = TaskFilter(queue: queue, states: [state])
          let count = table.count(matching: filter)
          try #require(count == expected.count(where: filter.matches), "operation \(number)")
        }
      }
      let values = table.values.committed.mapValues(\.bytes)
      try #require(values == reference.values, "operation \(number)")
      try Self.requireSameMemories(table, reference, "operation \(number)")
    }
  }

  /// Checks the tasks that a new process would read from the file if this process were killed.
  func checkRestart() throws {
    var found = try JournalReader.read(storage.bytes).table
    var expected = reference
    expected.interrupt()
    try Self.requireSame(
      found.tasks(matching: TaskFilter(queue: nil), after: nil, limit: .max),
      expected.records,
      "after a restart"
    )
    for queue in ["", "q"] {
      let request = ClaimRequest(
        limit: .max,
        queue: queue,
        names: ["A": .max, "B": .max],
        now: .seconds(1e9),
        conditions: ["a", "b"]
      )
      try Self.requireClaimed(found.claim(request), of: &expected, request)
    }
    try #require(found.values.committed.mapValues(\.bytes) == reference.values)
    try Self.requireSameMemories(found, reference, "after a restart")
  }

  private static func requireSameMemories(
    _ table: TaskTable,
    _ reference: ReferenceTable,
    _ moment: String
  ) throws {
    var count = 0
    for entry in reference.entries {
      var expected = TaskMemory()
      for (name, value) in entry.memory { expected[name.text] = value }
      try #require(table.memory(of: entry.record.id) == expected, "\(moment)")
      count += entry.memory.count
    }
    try #require(table.memoryCount == count, "\(moment)")
  }

  /// Checks the order of claimed tasks.
  ///
  /// Tasks that were unparked together may be in any order.
  private static func requireClaimed(
    _ claim: Claim,
    of reference: inout ReferenceTable,
    _ request: ClaimRequest
  ) throws {
    let expected = reference.claimable(request).map(\.rank)
    let found = claim.tasks.map(\.record.id)
    try #require(reference.ranks(of: found) == expected && Set(found).count == found.count)
  }

  private static func requireSame(
    _ found: [TaskRecord],
    _ expected: [TaskRecord],
    _ moment: String
  ) throws {
    let difference = found.map(\.summary).difference(from: expected.map(\.summary))
    try #require(difference.isEmpty, "\(moment)")
  }

  // MARK: Operations

  private mutating func step() throws {
    now += Double(random.next() % 8)
    switch random.next() % 11 {
    case 0...3: try insert()
    case 4...5: try claim()
    case 6...7: try end()
    case 8: try control()
    case 9: try random.next() % 2 == 0 ? setValue() : complete()
    default: try performMaintenance()
    }
  }

  private mutating func setValue() throws {
    let name = "value \(random.next() % 3)"
    let present = reference.values[ExactText(name)]
    let new: [UInt8]? = random.next() % 3 == 0 ? nil : [UInt8(random.next() % 4)]
    try apply(.setValue(named: name, from: random.next() % 4 == 0 ? [1] : present, to: new))
  }

  private static let names = ["step", "\u{e9}", "e\u{301}"]

  private mutating func drawName() -> String { Self.names[Int(random.next() % 3)] }

  /// Completes a wait of a task, usually a task that has an open completion.
  private mutating func complete() throws {
    let open = reference.entries.filter { $0.memory.values.contains([]) }.map(\.record.id)
    let id =
      open.isEmpty || random.next() % 4 == 0
      ? TaskID.numbered(Int(random.next() % UInt64(lastNumber + 1)))
      : open[Int(random.next() % UInt64(open.count))]
    try apply(.complete(id, named: drawName(), value: [UInt8(random.next() % 256)]))
  }

  /// Stores a value in the memory of a claimed task.
  private mutating func remember(_ lease: Lease) throws {
    let value = [[], Array("text".utf8), [0, UInt8(random.next() % 256)]][Int(random.next() % 3)]
    try apply(.remember(lease, named: drawName(), value: value))
    leases.append(lease)
  }

  private mutating func suspend(_ lease: Lease) throws {
    let date = [now + Double(random.next() % 20) - 5, .distantFuture, .distantFuture + 86_400]
    let names = random.next() % 3 == 0 ? Self.names : random.next() % 2 == 0 ? [drawName()] : []
    try apply(.suspend(lease, until: date[Int(random.next() % 3)], awaiting: names))
  }

  private mutating func apply(_ change: TaskChange) throws {
    let expected = reference.apply([change])[0]
    let staged = table.stage(change)
    let plain = try JournalBody(.change(change))
    let line = table.decision(on: staged).map(plain.adding) ?? plain
    let outcome = table.commit(staged)
    try #require(outcome == expected, "\(change)")
    switch outcome {
    case .done, .doneWithConsequences, .replaced, .superseded: try journal.append([[line]])
    case .duplicate, .unmetDependency, .stale, .commanded, .identityTaken, .batchRefused,
      .valueDiffers:
      break
    }
  }

  private mutating func insert() throws {
    lastNumber += 1
    let record = TaskRecord.make(
      lastNumber,
      name: random.next() % 2 == 0 ? "A" : "B",
      priority: TaskQueue.Priority(rawValue: Int(random.next() % 3)),
      available: (now.timeIntervalSince1970 + Double(random.next() % 20) - 5),
      key: random.next() % 2 == 0 ? "key \(random.next() % 5)" : nil,
      created: now.timeIntervalSince1970,
      uniqueFor: random.next() % 4 == 0 ? Double(random.next() % 50) : nil,
      maxDelay: random.next() % 4 == 0 ? Double(random.next() % 20) : nil,
      order: random.next() % 3 == 0 ? "order \(random.next() % 3)" : nil,
      holds: random.next() % 3 == 0,
      requires: random.next() % 4 == 0 ? [random.next() % 2 == 0 ? "a" : "b"] : [],
      dependencies: drawDependencies(),
      expires: random.next() % 3 == 0 ? now + Double(random.next() % 20) : nil
    ).replacing(queue: drawQueue())
    let policies = [UniquePolicy.replace, .keep, .keep, .join, .reject]
    let policy = policies[Int(random.next() % 5)]
    let isReplacement = policy == .replace && record.dependencies.isEmpty
    try apply(
      .insert(record, onDuplicate: isReplacement ? .replace : policy == .replace ? .keep : policy)
    )
  }

  private mutating func drawQueue() -> String { random.next() % 3 == 0 ? "q" : "" }

  /// Draws dependencies on recently inserted tasks, and perhaps a recently inserted follower.
  private mutating func drawDependencies() -> TaskDependencies? {
    guard lastNumber > 6, random.next() % 2 == 0 else { return nil }
    var numbers: Set<Int> = []
    for _ in 0..<random.next() % 3 { numbers.insert(lastNumber - 1 - Int(random.next() % 5)) }
    return TaskDependencies(
      on: Set(numbers.map(TaskID.numbered)),
      rule: random.next() % 3 == 0 ? .allEnded : .allSucceeded,
      follower: random.next() % 4 == 0
        ? .numbered(lastNumber - 1 - Int(random.next() % 5)) : nil
    )
  }

  private mutating func claim() throws {
    let request = ClaimRequest(
      limit: Int(random.next() % 4),
      queue: drawQueue(),
      names: random.next() % 3 == 0 ? ["A": 1] : ["A": 2, "B": .max],
      now: now,
      conditions: random.next() % 2 == 0 ? ["a"] : ["a", "b"]
    )
    let claim = table.claim(request)
    try Self.requireClaimed(claim, of: &reference, request)
    for task in claim.tasks {
      reference.lease(task.lease)
      leases.append(task.lease)
    }
    try journal.append([claim.tasks.map { JournalBody(attemptStartOf: $0.lease.id) }])
  }

  private mutating func end() throws {
    guard !leases.isEmpty else { return }
    // One lease in five remains in the list, and may be used again when it is stale.
    let index = Int(random.next() % UInt64(leases.count))
    let lease = leases[index]
    if random.next() % 5 != 0 { leases.remove(at: index) }
    let retains = random.next() % 2 == 0
    let failure = TaskFailure(reason: "no \(lease.token)", date: now)
    switch random.next() % 13 {
    case 8...10: try remember(lease)
    case 11, 12: try suspend(lease)
    case 0: try apply(.succeed(lease, at: now, retains: retains))
    case 1: try apply(.abandon(lease, failure: failure, retains: retains))
    case 2: try apply(.release(lease))
    case 3:
      let version = [nil, 1, 2][Int(lease.token % 3)]
      try apply(.park(lease, failure: failure, knownVersion: version))
    case 4:
      let date = now + Double(random.next() % 9)
      try apply(.retry(lease, availableDate: date, retryCount: 4, failure: failure))
    case 5: try apply(.cancel(.claimed(lease), at: now, retains: retains))
    case 6: try apply(.pause(.claimed(lease)))
    default: try apply(.restart(.claimed(lease), availableDate: now, forgets: retains))
    }
  }

  /// Applies a caller's operation to a task in any state.
  private mutating func control() throws {
    // Usually, the task is one of the latest, which often have dependencies or dependents.
    let isLate = random.next() % 3 > 0
    let age = Int(random.next() % (isLate ? 8 : UInt64(lastNumber + 1)))
    let id = TaskID.numbered(max(1, lastNumber - age))
    let retains = random.next() % 2 == 0
    switch random.next() % 7 {
    case 0: try apply(.cancel(.unclaimed(id), at: now, retains: retains))
    case 1: try apply(.pause(.unclaimed(id)))
    case 2: try apply(.resume(id))
    case 3: try apply(.restart(.unclaimed(id), availableDate: now, forgets: retains))
    case 4:
      try apply(.reschedule(.unclaimed(id), availableDate: now + Double(random.next() % 20) - 10))
    case 5: try apply(.update(id, .drawn(by: &random, at: now)))
    default: try apply(.remove(id))
    }
  }

  private mutating func performMaintenance() throws {
    switch random.next() % 5 {
    case 0: try apply(.unpark(name: "A", queue: drawQueue()))
    case 1: try apply(.unpark(name: "A", queue: drawQueue(), below: 2))
    case 2:
      now -= Double(random.next() % 40)
      try apply(.rebase(now))
    default:
      let state: TaskState = random.next() % 2 == 0 ? .succeeded : .abandoned
      let (isByDate, isByCount) = (random.next() % 2 == 0, random.next() % 2 == 0)
      let (date, count) = (isByDate ? now - 50 : nil, isByCount ? Int(random.next() % 6) : nil)
      try apply(
        .prune(state, endedBefore: date, keepingLatest: count, now: now, queue: drawQueue())
      )
    }
  }
}

@Suite struct TaskTableModelTests {
  @Test(arguments: 0..<UInt64(Soak.runs(short: 5)))
  func `a table behaves like a simple reference implementation, also after a restart`(seed: UInt64)
    throws
  {
    var comparison = try Comparison(seed: seed)
    for part in 0..<10 {
      try comparison.run(operations: 30)
      try comparison.checkRestart()
      try ExportedFile.write(comparison.storage.bytes, named: "model-\(seed)-\(part)")
    }
  }
}
