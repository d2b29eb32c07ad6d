import SystemFoundation

/// Any JSON value: the payload of a task that has a name and no payload type.
///
/// A number that has no fraction and fits into an `Int` is always decoded as ``integer(_:)``.
///
/// ```swift
/// let payload: JSONValue = ["wow": "so important", "retries": 3]
/// try await queue.enqueue(name: "PostThisVitalThing", payload)
/// ```
public enum JSONValue: Sendable, Hashable {
  /// The value `null`.
  case null
  /// `true` or `false`.
  case bool(Bool)
  /// A number without a fraction.
  case integer(Int)
  /// A number with a fraction, or one that does not fit into an `Int`; it must be finite.
  case number(Double)
  /// A string.
  case string(String)
  /// An array.
  case array([JSONValue])
  /// An object: named values without an order.
  case object([String: JSONValue])

  /// The maximum nesting that can be decoded and encoded: 64 arrays and objects inside one another.
  ///
  /// Don't make deeper values. If a value is nested about 100,000 deep, the process crashes when
  /// Swift frees the value.
  public static var maxDepth: Int { 64 }
}

extension JSONValue {
  /// Returns whether the value can be encoded: its numbers are finite, and it is not nested too
  /// deeply.
  func isStorable(atDepth depth: Int = 0) -> Bool {
    guard depth <= Self.maxDepth else { return false }
    return switch self {
    case .null, .bool, .integer, .string: true
    case .number(let number): number.isFinite
    case .array(let elements): elements.allSatisfy { $0.isStorable(atDepth: depth + 1) }
    case .object(let members): members.values.allSatisfy { $0.isStorable(atDepth: depth + 1) }
    }
  }
}

extension JSONValue {
  /// The member of an object with this name; `nil` if there is none, or if this value isn't an
  /// object.
  public subscript(name: String) -> JSONValue? {
    guard case .object(let members) = self else { return nil }
    return members[name]
  }

  /// The element of an array at this index; `nil` if there is none, or if this value isn't an
  /// array.
  public subscript(index: Int) -> JSONValue? {
    guard case .array(let elements) = self, elements.indices.contains(index) else { return nil }
    return elements[index]
  }

  /// The string, if this value is a string.
  public var string: String? { if case .string(let text) = self { text } else { nil } }
  /// The number, if this value is a number without a fraction.
  public var int: Int? { if case .integer(let number) = self { number } else { nil } }
  /// The Boolean, if this value is a Boolean.
  public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }

  /// The number, if this value is a number.
  public var double: Double? {
    switch self {
    case .integer(let number): Double(number)
    case .number(let number): number
    case .null, .bool, .string, .array, .object: nil
    }
  }
}

extension JSONValue: Codable {
  /// Decodes any JSON value.
  ///
  /// - Throws: a `DecodingError` for a value that is nested too deeply.
  public init(from decoder: any Decoder) throws {
    guard decoder.codingPath.count <= Self.maxDepth else {
      throw DecodingError.dataCorrupted(
        DecodingError.Context(
          codingPath: Array(decoder.codingPath.prefix(3)),
          debugDescription: "the value is nested more than \(Self.maxDepth) deep"
        )
      )
    }
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int.self) {
      self = .integer(value)
    } else if let value = try? container.decode(Double.self) {
      self = .number(value)
    } else if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if (try? decoder.unkeyedContainer()) != nil {
      self = .array(try container.decode([JSONValue].self))
    } else {
      self = .object(try container.decode([String: JSONValue].self))
    }
  }

  /// Encodes the value.
  ///
  /// - Throws: an `EncodingError` for a number that is not finite, and for a value that is nested
  ///   too deeply.
  public func encode(to encoder: any Encoder) throws {
    guard encoder.codingPath.count <= Self.maxDepth else {
      throw EncodingError.invalidValue(
        self,
        EncodingError.Context(
          codingPath: Array(encoder.codingPath.prefix(3)),
          debugDescription: "the value is nested more than \(Self.maxDepth) deep"
        )
      )
    }
    var container = encoder.singleValueContainer()
    switch self {
    case .null: try container.encodeNil()
    case .bool(let value): try container.encode(value)
    case .integer(let value): try container.encode(value)
    case .number(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    case .array(let value): try container.encode(value)
    case .object(let value): try container.encode(value)
    }
  }
}

extension JSONValue: ExpressibleByNilLiteral, ExpressibleByBooleanLiteral,
  ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral, ExpressibleByStringLiteral,
  ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral
{
  /// Makes the value `null`.
  public init(nilLiteral: ()) { self = .null }
  /// Makes a Boolean.
  public init(booleanLiteral value: Bool) { self = .bool(value) }
  /// Makes a number without a fraction.
  public init(integerLiteral value: Int) { self = .integer(value) }
  /// Makes a number.
  public init(floatLiteral value: Double) { self = .number(value) }
  /// Makes a string.
  public init(stringLiteral value: String) { self = .string(value) }
  /// Makes an array.
  public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
  /// Makes an object; of several members with the same name, it contains the last.
  public init(dictionaryLiteral members: (String, JSONValue)...) {
    self = .object(Dictionary(members) { _, last in last })
  }
}

/// Encodes JSON with sorted keys, so that equal values have equal bytes.
package enum StableJSON {
  static func makeEncoder() -> JSONEncoder {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return encoder
  }

  package static func encode(_ value: some Encodable) throws -> [UInt8] {
    Array(try makeEncoder().encode(value))
  }
}

extension EncodingError {
  /// The same error without the value and its path, either of which may contain secrets.
  var withoutValue: EncodingError {
    guard case .invalidValue(let value, let context) = self else { return self }
    return .invalidValue(
      "a value of the type \(type(of: value))",
      Context(codingPath: [], debugDescription: context.debugDescription)
    )
  }
}
