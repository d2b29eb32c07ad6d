import SteadfastQueue
import Synchronization

/// The check of one requirement: the steps that it took, and the stores that it opened.
final class RequirementCheck: Sendable {
  private struct State {
    var steps: [String] = []
    /// Roughly how many calls have returned.
    var progress = 0
    /// The call that has not returned yet.
    var pending: String?
    var stores: [String: any Persistence] = [:]
  }

  /// Whether stores can be opened again.
  let reopens: Bool
  let randomCases: Int
  let callsPerCase: Int
  let seed: UInt64
  /// Moves the clock of the stores at a place; `nil` if the check has no way to.
  let advanceClock: PersistenceConformance.AdvanceClock?
  /// By how much clocks that go on by themselves may have gone on.
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

  /// The steps that were taken, and at the end the call that has not returned.
  var steps: [String] {
    state.withLock { state in
      state.steps + (state.pending.map { ["\($0) does not return"] } ?? [])
    }
  }

  /// How many steps were taken, including those that were forgotten.
  var progress: Int { state.withLock { $0.progress } }

  /// Notes that a call begins; the next step tells how it ended.
  func begin(_ call: String) { state.withLock { $0.pending = call } }

  func note(_ step: String) {
    state.withLock { state in
      state.steps.append(step)
      state.progress += 1
      state.pending = nil
    }
  }

  /// Forgets all steps, so that only those of the last case are reported.
  func forgetSteps() { state.withLock { $0.steps = [] } }

  func opened(_ store: any Persistence, at place: String) {
    state.withLock { state in
      state.stores[place] = store
      state.progress += 1
    }
  }

  /// Destroys the opened stores, and ignores their errors.
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
