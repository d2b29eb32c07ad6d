package import Dispatch
package import SteadfastQueue
import Synchronization

/// Forwards the calls of a store to the threads of the store.
package protocol StoreCalls: Sendable {
  func call(_ call: StoreJob.Call) async throws -> StoreJob.Answer
}

/// Remembers whether a store is open.
///
/// A queue opens its store before each call. If the store is already open, opening it must not
/// involve a thread.
package final class OpenState: Sendable {
  private let state = Mutex((isOpen: false, hasEnded: false))

  package init() {}

  /// Opens the store on a thread, unless the store is known to be open.
  ///
  /// After ``noteLastCall()``, the store never counts as open.
  package func open(
    by thread: JobQueue,
    orThrow closed: @autoclosure @Sendable () -> any Error
  ) async throws {
    guard !state.withLock({ $0.isOpen }) else { return }
    _ = try await thread.perform(.open, orThrow: closed())
    state.withLock { $0.isOpen = !$0.hasEnded }
  }

  /// Records that the store's last call was made.
  package func noteLastCall() { state.withLock { $0 = (false, true) } }
}

/// The methods of `Persistence`.
extension StoreCalls {
  package func open() async throws { _ = try await call(.open) }

  package func apply(
    _ batch: [TaskChange],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    let prepared = try batch.map(PreparedChange.init)
    let answer = try await call(.apply(prepared, isDurable: durability == .durable))
    guard case .outcomes(let outcomes) = answer else { Self.answerMismatch() }
    return outcomes
  }

  package func claim(_ request: ClaimRequest) async throws -> Claim {
    let answer = try await call(.claim(request))
    guard case .claim(let claim) = answer else { Self.answerMismatch() }
    return claim
  }

  package func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    let answer = try await call(.tasks(filter, after: id, limit: limit))
    guard case .tasks(let tasks) = answer else { Self.answerMismatch() }
    return tasks
  }

  package func count(matching filter: TaskFilter) async throws -> Int {
    let answer = try await call(.count(filter))
    guard case .count(let count) = answer else { Self.answerMismatch() }
    return count
  }

  package func contains(_ filter: TaskFilter) async throws -> Bool {
    let answer = try await call(.contains(filter))
    guard case .isThere(let isThere) = answer else { Self.answerMismatch() }
    return isThere
  }

  package func value(named name: String) async throws -> [UInt8]? {
    let answer = try await call(.value(named: name))
    guard case .value(let value) = answer else { Self.answerMismatch() }
    return value
  }

  package func memory(of id: TaskID) async throws -> TaskMemory {
    let answer = try await call(.memory(of: id))
    guard case .memory(let memory) = answer else { Self.answerMismatch() }
    return memory
  }

  package func close() async throws { _ = try await call(.close) }

  package func destroy() async throws { _ = try await call(.destroy) }

  /// Stops the program, because the kind of an answer must match the kind of its call.
  private static func answerMismatch() -> Never {
    preconditionFailure("a thread of the store answered a call with the answer to another kind")
  }
}

/// A call that waits for a thread of the store.
package struct StoreJob: Sendable {
  package enum Call: Sendable {
    case open
    case apply([PreparedChange], isDurable: Bool)
    case claim(ClaimRequest)
    case close
    case destroy
    // The threads that read perform the following calls.
    case tasks(TaskFilter, after: TaskID?, limit: Int)
    case count(TaskFilter)
    case contains(TaskFilter)
    case value(named: String)
    case memory(of: TaskID)

    /// Whether this is the last call of a store.
    package var isLast: Bool {
      switch self {
      case .close, .destroy: true
      case .open, .apply, .claim, .tasks, .count, .contains, .value, .memory: false
      }
    }

    /// Whether the call only reads.
    package var reads: Bool {
      switch self {
      case .tasks, .count, .contains, .value, .memory: true
      case .open, .apply, .claim, .close, .destroy: false
      }
    }
  }

  package enum Answer: Sendable {
    case nothing
    case outcomes([ChangeOutcome])
    case claim(Claim)
    case tasks([TaskRecord])
    case count(Int)
    case isThere(Bool)
    case value([UInt8]?)
    case memory(TaskMemory)
  }

  package let call: Call
  package let continuation: CheckedContinuation<Answer, any Error>

  package init(call: Call, continuation: CheckedContinuation<Answer, any Error>) {
    self.call = call
    self.continuation = continuation
  }

  /// Whether the call opens, closes or destroys the tables, and so runs outside a transaction.
  package var isAlone: Bool {
    switch call {
    case .open, .close, .destroy: true
    case .apply, .claim, .tasks, .count, .contains, .value, .memory: false
    }
  }

  package var isDurable: Bool {
    if case .apply(_, let isDurable) = call { isDurable } else { false }
  }
}

extension StoreJob {
  /// Returns the result of a call that was rolled back because of an error.
  package static func result(of error: any Error) -> Result<Answer, any Error> {
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

  /// Adds a job unless the threads are ending, and returns whether it was added.
  package func add(_ job: StoreJob) -> Bool {
    let isAdded = state.withLock { state in
      guard !state.isEnded else { return false }
      state.jobs.append(job)
      return true
    }
    if isAdded { changed.signal() }
    return isAdded
  }

  /// Waits until a thread has answered a call.
  ///
  /// - Throws: `closed` if the threads have ended, or the error with which the call failed.
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

  /// Wakes the thread that waits in `next(all: true)`, even if there is no job.
  package func wake() {
    state.withLock { $0.isWoken = true }
    changed.signal()
  }

  /// Lets the threads end after they complete the remaining jobs.
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

  /// Waits for jobs, then removes and returns all of them, or only the first one.
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
        // Wakes the next waiting thread, which then ends, too.
        if case .end = next { changed.signal() }
        return next
      }
      changed.wait()
    }
  }
}

extension SystemThread {
  /// Starts a thread that belongs to a group until the thread ends.
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
