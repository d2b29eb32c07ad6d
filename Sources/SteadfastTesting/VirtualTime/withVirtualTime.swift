#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// Runs `body` in a virtual time of its own, with tasks that run in a fixed order.
///
/// Time passes as fast as the tasks can run, and their order is the same each time.
///
/// ```swift
/// try await withVirtualTime { time in
///   let hour = RetryPolicy.within(.seconds(3_600))
///   let page = try await withRetry(hour, clock: time.clock) {
///     try await load()
///   }
///   #expect(time.clock.now.offset < .seconds(3_600))
/// }
/// ```
/// All tasks of the virtual time take turns on one thread. When none can run, the time moves to the
/// next deadline on ``VirtualTime/clock``. In ``VirtualTime/Mode/manual`` mode, it moves only as
/// far as ``VirtualTime/advance(by:)`` asks. Cancelling the caller cancels the body.
/// - Parameters:
///   - mode: What moves the time.
///   - order: The order of tasks that could run at the same time.
///   - date: The date at the beginning; by default the same one each time.
///   - limit: How far the time may move by itself before the body is cancelled and an error is
///     thrown. By default it is ten years, and the time may move further a thousand times.
///   - encodesPayloads: Whether queues encode payloads when they are enqueued and decode them for
///     their handlers, as across a restart. A payload that can't be encoded or decoded then shows
///     in the test.
///   - body: The test. No task may still sleep on the clock when it returns.
/// - Returns: What the body returns.
/// - Throws: What the body throws; a ``VirtualTimeError`` if nothing can run before the body has
///   ended, or if tasks are left asleep after it. A body that can't go on is cancelled. If it does
///   not end then, it is left behind.
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
