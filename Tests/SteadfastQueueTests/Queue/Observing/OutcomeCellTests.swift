import Testing

@testable import SteadfastQueue

@Suite struct OutcomeCellTests {
  private struct QueueHasEnded: Error {}

  private let board = OutcomeBoard()
  private let id = TaskID.numbered(1)

  @Test func `a wait for an outcome that was told just before returns it`() async throws {
    let cell = board.cell(of: id)
    board.resolve(id, .succeeded)
    #expect(try await cell.wait { QueueHasEnded() } == .succeeded)
  }

  @Test func `a wait for an outcome that will not come fails`() async {
    let cell = board.cell(of: id)
    await #expect(throws: QueueHasEnded.self) { try await cell.wait { QueueHasEnded() } }
  }

  @Test func `a wait for progress that was reported just before returns it`() async {
    let cell = board.cell(of: id)
    board.report(0.5, of: id)
    let progress = await cell.progress(after: 0) { false }
    #expect(progress?.fraction == 0.5)
    #expect(progress?.number == 1)
  }

  @Test func `a task is forgotten with its last cell`() {
    do {
      let cells = [board.cell(of: id), board.cell(of: id)]
      board.resolve(id, .succeeded)
      #expect(cells.allSatisfy { $0.outcome == .succeeded })
      #expect(board.count == 1)
      withExtendedLifetime(cells) {}
    }
    #expect(board.count == 0)
    #expect(board.cell(of: id).outcome == nil)
  }
}
