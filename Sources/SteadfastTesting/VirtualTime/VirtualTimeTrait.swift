#if canImport(Testing)
public import Testing

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
  /// It ends when the test does. A test that is stuck is cancelled and fails. If the test ignores
  /// the cancellation, the issue is recorded at once, and the method waits for the test.
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
  ///   - order: The order of tasks that could run at the same time.
  ///   - limit: How far the time may move by itself. A test that needs more fails. By default it is
  ///     ten years, and the time may move further a thousand times.
  ///   - encodesPayloads: Whether queues encode payloads when they are enqueued and decode them for
  ///     their handlers, as across a restart. A payload that can't be encoded or decoded then shows
  ///     in the test.
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
