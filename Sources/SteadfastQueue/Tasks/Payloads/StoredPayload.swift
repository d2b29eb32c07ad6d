import SystemFoundation

/// The payload of a task, as a store gets it: opaque bytes, which are encoded only when needed.
///
/// The in-memory store and the file store keep the payload's value while the process runs. So a
/// handler gets this value, without encoding and decoding. But if the value is an instance of a
/// class, which may change, the file store keeps only the bytes. A database returns only bytes.
/// With a ``PayloadSeal``, only the sealed (encrypted) bytes are kept.
public struct StoredPayload: Sendable {
  /// The format of the bytes.
  ///
  /// A store stores the format's raw value with the bytes. It need not distinguish the formats.
  /// More formats may be added.
  @nonexhaustive
  public enum Format: String, Sendable, Hashable {
    /// JSON in UTF-8, without line feeds.
    case json
    /// Any other bytes.
    case binary
    /// JSON that is sealed: only the ``PayloadSeal`` can decrypt it.
    case sealedJSON
    /// Other bytes that are sealed: only the ``PayloadSeal`` can decrypt them.
    case sealedBinary

    /// Whether the bytes are sealed: encrypted by a ``PayloadSeal``.
    public var isSealed: Bool {
      switch self {
      case .json, .binary: false
      case .sealedJSON, .sealedBinary: true
      }
    }
  }

  private enum Content: Sendable {
    case bytes([UInt8])
    case value(any Encodable & Sendable)
    /// A value and its encoded bytes; indirect, so that the more frequent cases need less space.
    indirect case encodedValue(any Encodable & Sendable, [UInt8])
    /// A function that returns the bytes by decrypting the sealed bytes.
    case opened(@Sendable () throws -> [UInt8])
  }

  /// The ``TaskPayload/schemaVersion`` of the payload's type when the payload was made.
  public let version: Int
  private let content: Content
  /// The format of the bytes that ``bytes()`` returns.
  public let format: Format

  /// Makes a payload from stored bytes.
  public init(_ bytes: [UInt8], format: Format, version: Int = 1) {
    self.format = format
    self.version = version
    content = .bytes(bytes)
  }

  /// Makes a payload from a value that is encoded as JSON when its bytes are needed.
  init<Value: Encodable & Sendable>(_ value: Value, version: Int) {
    format = .json
    self.version = version
    content = .value(value)
  }

  /// Makes a payload from a value that is encoded as JSON when its bytes are needed.
  init<Payload: TaskPayload>(_ payload: Payload) {
    self.init(payload, version: Payload.schemaVersion)
  }

  /// Makes a payload from a JSON value.
  ///
  /// - Throws: an `EncodingError` if the value can't be encoded, even if its bytes are never
  ///   needed.
  init(_ json: JSONValue) throws {
    self.init(json, version: 1)
    if !json.isStorable() { _ = try bytes() }
  }

  private init(_ content: Content, of payload: StoredPayload) {
    version = payload.version
    format = payload.format
    self.content = content
  }

  /// Makes a payload from a function that is called each time the bytes are needed.
  init(
    format: Format,
    version: Int,
    opening bytes: @escaping @Sendable () throws -> [UInt8]
  ) {
    self.format = format
    self.version = version
    content = .opened(bytes)
  }

  private static let encoder = StableJSON.makeEncoder()

  /// The bytes to store.
  ///
  /// If the store has a ``PayloadSeal``, each call decrypts the bytes.
  ///
  /// - Throws: what the payload's `encode(to:)` throws; a ``TaskQueueError`` with the code
  ///   ``TaskQueueError/Code/unopenedPayload``.
  public func bytes() throws -> [UInt8] {
    switch content {
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

  /// Returns the same payload with its bytes already encoded, so that they no longer change.
  ///
  /// The value is kept for the handler, unless it is an instance of a class: such a value may
  /// change before the handler starts. In this case, the handler gets a value that is decoded from
  /// the bytes.
  ///
  /// - Throws: the errors of ``bytes()``.
  func encoded() throws -> StoredPayload {
    switch content {
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

  /// Whether the bytes are already encoded.
  var isEncoded: Bool {
    switch content {
    case .bytes, .encodedValue: true
    case .value, .opened: false
    }
  }

  /// Returns the payload with only its bytes, like one that a later process reads from a store.
  func withoutValue() throws -> StoredPayload {
    StoredPayload(try bytes(), format: format, version: version)
  }

  /// Returns the value from which this process made the payload; `nil` if the payload has only
  /// bytes, or if the value has another type.
  func value<Value>(as type: Value.Type) -> Value? {
    switch content {
    case .bytes, .opened: nil
    case .value(let value), .encodedValue(let value, _): value as? Value
    }
  }
}

extension StoredPayload: CustomStringConvertible {
  /// The format and the version, but never the content.
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
  /// ``TaskPayload/decode(from:version:)`` decodes the payload, even if an earlier version of the
  /// type has stored it.
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

/// The error for a payload that can't be decoded as the handler's payload type.
///
/// The error contains the path of the missing or wrong value, but nothing of the payload. So the
/// path contains only the keys that the program declares, not those of a dictionary.
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
  /// The path for an error, with `…` in place of each key that the program has not declared.
  var shownPath: String {
    if isEmpty { return "it" }
    return "'\(map { Self.isDeclared($0) ? $0.stringValue : "…" }.joined(separator: "."))'"
  }

  /// Returns whether the program has declared a key.
  ///
  /// A declared key is a case, without associated values, of an enumeration. The keys of
  /// dictionaries and the indices of arrays are coding keys, too, but they aren't such cases.
  private static func isDeclared(_ key: any CodingKey) -> Bool {
    let mirror = Mirror(reflecting: key)
    return mirror.displayStyle == .enum && mirror.children.isEmpty
  }
}
