package import Dispatch
package import SteadfastQueue
import Synchronization

/// Jobs that threads of a store take, in the order in which they were added.
package final class JobQueue: Sendable {
  private struct State {
    var jobs: [StoreJob] = []
    var isEnded = false
    var isWoken = false
  }

  private let state = Mutex(State())
  private let changed = DispatchSemaphore(value: 0)

  package init() {}

  /// Adds a job, and returns whether a thread will take it.
  package func add(_ job: StoreJob) -> Bool {
    let isTaken = state.withLock { state in
      guard !state.isEnded else { return false }
      state.jobs.append(job)
      return true
    }
    if isTaken { changed.signal() }
    return isTaken
  }

  /// Waits until a thread has answered a call.
  ///
  /// - Throws: `closed` if no thread takes calls any more, or what the thread fails with.
  package func perform(
    _ call: StoreJob.Call,
    orThrow closed: @autoclosure @Sendable () -> any Error
  ) async throws -> StoreJob.Answer {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { continuation in
        if !add(StoreJob(call: call, continuation: continuation)) {
          continuation.resume(throwing: closed())
        }
      }
    }
  }

  /// Ends the waiting of a thread that takes all jobs, without a job.
  package func wake() {
    state.withLock { $0.isWoken = true }
    changed.signal()
  }

  /// Lets the threads end, when they have done the jobs that were added.
  package func end() {
    state.withLock { $0.isEnded = true }
    changed.signal()
  }

  package enum Next {
    case jobs([StoreJob])
    /// The thread was woken.
    case nothing
    case end
  }

  /// Waits for jobs, and takes all of them, or the first one.
  package func next(all: Bool) -> Next {
    while true {
      let next = state.withLock { state -> Next? in
        guard let first = state.jobs.first else {
          if state.isEnded { return .end }
          guard all, state.isWoken else { return nil }
          state.isWoken = false
          return .nothing
        }
        guard all else {
          state.jobs.removeFirst()
          return .jobs([first])
        }
        defer { (state.jobs, state.isWoken) = ([], false) }
        return .jobs(state.jobs)
      }
      if let next {
        // Each thread of the group hears of the end, however many there are.
        if case .end = next { changed.signal() }
        return next
      }
      changed.wait()
    }
  }
}

extension SystemThread {
  /// Starts a thread that is one of a group until it ends.
  package static func start(
    in group: DispatchGroup,
    _ work: @escaping @Sendable () -> Void
  ) throws(SystemCallError) {
    group.enter()
    do {
      try start {
        work()
        group.leave()
      }
    } catch {
      group.leave()
      throw error
    }
  }
}
