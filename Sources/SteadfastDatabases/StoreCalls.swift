package import Dispatch
package import SteadfastQueue
import Synchronization
package import SystemFoundation

/// A store that performs its calls on threads of its own.
///
/// An extension implements the methods of `Persistence` with ``call(_:)``.
package protocol StoreCalls: Sendable {
  /// Performs a call on one of the threads, and returns the result.
  func call(_ call: StoreJob.Call) async throws -> StoreJob.Output
}

/// Whether a store is open, as far as is known without asking a thread of the store.
///
/// A queue opens its store before each call, so opening an open store must be fast.
package final class OpenState: Sendable {
  private let state = Mutex((isOpen: false, hasEnded: false))

  package init() {}

  /// Opens the store on a thread, unless the store is known to be open.
  ///
  /// After ``recordLastCall()``, the store never counts as open.
  package func open(
    using jobs: JobQueue,
    orThrow closedError: @autoclosure @Sendable () -> any Error
  ) async throws {
    guard !state.withLock({ $0.isOpen }) else { return }
    _ = try await jobs.perform(.open, orThrow: closedError())
    state.withLock { $0.isOpen = !$0.hasEnded }
  }

  /// Records that the store is being closed or destroyed.
  package func recordLastCall() { state.withLock { $0 = (false, true) } }
}

/// The methods of `Persistence`.
extension StoreCalls {
  package func open() async throws { _ = try await call(.open) }

  package func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    let prepared = try batch.map(PreparedChange.init)
    let output = try await call(.apply(prepared, isDurable: durability == .durable))
    guard case .outcomes(let outcomes) = output else { Self.stopBecauseOfMismatchedOutput() }
    return outcomes
  }

  package func claim(_ request: ClaimRequest) async throws -> Claim {
    let output = try await call(.claim(request))
    guard case .claim(let claim) = output else { Self.stopBecauseOfMismatchedOutput() }
    return claim
  }

  package func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    let output = try await call(
      .tasks(filter, after: id, limit: limit, newestFirst: newestFirst)
    )
    guard case .tasks(let tasks) = output else { Self.stopBecauseOfMismatchedOutput() }
    return tasks
  }

  package func count(matching filter: TaskFilter) async throws -> Int {
    let output = try await call(.count(filter))
    guard case .count(let count) = output else { Self.stopBecauseOfMismatchedOutput() }
    return count
  }

  package func contains(_ filter: TaskFilter) async throws -> Bool {
    let output = try await call(.contains(filter))
    guard case .contains(let isContained) = output else { Self.stopBecauseOfMismatchedOutput() }
    return isContained
  }

  package func census(at now: Date) async throws -> TaskCensus {
    let output = try await call(.census(at: now))
    guard case .census(let census) = output else { Self.stopBecauseOfMismatchedOutput() }
    return census
  }

  package func value(named name: String) async throws -> [UInt8]? {
    let output = try await call(.value(named: name))
    guard case .value(let value) = output else { Self.stopBecauseOfMismatchedOutput() }
    return value
  }

  package func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    let output = try await call(.values(prefix: prefix))
    guard case .values(let values) = output else { Self.stopBecauseOfMismatchedOutput() }
    return values
  }

  package func memory(of id: TaskID) async throws -> TaskMemory {
    let output = try await call(.memory(of: id))
    guard case .memory(let memory) = output else { Self.stopBecauseOfMismatchedOutput() }
    return memory
  }

  package func close() async throws { _ = try await call(.close) }

  package func destroy() async throws { _ = try await call(.destroy) }

  private static func stopBecauseOfMismatchedOutput() -> Never {
    preconditionFailure("a thread of the store returned a result of the wrong kind for a call")
  }
}

/// A call that waits until a thread of the store performs it.
package struct StoreJob: Sendable {
  package enum Call: Sendable {
    case open
    case apply([PreparedChange], isDurable: Bool)
    case claim(ClaimRequest)
    case close
    case destroy
    // These calls only read, and have threads of their own.
    case tasks(TaskFilter, after: TaskID?, limit: Int, newestFirst: Bool)
    case count(TaskFilter)
    case contains(TaskFilter)
    case census(at: Date)
    case value(named: String)
    case values(prefix: String)
    case memory(of: TaskID)

    /// Whether the call closes or destroys the store.
    package var endsStore: Bool {
      switch self {
      case .close, .destroy: true
      case .open, .apply, .claim, .tasks, .count, .contains, .census, .value, .values, .memory:
        false
      }
    }

    package var isReadOnly: Bool {
      switch self {
      case .tasks, .count, .contains, .census, .value, .values, .memory: true
      case .open, .apply, .claim, .close, .destroy: false
      }
    }
  }

  /// The result of a call.
  package enum Output: Sendable {
    case nothing
    case outcomes([ChangeOutcome])
    case claim(Claim)
    case tasks([TaskRecord])
    case count(Int)
    case contains(Bool)
    case census(TaskCensus)
    case value([UInt8]?)
    case values([(name: String, bytes: [UInt8])])
    case memory(TaskMemory)
  }

  package let call: Call
  package let continuation: CheckedContinuation<Output, any Error>

  package init(call: Call, continuation: CheckedContinuation<Output, any Error>) {
    self.call = call
    self.continuation = continuation
  }

  /// Whether the call opens, closes or destroys the tables, and so runs outside a transaction.
  package var runsOutsideTransaction: Bool {
    switch call {
    case .open, .close, .destroy: true
    case .apply, .claim, .tasks, .count, .contains, .census, .value, .values, .memory: false
    }
  }

  package var isDurable: Bool {
    if case .apply(_, let isDurable) = call { isDurable } else { false }
  }
}

extension StoreJob {
  /// Returns the result for the caller whose call was rolled back because of an error.
  ///
  /// A refused batch is not an error for the caller: the result has the outcomes of the batch.
  package static func result(ofCallRolledBackBy error: any Error) -> Result<Output, any Error> {
    guard let refusal = error as? BatchRefusal else { return .failure(error) }
    return .success(.outcomes(refusal.outcomes))
  }
}

/// A first-in, first-out queue of jobs for a store's threads.
package final class JobQueue: Sendable {
  private struct State {
    var jobs: [StoreJob] = []
    var isEnded = false
    var isWoken = false
  }

  private let state = Mutex(State())
  private let changed = DispatchSemaphore(value: 0)

  package init() {}

  /// Adds a job, unless ``end()`` was called.
  ///
  /// - Returns: Whether the job was added.
  package func add(_ job: StoreJob) -> Bool {
    let isAdded = state.withLock { state in
      guard !state.isEnded else { return false }
      state.jobs.append(job)
      return true
    }
    if isAdded { changed.signal() }
    return isAdded
  }

  /// Adds a job for a call, and returns the result when a thread has performed the call.
  ///
  /// - Throws: `closedError` if ``end()`` was called before, or the error with which the call
  ///   failed.
  package func perform(
    _ call: StoreJob.Call,
    orThrow closedError: @autoclosure @Sendable () -> any Error
  ) async throws -> StoreJob.Output {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { continuation in
        if !add(StoreJob(call: call, continuation: continuation)) {
          continuation.resume(throwing: closedError())
        }
      }
    }
  }

  /// Wakes the thread that waits in ``waitForJobs(all:)`` for all jobs, even if there is no job.
  package func wake() {
    state.withLock { $0.isWoken = true }
    changed.signal()
  }

  /// Accepts no more jobs; each thread ends when no job is left.
  package func end() {
    state.withLock { $0.isEnded = true }
    changed.signal()
  }

  /// The reason why a thread stopped waiting.
  package enum WaitResult {
    case jobs([StoreJob])
    case wokenUp
    case ended
  }

  /// Waits until there are jobs, and then removes and returns them.
  ///
  /// With `all`, this returns all jobs, or ``WaitResult/wokenUp`` after a call of ``wake()``.
  /// Otherwise, this returns only the first job.
  package func waitForJobs(all: Bool) -> WaitResult {
    while true {
      let next = state.withLock { state -> WaitResult? in
        guard let first = state.jobs.first else {
          if state.isEnded { return .ended }
          guard all, state.isWoken else { return nil }
          state.isWoken = false
          return .wokenUp
        }
        guard all else {
          state.jobs.removeFirst()
          return .jobs([first])
        }
        defer { (state.jobs, state.isWoken) = ([], false) }
        return .jobs(state.jobs)
      }
      if let next {
        // Wakes the next waiting thread, which then ends, too.
        if case .ended = next { changed.signal() }
        return next
      }
      changed.wait()
    }
  }
}

extension SystemThread {
  /// Starts a thread that a dispatch group counts until the thread has ended.
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
