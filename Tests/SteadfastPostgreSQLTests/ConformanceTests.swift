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

  /// More cases: `STEADFAST_RUNS=1000`.
  ///
  /// `STEADFAST_SEED` is the seed of the first one. A case makes 40 random calls.
  @Test(arguments: [nil, StoreSharing()])
  func `the store keeps all promises, twice at the same places`(_ sharing: StoreSharing?)
    async throws
  {
    let connection = try #require(Server.connection)
    let run = String(UInt16.random(in: 0...UInt16.max), radix: 16)
    let clocks = Clocks()
    let advance: PersistenceConformance.AdvanceClock = { clocks.advance($0, by: $1) }
    // The cases have this seed and those that follow it.
    let first = Soak.seed ?? 1
    for seed in [first, first + 1_000_000] {
      let report = await PersistenceConformance(randomCases: Soak.runs(short: 100), seed: seed)
        .check(
          advancingClocks: sharing == nil ? nil : advance
        ) { place in
          PostgreSQLStore(
            connection,
            prefix: "kit\(run)_" + place.lowercased().replacing("-", with: "_"),
            sharing: sharing,
            clockOffset: clocks.offset(at: place)
          )
        }
      #expect(report.passes, "\(report)")
      #expect(report.passed.count > 100)
    }
  }
}
#endif
