import Synchronization

/// Work that takes real time and not the clock's: a write to disk, a request over the network.
///
/// A store wraps each call that waits for a device in ``performInTurn(_:)``, other code its input
/// and output in ``perform(_:)``, so that a test in virtual time does not let hours pass while the
/// disk is busy. In a program they do nothing else than the work.
public enum RealWork {
  private struct Observation {
    let observer: any RealWorkObserver
    /// Whether this is part of a work whose turn it is.
    var isInTurn = false
  }

  @TaskLocal private static var localObservation: Observation?
  /// Whether this process has ever installed virtual time: a program that has not looks at this
  /// alone, which costs a tenth of what a task-local value does.
  private static let isUsed = Atomic(false)

  // A task that has an observation was made after the first one was installed, and sees that it was.
  private static var observation: Observation? {
    isUsed.load(ordering: .relaxed) ? localObservation : nil
  }

  static var observer: (any RealWorkObserver)? { observation?.observer }

  /// Performs `operation` in the caller's isolation and holds the virtual time still meanwhile.
  ///
  /// Works that are in flight together end in the order that the world outside decides. Where no
  /// virtual time is installed it costs one look at an atomic value. The operation must not sleep
  /// on the virtual clock, which it holds: that sleep could not end. Cancellation is the operation's
  /// affair; what it returns or throws is passed on.
  nonisolated(nonsending)
    public static func perform<Success: ~Copyable, Failure: Error>(
      _ operation: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async throws(Failure) -> Success
  {
    guard let observer = observation?.observer else { return try await operation() }
    observer.realWorkBegan()
    defer { observer.realWorkEnded() }
    return try await operation()
  }

  /// Performs `operation` as ``perform(_:)`` does, and in virtual time by itself: how fast the
  /// device is cannot change what a test sees.
  ///
  /// In virtual time such works take turns, in the order in which they were called. Each begins when
  /// nothing else can run, and its caller goes on when nothing else can again; none is under way
  /// beside another. The operation must therefore wait for its device alone, and for no other task
  /// of the test, which may be waiting for its own turn. A work inside of the operation is part of
  /// it.
  ///
  /// In a program works run beside one another, and a store may gather them. A task that is
  /// cancelled still waits for its turn and performs the operation, whose affair cancellation is.
  nonisolated(nonsending)
    public static func performInTurn<Success, Failure: Error>(
      _ operation: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async throws(Failure) -> Success
  {
    guard var observation, !observation.isInTurn else { return try await perform(operation) }
    observation.isInTurn = true
    await observation.observer.beginTurn()
    let ending = await $localObservation.withValue(observation) { await result(of: operation) }
    await observation.observer.endTurn()
    return try ending.get()
  }

  // A task-local value is bound around what throws anything or nothing.
  nonisolated(nonsending)
    private static func result<Success, Failure: Error>(
      of operation: nonisolated(nonsending) () async throws(Failure) -> Success
    ) async -> Result<Success, Failure>
  {
    do throws(Failure) {
      return .success(try await operation())
    } catch {
      return .failure(error)
    }
  }

  /// What must run a task that is no child of the present one, so that it stays in its virtual time;
  /// `nil` where none is installed.
  package static var taskExecutor: (any TaskExecutor)? { observation?.observer.taskExecutor }

  /// Runs `body`, in which `observer` is told of real work, by child tasks too.
  nonisolated(nonsending)
    package static func observed<Success>(
      by observer: any RealWorkObserver,
      _ body: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success
  {
    isUsed.store(true, ordering: .relaxed)
    return try await $localObservation.withValue(Observation(observer: observer)) {
      try await body()
    }
  }
}
