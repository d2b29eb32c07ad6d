import SteadfastRetry
import Synchronization

/// How callers wait for the thread.
extension JSONFileCore {
  /// Suspends until the thread resumes the continuation.
  ///
  /// In virtual time, such calls take turns.
  func waitForThread<Value: Sendable>(
    _ body: (CheckedContinuation<Value, any Error>) -> Void
  ) async throws -> Value {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { body($0) }
    }
  }

  /// What a call comes to: an answer at once, or lines to write.
  enum Decision<Value> {
    case answer(Value)
    case lines(Submission)
  }

  /// Decides what a call comes to, and queues its lines for the thread.
  ///
  /// If the file is not open, the call fails.
  func submit<Value: Sendable>(
    _ continuation: CheckedContinuation<Value, any Error>,
    _ decide: (inout State) throws -> Decision<Value>
  ) {
    var isClaim = false
    let (answer, thread) = state.withLock {
      state -> (Result<Value, any Error>?, (any JobThread)?) in
      do {
        guard try isOpen(state.phase) else { throw errors.closed }
        switch try decide(&state) {
        case .answer(let value): return (.success(value), nil)
        case .lines(let submission):
          state.size += options.maxFileSize == nil ? 0 : submission.byteCount
          isClaim = submission.isClaim
          return (nil, state.pipeline.submit(submission) ? state.thread : nil)
        }
      } catch {
        return (.failure(error), nil)
      }
    }
    if let answer { continuation.resume(with: answer) }
    guard let thread else { return }
    // A claim needs no flush. To write it takes less time than to have another thread write it.
    if isClaim, writeClaimsNow(thread) { return }
    thread.add { self.writePending() }
  }

  /// Does a job on the thread, which is started if there is none.
  func onThread<Value: Sendable>(
    _ body: @escaping @Sendable (JSONFileCore) throws -> Value
  ) async throws -> Value {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { continuation.resume(with: Result { try body(self) }) }
    }
  }
}
