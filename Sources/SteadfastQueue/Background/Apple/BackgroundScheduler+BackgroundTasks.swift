#if canImport(BackgroundTasks) && !os(macOS) && !os(watchOS)
public import BackgroundTasks

/// Adapts the background tasks of Apple's systems.
///
/// It is compiled for Apple's platforms only, and has never been run.
extension BackgroundScheduler {
  /// Runs a pass for a task that the system has launched.
  ///
  /// Call this function in the launch handler that you register with `BGTaskScheduler`. Submit the
  /// next request in the same handler, with an `earliestBeginDate` that is ``minimumInterval`` from
  /// now. The pass is cancelled when the system says that the time is up. When the pass has ended,
  /// the system's task is completed, with success unless the pass has failed.
  ///
  /// - Parameters:
  ///   - task: the system's task: a `BGAppRefreshTask`, or a `BGProcessingTask`.
  ///   - budget: how long the pass may take. The system does not say how much time it grants; 25 s
  ///     are known to be within the limit for an app refresh.
  public nonisolated func perform(_ task: BGTask, within budget: Duration = .seconds(25)) {
    SystemTask(task).perform {
      try await self.run(within: budget) != .failed
    }
  }
}

/// Adapts the background tasks of Apple's systems.
///
/// It is compiled for Apple's platforms only, and has never been run.
///
/// Each of these functions runs the queue, so call it only if the queue is not running. During
/// ``run()``, the function performs no task, and completes the system's task at once, without
/// success. Wait for the running queue instead: <doc:GettingStartedInAnApp>.
extension TaskQueue {
  /// Performs the available tasks for an app refresh, as ``run(within:)`` does.
  ///
  /// When the run has ended, the system's task is completed, with success unless the run has
  /// thrown, as it does during ``run()``.
  ///
  /// - Parameters:
  ///   - task: the system's task.
  ///   - budget: how long attempts may run.
  public nonisolated func perform(_ task: BGAppRefreshTask, within budget: Duration = .seconds(25))
  {
    SystemTask(task).perform {
      try await self.run(within: budget)
      return true
    }
  }

  /// Performs the available tasks until the system says that the time is up.
  ///
  /// Attempts that are then running are cancelled, and their tasks are released as if they had not
  /// been claimed. When the run has ended, the system's task is completed, with success unless the
  /// run was cut short or has thrown, as it does during ``run()``.
  ///
  /// - Parameter task: the system's task, for which the system grants minutes.
  public nonisolated func perform(_ task: BGProcessingTask) {
    SystemTask(task).perform {
      try await self.runAvailable()
      return true
    }
  }

  #if os(iOS)
  /// Performs the available tasks for work that the user has begun in the app, and that continues
  /// in the background.
  ///
  /// The progress that the system shows is the number of tasks that have ended, out of those that
  /// were unfinished when the call began. In all other respects, the function is like
  /// ``perform(_:)`` for a `BGProcessingTask`.
  ///
  /// - Parameter task: the system's task.
  @available(iOS 26.0, *)
  public nonisolated func perform(_ task: BGContinuedProcessingTask) {
    let progress = task.progress
    SystemTask(task).perform {
      progress.totalUnitCount = Int64(try await self.count)
      let events = self.events
      return try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask {
          for await event in events {
            switch event {
            case .succeeded, .abandoned, .cancelled: progress.completedUnitCount += 1
            default: break
            }
          }
        }
        try await self.runAvailable()
        group.cancelAll()
        return true
      }
    }
  }
  #endif
}

/// A task of the system, and the Swift task that does its work.
// Not every SDK marks `BGTask` as Sendable. Its documentation lets any thread set the expiration
// handler and complete the task, and this code does nothing else with it.
private struct SystemTask: @unchecked Sendable {
  private let task: BGTask

  init(_ task: BGTask) { self.task = task }

  /// Performs the work, and completes the system's task when the work has ended.
  ///
  /// The system's launch handler is not a Swift task, so the work can't be a child task.
  func perform(_ work: @escaping @Sendable () async throws -> Bool) {
    let working = Task {
      var succeeded = false
      do {
        succeeded = try await work()
      } catch {
        // The system learns only that there was an error. The scheduler and the queue record what
        // the error was.
      }
      task.setTaskCompleted(success: succeeded)
    }
    task.expirationHandler = { working.cancel() }
  }
}
#endif
