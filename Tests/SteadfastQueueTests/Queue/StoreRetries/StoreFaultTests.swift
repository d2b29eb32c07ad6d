import TestSupport
import Testing

@testable import SteadfastQueue

/// Makes a single call of a store fail, or hang until the store is restored.
///
/// The scenarios are cases of the model check, which checks that nothing acknowledged is lost, that
/// no task is performed after its end was stored, and that the queue runs again. This command tries
/// each call of more scenarios: `STEADFAST_RUNS=500 swift test --filter StoreFaultTests`.
@Suite struct StoreFaultTests {
  struct Setting: Sendable, CustomTestStringConvertible {
    var fault: FaultPlan.Fault
    var storage: ModelStorage

    var testDescription: String { "\(fault), \(storage)" }

    static let all = FaultPlan.Fault.allCases.flatMap { fault in
      [ModelStorage.memory, .suspending].map { Setting(fault: fault, storage: $0) }
    }
  }

  /// A case with a single queue that exists until the end.
  private static func makeScenario(seed: UInt64) -> ModelCase {
    var model = ModelCase(seed: seed, operations: 60)
    model.operations.insert(.run, at: 3)
    model.operations.removeAll { operation in
      switch operation {
      case .shutDown, .restartQueue: true
      default: false
      }
    }
    // A batch that replaces its own tasks isn't stored in one step.
    model.operations = model.operations.map { operation in
      guard case .enqueue(var task) = operation, task.count > 1, task.policy == .replace else {
        return operation
      }
      task.policy = .keep
      return .enqueue(task)
    }
    return model
  }

  private static func failure(of model: ModelCase, in setting: Setting, atCall call: Int) async -> (
    (any Error)?, wasMet: Bool
  ) {
    let plan = FaultPlan(setting.fault, atCall: call)
    do {
      try await ModelRun.perform(model, setting.storage, fault: plan)
      return (nil, plan.wasMet)
    } catch {
      return (error, true)
    }
  }

  @Test(arguments: Setting.all)
  func `a store that fails or hangs loses nothing, and the queue runs afterwards`(
    setting: Setting
  ) async {
    let runs = Soak.runs(short: 20)
    for seed in 0..<UInt64(max(1, runs / 100)) {
      let model = Self.makeScenario(seed: seed)
      // A short run tries every thirteenth call.
      for call in stride(from: 1, to: .max, by: runs >= 100 ? 1 : 13) {
        let (failure, wasMet) = await Self.failure(of: model, in: setting, atCall: call)
        guard wasMet else { break }
        guard let failure else { continue }
        let (smallest, reason) = await model.shrunk(failing: failure) {
          await Self.failure(of: $0, in: setting, atCall: call).0
        }
        Issue.record(
          "call \(call) \(setting.fault) over \(setting.storage), \(smallest)\n\(reason)"
        )
        return
      }
    }
  }
}
