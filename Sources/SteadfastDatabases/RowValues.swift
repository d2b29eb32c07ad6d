package import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The failures before the last one as JSON: for each its text and its date.
package enum StoredFailures {
  private struct Failure: Codable {
    var reason: String
    var date: Double
  }

  /// Returns the text for failures; `nil` if there are none.
  package static func text(of failures: [TaskFailure]) -> String? {
    let stored = failures.map { Failure(reason: $0.reason, date: $0.date.timeIntervalSince1970) }
    guard !stored.isEmpty, let data = try? JSONEncoder().encode(stored) else { return nil }
    return String(decoding: data, as: UTF8.self)
  }

  /// Returns the text for the earlier failures of a task, to which its last one is added.
  ///
  /// The row has the text and the date of the last failure, and the earlier ones.
  package static func textWithLast(_ row: some TaskRow) throws -> String? {
    let earlier = try read(row.ifAny(2, row.text))
    guard let reason = row.ifAny(0, row.text), let date = row.ifAny(1, row.date) else {
      return text(of: earlier)
    }
    let last = TaskFailure(reason: reason, date: date)
    return text(of: TaskRecord.kept(earlier + [last.shortened()]))
  }

  package static func read(_ text: String?) throws -> [TaskFailure] {
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
package enum StoredKey {
  /// No name of a queue has a control character, so the first one ends it.
  private static let separator = "\u{1}"

  package static func text(of key: String, in queue: String) -> String { queue + separator + key }

  package static func text(of key: String?, in queue: String) -> String? {
    key.map { text(of: $0, in: queue) }
  }

  package static func key(in text: String?, of queue: String) -> String? {
    text.map { String(decoding: $0.utf8.dropFirst(queue.utf8.count + 1), as: UTF8.self) }
  }
}

/// A row has a value that this version does not know.
package struct UnreadableRow: Error {
  package let column: String
  /// The task of the row, if it is known.
  package var id: TaskID?

  package init(column: String, id: TaskID? = nil) {
    self.column = column
    self.id = id
  }

  package var reason: String {
    "has a value in \(column) that this version of Steadfast does not know"
  }
}

extension TaskState {
  /// The states of tasks that have not ended and are not claimed.
  package static let unclaimed: Set<TaskState> = [.waiting, .suspended, .parked, .paused]
  package static let ended: Set<TaskState> = [.succeeded, .abandoned, .cancelled]
}
