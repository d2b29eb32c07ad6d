import Testing

@testable import SteadfastQueue

@Suite struct OutcomeHandleTests {
  private struct QueueHasEnded: Error {}

  private let registry = OutcomeRegistry()
  private let id = TaskID.numbered(1)

  @Test func `a wait for an outcome that was told just before returns it`() async throws {
    let handle = registry.handle(of: id)
    registry.resolve(id, .succeeded)
    #expect(try await handle.wait { QueueHasEnded() } == .succeeded)
  }

  @Test func `a wait for an outcome that will not come fails`() async {
    let handle = registry.handle(of: id)
    await #expect(throws: QueueHasEnded.self) { try await handle.wait { QueueHasEnded() } }
  }

  @Test func `a wait for progress that was reported just before returns it`() async {
    let handle = registry.handle(of: id)
    registry.report(0.5, of: id)
    let progress = await handle.progress(after: 0) { false }
    #expect(progress?.fraction == 0.5)
    #expect(progress?.number == 1)
  }

  @Test func `a task is forgotten with its last handle`() {
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
