import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A task of which one attempt is made, by a queue of its own.
struct AttemptedTask<Payload: TaskPayload> {
  let payload: Payload
  let retryCount: Int
  /// The options, with those that are chosen elsewhere filled in.
  let options: TaskOptions
  let memory: TaskMemory

  func perform(
    by handler: some TaskHandler<Payload>,
    _ configuration: TaskQueueConfiguration,
    _ clock: some WallClock
  ) async throws -> AttemptResult {
    let store = InMemoryStore()
    let task = try record(at: clock.date)
    _ = try await store.apply([.insert(task, onDuplicate: .keep)], durability: .durable)
    try await store.remember(memory, of: task)
    let queue = TaskQueue(persistence: store, configuration: configuration, clock: clock)
    let standIn = StandIn(handler: handler, payload: payload, queue: queue)
    await queue.register(handler: standIn)
    let events = queue.events
    try await queue.run()
    for await event in events {
      guard let ending = AttemptResult.Ending(event) else { continue }
      let memory = try await queue.memory(of: task.id)
      return AttemptResult(ending: ending, error: standIn.thrown.error, memory: memory)
    }
    // The events end early if the caller is cancelled.
    throw CancellationError()
  }

  /// The task, without what would keep the attempt from beginning.
  private func record(at date: Date) throws(TaskQueueError) -> TaskRecord {
    try options.check(path: "")
    return TaskRecord(
      id: TaskID(high: 0x7000, low: 0x8000_0000_0000_0000),
      name: Payload.taskName,
      payload: StoredPayload(Array("{}".utf8), format: .json),
      priority: options.priority ?? .normal,
      createdDate: date,
      maxRetries: options.maxRetries ?? 10,
      usesBackoff: options.usesBackoff ?? true,
      tags: options.tags,
      timeLimit: options.timeLimit,
      expiryDate: options.expiryDate,
      availableDate: date,
      retryCount: retryCount
    )
  }
}

/// A handler that calls a closure, and has no hooks.
struct ClosureHandler<Payload: TaskPayload, Output: Sendable>: TaskHandler {
  let closure: @Sendable (Payload, TaskContext) async throws -> Output

  func perform(_ payload: Payload, in context: TaskContext) async throws -> Output {
    try await closure(payload, context)
  }
}

/// Calls a handler with the payload of the attempt, for one attempt.
private struct StandIn<Handler: TaskHandler>: TaskHandler {
  /// Takes the place of the payload in the store, so that the handler is called whatever that is.
  struct Payload: TaskPayload {
    static var taskName: String { Handler.Payload.taskName }
  }

  /// The error that the handler has thrown.
  final class Thrown: Sendable {
    private let thrown = Mutex<(any Error)?>(nil)

    var error: (any Error)? { thrown.withLock { $0 } }

    func note(_ error: any Error) { thrown.withLock { $0 = error } }
  }

  let handler: Handler
  let payload: Handler.Payload
  let queue: TaskQueue
  let thrown = Thrown()

  func perform(_: Payload, in context: TaskContext) async throws -> Handler.Output {
    // No attempt follows this one, even if a retry is due at once.
    queue.beginShutDown()
    do {
      return try await handler.perform(payload, in: context)
    } catch {
      thrown.note(error)
      throw error
    }
  }

  func retryDate(
    of _: Payload,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date {
    await handler.retryDate(of: payload, after: error, proposed: date, in: context)
  }

  func shouldRestart(_: Payload, after error: any Error, in context: TaskContext) async -> Bool {
    await handler.shouldRestart(payload, after: error, in: context)
  }

  func willEnd(_: Payload, outcome: TaskOutcome, in context: TaskContext) async {
    await handler.willEnd(payload, outcome: outcome, in: context)
  }
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
