#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes the fields of a line's body, one after the other.
struct JournalFieldWriter: Sendable {
  private(set) var bytes: [UInt8]

  init() { bytes = [] }

  /// Makes the writer of a body that was read.
  init(_ bytes: ArraySlice<UInt8>) { self.bytes = Array(bytes) }

  mutating func reserveCapacity(_ count: Int) { bytes.reserveCapacity(count) }

  mutating func begin(_ kind: StaticString) {
    bytes.reserveCapacity(128)
    add(ascii: "\"k\":\"")
    add(ascii: kind)
    bytes.append(UInt8(ascii: "\""))
  }

  mutating func begin(_ kind: StaticString, _ id: TaskID) {
    begin(kind)
    add("id", id)
  }

  mutating func add(_ key: StaticString, _ value: Int) {
    addKey(key)
    // Most numbers have one digit, for which there is a shorter way.
    if 0...9 ~= value {
      bytes.append(UInt8(ascii: "0") + UInt8(value))
    } else {
      bytes.append(contentsOf: String(value).utf8)
    }
  }

  mutating func add(_ key: StaticString, _ value: Date) {
    add(key, raw: Self.text(of: value).utf8)
  }

  static func text(of date: Date) -> String { date.timeIntervalSince1970.description }

  mutating func addIfTrue(_ key: StaticString, _ value: Bool) {
    if value { add(key, raw: "true".utf8) }
  }

  mutating func add(_ key: StaticString, _ id: TaskID) {
    addKey(key)
    bytes.append(UInt8(ascii: "\""))
    unsafe id.withText { unsafe bytes.append(contentsOf: $0) }
    bytes.append(UInt8(ascii: "\""))
  }

  mutating func add(_ key: StaticString, _ text: String) {
    addKey(key)
    add(text)
  }

  private mutating func add(_ text: String) {
    bytes.append(UInt8(ascii: "\""))
    // Most texts need no escapes, so their bytes are copied at once.
    if !text.utf8.contains(where: Self.needsEscape) {
      bytes.append(contentsOf: text.utf8)
    } else {
      addEscaped(text)
    }
    bytes.append(UInt8(ascii: "\""))
  }

  private static func needsEscape(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
  }

  private mutating func addEscaped(_ text: String) {
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        bytes.append(UInt8(ascii: "\\"))
        bytes.append(byte)
      case 0..<0x20:
        add(ascii: "\\u00")
        bytes.append(Hexadecimal.digit(UInt64(byte >> 4)))
        bytes.append(Hexadecimal.digit(UInt64(byte)))
      default:
        bytes.append(byte)
      }
    }
  }

  mutating func add(_ key: StaticString, _ texts: [String]) {
    addKey(key)
    bytes.append(UInt8(ascii: "["))
    for (index, text) in texts.enumerated() {
      if index > 0 { bytes.append(UInt8(ascii: ",")) }
      add(text)
    }
    bytes.append(UInt8(ascii: "]"))
  }

  /// Adds IDs, or nothing if there are none.
  mutating func addIfAny(_ key: StaticString, _ ids: some Sequence<TaskID>) {
    let texts = ids.sorted().map(\.description)
    if !texts.isEmpty { add(key, texts) }
  }

  mutating func add(_ key: StaticString, _ failures: [TaskFailure]) {
    addKey(key)
    var separator = UInt8(ascii: "[")
    for failure in failures {
      bytes.append(separator)
      bytes.append(UInt8(ascii: "["))
      add(failure.reason)
      bytes.append(UInt8(ascii: ","))
      bytes.append(contentsOf: Self.text(of: failure.date).utf8)
      bytes.append(UInt8(ascii: "]"))
      separator = UInt8(ascii: ",")
    }
    bytes.append(UInt8(ascii: "]"))
  }

  /// Adds whole seconds and attoseconds, so that every duration can be read back.
  mutating func add(_ key: StaticString, _ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    add(key, raw: "[\(seconds),\(attoseconds)]".utf8)
  }

  mutating func add(_ key: StaticString, _ limit: RetryLimit) {
    switch limit {
    case .atMost(let count): add(key, count)
    case .alwaysRetry: add(key, "always")
    }
  }

  mutating func add(_ key: StaticString, raw value: some Sequence<UInt8>) {
    addKey(key)
    bytes.append(contentsOf: value)
  }

  private mutating func addKey(_ key: StaticString) {
    bytes.append(UInt8(ascii: ","))
    bytes.append(UInt8(ascii: "\""))
    add(ascii: key)
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
  }

  private mutating func add(ascii text: StaticString) {
    // The text is a literal, so its bytes are never freed.
    text.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
  }

  /// Ends the body.
  mutating func end() { bytes.append(UInt8(ascii: "}")) }

  /// Takes back the end of the body, so that further fields can be added.
  mutating func reopen() { bytes.removeLast() }
}
