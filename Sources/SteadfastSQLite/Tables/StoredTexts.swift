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

  /// Returns the text for the last four of the failures; `nil` if there are none.
  static func text(of failures: [TaskFailure]) -> String? {
    let stored = failures.suffix(4).map { failure in
      // The texts are cut as `TaskRecord.note(_:)` cuts them.
      Failure(
        reason: String(failure.reason.unicodeScalars.prefix(500)),
        date: failure.date.timeIntervalSince1970
      )
    }
    return text(of: stored)
  }

  /// Returns the text for failures that are kept as they are.
  static func wholeText(of failures: [TaskFailure]) -> String? {
    text(
      of: failures.map { Failure(reason: $0.reason, date: $0.date.timeIntervalSince1970) }
    )
  }

  private static func text(of failures: [Failure]) -> String? {
    guard !failures.isEmpty, let data = try? JSONEncoder().encode(failures) else { return nil }
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

/// A key as it is stored: with the name of its queue, so that no two queues have the same one.
enum StoredKey {
  private static let separator = "\u{1}"

  static func text(of key: String?, in queue: String) -> String? {
    queue.isEmpty ? key : key.map { queue + separator + $0 }
  }

  static func key(in text: String?, of queue: String) -> String? {
    guard let text, !queue.isEmpty else { return text }
    return String(decoding: text.utf8.dropFirst(queue.utf8.count + 1), as: UTF8.self)
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
