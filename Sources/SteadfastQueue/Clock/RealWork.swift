import Synchronization

/// Work that takes real time, not a clock's: a write to disk, a request over the network.
///
/// A store wraps each call that waits for a device in ``performInTurn(_:)``. Other code wraps its
/// input and output in ``perform(_:)``. So the hours of a virtual time do not pass while the disk
/// is busy. Outside of virtual time, both functions only perform the work.
public enum RealWork {
  private struct Observation {
    let observer: any RealWorkObserver
    /// Whether the current code is inside an operation of ``performInTurn(_:)``.
    var isInTurn = false
  }

  @TaskLocal private static var localObservation: Observation?
  /// Whether this process has ever installed virtual time.
  ///
  /// As long as this is `false`, only this flag is read, at a tenth of the cost of reading a
  /// task-local value.
  private static let isUsed = Atomic(false)

  // A task that has an observation was made after the flag was set, so that task reads `true`.
  private static var observation: Observation? {
    isUsed.load(ordering: .relaxed) ? localObservation : nil
  }

  static var observer: (any RealWorkObserver)? { observation?.observer }

  /// Performs `operation` in the caller's isolation, while the virtual time stands still.
  ///
  /// Operations that run at the same time end in an order that the outside world decides. If no
  /// virtual time is installed, the function costs one read of an atomic value. The operation must
  /// not sleep on the virtual clock: that clock stands still, so the sleep would never end. The
  /// operation handles cancellation itself. The function returns or throws what the operation does.
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
  /// only for its device, and not for another task of the test: that task may itself be waiting to
  /// perform an operation. A nested operation is part of the outer one.
  ///
  /// In a program, operations run at the same time, and a store may batch them. A cancelled task
  /// still waits for its turn and performs the operation, which handles cancellation itself.
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

  // A task-local value can only be bound around code that throws any error or none, so this
  // function makes a result of the typed error.
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

  /// Throws if the current task starts a queue on the clock of a virtual time, but that virtual
  /// time does not run the current task.
  static func checkRun(of queue: String, on clock: any WallClock) throws {
    if let mistake = observer?.errorForRun(of: queue, on: clock) { throw mistake }
  }

  /// The executor that keeps an unstructured task in the current virtual time; `nil` if no virtual
  /// time is installed.
  package static var taskExecutor: (any TaskExecutor)? { observation?.observer.taskExecutor }

  /// Runs `body`, and notifies `observer` of the real work in it and in its child tasks.
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
  /// Returns why the current task can't run a queue on a clock; `nil` if it can.
  func errorForRun(of queue: String, on clock: any WallClock) -> (any Error)?
  /// Records that a caller begins a wait that may never end.
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
  /// Records that the operation that began its turn has ended, and suspends until its caller may
  /// continue.
  nonisolated(nonsending) func endTurn() async
}

/// A wait of a caller, with a function that describes what the caller waits for, and why the wait
/// may never end.
package struct KnownWait: Sendable {
  /// Returns the description, given the clock of the observer that asks for it.
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
