import SteadfastQueue
import SteadfastRetry

/// The requirement that a store answers random calls as a plain reference does.
extension PersistenceConformance.Requirement {
  static let model: [Self] = [
    Self(
      "model.random",
      "Random calls are answered, and leave the same tasks, as those of a plain reference.",
      check: answersAsReference
    )
  ]

  private static func answersAsReference(_ store: StoreProbe) async throws {
    for number in 0..<max(0, store.trial.randomCases) {
      let seed = store.trial.seed &+ UInt64(number)
      var drawing = ModelDrawing(seed: seed)
      let steps = (0..<max(0, store.trial.callsPerCase)).map { (number: $0, step: drawing.step()) }
      var runs = 0
      guard let failure = await failure(of: steps, store, "\(number)") else { continue }
      let (smallest, smallestFailure) = await shrunk(steps, failing: failure) { steps in
        runs += 1
        return await self.failure(of: steps, store, "\(number)-\(runs)")
      }
      // The report shows the steps of the last run.
      let last = await self.failure(of: smallest, store, "\(number)-last")
      store.trial.note("(the random case of the seed \(seed), with as few steps as still fail)")
      throw last ?? smallestFailure
    }
    store.trial.forgetSteps()
  }

  private static func failure(
    of steps: [(number: Int, step: ModelStep)],
    _ store: StoreProbe,
    _ suffix: String
  ) async -> (any Error)? {
    store.trial.forgetSteps()
    var failure: (any Error)?
    do {
      var run = ModelRun(try await store.fresh(suffix))
      try await run.perform(steps)
    } catch {
      failure = error
    }
    await store.trial.cleanUp()
    return failure
  }
}
