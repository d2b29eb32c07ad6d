import Foundation
import SteadfastTesting

/// Stores that lose data when reopened, share tasks incorrectly, or race.
extension Mutant {
  static let life = [
    Mutant("a new store has a task", breaks: "life.empty") {
      $0.first = { table in
        let id = TaskID(high: 1, low: 1)
        let record = TaskRecord(
          id: id,
          name: "Z",
          payload: StoredPayload([], format: .binary),
          createdDate: .distantPast,
          availableDate: .distantFuture
        )
        _ = table.apply([.insert(record, onDuplicate: .keep)])
      }
    },
    Mutant("opening twice interrupts tasks", breaks: "life.open-again") { $0.opensAnew = true },
    Mutant("a cancelled caller gets a cancellation error", breaks: "life.cancelled-caller") {
      $0.heedsCancellation = true
    },
    Mutant("a closed store answers", breaks: "life.close") { $0.closes = false },
    Mutant("a destroyed store answers", breaks: "life.destroy") { $0.destroys = false },
    Mutant("destroyed tasks come back", breaks: "life.destroyed-data") { $0.erases = false },
    Mutant("destroying a closed store leaves its tasks", breaks: "life.destroyed-anytime") {
      $0.destroysClosed = false
    },
    Mutant("destroying an unopened store leaves its tasks", breaks: "life.destroyed-anytime") {
      $0.destroysUnopened = false
    },
    Mutant("destroying a store twice throws", breaks: "life.destroyed-anytime") {
      $0.destroysAgain = .error
    },
    Mutant("destroying twice erases the next store's tasks", breaks: "life.destroyed-anytime") {
      $0.destroysAgain = .erasing
    },
  ]

  static let reopening = [
    Mutant("the last error is lost when opened again", breaks: "reopen.records") {
      $0.editWhenReopened { $0.record.lastError = nil }
    },
    Mutant("postponements are lost when opened again", breaks: "reopen.records") {
      $0.editWhenReopened { $0.record.isPostponed = false }
    },
    Mutant("earlier failures are lost when opened again", breaks: "reopen.records") {
      $0.editWhenReopened { $0.record.earlierFailures = [] }
    },
    Mutant("relaxed changes are lost when closed", breaks: "reopen.records") {
      $0.keepsRelaxed = false
    },
    Mutant("tasks are ordered by ID when opened again", breaks: "reopen.order") {
      $0.editWhenReopened { $0.place = Int($0.record.id.low & 0xffff) - 1_000_000 }
    },
    Mutant("a successor is claimed when opened again", breaks: "reopen.keys") {
      $0.editWhenReopened { if $0.record.keyRole == .successor { $0.record.keyRole = nil } }
    },
    Mutant("a restarted task has its old date when opened again", breaks: "reopen.removed") {
      $0.editWhenReopened { $0.record.availableDate = $0.record.createdDate }
    },
    Mutant("an interruption is not counted", breaks: "reopen.interrupted") {
      $0.reopen = { table in
        let counts = table.records.map(\.interruptionCount)
        table.interrupt()
        for (record, count) in zip(table.records, counts) {
          let index = table.entries.firstIndex { $0.record.id == record.id }
          if let index { table.entries[index].record.interruptionCount = count }
        }
      }
    },
    Mutant("an interrupted task stays running forever", breaks: "reopen.interrupted") {
      $0.reopen = { _ in }
    },
    Mutant("the tokens of leases repeat when opened again", breaks: "reopen.leases") {
      $0.keepsTokens = false
    },
  ]

  static let sharing = [
    Mutant("claims have a duration of zero", breaks: "sharing.durations", isShared: true) {
      $0.sharing = StoreSharing(leaseDuration: .zero)
    },
    Mutant("leases never expire", breaks: "sharing.runs-out", isShared: true) {
      $0.editRequests { $0.leaseDuration = nil }
    },
    Mutant("leases expire by the queue's clock", breaks: "sharing.clocks", isShared: true) {
      $0.usesClockOfRequests = true
    },
    Mutant("a stale lease is extended", breaks: "sharing.extend", isShared: true) {
      $0.replaceOutcomes { change, outcome in
        if case .extend = change { return .done }
        return outcome
      }
    },
    Mutant("leases are not extended", breaks: "sharing.extended", isShared: true) {
      $0.rewrite = { change in
        if case .extend = change { return .unpark(name: "") }
        return change
      }
    },
    Mutant("leases are extended by the queue's clock", breaks: "sharing.extended", isShared: true) {
      $0.extendsFromRequests = true
    },
    Mutant("an extension is too short", breaks: "sharing.extended", isShared: true) {
      $0.rewrite = { change in
        guard case .extend(let lease, let duration) = change else { return change }
        return .extend(lease, for: duration / 2)
      }
    },
    Mutant("the holder of a claim is lost", breaks: "sharing.holder", isShared: true) {
      $0.editRequests { $0.holder = "" }
    },
    Mutant("an extension moves the date of a claim", breaks: "sharing.holder", isShared: true) {
      $0.editChangedTask { change, entry, _ in
        guard case .extend = change, let start = entry.leaseStart else { return }
        entry.record.claim?.date = start
      }
    },
    Mutant("a claim shows its first end", breaks: "sharing.holder", isShared: true) {
      $0.editChangedTask { change, entry, before in
        if case .extend = change { entry.record.claim = before?.record.claim }
      }
    },
    Mutant("a rebase leaves leases of a fast clock", breaks: "sharing.clock-back", isShared: true) {
      $0.hasOneClock = true
      $0.rewrite = { change in
        if case .broad(.rebase) = change { return .unpark(name: "") }
        return change
      }
    },
    Mutant("the next date ignores ends of leases", breaks: "sharing.next-date", isShared: true) {
      $0.nextDate = { date, request, table in
        let waiting = table.records.filter { $0.state == .waiting }.map(\.availableDate)
        return waiting.filter { $0 > request.now }.min()
      }
    },
    Mutant("the next date is by the store's clock", breaks: "sharing.next-date", isShared: true) {
      $0.first = { $0.clock += 1_000_000 }
      $0.nextDate = { date, request, table in
        let waiting = table.records.filter { $0.state == .waiting }.map(\.availableDate)
        let ends = table.entries.compactMap(\.leaseEnd)
        return (waiting.filter { $0 > request.now } + ends).min()
      }
    },
    Mutant("a second store interrupts the first's tasks", breaks: "sharing.two", isShared: true) {
      $0.opensAnew = true
    },
    Mutant("each opening interrupts all other stores", breaks: "sharing.closed", isShared: true) {
      $0.opensAnew = true
    },
  ]

  static let concurrency = [
    Mutant("two claims both read before either writes", breaks: "concurrency.claims") {
      $0.racesInClaim = true
    },
    Mutant("two changes both read before either writes", breaks: "concurrency.changes") {
      $0.racesInApply = true
    },
    Mutant("two tasks with one unique key are inserted", breaks: "concurrency.keys") {
      $0.racesInApply = true
    },
    Mutant("two attempts with one lease both end", breaks: "concurrency.leases") {
      $0.racesInApply = true
    },
  ]

  static let model = [
    // Only the random cases cover this.
    Mutant("pausing an urgent claimed task resets its retries", breaks: "model.random") {
      $0.editChangedTask { change, entry, _ in
        guard case .move(.claimed, let move) = change, move.kind == .pause,
          entry.record.priority > .normal
        else { return }
        entry.record.retryCount = 0
      }
    }
  ]
}

extension PlainStore.Behaviour {
  /// Runs `body` on each entry when a store opens on the tasks of an earlier store.
  fileprivate mutating func editWhenReopened(
    _ body: @escaping @Sendable (inout ReferenceTable.Entry) -> Void
  ) {
    reopen = { table in
      table.interrupt()
      for index in table.entries.indices { body(&table.entries[index]) }
    }
  }
}
