/// Work that takes real time and not the clock's: a write to disk, a request over the network.
///
/// A store wraps its input and output in ``perform(_:)``, so that a test in virtual time does not
/// let hours pass while the disk is busy. In a program it does nothing else than the work.
public enum RealWork {
  @TaskLocal private static var observer: (any RealWorkObserver)?

  /// Performs `operation` in the caller's isolation and holds the virtual time still meanwhile.
  ///
  /// Where no virtual time is installed it costs one look at a task-local value. The operation must
  /// not sleep on the virtual clock, which it holds: that sleep could not end. Cancellation is the
  /// operation's affair; what it returns or throws is passed on.
  nonisolated(nonsending)
    public static func perform<Success: ~Copyable, Failure: Error>(
      _ operation: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async throws(Failure) -> Success
  {
    guard let observer else { return try await operation() }
    observer.realWorkBegan()
    defer { observer.realWorkEnded() }
    return try await operation()
  }

  /// Runs `body`, in which `observer` is told of real work, by child tasks too.
  nonisolated(nonsending)
    package static func observed<Success>(
      by observer: any RealWorkObserver,
      _ body: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success
  {
    try await $observer.withValue(observer) { try await body() }
  }
}
