#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// When a sleep or the wait for a completion ends, as a task remembers it.
///
/// In JSON, it is the date in seconds since 1970 or, if that was counted, a list of it and of the
/// date from which it was counted.
struct WaitEnd: Codable, Equatable, Sendable {
  private(set) var date: Date
  /// The date by the clock from which it was counted; `nil` if it was chosen.
  private(set) var countedFrom: Date?

  init(at date: Date) { self.date = date }

  init(after duration: Duration, from now: Date) {
    date = now.storable(after: duration)
    countedFrom = now
  }

  /// Returns the end of the same wait, counted from `now` if it was counted from a later date.
  ///
  /// The clock was ahead then.
  func counted(at now: Date) -> WaitEnd {
    guard let countedFrom, countedFrom > now else { return self }
    return WaitEnd(after: .seconds(date.timeIntervalSince(countedFrom)), from: now)
  }

  init(from decoder: any Decoder) throws {
    if let seconds = try? decoder.singleValueContainer().decode(Double.self) {
      self.init(at: Date(timeIntervalSince1970: seconds))
      return
    }
    var list = try decoder.unkeyedContainer()
    self.init(at: Date(timeIntervalSince1970: try list.decode(Double.self)))
    countedFrom = Date(timeIntervalSince1970: try list.decode(Double.self))
  }

  func encode(to encoder: any Encoder) throws {
    guard let countedFrom else {
      var container = encoder.singleValueContainer()
      return try container.encode(date.timeIntervalSince1970)
    }
    var list = encoder.unkeyedContainer()
    try list.encode(date.timeIntervalSince1970)
    try list.encode(countedFrom.timeIntervalSince1970)
  }
}
