import SystemFoundation

/// The payload of a task in a store: opaque bytes, which are made when a store asks for them.
///
/// The in-memory store and the file store keep the value itself while the process lives, so a
/// handler gets the value without encoding and decoding. A store of bytes calls ``bytes()`` once,
/// and a database returns only these bytes. With a ``PayloadSeal``, only the sealed bytes are kept.
/// If the payload is an object, that is, if its type is a class, the file store keeps only the
/// bytes. The handler then gets the object as it was stored, even if it has changed since.
public struct StoredPayload: Sendable {
  /// The format of the bytes.
  ///
  /// A store stores the raw value with the bytes and returns both. A store need not distinguish the
  /// formats. More formats may be added.
  @nonexhaustive
  public enum Format: String, Sendable, Hashable {
    /// The text of a JSON value, in UTF-8, without line feeds.
    case json
    /// Bytes of any other kind.
    case binary
    /// The sealed bytes of a JSON text. Only the ``PayloadSeal`` can read them.
    case sealedJSON
    /// The sealed bytes of another payload.
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
    /// A value and its encoded bytes; indirect, so that the more frequent payloads stay small.
    indirect case encodedValue(any Encodable & Sendable, [UInt8])
    /// Bytes that are made by opening the sealed bytes, each time they are requested.
    case opened(@Sendable () throws -> [UInt8])
  }

  /// The schema version of the payload's type when the bytes were made.
  public let version: Int
  private let form: Form
  /// The format of what ``bytes()`` returns.
  public let format: Format

  /// Makes a payload from stored bytes.
  public init(_ bytes: [UInt8], format: Format, version: Int = 1) {
    self.format = format
    self.version = version
    form = .bytes(bytes)
  }

  /// Makes a payload from a value that is encoded as JSON when a store asks for it.
  init<Value: Encodable & Sendable>(_ value: Value, version: Int) {
    format = .json
    self.version = version
    form = .value(value)
  }

  /// Makes a payload from a value that is encoded as JSON when a store asks for it.
  init<Payload: TaskPayload>(_ payload: Payload) {
    self.init(payload, version: Payload.schemaVersion)
  }

  /// Makes a payload from JSON.
  ///
  /// - Throws: an `EncodingError` for JSON that can't be encoded, even if the store would keep the
  ///   value and never encode it.
  init(_ json: JSONValue) throws {
    self.init(json, version: 1)
    if !json.isStorable() { _ = try bytes() }
  }

  private init(_ form: Form, of payload: StoredPayload) {
    version = payload.version
    format = payload.format
    self.form = form
  }

  /// Makes a payload from a function that makes the bytes each time they are requested.
  init(
    format: Format,
    version: Int,
    opening bytes: @escaping @Sendable () throws -> [UInt8]
  ) {
    self.format = format
    self.version = version
    form = .opened(bytes)
  }

  private static let encoder = StableJSON.makeEncoder()

  /// The bytes to store.
  ///
  /// For a task that was looked up in a store that seals payloads, each call opens the bytes.
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
      return unsafe try encoder.encode(value).withUnsafeBytes { unsafe Array($0) }
    } catch let error as EncodingError {
      throw error.withoutValue
    }
  }

  /// Returns the same payload with its bytes already encoded.
  ///
  /// Later changes of the value, or of how it is encoded, do not change the bytes. The value is
  /// kept for the handler, unless it is an object. An object may change before the handler starts,
  /// so for the handler, another object is decoded from the bytes.
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

  /// Returns the payload without the value that it was made from, as a later process reads it from
  /// the store.
  func withoutValue() throws -> StoredPayload {
    StoredPayload(try bytes(), format: format, version: version)
  }

  /// Returns the value itself, if this process made the payload from it.
  func value<Value>(as type: Value.Type) -> Value? {
    switch form {
    case .bytes, .opened: nil
    case .value(let value), .encodedValue(let value, _): value as? Value
    }
  }
}

extension StoredPayload: CustomStringConvertible {
  /// The kind of the payload; never its content.
  public var description: String { "payload (\(format), version \(version))" }
}

extension TaskRecord {
  /// Returns the task's payload, as its handler gets it.
  ///
  /// ```swift
  /// let letters = try await queue.tasks(matching: .deadLetters)
  /// for letter in letters where letter.name == Mail.taskName {
  ///   let mail = try letter.payload(as: Mail.self)
  /// }
  /// ```
  /// ``TaskPayload/decode(from:version:)`` reads a payload that an earlier version of the type has
  /// stored.
  ///
  /// - Parameter type: the payload's type; ``name`` must be its ``TaskPayload/taskName`` or one of
  ///   its ``TaskPayload/formerTaskNames``.
  /// - Returns: the payload.
  /// - Throws: a ``TaskQueueError`` with the code ``TaskQueueError/Code/undecodablePayload`` if the
  ///   task's name is not the type's, or if the payload can't be decoded; with the code
  ///   ``TaskQueueError/Code/unopenedPayload`` if the payload is sealed and can't be opened.
  ///   Neither error shows the payload.
  public func payload<Payload: TaskPayload>(as type: Payload.Type = Payload.self) throws -> Payload
  {
    guard name == Payload.taskName || Payload.formerTaskNames.contains(name) else {
      throw TaskQueueError(
        .undecodablePayload,
        "the task \(id) is named '\(name)', and \(TypeName.readable(type)) has the name "
          + "'\(Payload.taskName)': ask for the payload with the type that the task was enqueued with"
      )
    }
    do {
      return try decodedPayload(as: type)
    } catch let error as UndecodablePayload {
      throw TaskQueueError(.undecodablePayload, "\(error) (the task \(id))")
    } catch let error as TaskQueueError {
      throw error
    } catch {
      // The error may show the payload.
      throw TaskQueueError(
        .undecodablePayload,
        "the payload of the task \(id) ('\(name)') can't be encoded: its encode(to:) throws a "
          + "\(TypeName.readable(Swift.type(of: error)))"
      )
    }
  }
}

/// An error for a payload that does not fit its handler's type.
///
/// The error names the missing key or the place of the wrong value, and never shows the payload. A
/// path in the error shows only the keys that the program declares, not those of a dictionary.
struct UndecodablePayload: Error, CustomStringConvertible {
  let description: String

  init(description: String) { self.description = description }

  init(name: String, type: String, _ error: any Error) {
    let problem =
      switch error {
      case DecodingError.keyNotFound(let key, let context):
        "the key \((context.codingPath + [key]).shownPath) is missing"
      case DecodingError.typeMismatch(let type, let context):
        "\(context.codingPath.shownPath) is not of type \(type)"
      case DecodingError.valueNotFound(let type, let context):
        "\(context.codingPath.shownPath) is null instead of a value of type \(type)"
      case DecodingError.dataCorrupted(let context):
        "\(context.codingPath.shownPath) can't be read"
      default:
        "\(Swift.type(of: error)) was thrown"
      }
    description = "the payload of '\(name)' can't be decoded as \(type): \(problem)"
  }
}

extension [any CodingKey] {
  /// The path as an error shows it: `…` replaces each key that the program has not declared.
  var shownPath: String {
    if isEmpty { return "it" }
    return "'\(map { Self.isDeclared($0) ? $0.stringValue : "…" }.joined(separator: "."))'"
  }

  /// Returns whether a key is a case that the program has declared.
  ///
  /// A declared key is a case of an enumeration without associated values. The keys of dictionaries
  /// and the indices of arrays are coding keys, too, but are not such cases.
  private static func isDeclared(_ key: any CodingKey) -> Bool {
    let mirror = Mirror(reflecting: key)
    return mirror.displayStyle == .enum && mirror.children.isEmpty
  }
}
