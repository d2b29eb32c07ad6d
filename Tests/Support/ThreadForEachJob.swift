import Foundation
public import Synchronization

/// An executor that runs each job on its own thread.
///
/// Jobs that block their threads, or never end, must run on this executor. The concurrent executor
/// has only as many threads as the machine has cores, and all other tests need these threads.
public final class ThreadForEachJob: TaskExecutor {
  /// Whether the thread that adds a job waits until the job is done.
  public let isAwaited: Atomic<Bool>
  private let onStart: @Sendable () -> Void

  /// Creates an executor that calls `onStart` on each thread before its job runs.
  public init(isAwaited: Bool = false, onStart: @escaping @Sendable () -> Void = {}) {
    self.isAwaited = Atomic(isAwaited)
    self.onStart = onStart
  }

  /// Starts a thread for the job.
  public func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let end = DispatchSemaphore(value: 0)
    // The job may end its Swift task, and with it the last reference to this executor.
    let isAwaited = isAwaited.load(ordering: .relaxed)
    Thread.detachNewThread { [self] in
      onStart()
      unsafe job.runSynchronously(on: asUnownedTaskExecutor())
      end.signal()
    }
    if isAwaited { end.wait() }
  }
}
