import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Requirements about suspended tasks and others: those with their keys, and those that wait.
extension PersistenceConformance.Requirement {
  static let suspensionAndOthers: [Self] = [
    Self(
      "suspension.order",
      "A suspended task keeps its place in the order of its key: those behind it wait.",
      check: order
    ),
    Self(
      "suspension.unique",
      "A suspended task holds its unique key. If it remembers nothing, a new one replaces it, and "
        + "it wakes.",
      check: unique
    ),
    Self(
      "suspension.dependencies",
      "Tasks wait for a suspended one, and a suspended one waits again and is cancelled along.",
      check: dependencies
    ),
  ]

  private static func order(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1, order: "o"), .numbered(2, order: "o"), .numbered(3))
    let leases = try await store.claimed(1, 3)
    try await store.remember(leases[0], "open", [])
    try await store.apply(.suspend(leases[0], until: 60))
    try store.expect(try await store.claim(at: 59), [])
    let again = try await store.claimed(1, at: 60)[0]
    try store.expect(try await store.claim(at: 61), [])
    try await store.apply(.suspend(again, until: nil, "open"))
    let claim = try await store.claim(at: 100)
    try store.expect(claim, [])
    try await store.apply(.complete(1, "open", [1]))
    try await store.perform(1, at: 100)
    try store.expect(try await store.claim(at: 100), [2])
  }

  private static func unique(_ store: StoreProbe) async throws {
    let first = TaskRecord.numbered(1, key: "k", created: -5)
    try await store.insert(first)
    try await store.apply(.suspend(try await store.claimOne(), until: 60))
    let suspended = first.being(.suspended, at: 60)
    let twin = TaskRecord.numbered(2, key: "k", payload: 22)
    for policy: UniquePolicy in [.keep, .join, .reject] {
      try await store.apply(.insert(twin, onDuplicate: policy), .duplicate(of: .numbered(1)))
    }
    try await store.expect(1, is: suspended)
    try await store.insert(.numbered(3, at: -5))
    try await store.apply(.insert(twin, onDuplicate: .replace), .replaced(.numbered(1)))
    try await store.expect(
      1,
      is: first.with { $0.apply(TaskUpdate(payload: twin.payload)) }
        .being(.waiting, at: -5)
    )
    // It goes behind its equals.
    let leases = try await store.claimed(3, 1)
    try await store.apply(.suspend(leases[1], until: 60))
    let later = TaskRecord.numbered(4, at: 30, key: "k")
    try await store.apply(.insert(later, onDuplicate: .replace), .replaced(.numbered(1)))
    try store.expect(try await store.claim(at: 29), [])
    let last = try await store.claimed(1, at: 30)[0]
    // While it runs, the next one waits behind it, and stays there while it is suspended.
    try await store.insert(.numbered(5, key: "k"))
    try await store.apply(.suspend(last, until: 60))
    try store.expect(try await store.claim(at: 59), [])
    try await store.perform(1, at: 60)
    try store.expect(try await store.claim(at: 60), [5])
  }

  private static func dependencies(_ store: StoreProbe) async throws {
    try await store.insert(.numbered(1), TaskRecord.numbered(2).after(1))
    let first = try await store.claimed(1)[0]
    try await store.apply(.suspend(first, until: 60))
    try store.expect(try await store.claim(), [])
    let again = try await store.claimed(1, at: 60)[0]
    try await store.apply(.succeed(again, at: .second(60), retains: true), .along())
    // Task 2 is suspended when the one for which it has waited is restarted.
    try await store.apply(.suspend(try await store.claimed(2, at: 60)[0], until: 70))
    try await store.apply(.restart(1, at: 80), .along())
    let claim = try await store.claim(at: 70)
    try store.expect(claim, [])
    try store.expectNextDate(claim, by: 80, at: 70)
    let last = try await store.claimed(1, at: 80)[0]
    try await store.apply(.abandon(last, failure: .at(81), retains: true), .along(2))
    try await store.expect(
      2,
      is: TaskRecord.numbered(2).after(1).being(.suspended, at: 70)
        .noting([1: .abandoned]).cancelled(at: 81, because: 1)
    )
  }
}
