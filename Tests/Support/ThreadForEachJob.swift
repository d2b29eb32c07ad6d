import Foundation
public import Synchronization

/// Runs each job on a thread of its own.
///
/// A job that blocks its thread, or never leaves it, must run here: the threads of the concurrent
/// executor are as few as the cores, and all other tests need them.
public final class ThreadForEachJob: TaskExecutor {
  /// Whether the thread that adds a job waits until it is done.
  public let isAwaited: Atomic<Bool>
  private let onStart: @Sendable () -> Void

  /// Makes an executor that calls `onStart` on each thread before its job runs.
  public init(isAwaited: Bool = false, onStart: @escaping @Sendable () -> Void = {}) {
    self.isAwaited = Atomic(isAwaited)
    self.onStart = onStart
  }

  /// Begins a thread for the job.
  public func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread { [self] in
      onStart()
      unsafe job.runSynchronously(on: asUnownedTaskExecutor())
      end.signal()
    }
    if isAwaited.load(ordering: .relaxed) { end.wait() }
  }
}
