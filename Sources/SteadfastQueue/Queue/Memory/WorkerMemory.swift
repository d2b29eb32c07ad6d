import Synchronization

/// Holds the memory of the attempt that a worker makes.
///
/// There is one for each worker, not for each attempt, so an attempt whose handler remembers
/// nothing pays one atomic read.
final class WorkerMemory: Sendable {
  private let state = Mutex<AttemptMemory?>(nil)
  private let isUsed = Atomic(false)
  /// Callers that wait until a checkpoint was stored.
  private let savings = Waiters<Void>()

  /// Calls the body with the memory of an attempt, which begins empty.
  ///
  /// A context that outlives its attempt finds an empty one, and leaves the next attempt's alone.
  func with<Result>(
    _ number: AttemptNumber,
    _ body: (inout sending AttemptMemory) throws -> sending Result
  ) rethrows -> Result {
    try state.withLock { state in
      if let present = state?.number, present > number {
        var past = AttemptMemory(of: number)
        return try body(&past)
      }
      isUsed.store(true, ordering: .relaxed)
      // While `state` held the value too, a change would copy all that it holds.
      var memory = state.take() ?? AttemptMemory(of: number)
      if memory.number != number { memory = AttemptMemory(of: number) }
      defer { state = memory }
      return try body(&memory)
    }
  }

  /// Whether an attempt has used it.
  var isInUse: Bool { isUsed.load(ordering: .relaxed) }

  /// Returns the memory of an attempt that has ended, if it was used.
  func take(_ number: AttemptNumber) -> AttemptMemory? {
    guard isInUse else { return nil }
    return state.withLock { state in
      isUsed.store(false, ordering: .relaxed)
      defer { state = nil }
      return state?.number == number ? state : nil
    }
  }

  /// Takes note that a checkpoint was stored, or could not be.
  func endSaving(_ number: AttemptNumber, _ value: [UInt8], at time: Duration, isStored: Bool) {
    with(number) { $0.endSaving(value, at: time, isStored: isStored) }
    savings.resumeAll(with: .success(()))
  }

  /// Waits until no checkpoint of an attempt is being stored.
  func waitForSaving(_ number: AttemptNumber) async {
    await savings.waitUncancelled {
      state.withLock { $0?.number == number && $0?.isSaving == true } ? nil : ()
    }
  }
}
