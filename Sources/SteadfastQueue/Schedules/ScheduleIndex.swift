/// Which schedules a store has: values of the store.
///
/// A store can't list its values. So one value says which parts of the index there are, and each
/// part which schedules: their keys, 9 hexadecimal digits each, in order.
enum ScheduleIndex {
  /// The name of the value that says which parts there are.
  ///
  /// Each of them is a bit of a number in 16 hexadecimal digits. If there was never a schedule, the
  /// value is missing.
  static let rootName = "steadfast.schedules"

  /// The name of the value that holds a part, from 0 to 63.
  static func name(ofPart part: Int) -> String {
    "steadfast.schedules.\(Hexadecimal.text(UInt64(part), digits: 2))"
  }

  /// The parts that a root names.
  static func parts(of root: [UInt8]) throws(TaskQueueError) -> [Int] {
    guard root.count == 16, let bits = UInt64(String(decoding: root, as: UTF8.self), radix: 16)
    else { throw unreadable(rootName) }
    return (0..<64).filter { bits & (1 << UInt64($0)) != 0 }
  }

  static func root(of parts: some Sequence<Int>) -> [UInt8] {
    Array(Hexadecimal.text(parts.reduce(0) { $0 | 1 << UInt64($1) }, digits: 16).utf8)
  }

  /// The schedules that a part names.
  static func keys(of part: [UInt8]?, _ number: Int) throws(TaskQueueError) -> [ScheduleKey] {
    guard let part else { return [] }
    var keys: [ScheduleKey] = []
    for start in stride(from: 0, to: part.count, by: digits) {
      let text = String(decoding: part[start...].prefix(digits), as: UTF8.self)
      guard text.utf8.count == digits, let bits = UInt64(text, radix: 16) else {
        throw unreadable(name(ofPart: number))
      }
      keys.append(ScheduleKey(bits: bits))
    }
    return keys
  }

  /// The bytes of a part; `nil` if it names no schedule.
  static func part(of keys: some Collection<ScheduleKey>) -> [UInt8]? {
    guard !keys.isEmpty else { return nil }
    return keys.sorted { $0.bits < $1.bits }
      .flatMap { Hexadecimal.text($0.bits, digits: digits).utf8 }
  }

  private static let digits = 9

  private static func unreadable(_ name: String) -> TaskQueueError {
    TaskQueueError(
      .storeFailed,
      "the value '\(name)' of the store does not say which schedules there are: this version can't "
        + "read it"
    )
  }
}
