import TestSupport
import Testing

@testable import SteadfastTesting

/// Tests that each requirement fails for a store that breaks it, and passes for a correct store.
@Suite struct PersistenceConformanceTests {
  typealias Requirement = PersistenceConformance.Requirement

  private func checkStore(
    behaving behaviour: PlainStore.Behaviour,
    with conformance: PersistenceConformance
  ) async -> PersistenceConformance.Report {
    let shelf = PlainStore.Shelf()
    return await conformance.check(advancingClocks: shelf.advanceClock) {
      PlainStore(shelf, $0, behaviour)
    }
  }

  /// Returns a check of this requirement alone, with enough random cases to detect every mutant.
  ///
  /// The seed is slightly lower than that of the only case that detects a certain mutant. Starting
  /// at the default seed would take half a minute.
  private func conformance(checkingOnly requirement: String) -> PersistenceConformance {
    let others = Requirement.all.map(\.id).filter { $0 != requirement }
    let exclusions = Dictionary(uniqueKeysWithValues: others.map { ($0, "not broken") })
    return PersistenceConformance(excluding: exclusions, randomCases: 3000, seed: 2_360)
  }

  @Test(arguments: [(isShared: false, hasOneClock: false), (true, false), (true, true)])
  func `a store that breaks no requirement passes`(isShared: Bool, hasOneClock: Bool) async {
    var behaviour = PlainStore.Behaviour()
    if isShared { behaviour.sharing = StoreSharing() }
    behaviour.hasOneClock = hasOneClock
    let report = await checkStore(
      behaving: behaviour,
      with: PersistenceConformance(randomCases: 20)
    )
    #expect(report.passes, "\(report)")
    #expect(report.passed.count > 70)
  }

  // In virtual time, so that racing calls interleave in the same way every time.
  @Test(.virtualTime, arguments: Mutant.all)
  func `a store that breaks a requirement fails exactly that requirement`(mutant: Mutant) async {
    let report = await checkStore(
      behaving: mutant.behaviour,
      with: conformance(checkingOnly: mutant.requirement)
    )
    #expect(report.failures.map(\.requirement.id) == [mutant.requirement], "\(report)")
    #expect(report.description.contains(mutant.requirement))
  }

  @Test func `each requirement has a mutant that breaks it, and a unique ID`() {
    let ids = Requirement.all.map(\.id)
    #expect(Set(ids).count == ids.count)
    #expect(Set(ids) == Set(Mutant.all.map(\.requirement)))
    #expect(Requirement.all.allSatisfy { $0.sentence.hasSuffix(".") })
  }

  @Test func `requirements about lease expiry are skipped if the check can't advance the clock`()
    async
  {
    var behaviour = PlainStore.Behaviour()
    behaviour.sharing = StoreSharing()
    let shelf = PlainStore.Shelf()
    let report = await PersistenceConformance(randomCases: 20).check { [behaviour] in
      PlainStore(shelf, $0, behaviour)
    }
    #expect(report.passes, "\(report)")
    let skipped = report.skipped.filter {
      $0.requirement.id.hasPrefix("sharing.") || $0.requirement.id == "commands.stay"
    }
    let ids = [
      "sharing.suspended", "sharing.runs-out", "sharing.extended", "sharing.holder",
      "sharing.clock-back", "commands.stay",
    ]
    #expect(skipped.map(\.requirement.id) == ids)
    #expect(skipped.allSatisfy { $0.reason.contains("clock") })
  }

  /// The store checks for expired leases only a few times per lease, and computes the next date
  /// only if a claim is empty.
  @Test func `a store that rarely checks for expired leases passes`() async {
    var behaviour = PlainStore.Behaviour()
    behaviour.sharing = StoreSharing(leaseDuration: .seconds(60))
    behaviour.looksSeldom = true
    let report = await checkStore(
      behaving: behaviour,
      with: PersistenceConformance(randomCases: 200)
    )
    #expect(report.passes, "\(report)")
  }

  /// The same happens with a real clock on a machine that needs seconds for a few calls.
  @Test func `a store whose clock advances with each call passes`() async {
    var behaviour = PlainStore.Behaviour()
    behaviour.sharing = StoreSharing()
    behaviour.secondsPerCall = 0.25
    let shelf = PlainStore.Shelf()
    var conformance = PersistenceConformance(randomCases: 200)
    conformance.uptime = { shelf.uptime }
    let report = await conformance.check(advancingClocks: shelf.advanceClock) { [behaviour] in
      PlainStore(shelf, $0, behaviour)
    }
    #expect(report.passes, "\(report)")
  }

  @Test func `an excluded requirement is skipped, and the report states the reason`() async {
    let report = await checkStore(
      behaving: Mutant.order[0].behaviour,
      with: PersistenceConformance(
        excluding: ["order.priority": "it has no priorities"],
        randomCases: 0
      )
    )
    let skipped = report.skipped.first { $0.requirement.id == "order.priority" }
    #expect(skipped?.reason == "excluded: it has no priorities")
    #expect(!report.failures.contains { $0.requirement.id == "order.priority" })
    #expect(report.description.contains("order.priority, excluded: it has no priorities"))
  }

  @Test func `excluding an unknown requirement is a failure`() async {
    let conformance = PersistenceConformance(excluding: ["order.prority": "misspelt"])
    let report = await checkStore(behaving: PlainStore.Behaviour(), with: conformance)
    #expect(report.failures.map(\.requirement.id) == ["order.prority"])
    #expect(!report.passes)
  }

  @Test func `a store that can't be created is a failure that shows the error`() async {
    let report = await PersistenceConformance().check { throw PlainStoreError.closed }
    #expect(report.failures.map(\.found) == ["the error: closed"])
  }

  @Test(.timeLimit(.minutes(5)))
  func `a store that returns the same tasks in every claim fails, and the check still ends`()
    async
  {
    var behaviour = PlainStore.Behaviour()
    behaviour.leases = false
    let report = await checkStore(behaving: behaviour, with: PersistenceConformance(randomCases: 1))
    let failure = report.failures.first { $0.requirement.id == "concurrency.claims" }
    #expect(failure?.expected == "each task is claimed once")
    #expect(failure?.found == "task 1 was claimed again")
  }

  @Test(.virtualTime, arguments: FaultInjectingStore.Call.Kind.allCases)
  func `a call that never returns is a failure, but the other requirements are still checked`(
    kind: FaultInjectingStore.Call.Kind
  ) async {
    let shelf = PlainStore.Shelf()
    let stores = Log<FaultInjectingStore>()
    let conformance = PersistenceConformance(randomCases: 1, callLimit: .seconds(5))
    let report = await conformance.check { place in
      let store = FaultInjectingStore(PlainStore(shelf, place, PlainStore.Behaviour()))
      if place == "order-kept" || place == "claim-limit" {
        store.inject(.hang, times: nil) { $0.kind == kind }
        stores.add(store)
      }
      return store
    }
    let hung = report.failures.map(\.requirement.id)
    #expect(Set(hung).isSubset(of: ["order.kept", "claim.limit"]))
    let notAsked: [FaultInjectingStore.Call.Kind] = [
      .tasks, .count, .contains, .census, .value, .memory, .close,
    ]
    #expect(hung.isEmpty == notAsked.contains(kind), "\(report)")
    for failure in report.failures {
      #expect(failure.expected == "each call returns")
      #expect(failure.found == "no call has returned for 5.0 seconds")
      if kind == .claim { #expect(failure.steps.last?.hasPrefix("claim ") == true) }
    }
    for store in stores.entries { store.restore() }
  }

  @Test func `a failure of a random case shows the fewest steps that still fail`() async throws {
    let report = await checkStore(
      behaving: Mutant.model[0].behaviour,
      with: conformance(checkingOnly: "model.random")
    )
    let failure = try #require(report.failures.first)
    #expect(failure.requirement.id == "model.random")
    // Of 40 steps, 14 remain, each with the look-up for the comparison: a task, its retry, its
    // pause and the claims, and other steps without which the claims would be others.
    #expect(failure.steps.count <= 30, "\(failure)")
    #expect(failure.steps.last?.contains("seed") == true)
  }
}
