import TestSupport
import Testing

@testable import SteadfastQueue

/// Tests payloads that can't be stored.
///
/// The tests run in real time, because a queue in virtual time encodes all payloads.
@Suite struct UnstorablePayloadTests {
  private static func nestedValue(depth: Int) -> JSONValue {
    (0..<depth).reduce(.null) { value, number in
      number.isMultiple(of: 2) ? .array([value]) : .object(["a": value])
    }
  }

  private static let values: [JSONValue] = [
    .number(.nan), .array([1, .number(.infinity)]), .object(["a": .object(["b": .number(-.nan)])]),
    nestedValue(depth: 65), nestedValue(depth: 30_000),
  ]

  @Test(arguments: [StoreKind.memory, .file])
  func `JSON that can't be stored is rejected by every store`(kind: StoreKind) async throws {
    try await kind.withStore { store in
      let queue = TaskQueue(persistence: store)
      for value in Self.values {
        await #expect(throws: EncodingError.self) { try await queue.enqueue(name: "a", value) }
        await #expect(throws: EncodingError.self) {
          try await queue.enqueue(together: { _ = try $0.add(name: "a", value) })
        }
      }
      #expect(try await queue.count == 0)
      try await queue.enqueue(name: "a", Self.nestedValue(depth: 64))
      #expect(try await queue.count == 1)
    }
  }
}
