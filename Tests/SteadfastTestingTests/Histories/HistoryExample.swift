import SteadfastTesting
import Testing

/// A small history, and the promise that it keeps or breaks.
struct HistoryExample: Sendable, CustomTestStringConvertible {
  let promise: History.Promise
  let name: String
  let isLegal: Bool
  let history: History
  var expectations = History.Expectations()

  var testDescription: String { "\(promise.rawValue), \(isLegal ? "legal" : "illegal"): \(name)" }

  static func legal(
    _ promise: History.Promise,
    _ name: String,
    _ expectations: History.Expectations = History.Expectations(),
    _ write: (inout HistoryScript) -> Void
  ) -> HistoryExample { example(promise, name, true, expectations, write) }

  static func illegal(
    _ promise: History.Promise,
    _ name: String,
    _ expectations: History.Expectations = History.Expectations(),
    _ write: (inout HistoryScript) -> Void
  ) -> HistoryExample { example(promise, name, false, expectations, write) }

  private static func example(
    _ promise: History.Promise,
    _ name: String,
    _ isLegal: Bool,
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
