public import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Performs a task once, in this call, and returns what a queue would do then.
///
/// ```swift
/// let attempt = try await performAttempt(
///   PostComment(text: "Hi"),
///   retryCount: 10
/// ) { comment, context in
///   try await poster.post(comment, context)
/// }
/// #expect(attempt.ending == .abandoned(reason: "offline"))
/// ```
/// It decides as a queue with this configuration does, but uses none of your queues or stores. The
/// handler gets the payload as it is decoded after a restart. The default backoff has jitter. If
/// the exact retry date matters, pass a configuration with a backoff without jitter.
/// - Parameters:
///   - payload: the payload that the handler gets.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10, as when it is enqueued.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once.
///   - memory: what the task remembers.
///   - configuration: the configuration of the queue.
///   - clock: the clock that dates are read from; by default that of the current virtual time.
///   - handler: the handler that performs the task.
/// - Returns: how the attempt ended. If the handler throws, this function does not.
/// - Throws: `CancellationError` if the caller is cancelled and the handler throws because of that;
///   a ``QueueTestError`` if the payload can't be decoded from its stored bytes; a `TaskQueueError`
///   if the configuration is not valid.
public func performAttempt<Payload: TaskPayload>(
  _ payload: Payload,
  retryCount: Int = 0,
  maxRetries: RetryLimit = 10,
  usesBackoff: Bool = true,
  remembering memory: TaskMemory = TaskMemory(),
  configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
  clock: some WallClock = VirtualTime.current?.clock ?? VirtualClock(),
  handler: @escaping @Sendable (Payload, TaskContext) async throws -> Void
) async throws -> AttemptResult {
  let payload = try payload.decodedAnew()
  let name = Payload.taskName
  let task = TaskRecord.attempted(name, retryCount, maxRetries, usesBackoff, clock.date)
  let queue = try await queue(holding: task, remembering: memory, configuration, clock)
  let thrown = Mutex<(any Error)?>(nil)
  await queue.register(Stand<Payload>.self) { _, context in
    // No attempt follows this one, even if a retry is due at once.
    queue.beginShutDown()
    do {
      try await handler(payload, context)
    } catch {
      thrown.withLock { $0 = error }
      throw error
    }
  }
  let events = queue.events
  try await queue.run()
  for await event in events {
    guard let ending = AttemptResult.Ending(event) else { continue }
    return AttemptResult(
      ending: ending,
      error: thrown.withLock { $0 },
      memory: try await queue.memory(of: TaskRecord.attemptedID)
    )
  }
  // The events end early if the caller is cancelled.
  throw CancellationError()
}

/// Performs a performable task once, in this call, and returns what a queue would do then.
///
/// It works like the function of this name that takes a handler.
/// - Parameters:
///   - payload: the task.
///   - retryCount: how many attempts have failed before this one.
///   - maxRetries: how many retries the task has; by default 10, as when it is enqueued.
///   - usesBackoff: whether a retry waits for the backoff, or is due at once.
///   - memory: what the task remembers.
///   - configuration: the configuration of the queue.
///   - clock: the clock that dates are read from; by default that of the current virtual time.
/// - Returns: how the attempt ended. If the task throws, this function does not.
/// - Throws: the errors of the function that takes a handler.
public func performAttempt<Payload: PerformableTask>(
  _ payload: Payload,
  retryCount: Int = 0,
  maxRetries: RetryLimit = 10,
  usesBackoff: Bool = true,
  remembering memory: TaskMemory = TaskMemory(),
  configuration: TaskQueueConfiguration = TaskQueueConfiguration(),
  clock: some WallClock = VirtualTime.current?.clock ?? VirtualClock()
) async throws -> AttemptResult {
  try await performAttempt(
    payload,
    retryCount: retryCount,
    maxRetries: maxRetries,
    usesBackoff: usesBackoff,
    remembering: memory,
    configuration: configuration,
    clock: clock
  ) { payload, context in
    _ = try await payload.perform(in: context)
  }
}

/// Makes a queue in memory with one task.
private func queue(
  holding task: TaskRecord,
  remembering memory: TaskMemory,
  _ configuration: TaskQueueConfiguration,
  _ clock: some WallClock
) async throws -> TaskQueue {
  let store = InMemoryStore()
  _ = try await store.apply([.insert(task, onDuplicate: .keep)], durability: .durable)
  try await store.remember(memory, of: task)
  return TaskQueue(persistence: store, configuration: configuration, clock: clock)
}

extension InMemoryStore {
  /// Has a task remember this, as if earlier attempts had stored it.
  fileprivate func remember(_ memory: TaskMemory, of task: TaskRecord) async throws {
    guard !memory.isEmpty else { return }
    let request = ClaimRequest(limit: 1, names: [task.name: 1], now: task.availableDate)
    for claimed in try await claim(request).tasks {
      let changes = memory.names.compactMap { name in
        memory[name].map { TaskChange.remember(claimed.lease, named: name, value: $0) }
      }
      _ = try await apply(changes, durability: .durable)
      _ = try await apply([.release(claimed.lease)], durability: .durable)
    }
  }
}

/// Replaces the payload in the store, so that the handler is called whatever the payload is.
private struct Stand<Payload: TaskPayload>: TaskPayload {
  static var taskName: String { Payload.taskName }
}

extension TaskRecord {
  fileprivate static var attemptedID: TaskID { TaskID(high: 0x7000, low: 0x8000_0000_0000_0000) }

  fileprivate static func attempted(
    _ name: String,
    _ retryCount: Int,
    _ maxRetries: RetryLimit,
    _ usesBackoff: Bool,
    _ date: Date
  ) -> TaskRecord {
    TaskRecord(
      id: attemptedID,
      name: name,
      payload: StoredPayload(Array("{}".utf8), format: .json),
      createdDate: date,
      maxRetries: maxRetries,
      usesBackoff: usesBackoff,
      availableDate: date,
      retryCount: retryCount
    )
  }
}
