import Synchronization

/// Which worker a Swift task is, or is a child of.
///
/// It is left once for each worker, not for each attempt: what the worker performs, the machine knows.
struct WorkerMark: Sendable {
  private let queue: ObjectIdentifier
  private let worker: Int

  /// The workers around the present Swift task; several where a handler runs another queue.
  @TaskLocal private static var current: [WorkerMark] = []

  static func around<Result>(
    _ queue: TaskQueue,
    _ worker: Int,
    _ body: () async -> Result
  ) async -> Result {
    let mark = WorkerMark(queue: ObjectIdentifier(queue), worker: worker)
    return await $current.withValue(current + [mark]) { await body() }
  }

  /// The worker of a queue that the present Swift task belongs to.
  static func worker(of queue: TaskQueue) -> Int? {
    current.last { $0.queue == ObjectIdentifier(queue) }?.worker
  }
}

extension TaskQueue {
  /// The task of this queue whose handler, or what that has called or started, asks.
  ///
  /// It would wait in vain for its own end, and for that of the run.
  nonisolated var callingTask: TaskID? {
    guard let worker = WorkerMark.worker(of: self) else { return nil }
    return machine.withLock { $0.attempts[worker]?.id }
  }
}
