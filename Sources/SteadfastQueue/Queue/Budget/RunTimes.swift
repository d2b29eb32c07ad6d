#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// How long the last attempts of each name took: a value of the store.
///
/// The value is a JSON object: the seconds of each name, the latest last. It holds nothing that
/// can't be measured again, so one that makes no sense counts as an empty one.
struct RunTimes: Sendable, Equatable {
  /// Of how many attempts the average is the mean.
  static let averaging = 3

  private var seconds: [String: [Double]] = [:]

  init() {}

  /// Reads a value; `nil` is an empty one.
  init(_ bytes: [UInt8]?) {
    guard let bytes else { return }
    seconds = (try? JSONDecoder().decode([String: [Double]].self, from: Data(bytes))) ?? [:]
  }

  /// The bytes of the value.
  ///
  /// If there is no room for all names, some are left out, the longest names first.
  func bytes(limit: Int = TaskQueueError.maxValueSize) throws -> [UInt8] {
    var kept = seconds
    var bytes = try StableJSON.encode(kept)
    for name in seconds.keys.sorted(by: { ($0.utf8.count, $0) > ($1.utf8.count, $1) })
    where bytes.count > limit {
      kept[name] = nil
      bytes = try StableJSON.encode(kept)
    }
    return bytes
  }

  /// The name of the value; each queue of a group has its own.
  static let valueName = "steadfast.runtimes"

  /// The names of which an attempt was measured.
  var names: some Sequence<String> { seconds.keys }

  /// The mean of the last attempts of a name; `nil` if none was measured.
  func average(of name: String) -> Duration? {
    seconds[name]?.meanDuration
  }

  /// Notes how long an attempt took.
  mutating func add(_ time: Duration, of name: String) {
    seconds[name, default: []].append(time, keeping: Self.averaging)
  }

  /// Forgets the attempt of a name that is longest ago.
  mutating func forgetOldest(of name: String) {
    guard var all = seconds[name] else { return }
    all.removeFirst()
    seconds[name] = all.isEmpty ? nil : all
  }
}

/// How long something took the last times, in seconds, the latest one last.
extension [Double] {
  /// The mean of the times; `nil` if there are none.
  var meanDuration: Duration? {
    guard !isEmpty else { return nil }
    // A store may say anything. A mean below zero would leave room for others that is not there.
    return .seconds(Swift.min(Swift.max(0, reduce(0, +) / Double(count)), 1e9))
  }

  /// Adds a time, and keeps the latest ones.
  mutating func append(_ time: Duration, keeping count: Int) {
    append(Swift.max(0, time / .seconds(1)))
    self = Array(suffix(count))
  }
}
