import SteadfastQueue
import Synchronization

extension VirtualTime {
  /// Runs `body` in this virtual time until it has ended, and closes the virtual time.
  @concurrent
  func run<Success: Sendable>(
    mayBeginOnMainActor: Bool,
    lastResort: sending VirtualTimeDriver.LastResort,
    _ body: @escaping @Sendable (VirtualTime) async throws -> Success
  ) async throws -> Success {
    let task = Task(executorPreference: jobs) { [jobs] in
      defer { jobs.endBody() }
      return try await VirtualTime.$current.withValue(self) {
        try await RealWork.observed(by: jobs) { try await body(self) }
      }
    }
    let ending = await withTaskCancellationHandler {
      var driver = VirtualTimeDriver(
        time: self,
        mayBeginOnMainActor: mayBeginOnMainActor,
        lastResort: lastResort
      ) { task.cancel() }
      return await driver.drive()
    } onCancel: {
      task.cancel()
    }
    let mistake = jobs.state.withLock { $0.mistake }
    let leftovers = close()
    switch ending {
    case .ended:
      let success = try await task.value
      if let error = mistake ?? leftovers { throw error }
      return success
    case .stuck(let error), .abandoned(let error): throw mistake ?? error
    case .reported: return try await task.value
    }
  }
}
