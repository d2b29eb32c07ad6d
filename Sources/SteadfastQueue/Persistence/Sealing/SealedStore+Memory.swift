#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What tasks remember, sealed for the task and the name.
extension SealedStore {
  /// Returns a value as it is stored.
  ///
  /// One without bytes stays as it is: it says that a completion is awaited, and nothing else.
  func sealed(_ value: [UInt8], _ name: String, _ id: TaskID) throws -> [UInt8] {
    guard !value.isEmpty else { return [] }
    return Array(try seal.seal(Data(value), .init(memory: name, of: id)))
  }

  /// Returns a stored value as it was remembered.
  func opened(_ value: [UInt8], _ name: String, _ id: TaskID) throws -> [UInt8] {
    guard !value.isEmpty else { return [] }
    do {
      return Array(try seal.open(Data(value), .init(memory: name, of: id)))
    } catch {
      // It may have been stored before there was a seal.
      if acceptsPlain, Self.isPlain(value) { return value }
      throw TaskQueueError(
        .unopenedPayload,
        "what the task \(id) remembers under '\(name)' can't be opened: \(error). It is kept as it "
          + "is, for when it can be",
        underlying: error
      )
    }
  }

  /// Returns whether a value is not sealed.
  ///
  /// What is remembered is JSON, and so is a schedule. Sealed bytes are not.
  static func isPlain(_ value: [UInt8]) -> Bool {
    String(validating: value, as: UTF8.self) != nil
      && (try? JSONDecoder().decode(AnyJSON.self, from: Data(value))) != nil
  }
}

/// A JSON value of any kind, of which nothing is kept.
private struct AnyJSON: Decodable {
  init(from decoder: any Decoder) throws {}
}

extension PayloadSeal.Context {
  /// The context of what a task remembers under a name.
  ///
  /// No payload has the version 0.
  fileprivate init(memory name: String, of id: TaskID) {
    self.init(id: id, name: name, format: .binary, version: 0)
  }
}
