package import SteadfastQueue
import Synchronization

/// What takes the calls of a store, each of which a thread answers.
package protocol StoreCalls: Sendable {
  func call(_ call: StoreJob.Call) async throws -> StoreJob.Answer
}

/// Whether a store is open, as far as its callers know.
///
/// A queue opens its store before each call, so that must cost no call of a thread.
package final class OpenState: Sendable {
  private let state = Mutex((isOpen: false, hasEnded: false))

  package init() {}

  /// Lets a thread open the store, if it is not known to be open.
  ///
  /// A store whose use a call has ended is not known to be open any more.
  package func open(
    by thread: JobQueue,
    orThrow closed: @autoclosure @Sendable () -> any Error
  ) async throws {
    guard !state.withLock({ $0.isOpen }) else { return }
    _ = try await thread.perform(.open, orThrow: closed())
    state.withLock { $0.isOpen = !$0.hasEnded }
  }

  /// Notes a call after which there is no other.
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
    guard case .outcomes(let outcomes) = answer else { Self.isForAnotherCall() }
    return outcomes
  }

  package func claim(_ request: ClaimRequest) async throws -> Claim {
    let answer = try await call(.claim(request))
    guard case .claim(let claim) = answer else { Self.isForAnotherCall() }
    return claim
  }

  package func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int
  ) async throws -> [TaskRecord] {
    let answer = try await call(.tasks(filter, after: id, limit: limit))
    guard case .tasks(let tasks) = answer else { Self.isForAnotherCall() }
    return tasks
  }

  package func count(matching filter: TaskFilter) async throws -> Int {
    let answer = try await call(.count(filter))
    guard case .count(let count) = answer else { Self.isForAnotherCall() }
    return count
  }

  package func contains(_ filter: TaskFilter) async throws -> Bool {
    let answer = try await call(.contains(filter))
    guard case .isThere(let isThere) = answer else { Self.isForAnotherCall() }
    return isThere
  }

  package func value(named name: String) async throws -> [UInt8]? {
    let answer = try await call(.value(named: name))
    guard case .value(let value) = answer else { Self.isForAnotherCall() }
    return value
  }

  package func memory(of id: TaskID) async throws -> TaskMemory {
    let answer = try await call(.memory(of: id))
    guard case .memory(let memory) = answer else { Self.isForAnotherCall() }
    return memory
  }

  package func close() async throws { _ = try await call(.close) }

  package func destroy() async throws { _ = try await call(.destroy) }

  /// A thread answers each call with what the call asks for.
  private static func isForAnotherCall() -> Never {
    preconditionFailure("a thread of the store has answered another call than the one it took")
  }
}
