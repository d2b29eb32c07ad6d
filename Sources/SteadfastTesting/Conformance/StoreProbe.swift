import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A store under test, which records each call and its answer as a step.
struct StoreProbe: Sendable {
  typealias Factory = @Sendable (_ place: String) async throws -> any Persistence

  let store: any Persistence
  let place: String
  let trial: RequirementCheck
  private let makeStore: Factory
  /// The store's name in the steps; empty while there is only one store.
  private let label: String

  static func open(
    at place: String,
    trial: RequirementCheck,
    label: String = "",
    _ makeStore: @escaping Factory
  ) async throws -> StoreProbe {
    let store = try await makeStore(place)
    trial.opened(store, at: place)
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
  func fresh(_ suffix: String) async throws -> StoreProbe {
    try await Self.open(at: "\(place)-\(suffix)", trial: trial, makeStore)
  }

  /// Opens a second store with the same tasks, while this one is open.
  func another() async throws -> StoreProbe {
    trial.note("open a second store at the same place")
    return try await Self.open(at: place, trial: trial, label: "second store: ", makeStore)
  }

  /// Opens the next store at the same place, after this one was closed or destroyed.
  func successor() async throws -> StoreProbe {
    try await Self.open(at: place, trial: trial, makeStore)
  }

  /// Makes the next store at the same place, and does not open it.
  func unopened() async throws -> StoreProbe {
    let store = try await makeStore(place)
    trial.opened(store, at: place)
    return StoreProbe(store: store, place: place, trial: trial, makeStore: makeStore, label: label)
  }

  /// Closes the store and opens it again.
  func reopened() async throws -> StoreProbe {
    trial.note("close, and open again")
    try await store.close()
    return try await successor()
  }

  func note(_ step: String) { trial.note(label + step) }

  /// Records a call, and what it returns or throws.
  func step<Result>(
    _ call: String,
    _ answer: (Result) -> String,
    _ body: () async throws -> Result
  ) async throws -> Result {
    trial.begin(label + call)
    do {
      let result = try await body()
      note("\(call) → \(answer(result))")
      return result
    } catch {
      note("\(call) throws \(error)")
      throw error
    }
  }
}

// MARK: - Calls

extension StoreProbe {
  /// Applies changes, and expects an outcome for each.
  @discardableResult
  func apply(
    _ batch: [TaskChange],
    durability: Durability = .durable
  ) async throws -> [ChangeOutcome] {
    let call = "apply \(batch.map(\.step).joined(separator: "; "))"
    let outcomes = try await step(call, { $0.map(\.step).joined(separator: ", ") }) {
      try await store.apply(batch, durability: durability)
    }
    try expect("the number of outcomes", outcomes.count, batch.count)
    return outcomes
  }

  /// Applies one change, and expects this outcome.
  func apply(_ change: TaskChange, _ expected: ChangeOutcome = .done) async throws {
    let outcomes = try await apply([change])
    try expect("the outcome", outcomes[0].step, expected.step)
  }

  /// Inserts tasks, and expects that all of them are stored.
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
    at seconds: Double = 0,
    holding conditions: Set<TaskCondition> = [],
    leaseTime: Double? = nil
  ) async throws -> Claim {
    try await claim(
      ClaimRequest(
        limit: limit,
        queue: queue,
        names: names,
        otherNames: otherNames,
        now: .second(seconds),
        conditions: conditions,
        leaseDuration: store.sharing == nil ? nil : .seconds(leaseTime ?? Self.longLeaseTime)
      )
    )
  }

  @discardableResult
  func claim(_ request: ClaimRequest) async throws -> Claim {
    let names = request.names.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }
    let others = request.otherNames > 0 ? ", others: \(request.otherNames)" : ""
    let held =
      request.conditions.isEmpty ? "" : ", holding \(request.conditions.sorted().map(\.rawValue))"
    let end = request.leaseDuration.map { ", for \($0.step)" } ?? ""
    let queue = request.queue.isEmpty ? "" : " in the queue '\(request.queue)'"
    let call =
      "claim \(request.limit)\(queue) of [\(names.joined(separator: ", "))\(others)] "
      + "at \(request.now.step)\(held)\(end)"
    return try await step(call.replacing("\0", with: "\\0"), \.step) {
      try await store.claim(request)
    }
  }

  /// Claims tasks, and expects that there is exactly one.
  func claimOne(at seconds: Double = 0, leaseTime: Double? = nil) async throws -> Lease {
    let claim = try await claim(at: seconds, leaseTime: leaseTime)
    try expect("the number of claimed tasks", claim.tasks.count, 1)
    return claim.tasks[0].lease
  }

  /// How long claims last that must not run out, in seconds.
  static var longLeaseTime: Double { 1_000_000 }
  /// How long claims last that are to run out, in seconds.
  ///
  /// It is long beside the seconds by which a clock goes on by itself.
  static var leaseTime: Double { 600 }

  /// For how many seconds the store may leave a claim that has run out as it is.
  var mostDelay: Double { (store.sharing?.leaseDuration ?? .zero) / .seconds(3) }

  /// Moves the store's clock forward.
  func advanceClock(_ seconds: Double) async throws {
    let call = "move the store's clock by \(seconds) s"
    try await step(call, { _ in "done" }) {
      try await trial.advanceClock?(place, .seconds(seconds))
    }
  }

  func tasks(
    _ filter: TaskFilter = TaskFilter(),
    after id: TaskID? = nil,
    limit: Int = 10_000
  ) async throws -> [TaskRecord] {
    let after = id.map { " after \($0.number)" } ?? ""
    return try await step("look up \(filter.step)\(after), at most \(limit)", \.step) {
      try await store.tasks(matching: filter, after: id, limit: limit)
    }
  }

  func count(_ filter: TaskFilter = TaskFilter()) async throws -> Int {
    try await step("count \(filter.step)", { "\($0)" }) { try await store.count(matching: filter) }
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    let call = "is there any of \(filter.step)"
    return try await step(call, { "\($0)" }) { try await store.contains(filter) }
  }

  func value(_ name: String) async throws -> [UInt8]? {
    try await step("read the value '\(name.prefix(80))'", \.step) {
      try await store.value(named: name)
    }
  }

  /// Returns the task with this number, and expects that it is there.
  func task(_ number: Int) async throws -> TaskRecord {
    let found = try await tasks(TaskFilter(ids: [.numbered(number)], queue: nil))
    try expect("the tasks", found.map(\.id.number), [number])
    return found[0]
  }
}
