#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Rules as texts, from which they are made again.
extension ScheduleRule {
  /// Makes a rule of its text (``text``), in a zone.
  ///
  /// - Returns: The rule; `nil` if this version knows no such rule.
  init?(text: String, in zone: TimeZone) {
    let words = text.split(separator: " ")
    let rest = words.dropFirst()
    let made: ScheduleRule? =
      switch words.first {
      case "every": Self.every(rest)
      case "hourly": rest.first.flatMap { Int($0) }.flatMap { try? .hourly(minute: $0, in: zone) }
      case "daily": rest.first.flatMap(Self.time).flatMap { try? .daily(at: $0, in: zone) }
      case "weekly": Self.weekly(rest, zone)
      case "cron": try? .cron(rest.joined(separator: " "), in: zone)
      default: nil
      }
    guard let made else { return nil }
    self = made
  }

  private static func every(_ words: ArraySlice<Substring>) -> ScheduleRule? {
    guard let seconds = words.first.flatMap({ Int($0) }) else { return nil }
    return try? .every(.seconds(seconds))
  }

  private static func weekly(_ words: ArraySlice<Substring>, _ zone: TimeZone) -> ScheduleRule? {
    guard words.count == 2, let names = words.first, let time = words.last.flatMap(time) else {
      return nil
    }
    let days = names.split(separator: ",").map { name in
      Weekday.allCases.first { $0.text == name }
    }
    guard !days.contains(nil) else { return nil }
    return try? .weekly(on: Set(days.compactMap(\.self)), at: time, in: zone)
  }

  private static func time(_ text: Substring) -> TimeOfDay? {
    let numbers = text.split(separator: ":").compactMap { Int($0) }
    guard numbers.count == 2 || numbers.count == 3 else { return nil }
    return .time(numbers[0], numbers[1], numbers.count == 3 ? numbers[2] : 0)
  }
}
