import Dispatch

/// An actor that runs on a queue of its own, which no virtual time can take over.
actor ForeignActor {
  private let executor = QueueExecutor()

  nonisolated var unownedExecutor: UnownedSerialExecutor {
    // The actor holds its executor for as long as it lives.
    unsafe executor.asUnownedSerialExecutor()
  }

  func perform(_ operation: @Sendable () async -> Duration) async -> Duration { await operation() }
}

private final class QueueExecutor: SerialExecutor {
  private let queue = DispatchQueue(label: "ForeignActor")

  func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async {
      // As above; each job is run once.
      unsafe job.runSynchronously(on: self.asUnownedSerialExecutor())
    }
  }
}
