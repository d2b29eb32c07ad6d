import SteadfastTesting
import Testing

/// A small history, and a promise that the history keeps or breaks.
struct HistoryExample: Sendable, CustomTestStringConvertible {
  let promise: History.Promise
  let name: String
  let isLegal: Bool
  let history: History
  var expectations = History.Expectations()

  var testDescription: String { "\(promise.rawValue), \(isLegal ? "legal" : "illegal"): \(name)" }

  /// Returns an example that keeps the promise.
  static func legal(
    _ promise: History.Promise,
    _ name: String,
    _ expectations: History.Expectations = History.Expectations(),
    _ write: (inout HistoryScript) -> Void
  ) -> HistoryExample { makeExample(promise, name, isLegal: true, expectations, write) }

  /// Returns an example that breaks the promise.
  static func illegal(
    _ promise: History.Promise,
    _ name: String,
    _ expectations: History.Expectations = History.Expectations(),
    _ write: (inout HistoryScript) -> Void
  ) -> HistoryExample { makeExample(promise, name, isLegal: false, expectations, write) }

  private static func makeExample(
    _ promise: History.Promise,
    _ name: String,
    isLegal: Bool,
    _ expectations: History.Expectations,
    _ write: (inout HistoryScript) -> Void
  ) -> HistoryExample {
    var script = HistoryScript()
    write(&script)
    return HistoryExample(
      promise: promise,
      name: name,
      isLegal: isLegal,
      history: History(script.lines),
      expectations: expectations
    )
  }

  static let all = lost + added + ends + holders + counts + order + runners + waiting + time
}
