import SteadfastQueue
import SteadfastRetry
import Synchronization
import SystemFoundation

/// A wrapper of the store under test that records each call and its result as a step of the report.
struct StoreProbe: Sendable {
  typealias Factory = @Sendable (_ place: String) async throws -> any Persistence

  let store: any Persistence
  let place: String
  let trial: RequirementCheck
  private let makeStore: Factory
  /// The store's name in the recorded steps; empty if it is the only store.
  private let label: String

  static func open(
    at place: String,
    trial: RequirementCheck,
    label: String = "",
    _ makeStore: @escaping Factory
  ) async throws -> StoreProbe {
    let store = try await makeStore(place)
    trial.addStore(store, at: place)
    try await store.open()
    return StoreProbe(
      store: store,
      place: place,
      trial: trial,
      makeStore: makeStore,
      label: label
    )
  }

  /// Opens a new, empty store at another place.
  func openEmptyStore(suffix: String) async throws -> StoreProbe {
    try await Self.open(at: "\(place)-\(suffix)", trial: trial, makeStore)
  }

  /// Opens a second store at the same place while this store is open, so that both share tasks.
  func openSecondStore() async throws -> StoreProbe {
    trial.recordStep("open a second store at the same place")
    return try await Self.open(at: place, trial: trial, label: "second store: ", makeStore)
  }

  /// Opens a new store at the same place, after this store was closed or destroyed.
  func openNextStore() async throws -> StoreProbe {
    try await Self.open(at: place, trial: trial, makeStore)
  }

  /// Makes a new store at the same place without opening it.
  func makeUnopenedStore() async throws -> StoreProbe {
    let store = try await makeStore(place)
    trial.addStore(store, at: place)
    return StoreProbe(store: store, place: place, trial: trial, makeStore: makeStore, label: label)
  }

  /// Closes the store, and returns a new store that is open at the same place.
  func reopen() async throws -> StoreProbe {
    trial.recordStep("close and reopen")
    try await store.close()
    return try await openNextStore()
  }

  /// Records a step, with the store's name if there are several stores.
  func recordStep(_ step: String) { trial.recordStep(label + step) }

  /// Makes a call, and records its result or error as a step.
  func recordCall<Result>(
    _ call: String,
    _ describe: (Result) -> String,
    _ body: () async throws -> Result
  ) async throws -> Result {
    trial.recordStart(of: label + call)
    do {
      let result = try await body()
      recordStep("\(call) → \(describe(result))")
      return result
    } catch {
      recordStep("\(call) throws \(error)")
      throw error
    }
  }
}

// MARK: - Calls

extension StoreProbe {
  /// How often a call is repeated that throws a transient error.
  private static let mostRepetitions = 100

  /// Applies changes, and expects an outcome for each.
  ///
  /// A call that throws a transient error is repeated, and must have stored nothing.
  @discardableResult
  func apply(
    _ batch: [TaskChange],
    durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    let call = "apply \(batch.map(\.step).joined(separator: "; "))"
    let new = trial.recordInsertions(of: batch, at: place)
    var repetitions = 0
    while true {
      do {
        let outcomes = try await recordCall(call, { $0.map(\.step).joined(separator: ", ") }) {
          try await store.apply(batch, durability: durability)
        }
        try expect("the number of outcomes", outcomes.count, batch.count)
        return outcomes
      } catch let error as any PersistenceError
        where error.isTransient && repetitions < Self.mostRepetitions
      {
        repetitions += 1
        let filter = TaskFilter(ids: Set(new))
        let stored = new.isEmpty ? 0 : try await store.count(matching: filter)
        try expect("the number of tasks that were stored nevertheless", stored, 0)
      }
    }
  }

  /// Applies one change, and expects this outcome.
  func apply(_ change: TaskChange, _ expected: ChangeOutcome = .done) async throws {
    let outcomes = try await apply([change])
    try expect("the outcome", outcomes[0].step, expected.step)
  }

  /// Inserts tasks, and expects that all are stored.
  func insert(_ records: TaskRecord..., onDuplicate policy: UniquePolicy = .keep) async throws {
    let outcomes = try await apply(records.map { .insert($0, onDuplicate: policy) })
    try expect("the outcomes", outcomes, records.map { _ in .done })
  }

  /// Claims tasks; by default, up to 1,000 tasks of the name A.
  @discardableResult
  func claim(
    _ limit: Int = 1000,
    of queue: String = "",
    names: [String: Int] = ["A": 1000],
    otherNames: Int = 0,
    versions: [String: Int] = [:],
    at seconds: Double = 0,
    holding conditions: Set<TaskCondition> = [],
    leaseTime: Double? = nil,
    by holder: String = ""
  ) async throws -> Claim {
    try await claim(
      ClaimRequest(
        limit: limit,
        queue: queue,
        names: names,
        otherNames: otherNames,
        versions: versions,
        now: .second(seconds),
        conditions: conditions,
        leaseDuration: store.sharing == nil ? nil : .seconds(leaseTime ?? Self.longLeaseTime),
        holder: holder
      )
    )
  }

  @discardableResult
  func claim(_ request: ClaimRequest) async throws -> Claim {
    let names = request.names.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
    let others = request.otherNames > 0 ? ", others: \(request.otherNames)" : ""
    let versions = request.versions.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
    let known = versions.isEmpty ? "" : ", up to the versions \(versions)"
    let held =
      request.conditions.isEmpty
      ? "" : ", conditions met: \(request.conditions.sorted().map(\.rawValue))"
    let end = request.leaseDuration.map { ", for \($0.step)" } ?? ""
    let queue = request.queue.isEmpty ? "" : " in the queue '\(request.queue)'"
    let call =
      "claim \(request.limit)\(queue) of [\(names.joined(separator: ", "))\(others)] "
      + "at \(request.now.step)\(known)\(held)\(end)"
      + (request.holder.isEmpty ? "" : " by '\(request.holder)'")
    return try await recordCall(call.replacing("\0", with: "\\0"), \.step) {
      try await store.claim(request)
    }
  }

  /// Claims tasks, expects exactly one, and returns its lease.
  func claimOne(at seconds: Double = 0, leaseTime: Double? = nil) async throws -> Lease {
    let claim = try await claim(at: seconds, leaseTime: leaseTime)
    try expect("the number of claimed tasks", claim.tasks.count, 1)
    return claim.tasks[0].lease
  }

  /// The duration of claims that must not expire, in seconds.
  static var longLeaseTime: Double { 1_000_000 }
  /// The duration of claims that are meant to expire, in seconds.
  ///
  /// It is long compared with the few seconds that a clock advances by itself during a check.
  static var leaseTime: Double { 600 }

  /// The number of seconds within which a store must end a claim after the claim expires.
  var maxExpiryDelay: Double { (store.sharing?.leaseDuration ?? .zero) / .seconds(3) }

  /// Moves the store's clock forward.
  func advanceClock(bySeconds seconds: Double) async throws {
    let call = "move the store's clock by \(seconds) s"
    try await recordCall(call, { _ in "done" }) {
      try await trial.advanceClock?(place, .seconds(seconds))
    }
  }

  func tasks(
    _ filter: TaskFilter = TaskFilter(),
    after id: TaskID? = nil,
    limit: Int = 10_000,
    newestFirst: Bool = false
  ) async throws -> [TaskRecord] {
    let after = id.map { " after \($0.number)" } ?? ""
    let order = newestFirst ? ", the newest first" : ""
    let call = "look up \(filter.step)\(after), at most \(limit)\(order)"
    return try await recordCall(call, \.step) {
      try await store.tasks(
        matching: filter,
        after: id,
        limit: limit,
        newestFirst: newestFirst
      )
    }
  }

  func count(_ filter: TaskFilter = TaskFilter()) async throws -> Int {
    try await recordCall("count \(filter.step)", { "\($0)" }) {
      try await store.count(matching: filter)
    }
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    let call = "check whether there are any of \(filter.step)"
    return try await recordCall(call, { "\($0)" }) { try await store.contains(filter) }
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await recordCall("read the value '\(name.prefix(80))'", \.step) {
      try await store.value(named: name)
    }
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    let call = "read the values whose names begin with '\(prefix.prefix(80))'"
    return try await recordCall(call, Self.text) { try await store.values(prefix: prefix) }
  }

  private static func text(of values: [(name: String, bytes: [UInt8])]) -> String {
    let texts = values.map { name, bytes in "'\(name.prefix(80))': \(Optional(bytes).step)" }
    return "[\(texts.joined(separator: ", "))]"
  }

  /// Returns the task with this number, and expects that it exists.
  func task(_ number: Int) async throws -> TaskRecord {
    let found = try await tasks(TaskFilter(ids: [.numbered(number)], queue: nil))
    try expect("the tasks", found.map(\.id.number), [number])
    return found[0]
  }
}

extension StoreProbe {
  /// Expects that the found value equals the expected one; `what` names the value in a failure.
  func expect<Value: Equatable>(_ what: String, _ found: Value, _ expected: Value) throws {
    guard found != expected else { return }
    throw ConformanceMismatch(expected: "\(what) is \(expected)", found: "\(found)")
  }

  /// Expects that the found date equals the expected one, as precisely as databases store dates.
  func expect(_ what: String, _ found: Date?, _ expected: Date?) throws {
    guard !TaskRecord.isSame(found, expected) else { return }
    throw ConformanceMismatch(
      expected: "\(what) is \(expected?.step ?? "none")",
      found: found?.step ?? "none"
    )
  }

  /// Expects that a claim returned the tasks with these numbers, in order.
  func expect(_ claim: Claim, _ numbers: [Int]) throws {
    try expect("the claimed tasks", claim.tasks.map(\.record.id.number), numbers)
  }

  /// Expects that a claim's next date is not later than the date `seconds`.
  ///
  /// - Parameters:
  ///   - claim: a claim that has returned all available tasks.
  ///   - seconds: the date of the next task to become available; `nil` if there is none.
  ///   - now: the date of the claim.
  /// - Throws: a ``ConformanceMismatch`` if the next date is later, or is not after `now` although
  ///   the claim found nothing.
  func expectNextDate(_ claim: Claim, by seconds: Double?, at now: Double) throws {
    if let seconds {
      let isInTime = claim.nextDate.map { $0 <= .second(seconds) + 1e-6 } ?? false
      guard isInTime else {
        throw ConformanceMismatch(
          expected: "the claim's next date is not later than \(seconds) s",
          found: claim.nextDate?.step ?? "none"
        )
      }
    }
    // Only a claim that finds nothing must look for a date after `now`.
    guard claim.tasks.isEmpty, let date = claim.nextDate, date <= .second(now) else { return }
    throw ConformanceMismatch(
      expected: "the next date of a claim that finds nothing is after \(now) s",
      found: date.step
    )
  }

  /// Looks up the task with this number, and expects that it equals the record.
  func expect(_ number: Int, is expected: TaskRecord) async throws {
    try expect(try await task(number), is: expected)
  }

  /// Expects that a found task equals the record, except that the store sets the `keyRole`.
  func expect(_ found: TaskRecord, is expected: TaskRecord) throws {
    var expected = expected
    // Unless the check specifies another role, an unfinished task must hold its key.
    if expected.uniqueKey != nil {
      expected.keyRole = expected.state.isFinished ? nil : expected.keyRole ?? .holder
    }
    try expect(found, equals: expected)
  }

  /// Expects that two records are equal in every field.
  func expect(_ found: TaskRecord, equals expected: TaskRecord) throws {
    guard let difference = found.difference(from: expected) else { return }
    throw ConformanceMismatch(
      expected: "\(difference.field) of task \(found.id.number) is \(difference.expected)",
      found: difference.found
    )
  }

  /// Expects that the store has these bytes under a name, or no value if `expected` is `nil`.
  func expectValue(_ name: String, _ expected: [UInt8]?) async throws {
    let found = try await value(named: name)
    guard found != expected else { return }
    throw ConformanceMismatch(
      expected: "the value '\(name.prefix(80))' is \(expected.step)",
      found: found.step
    )
  }

  /// Expects that these are the values whose names begin with a prefix, in this order.
  func expectValues(
    prefix: String,
    _ expected: [(name: String, bytes: [UInt8])]
  ) async throws {
    let found = try await values(prefix: prefix)
    let isEqual = found.elementsEqual(expected) {
      $0.name.utf8.elementsEqual($1.name.utf8) && $0.bytes == $1.bytes
    }
    guard !isEqual else { return }
    throw ConformanceMismatch(
      expected: "the values whose names begin with '\(prefix.prefix(80))' are "
        + Self.text(of: expected),
      found: Self.text(of: found)
    )
  }

  /// Expects that exactly these tasks match the filter.
  func expectTasks(_ numbers: [Int], _ filter: TaskFilter = TaskFilter()) async throws {
    try expect("the tasks", try await tasks(filter).map(\.id.number), numbers)
  }

  /// Expects that a census counts these tasks, which are all tasks in the store.
  ///
  /// The counting does not use ``TaskCensus``. Only a census that differs is recorded as a step.
  func expectCensus(of tasks: [TaskRecord], at now: Date) async throws {
    let census = try await store.census(at: now)
    do {
      try expect(census, counts: tasks, at: now)
    } catch {
      recordStep("count all tasks at \(now.step) -> \(census.step)")
      throw error
    }
  }

  private func expect(_ census: TaskCensus, counts tasks: [TaskRecord], at now: Date) throws {
    try expect("the date of the census", census.date, now)
    let groups = Dictionary(grouping: tasks) { task in
      [task.queue, task.name, task.state.rawValue].map { Array($0.utf8) }
    }.sorted { left, right in
      let pair = zip(left.key, right.key).first { $0 != $1 }
      return pair.map { $0.lexicographicallyPrecedes($1) } ?? false
    }
    let found = census.rows.map { row in
      [row.queue, row.name, row.state.rawValue].map { Array($0.utf8) }
    }
    guard found == groups.map(\.key) else {
      let expected = groups.map { $0.key.map { String(decoding: $0, as: UTF8.self) } }
      throw ConformanceMismatch(
        expected: "the queues, names and states are \(expected)",
        found: census.step
      )
    }
    for (row, (_, tasks)) in zip(census.rows, groups) {
      let what = "of '\(row.queue)', '\(row.name)', \(row.state)"
      let waiting = tasks.filter { $0.state == .waiting }
      let due = waiting.filter { $0.availableDate <= now }.map(\.availableDate)
      try expect("the count \(what)", row.count, tasks.count)
      try expect("the number of due tasks \(what)", row.due, due.count)
      let retrying = waiting.count(where: \.isPostponed)
      try expect("the number of retried tasks \(what)", row.retrying, retrying)
      try expect("the date of the oldest due task \(what)", row.oldestDue, due.min())
    }
  }

  /// Expects that the body throws an error that satisfies `check`; `what` names the body in a
  /// failure.
  func expectError(
    _ what: String,
    _ check: (any Error) -> Bool = { _ in true },
    _ body: () async throws -> Void
  ) async throws {
    do {
      try await body()
    } catch {
      recordStep("\(what) throws \(error)")
      guard !check(error) else { return }
      throw ConformanceMismatch(expected: "\(what) throws another error", found: "\(error)")
    }
    throw ConformanceMismatch(expected: "\(what) throws", found: "it returns")
  }
}

/// Runs a check, and throws an error if none of the check's calls returns within a limit.
///
/// The detector divides the limit into many short waits. On a busy machine, where Swift takes
/// seconds to run a job, each of the waits takes that long, too. So a call that needs a few jobs
/// does not count as hanging.
struct HangDetector: Sendable {
  private static let parts = 60

  private let limit: Duration
  private let clock: any Clock<Duration>

  /// Makes a detector.
  ///
  /// - Parameters:
  ///   - limit: how long the check may run without any call returning.
  ///   - clock: the clock that measures the limit; by default the clock of the current virtual
  ///     time, if there is one.
  init(
    _ limit: Duration,
    clock: any Clock<Duration> = VirtualTime.current?.clock ?? ContinuousClock()
  ) {
    self.limit = limit
    self.clock = clock
  }

  /// Runs the body and returns its result.
  ///
  /// - Throws: the body's error, or a ``ConformanceMismatch`` if no call returns within the limit.
  func wait<Value: Sendable>(
    for trial: RequirementCheck,
    _ body: @escaping @Sendable () async throws -> Value
  ) async throws -> Value {
    let firstResult = FirstResult<Value>()
    // An unstructured task, because a parent would wait forever for a child that hangs.
    let checking = Task(executorPreference: RealWork.taskExecutor) {
      do {
        firstResult.set(.success(try await body()))
      } catch {
        firstResult.set(.failure(error))
      }
    }
    let watching = Task(executorPreference: RealWork.taskExecutor) {
      var last = trial.progress
      var waited = 0
      while waited < Self.parts {
        do { try await clock.wait(for: limit / Self.parts) } catch { return }
        let progress = trial.progress
        waited = progress == last ? waited + 1 : 0
        last = progress
      }
      let found = "no call has returned for \(limit)"
      firstResult.set(.failure(ConformanceMismatch(expected: "each call returns", found: found)))
      checking.cancel()
    }
    defer { watching.cancel() }
    return try await withTaskCancellationHandler {
      try await firstResult.wait()
    } onCancel: {
      checking.cancel()
    }
  }
}

/// Stores the first of several results, and ignores the later ones.
private final class FirstResult<Value: Sendable>: Sendable {
  private struct State {
    var result: Result<Value, any Error>?
    var reader: CheckedContinuation<Value, any Error>?
  }

  private let state = Mutex(State())

  func set(_ result: Result<Value, any Error>) {
    let reader = state.withLock { state in
      guard state.result == nil else { return nil as CheckedContinuation<Value, any Error>? }
      state.result = result
      return state.reader.take()
    }
    reader?.resume(with: result)
  }

  func wait() async throws -> Value {
    try await withCheckedThrowingContinuation { reader in
      let result = state.withLock { state in
        if state.result == nil { state.reader = reader }
        return state.result
      }
      if let result { reader.resume(with: result) }
    }
  }
}

extension TaskCensus {
  fileprivate var step: String {
    let texts = rows.map { row in
      let oldest = row.oldestDue.map { ", the oldest since \($0.step)" } ?? ""
      return "'\(row.queue)', '\(row.name)', \(row.state): \(row.count), \(row.due) due\(oldest), "
        + "\(row.retrying) retried"
    }
    return "[\(texts.joined(separator: "; "))]"
  }
}
