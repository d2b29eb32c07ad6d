import Synchronization

/// Work that takes real time, not a clock's: a write to disk, a request over the network.
///
/// A store wraps each call that waits for a device in ``performInTurn(_:)``. Other code wraps its
/// input and output in ``perform(_:)``. So virtual time, which may skip hours, stands still while
/// the disk is busy. Outside of virtual time, both functions only perform the work.
public enum RealWork {
  private struct Observation {
    let observer: any RealWorkObserver
    /// Whether the current code is inside an operation of ``performInTurn(_:)``.
    var isInTurn = false
  }

  @TaskLocal private static var localObservation: Observation?
  /// Whether this process has ever installed virtual time.
  ///
  /// As long as this is `false`, only this flag is read, which takes a tenth of the time of reading
  /// a task-local value.
  private static let isUsed = Atomic(false)

  // The flag was set before any task with an observation was made, so that task reads `true`.
  private static var observation: Observation? {
    isUsed.load(ordering: .relaxed) ? localObservation : nil
  }

  static var observer: (any RealWorkObserver)? { observation?.observer }

  /// Performs `operation` in the caller's isolation, while the virtual time stands still.
  ///
  /// Operations that run at the same time may end in any order. If no virtual time is installed,
  /// the function costs one read of an atomic value. The operation must not sleep on the virtual
  /// clock: that clock stands still, so the sleep would never end. The operation handles
  /// cancellation itself. The function returns or throws what the operation does.
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

  /// Performs `operation` as ``perform(_:)`` does, but in virtual time, only one operation runs at
  /// a time.
  ///
  /// So the speed of the device can't change what a test observes. In virtual time, such operations
  /// run one after another, in the order in which they were called. Each operation begins when no
  /// task can run, and its caller continues when, again, no task can run. The operation must wait
  /// only for its device, and not for another task of the test, which may itself be waiting to
  /// perform an operation. An operation inside another one runs as a part of it.
  ///
  /// Outside of virtual time, operations run at the same time, and a store may batch them. A
  /// cancelled task also waits until its operation may begin, and performs it; the operation
  /// handles cancellation itself.
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

  // A task-local value can be bound only around code that throws any error or none, so this
  // function turns a typed error into a result.
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

  /// Throws if a queue is run on the clock of a virtual time by a task that this virtual time does
  /// not control.
  static func checkRun(of queue: String, on clock: any WallClock) throws {
    if let error = observer?.errorForRun(of: queue, on: clock) { throw error }
  }

  /// The executor that keeps an unstructured task in the current virtual time; `nil` if no virtual
  /// time is installed.
  package static var taskExecutor: (any TaskExecutor)? { observation?.observer.taskExecutor }

  /// Runs `body`, and notifies `observer` of the real work in the body and in its child tasks.
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

/// An observer that stops a clock while real work is in flight.
package protocol RealWorkObserver: Sendable {
  /// The executor that runs the observed tasks, except for their real work.
  var taskExecutor: any TaskExecutor { get }
  /// Whether payloads are encoded when their tasks are enqueued, and decoded for their handlers.
  var encodesPayloads: Bool { get }
  /// Returns an error that says why the current task can't run a queue on a clock; `nil` if it can.
  func errorForRun(of queue: String, on clock: any WallClock) -> (any Error)?
  /// Records that a wait begins that may never end.
  ///
  /// - Returns: The number to pass to ``waitEnded(_:)``.
  func waitBegan(_ wait: KnownWait) -> UInt64
  /// Records that the wait with this number has ended.
  func waitEnded(_ number: UInt64)
  /// Records that some real work began. A call of ``realWorkEnded()`` follows, from any thread.
  func realWorkBegan()
  /// Records that some real work ended, and that the code that waited for it has been resumed.
  func realWorkEnded()
  /// Suspends until the caller's operation of ``RealWork/performInTurn(_:)`` may begin. One call of
  /// ``endTurn()`` follows.
  ///
  /// Cancelling the task does not end the wait.
  nonisolated(nonsending) func beginTurn() async
  /// Records that the caller's operation has ended, and suspends until the caller may continue.
  nonisolated(nonsending) func endTurn() async
}

/// A wait that may never end, with a function that describes what it waits for, and why that may
/// never come.
package struct KnownWait: Sendable {
  /// Returns the description, which may contain dates of the observer's clock.
  package let describe: @Sendable (any WallClock) async -> String
}

extension RealWork {
  /// Performs an operation that waits, and reports to the observer what the operation waits for.
  ///
  /// If no virtual time is installed, the function costs one read of an atomic value.
  nonisolated(nonsending)
    static func reportingWait<Success>(
      _ describe: @escaping @Sendable (any WallClock) async -> String,
      _ operation: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success
  {
    guard let observer = observer else { return try await operation() }
    let number = observer.waitBegan(KnownWait(describe: describe))
    defer { observer.waitEnded(number) }
    return try await operation()
  }

  /// Whether a test demands that payloads are encoded and decoded, as they are across a restart.
  static var encodesPayloads: Bool { observer?.encodesPayloads ?? false }
}
