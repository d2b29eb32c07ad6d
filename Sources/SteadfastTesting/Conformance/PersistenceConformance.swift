public import SteadfastQueue

/// Checks that a store does what `Persistence` promises, requirement by requirement.
///
/// ```swift
/// @Test func `my store keeps its promises`() async {
///   let report = await PersistenceConformance().check { place in
///     MyStore(at: folder.appending(path: place))
///   }
///   #expect(report.passes, "\(report)")
/// }
/// ```
/// Failures are values, so any test framework can report them. Each one has the steps that led to
/// it. Dates and durations may come back less precise by a microsecond, as databases store them.
///
/// The check can't see whether an acknowledged change is on the disk: that takes a power cut or the
/// sudden end of a process. A call that never returns is a failure (``callLimit``), and the other
/// requirements are still checked.
public struct PersistenceConformance: Sendable {
  /// The requirements that are not checked: their identifiers, each with the reason.
  public var exclusions: [String: String]
  /// How many cases of random calls are compared with a plain reference.
  public var randomCases: Int
  /// How many calls a random case makes, about.
  ///
  /// Each case has a store of its own. Where it takes long to make one, let fewer cases make more
  /// calls.
  public var callsPerCase: Int
  /// The seed of the random cases: the same seed draws the same cases.
  public var seed: UInt64
  /// How long a check goes on without a call that returns, before its requirement fails.
  ///
  /// The check may go on for longer, but not for less. The Swift task that waits for such a call is
  /// cancelled and left behind: nothing can end it. In virtual time
  /// (``withVirtualTime(_:order:date:limit:encodesPayloads:_:)``), the limit is virtual, too.
  public var callLimit: Duration
  /// How long the check has gone on: what a clock that goes on by itself may have gone on by.
  var uptime: @Sendable () -> Duration

  /// Makes a check.
  ///
  /// - Parameters:
  ///   - exclusions: the requirements to leave out: their identifiers, each with the reason, which
  ///     the report repeats. An identifier that no requirement has is a failure.
  ///   - randomCases: how many cases of random calls are made.
  ///   - callsPerCase: how many calls each of them makes, about.
  ///   - seed: the seed of the random cases.
  ///   - callLimit: how long a check goes on without a call that returns, before its requirement
  ///     fails.
  public init(
    excluding exclusions: [String: String] = [:],
    randomCases: Int = 50,
    callsPerCase: Int = 40,
    seed: UInt64 = 0,
    callLimit: Duration = .seconds(60)
  ) {
    self.exclusions = exclusions
    self.randomCases = randomCases
    self.callsPerCase = callsPerCase
    self.seed = seed
    self.callLimit = callLimit
    let start = ContinuousClock.now
    uptime = { start.duration(to: .now) }
  }

  /// Moves the clock of the stores at a place forward or, by a duration below zero, back.
  ///
  /// By this clock, a store knows when a claim has run out.
  public typealias AdvanceClock =
    @Sendable (_ place: String, _ duration: Duration) async throws -> Void

  /// Checks a store whose tasks don't outlive it.
  ///
  /// Requirements about opening a store again are not checked.
  ///
  /// - Parameter makeStore: makes a new, empty store; it is called for each requirement.
  /// - Returns: the report.
  public func check(
    _ makeStore: @escaping @Sendable () async throws -> any Persistence
  ) async -> Report {
    await check(reopens: false, nil) { _ in try await makeStore() }
  }

  /// Checks a store whose tasks outlive it.
  ///
  /// - Parameters:
  ///   - advanceClock: moves the clock of the stores at a place forward, so that claims run out, or
  ///     back, if all queues have that clock (`Persistence.hasOneClock`). It
  ///     is for stores that several queues share. The clock may go on by itself besides, as that of
  ///     a database does. Without the closure, the requirements about claims that have run out are
  ///     not checked, and the report says so.
  ///   - makeStore: makes a store at a place, which is a short text of letters, digits and hyphens.
  ///     At a new place, the store is empty. At a place where a store was closed, it has that
  ///     store's tasks. At a place where a store is open, which happens only if stores are shared,
  ///     both have the same tasks. Each check needs places of its own, for example a folder of its
  ///     own. Its stores are destroyed at the end, so a later check may have the same places.
  /// - Returns: the report.
  public func check(
    advancingClocks advanceClock: AdvanceClock? = nil,
    _ makeStore: @escaping @Sendable (_ place: String) async throws -> any Persistence
  ) async -> Report {
    await check(reopens: true, advanceClock, makeStore)
  }

  private func check(
    reopens: Bool,
    _ advanceClock: AdvanceClock?,
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Report {
    var report = Report()
    let (sharing, hasOneClock): (StoreSharing?, Bool)
    do {
      (sharing, hasOneClock) = try await HangDetector(callLimit).wait(for: makeCheck(reopens)) {
        let store = try await makeStore("survey")
        try? await store.destroy()
        return (store.sharing, store.hasOneClock)
      }
    } catch {
      report.failures.append(.factory(error))
      return report
    }
    let known = Set(Requirement.all.map(\.id))
    for id in exclusions.keys.sorted() where !known.contains(id) {
      report.failures.append(.unknownExclusion(id))
    }
    for requirement in Requirement.all {
      let reason =
        exclusions[requirement.id].map { "excluded: \($0)" }
        ?? requirement.condition.reasonToSkip(
          reopens: reopens,
          isShared: sharing != nil,
          hasOneClock: hasOneClock,
          movesClock: advanceClock != nil
        )
      if let reason {
        report.skipped.append((requirement, reason))
      } else if let failure = await failure(of: requirement, reopens, advanceClock, makeStore) {
        report.failures.append(failure)
      } else {
        report.passed.append(requirement)
      }
    }
    return report
  }

  private func failure(
    of requirement: Requirement,
    _ reopens: Bool,
    _ advanceClock: AdvanceClock?,
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Failure? {
    let trial = makeCheck(reopens, advanceClock)
    let place = requirement.id.replacing(".", with: "-")
    do {
      try await HangDetector(callLimit).wait(for: trial) {
        do {
          let store = try await StoreProbe.open(at: place, trial: trial, makeStore)
          try await requirement.check(store)
        } catch {
          await trial.cleanUp()
          throw error
        }
        await trial.cleanUp()
      }
      return nil
    } catch {
      return Failure(requirement, error, steps: trial.steps)
    }
  }

  private func makeCheck(
    _ reopens: Bool,
    _ advanceClock: AdvanceClock? = nil
  ) -> RequirementCheck {
    RequirementCheck(
      reopens: reopens,
      randomCases: randomCases,
      callsPerCase: callsPerCase,
      seed: seed,
      advanceClock: advanceClock,
      uptime: uptime
    )
  }
}
