import Foundation
import SteadfastTesting
import Synchronization

/// Stores whose claims return the wrong tasks, or return them in the wrong order.
extension Mutant {
  static let order = [
    Mutant("priority is ignored", breaks: "order.priority") {
      $0.goesBefore = { ($0.record.availableDate, $0.place) < ($1.record.availableDate, $1.place) }
    },
    Mutant("dates are ignored", breaks: "order.date") {
      $0.goesBefore = {
        ($1.record.priority.rawValue, $0.place) < ($0.record.priority.rawValue, $1.place)
      }
    },
    Mutant("tasks are ordered by ID", breaks: "order.kept") {
      $0.goesBefore = {
        $0.rank.hasSamePriorityAndDate(as: $1.rank)
          ? $0.record.id < $1.record.id : $0.rank < $1.rank
      }
    },
    Mutant("a retried task keeps its position", breaks: "order.retry") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .retry, let before { entry.place = before.place }
      }
    },
    Mutant("a resumed task moves to the front", breaks: "order.resume") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .resume { entry.place = 0 }
      }
    },
    Mutant("a restarted task keeps its position", breaks: "order.restart") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .restart, let before { entry.place = before.place }
      }
    },
    Mutant("a rescheduled task keeps its position", breaks: "order.reschedule") {
      $0.editChangedTask { change, entry, before in
        if change.move?.kind == .reschedule, let before { entry.place = before.place }
      }
    },
    Mutant("a released task moves to the end", breaks: "order.release") {
      $0.editChangedTask { change, entry, _ in
        if change.move?.kind == .release { entry.place += 1_000_000 }
      }
    },
  ]

  static let claims = [
    Mutant("tasks are claimed a second early", breaks: "claim.date") {
      $0.editRequests { $0.now += 1 }
    },
    Mutant("an earlier date of a claim is ignored", breaks: "claim.earlier-date") {
      let latest = LatestDate()
      $0.editRequests { $0.now = latest.include($0.now) }
    },
    Mutant("the limit is ignored", breaks: "claim.limit") {
      $0.editRequests { $0.limit = .max }
    },
    Mutant("a limit of zero means one", breaks: "claim.limit") {
      $0.editRequests { $0.limit = max(1, $0.limit) }
    },
    Mutant("a claim without names returns any task", breaks: "claim.names") {
      $0.editRequests { request in
        if request.names.isEmpty { request.otherNames = .max }
      }
    },
    Mutant("the capacity of names is ignored", breaks: "claim.names") {
      $0.editRequests { request in
        request.names = request.names.mapValues { _ in .max }
      }
    },
    Mutant("unlisted names share one capacity with all others", breaks: "claim.other-names") {
      $0.editRequests { $0.limit = min($0.limit, $0.names.values.reduce($0.otherNames, +)) }
    },
    Mutant("unlisted names are claimed", breaks: "claim.unknown-names") {
      $0.editRequests { $0.otherNames = .max }
    },
    Mutant("the versions of payloads are ignored", breaks: "claim.versions") {
      $0.editRequests { $0.versions = [:] }
    },
    Mutant("names without a version have the least version", breaks: "claim.versions") {
      $0.editRequests { request in
        guard let least = request.versions.values.min() else { return }
        for name in ["A", "B", "C"] where request.versions[name] == nil {
          request.versions[name] = least
        }
      }
    },
    Mutant("only older versions of payloads are claimed", breaks: "claim.versions") {
      $0.editRequests { request in
        request.versions = request.versions.mapValues { $0 - 1 }
      }
    },
    Mutant("a claim rejects a name with a NUL", breaks: "claim.texts") {
      $0.request = { request in
        let hasNUL = request.names.keys.contains { $0.utf8.contains(0) }
        guard !hasNUL else { throw PlainStoreError.refused }
        return request
      }
    },
    Mutant("a condition ends at a NUL", breaks: "claim.texts") {
      $0.editRequests { request in
        request.conditions = Set(
          request.conditions.map { TaskCondition(rawValue: $0.rawValue.untilNUL) }
        )
      }
    },
    Mutant("a name ends at a NUL", breaks: "claim.texts") {
      $0.editRequests { request in
        let names = request.names.map { ($0.key.untilNUL, $0.value) }
        request.names = Dictionary(names) { first, _ in first }
      }
    },
    Mutant("a running task is reported as waiting", breaks: "claim.once") {
      $0.editShownRecords { record in
        if record.state == .running { record.state = .waiting }
      }
    },
    Mutant("the next date is that of the oldest task", breaks: "claim.next-date") {
      $0.nextDate = { date, request, table in
        let later = table.entries.map(\.record).first {
          $0.state == .waiting && $0.availableDate > request.now
        }
        return later?.availableDate ?? date
      }
    },
    Mutant("there is no next date once the limit is reached", breaks: "claim.next-date-now") {
      $0.nextDate = { date, request, _ in date == request.now ? nil : date }
    },
    Mutant("a name without capacity makes the next date now", breaks: "claim.next-date-room") {
      $0.nextDate = { date, request, table in
        let hasMore = table.records.contains {
          $0.state == .waiting && $0.availableDate <= request.now
        }
        return hasMore ? request.now : date
      }
    },
  ]
}

extension ReferenceTable.Entry.Rank {
  /// Returns whether the two ranks have the same priority and date.
  fileprivate func hasSamePriorityAndDate(as other: Self) -> Bool {
    priority == other.priority && availableDate == other.availableDate
  }
}

extension String {
  /// The characters before the first NUL.
  fileprivate var untilNUL: String {
    String(String.UnicodeScalarView(unicodeScalars.prefix { $0 != "\0" }))
  }
}

/// The latest of the dates that were passed to ``include(_:)``.
private final class LatestDate: Sendable {
  private let latest = Mutex(Date.distantPast)

  /// Includes another date, and returns the latest of all dates so far.
  func include(_ date: Date) -> Date {
    latest.withLock {
      $0 = max($0, date)
      return $0
    }
  }
}
