import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension TaskPayload {
  /// Decodes a payload from its bytes, as for a handler after a restart.
  ///
  /// It uses the bytes even if the value is still in memory, so that a lossy `Codable` conformance
  /// shows.
  static func decoded(from stored: StoredPayload, of task: String) throws -> Self {
    guard !stored.format.isSealed else {
      throw QueueTestError(
        code: .unreadablePayload,
        description: """
          the payload of \(task) is sealed, and the queue's store has no seal to open it with: give \
          the queue its store with sealingPayloads(with:)
          """
      )
    }
    do {
      return try JSONDecoder().decode(Self.self, from: Data(stored.bytes()))
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      throw error
    } catch {
      throw QueueTestError(
        code: .unreadablePayload,
        description: """
          the payload of \(task) can't be read as \(Self.self) from what is stored of it, so that \
          after a restart it would never be performed: \(error). Mend the type's Codable conformance
          """
      )
    }
  }

  /// Returns the payload that a handler would get after a restart.
  func decodedAnew() throws -> Self {
    let bytes = Array(try JSONEncoder().encode(self))
    return try Self.decoded(from: StoredPayload(bytes, format: .json), of: "the task to perform")
  }
}
