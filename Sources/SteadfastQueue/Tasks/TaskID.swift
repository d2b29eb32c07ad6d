/// The ID of a task: 128 bits that sort by the time when the task was enqueued.
///
/// The bits are those of a version 7 UUID (RFC 9562), so that a database can store them in a `uuid`
/// column. ``description`` is the UUID as a string. A handler can use the ID as an idempotency key:
/// pass the ID to a service that must not do the work twice.
public struct TaskID: Hashable, Comparable, Sendable {
  /// The more significant half: milliseconds since 1970, the version, and a counter.
  public let high: UInt64
  /// The less significant half: the variant and random bits.
  public let low: UInt64

  /// Makes an ID from its two halves.
  public init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Returns whether the left ID sorts before the right one: its task was enqueued earlier, to the
  /// millisecond.
  public static func < (left: TaskID, right: TaskID) -> Bool {
    (left.high, left.low) < (right.high, right.low)
  }

  /// Feeds both halves to the hasher.
  ///
  /// IDs that this package did not make may share one half, as all version 1 UUIDs of a machine do.
  public func hash(into hasher: inout Hasher) {
    hasher.combine(high)
    hasher.combine(low)
  }
}

extension TaskID: LosslessStringConvertible {
  /// The ID in the format of a UUID, in lower case: 36 characters.
  public var description: String {
    unsafe withText { text in unsafe String(decoding: text, as: UTF8.self) }
  }

  /// Makes an ID from the string of a UUID, in upper or lower case; `nil` for any other string.
  public init?(_ description: String) {
    self.init(text: Array(description.utf8)[...])
  }

  /// The number of bytes in ``description``.
  static var textLength: Int { 36 }

  init?(text: ArraySlice<UInt8>) {
    guard text.count == Self.textLength else { return nil }
    let start = text.startIndex
    func isHyphen(_ offset: Int) -> Bool { text[start + offset] == UInt8(ascii: "-") }
    guard isHyphen(8), isHyphen(13), isHyphen(18), isHyphen(23) else { return nil }
    // Each of these loads reads only bytes of `text`.
    let digits = unsafe text.withUnsafeBytes { text in
      func load<Digits: FixedWidthInteger>(_ offset: Int, as type: Digits.Type) -> UInt64 {
        unsafe UInt64(Digits(littleEndian: text.loadUnaligned(fromByteOffset: offset, as: type)))
      }
      return (
        load(0, as: UInt64.self),
        load(9, as: UInt32.self) | load(14, as: UInt32.self) << 32,
        load(19, as: UInt32.self) | load(24, as: UInt32.self) << 32,
        load(28, as: UInt64.self)
      )
    }
    guard let time = Hexadecimal.value(ofEight: digits.0),
      let version = Hexadecimal.value(ofEight: digits.1),
      let variant = Hexadecimal.value(ofEight: digits.2),
      let node = Hexadecimal.value(ofEight: digits.3)
    else { return nil }
    self.init(
      high: UInt64(time) << 32 | UInt64(version),
      low: UInt64(variant) << 32 | UInt64(node)
    )
  }

  /// Calls the body with the bytes of ``description``, without making a string.
  func withText<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
    unsafe withUnsafeTemporaryAllocation(byteCount: Self.textLength, alignment: 1) { text in
      func store(_ digits: some FixedWidthInteger, at offset: Int) {
        unsafe text.storeBytes(of: digits.littleEndian, toByteOffset: offset, as: type(of: digits))
      }
      func storeFour(_ digits: UInt64, at offset: Int) {
        store(UInt8(ascii: "-"), at: offset)
        store(UInt32(truncatingIfNeeded: digits), at: offset + 1)
      }
      let version = Hexadecimal.eightDigits(of: UInt32(truncatingIfNeeded: high))
      let variant = Hexadecimal.eightDigits(of: UInt32(low >> 32))
      // Each of these stores writes only bytes of `text`, and together they write all of them.
      store(Hexadecimal.eightDigits(of: UInt32(high >> 32)), at: 0)
      storeFour(version, at: 8)
      storeFour(version >> 32, at: 13)
      storeFour(variant, at: 18)
      storeFour(variant >> 32, at: 23)
      store(Hexadecimal.eightDigits(of: UInt32(truncatingIfNeeded: low)), at: 28)
      return unsafe body(UnsafeRawBufferPointer(text))
    }
  }
}

extension TaskID: Codable {
  /// Decodes the ID from the string of a UUID.
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    let text = try container.decode(String.self)
    guard let id = TaskID(text) else {
      throw DecodingError.dataCorruptedError(
        in: container,
        debugDescription: "'\(text)' is not the ID of a task; an ID has the format of a UUID"
      )
    }
    self = id
  }

  /// Encodes the ID as the string of a UUID.
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}

extension TaskID: CodingKeyRepresentable {
  private struct Key: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { nil }
  }

  /// The ID as the string of a UUID, so that a dictionary with IDs as keys becomes a JSON object.
  public var codingKey: any CodingKey { Key(stringValue: description) }

  /// Makes an ID from a key that is the string of a UUID; `nil` for any other key.
  public init?(codingKey: some CodingKey) { self.init(codingKey.stringValue) }
}

extension TaskID: SlotKey {}
