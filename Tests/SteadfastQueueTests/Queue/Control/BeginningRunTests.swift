import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Interrupts runs while they open their store.
@Suite(.virtualTime) struct BeginningRunTests {
  private let clock: VirtualClock
  private let store = FaultInjectingStore()

  init() throws { clock = try #require(VirtualTime.current).clock }

  /// The call that starts the run.
  enum Run: CaseIterable, Sendable { case run, runAvailable, runWithin, groupRun, groupPass }

  /// The result of opening the store.
  enum Opening: CaseIterable, Sendable { case succeeds, fails, isUnavailable, isClosed }

  /// What interrupts the run while the store is opened.
  enum Interruption: Sendable { case shutDown, shutDownWithinLimit, cancellation }

  private func start(_ kind: Run, of queue: TaskQueue, or group: TaskQueueGroup) async throws {
    switch kind {
    case .run: try await queue.run()
    case .runAvailable: try await queue.runAvailable()
    case .runWithin: try await queue.run(within: .seconds(3_600))
    case .groupRun: try await group.run()
    case .groupPass: try await group.runAvailable()
    }
  }

  private func prepareStore(for opening: Opening) {
    let hang = FaultInjectingStore.Fault.hang
    switch opening {
    case .succeeds: break
    case .fails: store.inject(.error(Refusal()), .afterEffect) { $0.kind == .open }
    case .isClosed:
      store.inject(.error(TaskQueueError(.destroyed, "closed")), .afterEffect) { $0.kind == .open }
    case .isUnavailable: store.inject(.transientError, times: nil) { $0.kind == .open }
    }
    if opening != .isUnavailable { store.inject(hang) { $0.kind == .open } }
  }

  /// Interrupts a run that opens its store, and returns the error that the run throws.
  private func errorThrown(
    by kind: Run,
    opening: Opening,
    interruption: Interruption
  ) async throws -> (any Error)? {
    prepareStore(for: opening)
    let group = TaskQueueGroup(persistence: store, clock: clock)
    let isOfGroup = kind == .groupRun || kind == .groupPass
    let queue =
      isOfGroup ? try await group.addQueue("a") : TaskQueue(persistence: store, clock: clock)
    await queue.register(Note.self) { _, _ in Issue.record("an attempt started") }
    return await withTaskGroup { tasks in
      tasks.addTask { () -> (any Error)? in
        do {
          try await start(kind, of: queue, or: group)
          return nil
        } catch {
          return error
        }
      }
      try? await clock.sleep(for: .seconds(1))
      switch interruption {
      case .shutDown: await isOfGroup ? group.shutDown() : queue.shutDown()
      case .shutDownWithinLimit:
        await isOfGroup ? group.shutDown(within: .zero) : queue.shutDown(within: .zero)
      case .cancellation: tasks.cancelAll()
      }
      store.letGo()
      return await tasks.next() ?? nil
    }
  }

  @Test(arguments: Run.allCases, Opening.allCases)
  func `a run that is shut down while it opens its store returns without an error`(
    kind: Run,
    opening: Opening
  ) async throws {
    let error = try await errorThrown(by: kind, opening: opening, interruption: .shutDown)
    #expect(error == nil)
  }

  @Test(arguments: Run.allCases, Opening.allCases)
  func `a run that is shut down at once while it opens its store returns without an error`(
    kind: Run,
    opening: Opening
  ) async throws {
    let error = try await errorThrown(
      by: kind,
      opening: opening,
      interruption: .shutDownWithinLimit
    )
    #expect(error == nil)
  }

  @Test(arguments: Run.allCases, [Opening.succeeds, .isUnavailable])
  func `a run that is cancelled while it opens its store throws a cancellation error`(
    kind: Run,
    opening: Opening
  ) async throws {
    let error = try await errorThrown(by: kind, opening: opening, interruption: .cancellation)
    #expect(error is CancellationError)
  }

  @Test func `a run fails if its store can't be opened`() async throws {
    store.inject(.error(Refusal())) { $0.kind == .open }
    let queue = TaskQueue(persistence: store, clock: clock)
    await #expect(throws: Refusal.self) { try await queue.run() }
    // The next run opens the store.
    #expect(try await queue.runAvailable() == 0)
  }
}
