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
/// Failures are values, so that any test framework can report them, each with the steps that led to
/// it. Dates and durations may come back less precise by a microsecond, as a database keeps them.
///
/// What takes a power cut or the sudden end of a process to see is not checked: that an acknowledged
/// change is on the disk. A call that never returns is a failure (``callLimit``), and the rest is checked
/// all the same.
public struct PersistenceConformance: Sendable {
  /// The requirements that are not checked, by their identifiers, each with the reason.
  public var exclusions: [String: String]
  /// How many cases of random calls are compared with a plain reference; each is some 40 calls.
  public var randomCases: Int
  /// What those cases are drawn from: the same seed draws the same cases.
  public var seed: UInt64
  /// How long no call may return, at least, before the check of a requirement is given up, and the
  /// requirement counts as a failure.
  ///
  /// The Swift task that waits for such a call is cancelled and left behind: nothing can end it. In
  /// virtual time the limit is virtual too (``withVirtualTime(_:order:date:limit:encodesPayloads:_:)``).
  public var callLimit: Duration

  /// Makes a check.
  ///
  /// - Parameters:
  ///   - exclusions: requirements to leave out, by their identifiers, each with the reason, which the
  ///     report repeats. An identifier that no requirement has is a failure.
  ///   - randomCases: how many cases of random calls are made.
  ///   - seed: what they are drawn from.
  ///   - callLimit: how long no call may return before a requirement is given up.
  public init(
    excluding exclusions: [String: String] = [:],
    randomCases: Int = 50,
    seed: UInt64 = 0,
    callLimit: Duration = .seconds(60)
  ) {
    self.exclusions = exclusions
    self.randomCases = randomCases
    self.seed = seed
    self.callLimit = callLimit
  }

  /// Checks a store whose tasks end with it; whether they survive being opened again is left out.
  ///
  /// - Parameter makeStore: makes a new, empty store; it is called for each requirement.
  /// - Returns: what was found.
  public func check(
    _ makeStore: @escaping @Sendable () async throws -> any Persistence
  ) async -> Report {
    await check(reopens: false) { _ in try await makeStore() }
  }

  /// Checks a store whose tasks outlive it.
  ///
  /// - Parameter makeStore: makes a store at a place, which is a short text of letters, digits and
  ///   hyphens. At a place where none was it is empty; at one where a store was closed it has that
  ///   store's tasks; at one where a store is open, which happens only if they are shared, both have
  ///   the same tasks. Each check must be given places of its own, such as a folder.
  /// - Returns: what was found.
  public func check(
    _ makeStore: @escaping @Sendable (_ place: String) async throws -> any Persistence
  ) async -> Report {
    await check(reopens: true, makeStore)
  }

  private func check(
    reopens: Bool,
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Report {
    var report = Report()
    let sharing: StoreSharing?
    do {
      sharing = try await Patience(callLimit).wait(for: makeTrial(reopens)) {
        let store = try await makeStore("survey")
        try? await store.close()
        return store.sharing
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
        ?? requirement.condition.reasonToSkip(reopens: reopens, isShared: sharing != nil)
      if let reason {
        report.skipped.append((requirement, reason))
      } else if let failure = await failure(of: requirement, reopens, makeStore) {
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
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Failure? {
    let trial = makeTrial(reopens)
    let place = requirement.id.replacing(".", with: "-")
    do {
      try await Patience(callLimit).wait(for: trial) {
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

  private func makeTrial(_ reopens: Bool) -> ConformanceTrial {
    ConformanceTrial(reopens: reopens, randomCases: randomCases, seed: seed)
  }
}
