#if SQLite
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Texts as a JSON array, which statements look into.
enum StoredTexts {
  /// Returns the array; `nil` if there are no texts.
  static func text(of texts: some Collection<String>) -> String? {
    texts.isEmpty ? nil : json(of: texts)
  }

  static func json(of texts: some Collection<String>) -> String {
    // Texts can always be encoded.
    guard !texts.isEmpty, let data = try? JSONEncoder().encode(Array(texts)) else { return "[]" }
    return String(decoding: data, as: UTF8.self)
  }

  static func read(_ text: String?) throws -> [String] {
    guard let text else { return [] }
    do {
      return try JSONDecoder().decode([String].self, from: Data(text.utf8))
    } catch {
      throw UnreadableRow(column: "tags or conditions")
    }
  }
}

/// The failures before the last one as JSON: for each its text and its date.
enum StoredFailures {
  private struct Failure: Codable {
    var reason: String
    var date: Double
  }

  /// Returns the text for failures; `nil` if there are none.
  static func text(of failures: [TaskFailure]) -> String? {
    let stored = failures.map { Failure(reason: $0.reason, date: $0.date.timeIntervalSince1970) }
    guard !stored.isEmpty, let data = try? JSONEncoder().encode(stored) else { return nil }
    return String(decoding: data, as: UTF8.self)
  }

  static func read(_ text: String?) throws -> [TaskFailure] {
    guard let text else { return [] }
    do {
      return try JSONDecoder().decode([Failure].self, from: Data(text.utf8)).map { failure in
        TaskFailure(reason: failure.reason, date: Date(timeIntervalSince1970: failure.date))
      }
    } catch {
      throw UnreadableRow(column: "earlier_failures")
    }
  }
}

/// A key as it is stored: behind the name of its queue, so that no two queues have the same one.
enum StoredKey {
  /// No name of a queue has a control character, so the first one ends it.
  private static let separator = "\u{1}"

  static func text(of key: String, in queue: String) -> String { queue + separator + key }

  static func text(of key: String?, in queue: String) -> String? {
    key.map { text(of: $0, in: queue) }
  }

  static func key(in text: String?, of queue: String) -> String? {
    text.map { String(decoding: $0.utf8.dropFirst(queue.utf8.count + 1), as: UTF8.self) }
  }

  /// The key without its queue, in SQL.
  ///
  /// It counts bytes, since SQLite's characters end at one that is zero.
  static func key(inColumn column: String) -> String {
    "cast(substr(cast(\(column) as blob), length(cast(queue as blob)) + 2) as text)"
  }
}

/// A row has a value that this version does not know.
struct UnreadableRow: Error {
  let column: String
  /// The task of the row, if it is known.
  var id: TaskID?

  var reason: String { "has a value in \(column) that this version of Steadfast does not know" }
}

extension Statement {
  func state(_ column: Int32) throws -> TaskState {
    guard let state = TaskState(rawValue: text(column)) else {
      throw UnreadableRow(column: "state")
    }
    return state
  }
}
#endif
