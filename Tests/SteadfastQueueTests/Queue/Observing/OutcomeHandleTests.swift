import Testing

@testable import SteadfastQueue

@Suite struct OutcomeHandleTests {
  private struct QueueHasEnded: Error {}

  private let registry = OutcomeRegistry()
  private let id = TaskID.numbered(1)

  @Test func `waiting for an outcome that was just reported returns it`() async throws {
    let handle = registry.handle(of: id)
    registry.resolve(id, .succeeded)
    #expect(try await handle.wait { QueueHasEnded() } == .succeeded)
  }

  @Test func `waiting for an outcome fails after the queue has ended`() async {
    let handle = registry.handle(of: id)
    await #expect(throws: QueueHasEnded.self) { try await handle.wait { QueueHasEnded() } }
  }

  @Test func `waiting for progress that was just reported returns it`() async {
    let handle = registry.handle(of: id)
    registry.reportProgress(0.5, of: id)
    let progress = await handle.progress(after: 0) { false }
    #expect(progress?.fraction == 0.5)
    #expect(progress?.number == 1)
  }

  @Test
  func `a lookup's result is discarded if a newer outcome was reported since the lookup started`() {
    let handle = registry.handle(of: id)
    let first = registry.version(of: id)
    registry.resolve(id, .succeeded, value: 1)
    #expect(!registry.reopen(id, ifVersionIs: first))
    #expect(!registry.resolve(id, .cancelled, ifVersionIs: first))
    #expect(handle.outcome == .succeeded && handle.value as? Int == 1)
    let second = registry.version(of: id)
    #expect(registry.reopen(id, ifVersionIs: second))
    #expect(handle.outcome == nil)
    #expect(!registry.resolve(id, .cancelled, ifVersionIs: second))
    #expect(registry.version(of: id) != first)
    #expect(registry.resolve(id, .cancelled, ifVersionIs: registry.version(of: id)))
    #expect(handle.outcome == .cancelled)
  }

  @Test func `in a chain of superseded tasks, only the last task is retained`() async throws {
    let last = 20_000
    let handle = registry.handle(of: id)
    for number in 1..<last {
      #expect(registry.link(.numbered(number), to: .numbered(number + 1)))
      #expect(registry.count == 2)
    }
    registry.reportProgress(0.5, of: .numbered(last))
    #expect(await handle.progress(after: 0) { false }?.fraction == 0.5)
    registry.resolve(.numbered(last), .succeeded)
    #expect(handle.outcome == .succeeded)
  }

  @Test func `all waiters in a chain of superseded tasks get the outcome`() {
    let handles = (1...4).map { registry.handle(of: .numbered($0)) }
    for number in 1..<4 { _ = registry.link(.numbered(number), to: .numbered(number + 1)) }
    #expect(handles.map(\.isSuperseded) == [true, true, true, false])
    registry.resolve(.numbered(4), .succeeded)
    #expect(handles.allSatisfy { $0.outcome == .succeeded })
  }

  @Test func `a task is released with its last handle`() {
    do {
      let handles = [registry.handle(of: id), registry.handle(of: id)]
      registry.resolve(id, .succeeded)
      #expect(handles.allSatisfy { $0.outcome == .succeeded })
      #expect(registry.count == 1)
      withExtendedLifetime(handles) {}
    }
    #expect(registry.count == 0)
    #expect(registry.handle(of: id).outcome == nil)
  }
}
