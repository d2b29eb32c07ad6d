@testable import SteadfastQueue

/// A payload for tests.
struct Note: TaskPayload, Equatable {
  var text: String

  init(_ text: String) { self.text = text }
}

/// An error that handlers throw in tests.
struct Refusal: Error, CustomStringConvertible {
  let description: String

  init(_ description: String = "refused") { self.description = description }
}
