import Foundation
import SteadfastQueue
import Synchronization
import TestSupport

/// Runs each job on a thread of its own.
final class ThreadForEachJob: TaskExecutor {
  /// The threads, in the order in which their jobs have begun.
  let threads = Log<ThreadIdentity>()
  /// Whether whoever adds a job waits until it is done.
  let isAwaited: Atomic<Bool>

  init(isAwaited: Bool = false) { self.isAwaited = Atomic(isAwaited) }

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    let end = DispatchSemaphore(value: 0)
    Thread.detachNewThread { [self] in
      threads.add(.current)
      unsafe job.runSynchronously(on: asUnownedTaskExecutor())
      end.signal()
    }
    if isAwaited.load(ordering: .relaxed) { end.wait() }
  }
}
