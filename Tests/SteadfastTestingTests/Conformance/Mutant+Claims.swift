import Foundation
import SteadfastTesting
import Synchronization

/// Stores that hand tasks out in another order, or others than asked for.
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
    Mutant("the order is that of identities", breaks: "order.kept") {
      $0.goesBefore = {
        $0.rank.isEqual(to: $1.rank) ? $0.record.id < $1.record.id : $0.rank < $1.rank
      }
    },
    Mutant("a retry keeps its place", breaks: "order.retry") {
      $0.afterwards { change, entry, before in
        if case .retry = change, let before { entry.place = before.place }
      }
    },
    Mutant("what is resumed has its old place", breaks: "order.resume") {
      $0.afterwards { change, entry, before in
        if case .resume = change { entry.place = 0 }
      }
    },
    Mutant("a restart keeps its place", breaks: "order.restart") {
      $0.afterwards { change, entry, before in
        if case .restart = change, let before { entry.place = before.place }
      }
    },
    Mutant("a new date is all that changes", breaks: "order.reschedule") {
      $0.afterwards { change, entry, before in
        if case .reschedule = change, let before { entry.place = before.place }
      }
    },
    Mutant("what is released goes to the end", breaks: "order.release") {
      $0.afterwards { change, entry, _ in
        if case .release = change { entry.place += 1_000_000 }
      }
    },
  ]

  static let claims = [
    Mutant("tasks are handed out a second early", breaks: "claim.date") {
      $0.request = { request in
        var request = request
        request.now += 1
        return request
      }
    },
    Mutant("what was available by the latest date stays so", breaks: "claim.earlier-date") {
      let latest = LatestDate()
      $0.request = { request in
        var request = request
        request.now = latest.raise(to: request.now)
        return request
      }
    },
    Mutant("the limit is ignored", breaks: "claim.limit") {
      $0.request = { request in
        var request = request
        request.limit = .max
        return request
      }
    },
    Mutant("a limit of none is one of one", breaks: "claim.limit") {
      $0.request = { request in
        var request = request
        request.limit = max(1, request.limit)
        return request
      }
    },
    Mutant("who names nothing is given anything", breaks: "claim.names") {
      $0.request = { request in
        var request = request
        if request.names.isEmpty { request.otherNames = .max }
        return request
      }
    },
    Mutant("the room of names is ignored", breaks: "claim.names") {
      $0.request = { request in
        var request = request
        request.names = request.names.mapValues { _ in .max }
        return request
      }
    },
    Mutant("other names have the room of all together", breaks: "claim.other-names") {
      $0.request = { request in
        var request = request
        request.limit = min(request.limit, request.names.values.reduce(request.otherNames, +))
        return request
      }
    },
    Mutant("names that nobody claims are handed out", breaks: "claim.unknown-names") {
      $0.request = { request in
        var request = request
        request.otherNames = .max
        return request
      }
    },
    Mutant("a name with a NUL is refused in a claim", breaks: "claim.texts") {
      $0.request = { request in
        let hasNUL = request.names.keys.contains { $0.utf8.contains(0) }
        guard !hasNUL else { throw PlainStoreError.refused }
        return request
      }
    },
    Mutant("a condition ends at a NUL", breaks: "claim.texts") {
      $0.request = { request in
        var request = request
        request.conditions = Set(
          request.conditions.map { TaskCondition(rawValue: $0.rawValue.untilNUL) }
        )
        return request
      }
    },
    Mutant("a name ends at a NUL", breaks: "claim.texts") {
      $0.request = { request in
        var request = request
        let names = request.names.map { ($0.key.untilNUL, $0.value) }
        request.names = Dictionary(names) { first, _ in first }
        return request
      }
    },
    Mutant("a running task looks as if it waited", breaks: "claim.once") {
      $0.shown = { record in
        var record = record
        if record.state == .running { record.state = .waiting }
        return record
      }
    },
    Mutant("the next date is that of what was kept first", breaks: "claim.next-date") {
      $0.nextDate = { date, request, table in
        let later = table.entries.map(\.record).first {
          $0.state == .waiting && $0.availableDate > request.now
        }
        return later?.availableDate ?? date
      }
    },
    Mutant("the next date is nothing when the limit is reached", breaks: "claim.next-date-now") {
      $0.nextDate = { date, request, _ in date == request.now ? nil : date }
    },
    Mutant("the next date is now for want of room", breaks: "claim.next-date-room") {
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
  /// Whether only the places differ.
  fileprivate func isEqual(to other: Self) -> Bool {
    priority == other.priority && availableDate == other.availableDate
  }
}

extension String {
  /// What stands before the first NUL.
  fileprivate var untilNUL: String {
    String(String.UnicodeScalarView(unicodeScalars.prefix { $0 != "\0" }))
  }
}

/// The latest date of all claims.
private final class LatestDate: Sendable {
  private let latest = Mutex(Date.distantPast)

  func raise(to date: Date) -> Date {
    latest.withLock {
      $0 = max($0, date)
      return $0
    }
  }
}
