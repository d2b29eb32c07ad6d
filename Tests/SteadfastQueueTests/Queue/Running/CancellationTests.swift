import SteadfastTesting
import Synchronization
import TestSupport
import Testing

@testable import SteadfastQueue

/// Cancels a call, or shuts the queue down, at each suspension of a scenario.
///
/// The scenarios are cases of the model check over a store that suspends before and after each of
/// its calls. The test counts these suspensions, those of the handlers, and those of the case, when
/// everything is idle. At the chosen suspension, the test cancels the call or shuts the queue down.
@Suite struct CancellationTests {
  enum Act: CaseIterable, Sendable {
    case cancelRun, shutDown, shutDownAtOnce, shutDownSoon, cancelCalls
  }

  private static func makeScenario(seed: UInt64) -> ModelCase {
    var model = ModelCase(seed: seed, operations: 40)
    model.operations.insert(.run, at: 3)
    return model
  }

  @Test(arguments: Act.allCases)
  func `cancelling a call at any suspension loses nothing, and the queue runs afterwards`(
    act: Act
  ) async {
    let runs = Soak.runs(short: 20)
    for seed in 0..<UInt64(max(1, runs / 100)) {
      let model = Self.makeScenario(seed: seed)
      for point in stride(from: 1, to: .max, by: runs >= 100 ? 1 : 29) {
        let (failure, wasMet) = await Self.failure(of: model, interruptedBy: act, at: point)
        guard wasMet else { break }
        guard let failure else { continue }
        let (smallest, reason) = await model.shrunk(failing: failure) {
          await Self.failure(of: $0, interruptedBy: act, at: point).0
        }
        Issue.record("\(act) at suspension \(point), \(smallest)\n\(reason)")
        return
      }
    }
  }

  private static func failure(of model: ModelCase, interruptedBy act: Act, at point: Int) async -> (
    (any Error)?, wasMet: Bool
  ) {
    let interruption = Interruption(act, at: point)
    do {
      try await ModelRun.perform(model, .suspending, interruption: interruption)
      return (nil, interruption.wasMet)
    } catch {
      return (error, true)
    }
  }
}
