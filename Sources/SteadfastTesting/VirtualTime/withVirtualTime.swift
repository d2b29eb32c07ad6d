#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Runs `body` in a world of its own, where time passes as fast as its tasks can run, and they run
/// in an order that is the same each time.
///
/// ```swift
/// try await withVirtualTime { time in
///   let page = try await withRetry(.within(.seconds(3_600)), clock: time.clock) { try await load() }
///   #expect(time.clock.now.offset < .seconds(3_600))
/// }
/// ```
/// All tasks of the world take turns on one thread. When none can run, the time moves to the next
/// deadline on ``VirtualTime/clock``, or, in ``VirtualTime/Mode/manual`` mode, only as far as
/// ``VirtualTime/advance(by:)`` asks. Cancelling the caller cancels the body.
/// - Parameters:
///   - mode: Who moves the time.
///   - order: The order of tasks that could run at the same time.
///   - date: The date at the world's beginning; left out, the same one each time.
///   - limit: How far the time may move by itself before the body is cancelled and an error is thrown.
///     Left out, it is ten years, and the time may move further a thousand times.
///   - encodesPayloads: Whether payloads of queues are encoded when they are enqueued and decoded for
///     their handlers, as over a restart, so that one that can't be shows it in the test.
///   - body: The test; its tasks must have stopped sleeping when it returns.
/// - Returns: What the body returns.
/// - Throws: What the body throws; a ``VirtualTimeError`` when nothing can run any more before the
///   body has ended (the body is cancelled, and left behind if it does not end for that), or when
///   tasks are left asleep after it.
@concurrent
public func withVirtualTime<Success: Sendable>(
  _ mode: VirtualTime.Mode = .automatic,
  order: VirtualTime.Order = .inOrder,
  date: Date = Date(timeIntervalSinceReferenceDate: 0),
  limit: Duration? = nil,
  encodesPayloads: Bool = true,
  _ body: @escaping @Sendable @isolated(any) (VirtualTime) async throws -> Success
) async throws -> Success {
  let time = VirtualTime(
    mode: mode,
    order: order,
    clock: VirtualClock(date: date),
    limit: limit,
    encodesPayloads: encodesPayloads
  )
  return try await time.run(
    mayBeginOnMainActor: body.isolation === MainActor.shared,
    lastResort: .abandon
  ) {
    try await body($0)
  }
}
