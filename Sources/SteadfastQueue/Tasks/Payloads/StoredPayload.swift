#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The payload of a task as a store keeps it: opaque bytes, made when a store asks for them.
///
/// While the process lives, the value itself is kept and handed to the handler without being
/// encoded and decoded; a store that keeps bytes asks for ``bytes()``, once. With a ``PayloadSeal``
/// only the sealed bytes are kept. So are only bytes of an object, a payload whose type is a class,
/// in a file: the handler gets what was stored, though the object may have changed since.
public struct StoredPayload: Sendable {
  /// What the bytes are.
  ///
  /// A store keeps the raw value beside the bytes and gives it back; it need not tell the formats
  /// apart. More may be added.
  @nonexhaustive
  public enum Format: String, Sendable, Hashable {
    /// The text of a JSON value, in UTF-8, without line feeds.
    case json
    /// Anything else.
    case binary
    /// What a ``PayloadSeal`` has made of a JSON text; to everybody else, any bytes.
    case sealedJSON
    /// What a ``PayloadSeal`` has made of other bytes.
    case sealedBinary

    /// Whether the bytes are sealed.
    public var isSealed: Bool {
      switch self {
      case .json, .binary: false
      case .sealedJSON, .sealedBinary: true
      }
    }
  }

  private enum Form: Sendable {
    case bytes([UInt8])
    case value(any Encodable & Sendable)
    /// A value, and what it was encoded as. Indirect: most payloads are not, and stay small.
    indirect case encodedValue(any Encodable & Sendable, [UInt8])
    /// Made by opening what a store keeps, each time they are asked for.
    case opened(@Sendable () throws -> [UInt8])
  }

  /// The schema version of the payload's type when the bytes were made.
  public let version: Int
  private let form: Form
  /// What ``bytes()`` returns.
  public let format: Format

  /// Makes a payload of bytes that a store has kept.
  public init(_ bytes: [UInt8], format: Format, version: Int = 1) {
    self.format = format
    self.version = version
    form = .bytes(bytes)
  }

  /// Makes a payload of a value that is encoded as JSON when a store asks.
  init<Value: Encodable & Sendable>(_ value: Value, version: Int) {
    format = .json
    self.version = version
    form = .value(value)
  }

  /// Makes a payload of a value that is encoded as JSON when a store asks.
  init<Payload: TaskPayload>(_ payload: Payload) {
    self.init(payload, version: Payload.schemaVersion)
  }

  private init(_ form: Form, of payload: StoredPayload) {
    version = payload.version
    format = payload.format
    self.form = form
  }

  /// Makes a payload of what somebody makes when it is asked for.
  init(
    format: Format,
    version: Int,
    opening bytes: @escaping @Sendable () throws -> [UInt8]
  ) {
    self.format = format
    self.version = version
    form = .opened(bytes)
  }

  private static let encoder: JSONEncoder = {
    let encoder = JSONEncoder()
    // In order, so that a value is written the same each time.
    encoder.outputFormatting = [.withoutEscapingSlashes, .sortedKeys]
    return encoder
  }()

  /// The bytes to keep.
  ///
  /// Of a task that was looked up over a store that seals payloads they are opened here, at each
  /// call.
  ///
  /// - Throws: what the payload's `encode(to:)` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unopenedPayload``.
  public func bytes() throws -> [UInt8] {
    switch form {
    case .bytes(let bytes): bytes
    case .value(let value): try Self.encode(value)
    case .encodedValue(_, let bytes): bytes
    case .opened(let open): try open()
    }
  }

  private static func encode(_ value: any Encodable & Sendable) throws -> [UInt8] {
    do {
      return Array(try encoder.encode(value))
    } catch EncodingError.invalidValue(let value, let context) {
      // The value and its path may say what nobody is to read in a log.
      throw EncodingError.invalidValue(
        "a value of the type \(type(of: value))",
        EncodingError.Context(codingPath: [], debugDescription: context.debugDescription)
      )
    }
  }

  /// The same payload with bytes that were made once and for all: what becomes of its value, or what
  /// the value's encoding does later, does not change them.
  ///
  /// The value is kept for the handler, unless it is an object: that may have changed by then, and
  /// is made of the bytes.
  ///
  /// - Throws: as ``bytes()``.
  func encoded() throws -> StoredPayload {
    switch form {
    case .bytes, .encodedValue:
      return self
    case .value(let value):
      let bytes = try Self.encode(value)
      let isObject = type(of: value) is AnyClass
      return StoredPayload(isObject ? .bytes(bytes) : .encodedValue(value, bytes), of: self)
    case .opened(let open):
      return StoredPayload(.bytes(try open()), of: self)
    }
  }

  /// Whether ``encoded()`` has nothing to do.
  var isEncoded: Bool {
    switch form {
    case .bytes, .encodedValue: true
    case .value, .opened: false
    }
  }

  /// The payload without the value that it was made of: what a later process finds of it.
  func withoutValue() throws -> StoredPayload {
    StoredPayload(try bytes(), format: format, version: version)
  }

  /// The value itself, if this process made it.
  func value<Value>(as type: Value.Type) -> Value? {
    switch form {
    case .bytes, .opened: nil
    case .value(let value), .encodedValue(let value, _): value as? Value
    }
  }
}

extension StoredPayload: CustomStringConvertible {
  /// What kind of payload it is; never what is in it.
  public var description: String { "payload (\(format), version \(version))" }
}
