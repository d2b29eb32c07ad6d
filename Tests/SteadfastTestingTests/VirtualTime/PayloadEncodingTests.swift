import SteadfastTesting
import Testing

/// Tests that payloads fail in a virtual time just as they would after a restart of the process.
@Suite(.timeLimit(.minutes(5))) struct PayloadEncodingTests {
  private struct Measurement: TaskPayload {
    var value: Double
  }

  /// A payload that loses its note when it is encoded.
  private struct Forgetful: TaskPayload {
    var text: String
    var note = "lost"

    private enum CodingKeys: String, CodingKey { case text }
  }

  private let trace = Trace()

  private func makeQueue(in time: VirtualTime) async -> TaskQueue {
    let queue = TaskQueue(clock: time.clock)
    await queue.register(Measurement.self) { [trace] payload, _ in trace.note("\(payload.value)") }
    await queue.register(Forgetful.self) { [trace] payload, _ in
      trace.note("\(payload.text), \(payload.note)")
    }
    return queue
  }

  @Test func `enqueueing or updating fails if the payload can't be encoded`() async throws {
    try await withVirtualTime { time in
      let queue = await makeQueue(in: time)
      await #expect(throws: EncodingError.self) {
        try await queue.enqueue(Measurement(value: .nan))
      }
      let id = try await queue.enqueue(Measurement(value: 1)).id
      await #expect(throws: EncodingError.self) {
        try await queue.update(id, with: Measurement(value: .infinity))
      }
      try await time.drain(queue)
    }
    #expect(trace.entries == ["1.0"])
  }

  @Test func `a handler gets the payload that a later process would decode`() async throws {
    try await withVirtualTime { time in
      let queue = await makeQueue(in: time)
      try await queue.enqueue(Forgetful(text: "a", note: "kept"))
      try await time.drain(queue)
    }
    #expect(trace.entries == ["a, lost"])
  }

  @Test(.virtualTime(encodesPayloads: false))
  func `encoding payloads can be switched off`() async throws {
    let time = try VirtualTime.required
    let queue = await makeQueue(in: time)
    try await queue.enqueue(Forgetful(text: "a", note: "kept"))
    try await queue.enqueue(Measurement(value: .nan))
    try await time.drain(queue)
    #expect(trace.entries == ["a, kept", "nan"])
  }
}
