import Dispatch

/// An actor that runs on its own dispatch queue, which virtual time can't control.
actor ForeignActor {
  private let executor = QueueExecutor()

  nonisolated var unownedExecutor: UnownedSerialExecutor {
    // Safe, because the actor retains its executor.
    unsafe executor.asUnownedSerialExecutor()
  }

  func perform(_ operation: @Sendable () async -> Duration) async -> Duration { await operation() }
}

private final class QueueExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "ForeignActor")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async {
      // Safe for the same reason, and because each job is run only once.
      unsafe job.runSynchronously(on: self.asUnownedSerialExecutor())
    }
  }
}
