public import SteadfastQueue
import Synchronization

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
/// Failures are values in the report, so any test framework can report them. Each failure lists the
/// calls that led to it. A store may round dates and durations to microseconds.
///
/// The check can't see whether an acknowledged change is on the disk: that requires a power cut or
/// a process crash. A call that never returns is a failure (``callLimit``), and the check continues
/// with the other requirements.
public struct PersistenceConformance: Sendable {
  /// The identifiers of the requirements that are not checked, each with the reason.
  public var exclusions: [String: String]
  /// The number of cases in which random calls are compared with a simple reference store.
  public var randomCases: Int
  /// The approximate number of calls in a random case.
  ///
  /// Each case has a store of its own. If making a store is slow, use fewer cases with more calls
  /// each.
  public var callsPerCase: Int
  /// The seed of the random cases; the same seed gives the same cases.
  public var seed: UInt64
  /// How long a requirement's check waits while no call returns, before the requirement fails.
  ///
  /// On a busy machine, the check waits longer. It then cancels the Swift task that waits for the
  /// call, and continues even if the task doesn't end. In virtual time
  /// (``withVirtualTime(_:order:date:limit:encodesPayloads:_:)``), the limit is virtual, too.
  public var callLimit: Duration
  /// Returns the time since the check started.
  ///
  /// A store's clock that runs by itself may have advanced by that time.
  var uptime: @Sendable () -> Duration

  /// Makes a check.
  ///
  /// - Parameters:
  ///   - exclusions: the identifiers of the requirements to leave out, each with the reason. The
  ///     report repeats the reasons. An unknown identifier is a failure.
  ///   - randomCases: the number of cases of random calls.
  ///   - callsPerCase: the approximate number of calls in each case.
  ///   - seed: the seed of the random cases.
  ///   - callLimit: how long a requirement's check waits while no call returns, before the
  ///     requirement fails.
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

  /// A closure that moves the clock of the stores at a place forward, or back if the duration is
  /// negative.
  ///
  /// A place stands for a file or a database. By its clock, a store decides whether a claim has
  /// expired.
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
    await check(reopens: false, advanceClock: nil) { _ in try await makeStore() }
  }

  /// Checks a store whose tasks outlive it.
  ///
  /// - Parameters:
  ///   - advanceClock: moves the clock of the stores at a place forward, so that claims expire. It
  ///     also moves the clock back, if all queues have that clock (`Persistence.hasOneClock`). The
  ///     closure is for stores that several queues share. The clock may also run by itself, as a
  ///     database's clock does. Without the closure, the requirements about expired claims are not
  ///     checked, and the report says so.
  ///   - makeStore: makes a store at a place: a file or a database that the closure names with this
  ///     short string of letters, digits and hyphens. At a new place, the store is empty. At a
  ///     place where a store was closed, the new store has the closed store's tasks. If stores are
  ///     shared, a second store may open at the place of an open one, and both have the same tasks.
  ///     Two checks at the same time need different places, such as files in different folders. The
  ///     check destroys its stores at the end, so a later check may use the same places.
  /// - Returns: the report.
  public func check(
    advancingClocks advanceClock: AdvanceClock? = nil,
    _ makeStore: @escaping @Sendable (_ place: String) async throws -> any Persistence
  ) async -> Report {
    await check(reopens: true, advanceClock: advanceClock, makeStore)
  }

  private func check(
    reopens: Bool,
    advanceClock: AdvanceClock?,
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Report {
    var report = Report()
    let (sharing, hasOneClock): (StoreSharing?, Bool)
    do {
      let trial = makeCheck(reopens: reopens, advanceClock: nil)
      (sharing, hasOneClock) = try await HangDetector(callLimit).wait(for: trial) {
        let store = try await makeStore("survey")
        try? await store.destroy()
        return (store.sharing, store.hasOneClock)
      }
    } catch {
      report.failures.append(.storeCreationFailure(error))
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
      } else if let failure = await failure(
        of: requirement,
        reopens: reopens,
        advanceClock: advanceClock,
        makeStore
      ) {
        report.failures.append(failure)
      } else {
        report.passed.append(requirement)
      }
    }
    return report
  }

  /// Checks one requirement, and returns the failure; `nil` if the store meets the requirement.
  private func failure(
    of requirement: Requirement,
    reopens: Bool,
    advanceClock: AdvanceClock?,
    _ makeStore: @escaping StoreProbe.Factory
  ) async -> Failure? {
    let trial = makeCheck(reopens: reopens, advanceClock: advanceClock)
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

  private func makeCheck(reopens: Bool, advanceClock: AdvanceClock?) -> RequirementCheck {
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

extension PersistenceConformance {
  /// The result of a check.
  public struct Report: Sendable, CustomStringConvertible {
    /// The requirements that the store does not meet.
    public internal(set) var failures: [Failure] = []
    /// The requirements that the store meets.
    public internal(set) var passed: [Requirement] = []
    /// The requirements that were not checked, each with the reason.
    public internal(set) var skipped: [(requirement: Requirement, reason: String)] = []

    /// Whether the store meets every requirement that was checked.
    public var passes: Bool { failures.isEmpty }

    /// The counts, each failure with its steps, and the unchecked requirements, as readable text.
    public var description: String {
      let counts = "\(passed.count) requirements are met, \(failures.count) are not"
      let notes = skipped.map { "not checked: \($0.requirement.id), \($0.reason)" }
      return ([counts] + failures.map(\.description) + notes).joined(separator: "\n")
    }
  }

  /// A requirement that a store does not meet.
  public struct Failure: Sendable, CustomStringConvertible {
    /// The requirement.
    public let requirement: Requirement
    /// The expected result of the last step.
    public let expected: String
    /// The actual result of the last step.
    public let found: String
    /// The calls that led to the failure, with their results, in order.
    ///
    /// Tasks are shown as numbers, and dates as seconds.
    public let steps: [String]

    /// The requirement, what was expected and found, and the steps, one on each line.
    public var description: String {
      let lines = steps.enumerated().map { "    \($0 + 1). \($1)" }
      return """
        \(requirement.id): \(requirement.sentence)
          expected: \(expected)
          found: \(found)
          after:
        \(lines.joined(separator: "\n"))
        """
    }
  }
}

extension PersistenceConformance.Failure {
  init(_ requirement: PersistenceConformance.Requirement, _ error: any Error, steps: [String]) {
    let mismatch = error as? ConformanceMismatch
    self.requirement = requirement
    self.steps = steps
    expected = mismatch?.expected ?? "no error"
    found = mismatch?.found ?? "the error: \(error)"
  }

  /// Makes the failure for a closure that could not make a store.
  static func storeCreationFailure(_ error: any Error) -> Self {
    let requirement = PersistenceConformance.Requirement(
      "factory",
      "The closure that is passed to the check makes a store.",
      check: { _ in }
    )
    return Self(requirement, error, steps: [])
  }

  /// Makes the failure for an excluded identifier that belongs to no requirement.
  static func unknownExclusion(_ id: String) -> Self {
    let requirement = PersistenceConformance.Requirement(
      id,
      "Each excluded identifier belongs to a requirement.",
      check: { _ in }
    )
    let mismatch = ConformanceMismatch(
      expected: "an identifier of a requirement in Requirement.all",
      found: "the unknown identifier '\(id)'"
    )
    return Self(requirement, mismatch, steps: [])
  }
}

/// The error that is thrown when a store returns something other than expected.
struct ConformanceMismatch: Error {
  let expected: String
  let found: String
}

extension PersistenceConformance {
  /// A requirement that every store must meet.
  public struct Requirement: Sendable, Identifiable, CustomStringConvertible {
    /// The stores that can be checked for the requirement.
    enum Condition: Sendable {
      case any, oneClock, shared, reopened, reopenedByOneQueue
      /// The store is shared, and the check can move its clock.
      case sharedWithClock
      /// The store is shared, the check can move its clock, and all queues have that clock.
      case sharedWithOneClock
    }

    /// The identifier: a topic and a short name, such as `order.priority`.
    public let id: String
    /// What the store must do.
    public let sentence: String
    let condition: Condition
    let check: @Sendable (StoreProbe) async throws -> Void

    init(
      _ id: String,
      _ sentence: String,
      _ condition: Condition = .any,
      check: @escaping @Sendable (StoreProbe) async throws -> Void
    ) {
      self.id = id
      self.sentence = sentence
      self.condition = condition
      self.check = check
    }

    /// The identifier and the sentence.
    public var description: String { "\(id): \(sentence)" }

    /// All requirements, in the order in which they are checked.
    public static let all: [Requirement] =
      order + claims + ends + leases + control + ended + batches + form + uniqueKeys + successors
      + expiredTwins
      + orderKeys + conditions + waiting + endsAlong + restartsAlong + removalsAlong
      + waitingInStores + queues + values + valuesInStores + memory + forgetting + suspension
      + suspensionAndOthers + completion + memoryInStores + lookUps + records + metadata + life
      + reopening
      + sharing + commands
      + concurrency
      + model
  }
}

extension PersistenceConformance.Requirement.Condition {
  /// Returns why a store is not checked for the requirement, or `nil` if the store is checked.
  func reasonToSkip(
    reopens: Bool,
    isShared: Bool,
    hasOneClock: Bool,
    movesClock: Bool
  ) -> String? {
    let notReopened =
      "stores can't be reopened, because the closure that makes them has no parameter for the place"
    let notShared = "no queues share the store: its sharing is nil"
    let notAlone = "several queues share the store"
    let notOne = "the store's queues have different clocks"
    let notMoved = "the check has no closure that moves the store's clock"
    return switch self {
    case .any: nil
    case .oneClock: hasOneClock ? nil : notOne
    case .shared: !reopens ? notReopened : isShared ? nil : notShared
    case .sharedWithClock:
      !reopens ? notReopened : !isShared ? notShared : movesClock ? nil : notMoved
    case .sharedWithOneClock:
      hasOneClock
        ? Self.sharedWithClock.reasonToSkip(
          reopens: reopens,
          isShared: isShared,
          hasOneClock: hasOneClock,
          movesClock: movesClock
        ) : notOne
    case .reopened: reopens ? nil : notReopened
    case .reopenedByOneQueue: !reopens ? notReopened : isShared ? notAlone : nil
    }
  }
}

/// What the check of one requirement may use, and what it has recorded: steps and opened stores.
final class RequirementCheck: Sendable {
  private struct State {
    var steps: [String] = []
    /// The approximate number of calls that have returned.
    var progress = 0
    /// The call that has not returned yet.
    var pending: String?
    var stores: [String: any Persistence] = [:]
    /// The IDs of all insertions, by the place of their store.
    var insertions: [String: Set<TaskID>] = [:]
  }

  /// Whether stores can be opened again.
  let reopens: Bool
  let randomCases: Int
  let callsPerCase: Int
  let seed: UInt64
  /// Moves the clock of the stores at a place; `nil` if the check can't move that clock.
  let advanceClock: PersistenceConformance.AdvanceClock?
  /// Returns the longest time by which a store's clock may have advanced by itself.
  let uptime: @Sendable () -> Duration
  private let state = Mutex(State())

  init(
    reopens: Bool,
    randomCases: Int,
    callsPerCase: Int = 40,
    seed: UInt64,
    advanceClock: PersistenceConformance.AdvanceClock? = nil,
    uptime: @escaping @Sendable () -> Duration = { .zero }
  ) {
    self.reopens = reopens
    self.randomCases = randomCases
    self.callsPerCase = callsPerCase
    self.seed = seed
    self.advanceClock = advanceClock
    self.uptime = uptime
  }

  /// The steps so far, followed by the call that has not returned, if there is one.
  var steps: [String] {
    state.withLock { state in
      state.steps + (state.pending.map { ["\($0) does not return"] } ?? [])
    }
  }

  /// The approximate number of calls that have returned; ``forgetSteps()`` does not reset it.
  var progress: Int { state.withLock { $0.progress } }

  /// Records that a call starts; the next call of ``recordStep(_:)`` records that it has returned.
  func recordStart(of call: String) { state.withLock { $0.pending = call } }

  func recordStep(_ step: String) {
    state.withLock { state in
      state.steps.append(step)
      state.progress += 1
      state.pending = nil
    }
  }

  /// Records the insertions of a batch.
  ///
  /// - Returns: The IDs that were not inserted before.
  func recordInsertions(of batch: [TaskChange], at place: String) -> [TaskID] {
    let ids = batch.compactMap { if case .insert(let record, _) = $0 { record.id } else { nil } }
    guard !ids.isEmpty else { return [] }
    return state.withLock { state in
      ids.filter { state.insertions[place, default: []].insert($0).inserted }
    }
  }

  /// Forgets all steps, before a new random case starts.
  func forgetSteps() { state.withLock { $0.steps = [] } }

  /// Records a store that the check has opened, so that it is destroyed at the end.
  func addStore(_ store: any Persistence, at place: String) {
    state.withLock { state in
      state.stores[place] = store
      state.progress += 1
    }
  }

  /// Destroys the opened stores, ignoring errors.
  func cleanUp() async {
    let stores = state.withLock { state in
      defer { state.stores = [:] }
      return state.stores
    }
    for store in stores.values {
      try? await store.destroy()
      state.withLock { $0.progress += 1 }
    }
  }
}
