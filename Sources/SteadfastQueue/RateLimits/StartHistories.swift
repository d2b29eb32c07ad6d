/// The histories that one value of a store holds, each under the number of its key.
///
/// The bytes are a 1 and, for each history in the order of its number: the number (8 bytes, the
/// highest first), the begin and the end of its pause (0 and 0 if there is none), how many starts
/// it has, the first one, and the time from each to the next. All but the number are written with
/// seven bits to a byte, the lowest first, and the highest bit set in all but the last.
struct StartHistories: Sendable, Equatable {
  /// The form of the bytes.
  private static let form: UInt8 = 1
  /// The number of the history of a limit without keys.
  static let onlyKey: UInt64 = 0

  private(set) var histories: [UInt64: StartHistory] = [:]

  init() {}

  /// Reads a value; `nil` is an empty one.
  ///
  /// - Returns: `nil` if the bytes make no sense.
  init?(_ bytes: [UInt8]?) {
    guard let bytes else { return }
    guard bytes.first == Self.form else { return nil }
    var reader = Reader(bytes: bytes[1...])
    while !reader.bytes.isEmpty {
      guard let key = reader.readNumber(), let history = reader.readHistory() else { return nil }
      histories[key] = history
    }
  }

  /// The bytes of the value; `nil` if there is nothing to hold.
  var bytes: [UInt8]? {
    guard !histories.isEmpty else { return nil }
    var bytes = [Self.form]
    for (key, history) in histories.sorted(by: { $0.key < $1.key }) {
      for shift in stride(from: 56, through: 0, by: -8) {
        bytes.append(UInt8(truncatingIfNeeded: key >> shift))
      }
      bytes.append(varint: history.pause?.begin ?? 0)
      bytes.append(varint: history.pause?.end ?? 0)
      bytes.append(varint: Int64(history.starts.count))
      var last: Int64 = 0
      for start in history.starts {
        bytes.append(varint: start - last)
        last = start
      }
    }
    return bytes
  }

  subscript(key: UInt64) -> StartHistory {
    get { histories[key] ?? StartHistory() }
    set { histories[key] = newValue.isEmpty ? nil : newValue }
  }

  /// Applies a change to each history, and drops those that are empty then.
  mutating func changeAll(_ change: (inout StartHistory) -> Void) {
    histories = histories.compactMapValues { history in
      var history = history
      change(&history)
      return history.isEmpty ? nil : history
    }
  }

  /// An upper limit for the number of bytes.
  var maxByteCount: Int { histories.values.reduce(1) { $0 + 40 + 9 * $1.starts.count } }

  private struct Reader {
    var bytes: ArraySlice<UInt8>

    mutating func readNumber() -> UInt64? {
      guard bytes.count >= 8 else { return nil }
      defer { bytes.removeFirst(8) }
      return bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// Reads a number of up to 62 bits: sums of two of them can't overflow.
    mutating func readVarint() -> Int64? {
      var (number, shift): (Int64, Int64) = (0, 0)
      while let byte = bytes.popFirst() {
        guard shift < 56 || shift == 56 && byte < 64 else { return nil }
        number |= Int64(byte & 127) << shift
        if byte < 128 { return number }
        shift += 7
      }
      return nil
    }

    mutating func readHistory() -> StartHistory? {
      guard let begin = readVarint(), let end = readVarint(), let count = readVarint(),
        begin <= end, count <= RateWindow.maxCount
      else { return nil }
      var (starts, last): ([Int64], Int64) = ([], 0)
      for _ in 0..<count {
        guard let step = readVarint(), last + step < 1 << 61 else { return nil }
        last += step
        starts.append(last)
      }
      return StartHistory(
        starts: starts,
        pause: end > 0 ? StartHistory.Pause(begin: begin, end: end) : nil
      )
    }
  }
}

extension [UInt8] {
  /// Appends a number that is not negative; a negative one counts as 0.
  fileprivate mutating func append(varint number: Int64) {
    var rest = UInt64(Swift.max(number, 0))
    while rest >= 128 {
      append(UInt8(rest & 127 | 128))
      rest >>= 7
    }
    append(UInt8(rest))
  }
}
