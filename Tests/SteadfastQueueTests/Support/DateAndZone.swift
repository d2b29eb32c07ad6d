import Foundation

/// A date, as in `2027-03-28T01:00:00Z`.
func date(_ text: String) throws -> Date { try Date(text, strategy: .iso8601) }

/// The time zone with an identifier such as `Europe/Berlin`.
func zone(_ identifier: String) throws -> TimeZone {
  guard let zone = TimeZone(identifier: identifier) else {
    throw Refusal("this system has no time zone '\(identifier)'")
  }
  return zone
}
