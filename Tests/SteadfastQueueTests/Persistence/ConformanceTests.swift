import Foundation
import SteadfastQueue
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

/// Runs the conformance suite for each store.
@Suite struct ConformanceTests {
  /// More cases: `STEADFAST_RUNS=1000 swift test --filter ConformanceTests`.
  private func conformance(cases: Int) -> PersistenceConformance {
    PersistenceConformance(randomCases: Soak.runs(short: cases), seed: Soak.seed ?? 0)
  }

  @Test func `a store in memory passes the conformance suite`() async {
    let report = await conformance(cases: 10).check { InMemoryStore() }
    #expect(report.passes, "\(report)")
    #expect(
      Set(report.skipped.map { $0.requirement.id.prefix { $0 != "." } }) == [
        "life", "reopen", "sharing", "commands",
      ]
    )
  }

  @Test func `a store in a file passes the conformance suite`() async throws {
    try await withTemporaryFolder { folder in
      let report = await conformance(cases: 5).check { place in
        JSONFileStore(at: folder.appending(path: place))
      }
      #expect(report.passes, "\(report)")
      #expect(
        Set(report.skipped.map { $0.requirement.id.prefix { $0 != "." } }) == [
          "sharing", "commands",
        ]
      )
    }
  }

  @Test(arguments: [false, true])
  func `a store that several queues share passes the conformance suite`(looksSeldom: Bool) async {
    let database = Database(looksSeldom: looksSeldom)
    let report = await conformance(cases: 10).check(advancingClocks: database.advanceClock) {
      database.store(at: $0).process()
    }
    #expect(report.passes, "\(report)")
    #expect(
      report.skipped.map(\.requirement.id) == [
        "rebase.dates", "rebase.changes", "rebase.keys", "rebase.order", "suspension.rebase",
        "reopen.interrupted", "reopen.leases", "sharing.clock-back",
      ]
    )
  }

  @Test func `a fault-injecting store without faults passes the conformance suite`() async {
    let database = Database()
    let report = await conformance(cases: 2).check { place in
      FaultInjectingStore(database.store(at: place).process())
    }
    #expect(report.passes, "\(report)")
  }

  @Test(.virtualTime) func `a store passes the conformance suite in virtual time`() async throws {
    try await withTemporaryFolder { folder in
      let conformance = PersistenceConformance(randomCases: 0)
      let report = await conformance.check { JSONFileStore(at: folder.appending(path: $0)) }
      #expect(report.passes, "\(report)")
    }
  }
}

/// Shared stores, by their locations.
private final class Database: Sendable {
  private let stores = Mutex<[String: SharedStore]>([:])
  private let looksSeldom: Bool

  init(looksSeldom: Bool = false) { self.looksSeldom = looksSeldom }

  func advanceClock(_ place: String, by duration: Duration) {
    store(at: place).advanceClock(by: duration)
  }

  func store(at place: String) -> SharedStore {
    stores.withLock { stores in
      if let store = stores[place], !store.isDestroyed { return store }
      let store = SharedStore(looksSeldom: looksSeldom)
      stores[place] = store
      return store
    }
  }
}
