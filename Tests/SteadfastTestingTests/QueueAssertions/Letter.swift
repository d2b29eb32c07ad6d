import SteadfastTesting

/// A payload for tests.
struct Letter: TaskPayload, Equatable {
  static let formerTaskNames = ["Note"]
  var text: String

  init(_ text: String) { self.text = text }
}

/// A payload that can be encoded, but can't be decoded from that encoding.
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

/// A payload that loses the value of one property when it is encoded.
struct Forgetful: TaskPayload, Equatable {
  private enum CodingKeys: CodingKey { case kept }

  var kept = 1
  var lost = 0
}

/// An error that handlers throw in tests.
struct Offline: Error, Equatable {}
