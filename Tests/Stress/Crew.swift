import SteadfastQueue
import SteadfastRetry
import TestSupport

/// The handlers of a queue under load.
struct Crew: Sendable {
  let ledger: Ledger
  let clock: any WallClock
  let dice: Dice
  /// Whether handlers fail only if their task can never succeed.
  var isCalm = false

  func registerHandler(on queue: TaskQueue) async {
    await queue.register(Chore.self, maxConcurrentTasks: dice.pick([nil, nil, 3])) {
      [weak queue] chore, context in
      ledger.recordStart(of: chore.number, id: context.id)
      try await perform(chore, in: context, on: queue)
      ledger.recordReturn(of: chore.number)
    }
  }

  private func perform(
    _ chore: Chore,
    in context: TaskContext,
    on queue: TaskQueue?
  ) async throws {
    if isCalm {
      if chore.kind == .failsAlways || chore.kind == .isSlow { throw Failure() }
      return
    }
    switch chore.kind {
    case .easy, .expires: break
    case .failsOnce: if context.retryCount == 0 { throw Failure() }
    case .failsAlways: throw Failure()
    case .asksForDate: if context.retryCount < 2 { throw Busy() }
    case .abandonsItself: throw TaskAbandoned("by itself")
    case .snoozes:
      if dice.happens(2, in: 3) { throw TaskSnoozed(for: .microseconds(dice.number(0...500))) }
    case .isSlow:
      // Waits for a stream that never ends, because the runtime retains a long sleep even after its
      // cancellation.
      let (stream, continuation) = AsyncStream.makeStream(of: Never.self)
      for await _ in stream {}
      continuation.finish()
      try Task.checkCancellation()
      throw Failure()
    case .ignoresCancellation:
      for _ in 0..<dice.number(1...20) { try? await clock.sleep(for: .microseconds(20)) }
    case .sleeps: try await clock.sleep(for: .microseconds(dice.number(0...2000)))
    case .hasChild: try await addChild(from: context)
    case .pausesQueue:
      await queue?.pause()
      await queue?.resume()
    case .cancelsItself:
      ledger.recordCancelRequest(for: chore.number)
      try await queue?.cancel(context.id)
      try Task.checkCancellation()
    case .reportsProgress:
      for step in 0...4 { context.report(progress: Double(step) / 4) }
    }
  }

  private func addChild(from context: TaskContext) async throws {
    let number = ledger.recordSubmission()
    let child = try await context.enqueue(Chore(number: number, kind: .easy))
    ledger.recordID(child.id, of: number)
  }
}

private struct Failure: Error {}

/// An error that requests a date for the retry.
private struct Busy: RetryAwareError {
  var retryDecision: RetryDecision { .retry(after: .microseconds(300)) }
}
