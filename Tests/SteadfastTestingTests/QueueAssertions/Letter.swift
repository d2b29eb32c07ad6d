import SteadfastTesting

/// A payload for tests.
struct Letter: TaskPayload, Equatable {
  static let formerTaskNames = ["Note"]
  var text: String

  init(_ text: String) { self.text = text }
}

/// A payload that writes what it can't read.
struct Illegible: TaskPayload {
  private enum CodingKeys: CodingKey { case written, read }

  init() {}

  init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    _ = try container.decode(Int.self, forKey: .read)
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(1, forKey: .written)
  }
}

/// A payload that forgets a part of itself.
struct Forgetful: TaskPayload, Equatable {
  private enum CodingKeys: CodingKey { case kept }

  var kept = 1
  var lost = 0
}

/// What handlers throw in tests.
struct Offline: Error, Equatable {}
