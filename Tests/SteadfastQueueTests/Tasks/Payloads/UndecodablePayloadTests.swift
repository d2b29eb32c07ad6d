import Testing

@testable import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Tests the stored error message for a payload that can't be decoded.
@Suite struct UndecodablePayloadTests {
  private struct Grant: Codable {
    var level: Int
    var since: Date?
  }

  private struct Grants: Codable {
    var byPerson: [String: Grant] = [:]
    var byAccount: [Int: [Grant]] = [:]
    var free = Free(names: [])
  }

  /// A type whose coding keys are data.
  private struct Free: Codable {
    struct Key: CodingKey {
      var stringValue: String
      var intValue: Int? { nil }
      init(stringValue: String) { self.stringValue = stringValue }
      init?(intValue: Int) { nil }
    }

    var names: [String]

    init(names: [String]) { self.names = names }

    init(from decoder: any Decoder) throws {
      let container = try decoder.container(keyedBy: Key.self)
      names = try container.allKeys.map { try container.decode(String.self, forKey: $0) }
    }

    func encode(to encoder: any Encoder) throws {}
  }

  private func problem(_ json: String) -> String? {
    do {
      _ = try JSONDecoder().decode(Grants.self, from: Data(json.utf8))
      return nil
    } catch {
      let text = UndecodablePayload(name: "Grants", type: "Grants", error).description
      let start = "the payload of 'Grants' can't be decoded as Grants: "
      return text.hasPrefix(start) ? String(text.dropFirst(start.count)) : nil
    }
  }

  @Test(arguments: [
    (
      #"{"byPerson":{"alice@example.com":{"level":"high"}}}"#,
      "'byPerson.….level' is not of type Int"
    ),
    (
      #"{"byPerson":{"alice@example.com":7}}"#,
      "'byPerson.…' is not of type Dictionary<String, Any>"
    ),
    (#"{"byPerson":{"alice@example.com":{}}}"#, "the key 'byPerson.….level' is missing"),
    (
      #"{"byPerson":{},"byAccount":{"4711":[{"level":null}]}}"#,
      "'byAccount.….….level' is null instead of a value of type Int"
    ),
    (#"{"byPerson":{},"byAccount":{},"free":{"alice":1}}"#, "'free.…' is not of type String"),
    (#"{"byPerson":{},"byAccount":{}}"#, "the key 'free' is missing"),
    ("[]", "it is not of type Dictionary<String, Any>"),
    ("{", "it can't be read"),
  ])
  func `the error contains keys of the program but no data`(json: String, text: String) throws {
    let found = try #require(problem(json))
    #expect(found == text)
    for datum in ["alice", "example", "4711", "high"] { #expect(!found.contains(datum)) }
  }
}
