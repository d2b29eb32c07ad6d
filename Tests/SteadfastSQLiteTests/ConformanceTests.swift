#if SQLite
import Foundation
import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastSQLite

struct ConformanceTests {
  /// The seconds by which the clock of each database was advanced.
  private final class Clocks: Sendable {
    private let offsets = Mutex<[String: Double]>([:])

    func advance(_ name: String, by duration: Duration) {
      offsets.withLock { $0[name, default: 0] += duration / .seconds(1) }
    }

    func clock(_ name: String) -> @Sendable () -> Double {
      { Date().timeIntervalSince1970 + self.offsets.withLock { $0[name] ?? 0 } }
    }
  }

  /// `STEADFAST_RUNS=1000` checks more cases.
  ///
  /// `STEADFAST_SEED` is the seed of the first case. Each case makes 200 random calls.
  @Test(arguments: [nil, StoreSharing()])
  func `the store meets all requirements, also in a second run on the same databases`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withTemporaryFolder { folder in
      let clocks = Clocks()
      let advance: PersistenceConformance.AdvanceClock = { clocks.advance($0, by: $1) }
      for (seed, cases) in zip(Soak.firstSeeds, [10, 2]) {
        let report = await PersistenceConformance(
          randomCases: Soak.runs(short: cases),
          callsPerCase: 200,
          seed: seed
        )
        .check(
          advancingClocks: sharing == nil ? nil : advance
        ) { name in
          SQLiteStore(
            at: folder.appending(path: name),
            sharing: sharing,
            clock: clocks.clock(name)
          )
        }
        #expect(report.passes, "\(report)")
        #expect(report.passed.count > 100)
      }
    }
  }
}
#endif
