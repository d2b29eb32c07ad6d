public import Testing
public import SystemFoundation

/// Runs a test in a virtual time of its own, in which sleeps cost no real time.
///
/// The tasks run in the same order each time.
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
/// All tasks of the virtual time share one thread. When none of the tasks can run, the time moves
/// to the next deadline on ``VirtualTime/clock``. In ``VirtualTime/Mode/manual`` mode, the time
/// moves only as far as ``VirtualTime/advance(by:)`` says. Cancelling the caller cancels the body.
/// - Parameters:
///   - mode: What moves the time.
///   - order: The order of tasks that are ready at the same time.
///   - date: The clock's date at the start; by default midnight UTC on 1 January 2001.
///   - limit: How far the time may move by itself before the body is cancelled and an error is
///     thrown. By default ten years; beyond them, the time may still move a thousand times.
///   - encodesPayloads: Whether queues encode each payload when it is enqueued, and decode it for
///     its handler, as across a restart. The test then finds a payload that can't be encoded or
///     decoded.
///   - body: The test. No task may still sleep on the clock when it returns.
/// - Returns: The body's result.
/// - Throws: The body's error; a ``VirtualTimeError`` if nothing can run although the body has not
///   ended, or if tasks still sleep when the body returns. A body that can't continue is cancelled.
///   If the cancellation does not end the body, the function returns without waiting for it.
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

#if canImport(Testing)
/// Runs each test, and each case of a parameterized test, in a virtual time of its own.
///
/// Write it as `.virtualTime`. The test gets its virtual time from ``VirtualTime/current``.
public struct VirtualTimeTrait: TestTrait, SuiteTrait, TestScoping {
  let mode: VirtualTime.Mode
  let order: VirtualTime.Order
  let limit: Duration?
  let encodesPayloads: Bool

  /// Always true: a suite passes the trait to its tests and to the suites in it.
  public var isRecursive: Bool { true }

  /// Runs `function` in a new virtual time.
  ///
  /// The virtual time ends when the test does. A test that can't continue is cancelled and fails.
  /// If the test ignores the cancellation, the issue is recorded at once, and the method waits
  /// until the test ends.
  /// - Throws: What `function` throws, or a ``VirtualTimeError``.
  public func provideScope(
    for test: Test,
    testCase: Test.Case?,
    performing function: @concurrent @Sendable () async throws -> Void
  ) async throws {
    guard testCase != nil else { return try await function() }
    try await withoutActuallyEscaping(function) { function in
      let time = VirtualTime(
        mode: mode,
        order: order,
        limit: limit,
        encodesPayloads: encodesPayloads
      )
      try await time.run(
        mayBeginOnMainActor: true,
        lastResort: .report { Issue.record($0) }
      ) { _ in
        try await function()
      }
    }
  }
}

extension Trait where Self == VirtualTimeTrait {
  /// Runs each test case in a virtual time of its own that moves by itself.
  public static var virtualTime: Self { .virtualTime() }

  /// Runs each test case in a virtual time of its own.
  /// - Parameters:
  ///   - mode: What moves the time.
  ///   - order: The order of tasks that are ready at the same time.
  ///   - limit: How far the time may move by itself; a test that needs more time fails. By default
  ///     ten years; beyond them, the time may still move a thousand times.
  ///   - encodesPayloads: Whether queues encode each payload when it is enqueued, and decode it for
  ///     its handler, as across a restart. The test then finds a payload that can't be encoded or
  ///     decoded.
  /// - Returns: A trait for a test or a suite.
  public static func virtualTime(
    _ mode: VirtualTime.Mode = .automatic,
    order: VirtualTime.Order = .inOrder,
    limit: Duration? = nil,
    encodesPayloads: Bool = true
  ) -> Self {
    VirtualTimeTrait(mode: mode, order: order, limit: limit, encodesPayloads: encodesPayloads)
  }
}
#endif
