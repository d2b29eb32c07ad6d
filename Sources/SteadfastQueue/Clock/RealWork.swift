import Synchronization

/// Work that takes real time, not a clock's: a write to disk, a request over the network.
///
/// A store wraps each call that waits for a device in ``performInTurn(_:)``. Other code wraps its
/// input and output in ``perform(_:)``. So a test in virtual time does not let hours pass while the
/// disk is busy. In a program, both functions only perform the work.
public enum RealWork {
  private struct Observation {
    let observer: any RealWorkObserver
    /// Whether this is inside an operation of ``performInTurn(_:)``.
    var isInTurn = false
  }

  @TaskLocal private static var localObservation: Observation?
  /// Whether this process has ever installed virtual time.
  ///
  /// A program that has not only reads this, which costs a tenth of reading a task-local value.
  private static let isUsed = Atomic(false)

  // A task with an observation was made after the flag was set, so it reads `true` here.
  private static var observation: Observation? {
    isUsed.load(ordering: .relaxed) ? localObservation : nil
  }

  static var observer: (any RealWorkObserver)? { observation?.observer }

  /// Performs `operation` in the caller's isolation, while the virtual time stands still.
  ///
  /// Operations that run at the same time end in an order that the outside world decides. If no
  /// virtual time is installed, this costs one read of an atomic value. The operation must not
  /// sleep on the virtual clock: it stops that clock, so the sleep could not end. The operation
  /// handles cancellation itself. Its result or error is passed on.
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

  /// Performs `operation` as ``perform(_:)`` does, but in virtual time one at a time.
  ///
  /// So the speed of the device can't change what a test observes. In virtual time, such operations
  /// run one after another, in the order in which they were called. Each one begins when nothing
  /// else can run, and its caller continues when nothing else can run again. The operation must
  /// wait only for its device, and not for another task of the test, which may itself be waiting to
  /// perform an operation. An operation inside the operation is part of it.
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

  // A task-local value can be bound around code that throws any error or none.
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

  /// Throws if the current task runs a queue on the clock of a virtual time that does not run this
  /// task.
  static func checkRun(of queue: String, on clock: any WallClock) throws {
    if let mistake = observer?.mistake(inRunning: queue, on: clock) { throw mistake }
  }

  /// The executor for an unstructured task, which keeps it in the current virtual time.
  ///
  /// It is `nil` if no virtual time is installed.
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
  /// The executor that runs the tasks, except for their real work.
  var taskExecutor: any TaskExecutor { get }
  /// Whether payloads are encoded when their tasks are enqueued, and decoded for their handlers.
  var encodesPayloads: Bool { get }
  /// Returns why the current task can't run a queue on this clock; `nil` if it can.
  func mistake(inRunning queue: String, on clock: any WallClock) -> (any Error)?
  /// A caller begins a wait that may never end.
  ///
  /// - Returns: The number to give to ``waitEnded(_:)``.
  func waitBegan(_ wait: KnownWait) -> UInt64
  /// The wait with this number has ended.
  func waitEnded(_ number: UInt64)
  /// Some real work began. Each call is followed by one of ``realWorkEnded()``, from any thread.
  func realWorkBegan()
  /// Some real work ended, and the code that waited for it has been resumed.
  func realWorkEnded()
  /// Suspends until an operation of ``RealWork/performInTurn(_:)`` may begin. One call of
  /// ``endTurn()`` follows.
  ///
  /// Cancelling the task does not end the wait.
  nonisolated(nonsending) func beginTurn() async
  /// The operation that was begun has ended. Suspends until its caller may continue.
  nonisolated(nonsending) func endTurn() async
}

/// A wait that can describe what it waits for, and why it may never end.
package struct KnownWait: Sendable {
  /// Returns the description, given the clock of the observer that asks for it.
  package let describe: @Sendable (any WallClock) async -> String
}

extension RealWork {
  /// Performs an operation that waits, and reports to the observer what it waits for.
  ///
  /// If no virtual time is installed, this costs one read of an atomic value.
  nonisolated(nonsending)
    static func waiting<Success>(
      _ describe: @escaping @Sendable (any WallClock) async -> String,
      _ operation: nonisolated(nonsending) () async throws -> Success
    ) async rethrows -> Success
  {
    guard let observer = observer else { return try await operation() }
    let number = observer.waitBegan(KnownWait(describe: describe))
    defer { observer.waitEnded(number) }
    return try await operation()
  }

  /// Whether payloads must be encoded and decoded, as they are across a restart.
  static var encodesPayloads: Bool { observer?.encodesPayloads ?? false }
}
