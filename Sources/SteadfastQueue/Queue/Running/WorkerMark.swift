import Synchronization

/// Marks a Swift task as a worker, or as a child of a worker.
///
/// There is one mark for each worker, not for each attempt. The machine knows what a worker
/// performs.
struct WorkerMark: Sendable {
  private let queue: ObjectIdentifier
  private let worker: Int

  /// The workers around the current Swift task; several if a handler runs another queue.
  @TaskLocal private static var current: [WorkerMark] = []

  static func around<Result>(
    _ queue: TaskQueue,
    _ worker: Int,
    _ body: () async -> Result
  ) async -> Result {
    let mark = WorkerMark(queue: ObjectIdentifier(queue), worker: worker)
    return await $current.withValue(current + [mark]) { await body() }
  }

  /// Returns the worker of a queue that the current Swift task belongs to, if there is one.
  static func worker(of queue: TaskQueue) -> Int? {
    current.last { $0.queue == ObjectIdentifier(queue) }?.worker
  }
}

extension TaskQueue {
  /// The task of this queue whose handler is the caller, or has called or started the caller.
  ///
  /// Such a caller would wait forever for the end of its own task, or for the end of the run.
  nonisolated var callingTask: TaskID? {
    guard let worker = WorkerMark.worker(of: self) else { return nil }
    return machine.withLock { $0.attempts[worker]?.id }
  }
}
