#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is paused for all queues on a store: a value of the store.
///
/// The value is a JSON object, or is not there if nothing is paused. Its keys have one order, so
/// that what is the same has the same bytes.
struct StoredPause: Sendable, Equatable {
  /// The name of the value.
  static let valueName = "steadfast.pause"

  /// Whether everything is paused.
  var isWhole = false
  /// The names whose tasks are paused.
  var names: Set<String> = []

  init() {}

  /// Reads a value; `nil` says that nothing is paused.
  ///
  /// - Throws: A ``TaskQueueError`` if the value makes no sense.
  init(_ bytes: [UInt8]?) throws(TaskQueueError) {
    guard let bytes else { return }
    do {
      let fields = try JSONDecoder().decode(Fields.self, from: Data(bytes))
      isWhole = fields.queue ?? false
      names = Set(fields.names ?? [])
    } catch {
      throw TaskQueueError(
        .storeFailed,
        "the value '\(Self.valueName)' of the store does not say what is paused: this version can't "
          + "read it, and takes nothing for resumed",
        underlying: error
      )
    }
  }

  /// The bytes of the value; `nil` if nothing is paused.
  var bytes: [UInt8]? {
    get throws {
      guard isWhole || !names.isEmpty else { return nil }
      let fields = Fields(
        names: names.isEmpty ? nil : names.sorted(),
        queue: isWhole ? true : nil
      )
      return try StableJSON.encode(fields)
    }
  }

  private struct Fields: Codable {
    var names: [String]?
    var queue: Bool?
  }
}
