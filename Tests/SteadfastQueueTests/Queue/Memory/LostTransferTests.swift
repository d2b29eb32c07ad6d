import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests completions that arrive through transfers of the system, and transfers that are lost.
@Suite(.virtualTime) struct LostTransferTests {
  private let test: StepQueue
  private let tokens = Log<TaskToken>()

  init() throws { test = try StepQueue() }

  /// Makes a queue whose tasks wait for an upload.
  ///
  /// Uploading "offline" fails to start at first.
  private func makeQueue() async -> TaskQueue {
    await test.makeQueue(on: InMemoryStore()) { [test, tokens] note, context in
      do {
        test.logWithTime(
          try await context.completion("upload", of: String.self) { token in
            if note.text == "offline", context.retryCount == 0 { throw Refusal() }
            tokens.add(token)
          }
        )
      } catch let error as CompletionFailed {
        test.logWithTime("\(note.text) is lost")
        throw error
      }
    }
  }

  @Test func `a completion whose transfer is lost fails`() async throws {
    let queue = await makeQueue()
    for text in ["a", "b"] {
      try await queue.enqueue(Note(text))
      try await queue.runAvailable()
    }
    let live: Set = [tokens.entries[1]]
    #expect(try await queue.core.completeLostTransfers(named: "download") { [] } == 0)
    #expect(try await queue.core.completeLostTransfers(named: "upload") { live } == 1)
    #expect(try await queue.core.completeLostTransfers(named: "upload") { live } == 0)
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 a is lost"])
  }

  @Test func `a transfer that starts while the system is being queried isn't lost`() async throws {
    let queue = await makeQueue()
    try await queue.enqueue(Note("a"))
    let count = try await queue.core.completeLostTransfers(named: "upload") {
      _ = try? await queue.runAvailable()
      return []
    }
    #expect(count == 0 && tokens.count == 1)
    #expect(try await queue.complete(tokens.entries[0], with: "etag"))
    try await queue.runAvailable()
    #expect(test.log.entries == ["0 etag"])
  }

  @Test func `a transfer that failed to start isn't lost, and starts in the next attempt`()
    async throws
  {
    let queue = await makeQueue()
    try await queue.enqueue(Note("offline"))
    try await queue.runAvailable()
    #expect(try await queue.core.completeLostTransfers(named: "upload") { [] } == 0)
    test.clock.advance(by: .seconds(60))
    try await queue.runAvailable()
    #expect(try await queue.complete(tokens.entries[0], with: "etag"))
    try await queue.runAvailable()
    #expect(test.log.entries == ["60 etag"])
  }
}
