#if PostgreSQL
import Foundation
import SteadfastQueue
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

@Suite(.onServer)
struct PostgreSQLConformanceTests {
  /// How much the clocks at each place were moved forward.
  private final class Clocks: Sendable {
    private let offsets = Mutex<[String: Duration]>([:])

    func advance(_ place: String, by duration: Duration) {
      offsets.withLock { $0[place, default: .zero] += duration }
    }

    func offset(at place: String) -> @Sendable () -> Duration {
      { self.offsets.withLock { $0[place] ?? .zero } }
    }
  }

  /// How a store uses the tables.
  enum Use: CaseIterable {
    case shared
    case alone
    /// Its claims read from the places that earlier ones have come to.
    case aloneKeepingPlaces
  }

  /// More cases: `STEADFAST_RUNS=1000`.
  ///
  /// `STEADFAST_SEED` is the seed of the first one. A case makes 200 random calls.
  @Test(arguments: Use.allCases)
  func `the store keeps all promises, twice at the same places if shared, and reads no whole table`(
    _ use: Use
  ) async throws {
    let prefix = "kit" + String(UInt16.random(in: 0...UInt16.max), radix: 16)
    let sharing = use == .shared ? StoreSharing() : nil
    let clocks = Clocks()
    let advance: PersistenceConformance.AdvanceClock = { clocks.advance($0, by: $1) }
    try await withProxy { proxy, tables in
      let passes = zip(Soak.firstSeeds, [8, 2]).prefix(use == .shared ? 2 : 1)
      for (seed, cases) in passes {
        let conformance = PersistenceConformance(
          randomCases: Soak.runs(short: cases),
          callsPerCase: 200,
          seed: seed
        )
        let report = await conformance.check(
          advancingClocks: sharing == nil ? nil : advance
        ) { place in
          PostgreSQLStore(
            tables.connection,
            prefix: "\(prefix)_" + place.lowercased().replacing("-", with: "_"),
            sharing: sharing,
            clockOffset: clocks.offset(at: place),
            alwaysKeepsPlaces: use == .aloneKeepingPlaces
          )
        }
        #expect(report.passes, "\(report)")
        #expect(report.passed.count > 100)
      }
      let plans = try Plans(of: proxy.statements, prefix: prefix, in: tables)
      #expect(plans.statements.count > 50)
      try await plans.check(in: tables)
    }
  }
}
#endif
