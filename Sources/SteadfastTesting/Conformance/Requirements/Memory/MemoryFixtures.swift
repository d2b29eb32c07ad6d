import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskMemory {
  /// Makes a memory of these values, each under a name.
  init(_ values: KeyValuePairs<String, [UInt8]>) {
    self.init()
    for (name, value) in values { self[name] = value }
  }

  /// The names and the values, in an order that is always the same.
  var step: String {
    isEmpty
      ? "nothing"
      : names.map { name in "'\(name.prefix(80))': \(self[name].step)" }.joined(separator: ", ")
  }
}

extension TaskRecord {
  /// The same task in another state, which remembers `size` bytes.
  func being(
    _ state: TaskState,
    at seconds: Double? = nil,
    remembering size: Int? = nil
  ) -> TaskRecord {
    with { record in
      record.state = state
      if let seconds { record.availableDate = .second(seconds) }
      if let size { record.memorySize = size }
    }
  }
}

extension TaskChange {
  /// Lets the task with this number find bytes under a name that is open.
  static func complete(_ number: Int, _ name: String, _ value: [UInt8]) -> TaskChange {
    .complete(.numbered(number), named: name, value: value)
  }

  /// Suspends a claimed task until a date; without one, until a completion.
  static func suspend(
    _ lease: Lease,
    until seconds: Double? = nil,
    _ names: String...
  ) -> TaskChange {
    .suspend(lease, until: seconds.map(Date.second) ?? .distantFuture, awaiting: names)
  }
}

extension StoreProbe {
  func memory(_ number: Int) async throws -> TaskMemory {
    try await step("read what \(number) remembers", \.step) {
      try await store.memory(of: .numbered(number))
    }
  }

  /// Expects that the task with this number remembers exactly these values, each under its name.
  func expectMemory(
    _ number: Int,
    _ expected: KeyValuePairs<String, [UInt8]>
  ) async throws {
    try await expectMemory(number, TaskMemory(expected))
  }

  func expectMemory(_ number: Int, _ expected: TaskMemory) async throws {
    let found = try await memory(number)
    guard found != expected else { return }
    throw ConformanceMismatch(
      expected: "task \(number) remembers \(expected.step)",
      found: found.step
    )
  }

  /// Lets a claimed task remember bytes under a name.
  func remember(_ lease: Lease, _ name: String, _ value: [UInt8]) async throws {
    try await apply(.remember(lease, named: name, value: value))
  }

  /// Adds and claims a task that remembers something, and returns its lease.
  ///
  /// `open` are the names of values without bytes, for completions.
  func begin(
    _ record: TaskRecord,
    remembering values: KeyValuePairs<String, [UInt8]> = ["step": [1, 2]],
    open: String...
  ) async throws -> Lease {
    try await insert(record)
    let lease = try await claimed(record.id.number)[0]
    for (name, value) in values { try await remember(lease, name, value) }
    for name in open { try await remember(lease, name, []) }
    return lease
  }

  /// Whether claims can be ended as after a crash.
  var canBeInterrupted: Bool {
    store.sharing == nil ? trial.reopens : trial.advanceClock != nil
  }

  /// Returns a store in which claims are over, as after a crash.
  ///
  /// In a store that several queues share, they have run out.
  func interrupted() async throws -> StoreProbe {
    guard store.sharing != nil else { return try await reopened() }
    try await advanceClock(Self.leaseTime + mostDelay)
    return self
  }
}
