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
  /// The durations by which the clock of each database was advanced.
  private final class Clocks: Sendable {
    private let offsets = Mutex<[String: Duration]>([:])

    func advance(_ database: String, by duration: Duration) {
      offsets.withLock { $0[database, default: .zero] += duration }
    }

    func offset(at database: String) -> @Sendable () -> Duration {
      { self.offsets.withLock { $0[database] ?? .zero } }
    }
  }

  /// The way in which the tested store uses its tables.
  enum Use: CaseIterable {
    case shared
    case alone
    /// The store uses its tables alone, and all claims read from cursors.
    case aloneKeepingCursors
  }

  /// `STEADFAST_RUNS=1000` checks more cases.
  ///
  /// `STEADFAST_SEED` is the seed of the first case. Each case makes 200 random calls.
  @Test(arguments: Use.allCases)
  func `the store meets all requirements, and no statement scans a table`(
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
        ) { database in
          PostgreSQLStore(
            tables.connection,
            prefix: "\(prefix)_" + database.lowercased().replacing("-", with: "_"),
            sharing: sharing,
            clockOffset: clocks.offset(at: database),
            alwaysKeepsCursors: use == .aloneKeepingCursors
          )
        }
        #expect(report.passes, "\(report)")
        #expect(report.passed.count > 100)
      }
      let plans = try Plans(of: proxy.statements, prefix: prefix, in: tables)
      #expect(plans.statements.count > 50)
      try await plans.checkForScans(in: tables)
    }
  }
}
#endif
