import SteadfastQueue
import SystemFoundation

/// Requirements that a store refuses invalid changes.
extension PersistenceConformance.Requirement {
  static let form: [Self] = [
    Self(
      "form.checked",
      "An invalid change throws the error of checkForm(), and nothing of its batch is stored.",
      check: checkInvalidChangesAreRefused
    ),
    Self(
      "form.texts",
      "A NUL in a name, a unique key, a tag or the reason of a failure is refused.",
      check: checkTextsWithNULAreRefused
    ),
    Self(
      "form.dates",
      "A date before the year 1 or after the year 9999 is refused, and so is a time limit of more "
        + "than 100,000,000,000 seconds.",
      check: checkExtremeDatesAreRefused
    ),
  ]

  private static func checkInvalidChangesAreRefused(in store: StoreProbe) async throws {
    try await expectRefusal(of: invalidChanges, in: store)
  }

  private static func checkTextsWithNULAreRefused(in store: StoreProbe) async throws {
    try await expectRefusal(of: changesWithNUL, in: store)
  }

  private static func checkExtremeDatesAreRefused(in store: StoreProbe) async throws {
    try await expectRefusal(of: changesWithExtremeDates, in: store)
  }

  /// Applies each change in a batch after an insertion, and expects that the batch is refused.
  private static func expectRefusal(
    of changes: (Lease) -> [TaskChange],
    in store: StoreProbe
  ) async throws {
    try await store.insert(.numbered(1))
    let lease = try await store.claimOne()
    for change in changes(lease) {
      let step = change.step.replacing("\0", with: "\\0")
      try await store.expectError("apply insert 2; \(step)", isInvalidArgument) {
        _ = try await store.store.apply(
          [.insert(.numbered(2), onDuplicate: .keep), change],
          durability: .durable
        )
      }
    }
    try await store.expectTasks([1])
    try await store.expect(1, is: .numbered(1).with { $0.state = .running })
  }

  static func isInvalidArgument(_ error: any Error) -> Bool {
    (error as? TaskQueueError)?.code == .invalidArgument
  }

  private static func invalidChanges(for lease: Lease) -> [TaskChange] {
    let never = Date(timeIntervalSince1970: .nan)
    let endless = Date(timeIntervalSince1970: .infinity)
    let id = TaskTarget.unclaimed(.numbered(1))
    let records = [
      TaskRecord.numbered(3).with { $0.state = .running },
      TaskRecord.numbered(3).with { $0.retryCount = -1 },
      TaskRecord.numbered(3).with { $0.availableDate = endless },
      .numbered(3, metadata: ["": "no key"]),
      .numbered(3, metadata: ["key": String(repeating: "x", count: 4_094)]),
      .numbered(3, metadata: TaskRecord.metadata(count: 65)),
    ]
    return records.map { .insert($0, onDuplicate: .keep) } + [
      .succeed(lease, at: never, retains: true), .cancel(id, at: never, retains: true),
      .retry(lease, availableDate: .second(0), retryCount: -1, failure: nil),
      .retry(lease, availableDate: endless, retryCount: 0, failure: nil),
      .abandon(lease, failure: TaskFailure(reason: "", date: never), retains: true),
      .park(lease, failure: TaskFailure(reason: "", date: never)),
      .restart(id, availableDate: never), .reschedule(id, availableDate: endless), .rebase(endless),
      .extend(lease, for: .seconds(-1)),
      .prune(.succeeded, endedBefore: never, keepingLatest: nil, now: .second(0)),
      .prune(.succeeded, endedBefore: nil, keepingLatest: -1, now: .second(0)),
      .update(.numbered(1), TaskUpdate(metadata: ["": "no key"])),
    ]
  }

  private static func changesWithNUL(for lease: Lease) -> [TaskChange] {
    let failure = TaskFailure.at(0, "a\0b")
    let records = [
      TaskRecord.numbered(3, name: "a\0"), .numbered(3, key: "\0b"),
      .numbered(3, tags: ["plain", "a\0b"]), .numbered(3, metadata: ["a\0": "b"]),
      .numbered(3, metadata: ["a": "\0b"]), TaskRecord.numbered(3).with { $0.note(failure) },
      TaskRecord.numbered(3).with { record in
        record.note(failure)
        record.note(.at(1))
      },
    ]
    return records.map { .insert($0, onDuplicate: .keep) } + [
      .retry(lease, availableDate: .second(0), retryCount: 1, failure: failure),
      .abandon(lease, failure: failure, retains: true), .park(lease, failure: failure),
      .unpark(name: "\0"), .update(.numbered(1), TaskUpdate(tags: ["\0"])),
      .update(.numbered(1), TaskUpdate(metadata: ["a": "\0"])),
    ]
  }

  private static func changesWithExtremeDates(for lease: Lease) -> [TaskChange] {
    let id = TaskTarget.unclaimed(.numbered(1))
    let long = Duration.seconds(100_000_000_001)
    let limited = TaskRecord.numbered(3).with { $0.apply(TaskUpdate(timeLimit: long)) }
    let dates = [Date.distantPast - 1, TaskRecord.lastDate + 1, Date(timeIntervalSince1970: 1e300)]
    return dates.flatMap { date in
      let failure = TaskFailure(reason: "", date: date)
      let records = [
        TaskRecord.numbered(3, at: date.second), .numbered(3, key: "k", uniqueUntil: date.second),
        .numbered(3, key: "k", latest: date.second), .numbered(3, created: date.second),
        .numbered(3, expires: date), TaskRecord.numbered(3).with { $0.note(failure) },
      ]
      return records.map { TaskChange.insert($0, onDuplicate: .keep) } + [
        .succeed(lease, at: date, retains: true), .cancel(id, at: date, retains: true),
        .retry(lease, availableDate: date, retryCount: 1, failure: nil),
        .abandon(lease, failure: failure, retains: true), .park(lease, failure: failure),
        .restart(id, availableDate: date), .reschedule(id, availableDate: date), .rebase(date),
        .update(.numbered(1), TaskUpdate(expiryDate: date)),
        .prune(.succeeded, endedBefore: date, keepingLatest: nil, now: .second(0)),
      ]
    } + [
      .insert(limited, onDuplicate: .keep), .update(.numbered(1), TaskUpdate(timeLimit: long)),
      .extend(lease, for: long),
    ]
  }
}
