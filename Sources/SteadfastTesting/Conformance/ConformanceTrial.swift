import SteadfastQueue
import Synchronization

/// The check of one requirement: the steps that were taken, and the stores that were opened for it.
final class ConformanceTrial: Sendable {
  private struct State {
    var steps: [String] = []
    var stores: [String: any Persistence] = [:]
  }

  /// Whether stores can be opened again.
  let reopens: Bool
  let randomCases: Int
  let seed: UInt64
  private let state = Mutex(State())

  init(reopens: Bool, randomCases: Int, seed: UInt64) {
    self.reopens = reopens
    self.randomCases = randomCases
    self.seed = seed
  }

  var steps: [String] { state.withLock { $0.steps } }

  func note(_ step: String) { state.withLock { $0.steps.append(step) } }

  /// Only the steps of the last case count.
  func forgetSteps() { state.withLock { $0.steps = [] } }

  func opened(_ store: any Persistence, at place: String) {
    state.withLock { $0.stores[place] = store }
  }

  /// Leaves nothing behind, as far as the stores let it.
  func cleanUp() async {
    let stores = state.withLock { state in
      defer { state.stores = [:] }
      return state.stores
    }
    for store in stores.values { try? await store.destroy() }
  }
}
