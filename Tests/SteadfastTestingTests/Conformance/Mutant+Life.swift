import Foundation
import SteadfastTesting

/// Stores that forget, that share badly, and that take turns badly.
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
    Mutant("opening once more interrupts", breaks: "life.open-again") { $0.opensAnew = true },
    Mutant("who is cancelled is thrown out", breaks: "life.cancelled-caller") {
      $0.heedsCancellation = true
    },
    Mutant("a closed store answers", breaks: "life.close") { $0.closes = false },
    Mutant("a destroyed store answers", breaks: "life.destroy") { $0.destroys = false },
    Mutant("what was destroyed comes back", breaks: "life.destroyed-data") { $0.erases = false },
    Mutant("a closed store leaves its tasks", breaks: "life.destroyed-anytime") {
      $0.destroysClosed = false
    },
    Mutant("a store that was not opened leaves tasks", breaks: "life.destroyed-anytime") {
      $0.destroysUnopened = false
    },
    Mutant("a store is destroyed only once", breaks: "life.destroyed-anytime") {
      $0.destroysAgain = .error
    },
    Mutant("a destroyed store takes the tasks of the next", breaks: "life.destroyed-anytime") {
      $0.destroysAgain = .erasing
    },
  ]

  static let reopening = [
    Mutant("the last error is lost when opened again", breaks: "reopen.records") {
      $0.atReopening { $0.record.lastError = nil }
    },
    Mutant("what was put off is forgotten when opened again", breaks: "reopen.records") {
      $0.atReopening { $0.record.isPostponed = false }
    },
    Mutant("earlier failures are lost when opened again", breaks: "reopen.records") {
      $0.atReopening { $0.record.earlierFailures = [] }
    },
    Mutant("relaxed changes are lost when closed", breaks: "reopen.records") {
      $0.keepsRelaxed = false
    },
    Mutant("the order is that of identities when opened again", breaks: "reopen.order") {
      $0.atReopening { $0.place = Int($0.record.id.low & 0xffff) - 1_000_000 }
    },
    Mutant("a successor is handed out when opened again", breaks: "reopen.keys") {
      $0.atReopening { if $0.record.keyRole == .successor { $0.record.keyRole = nil } }
    },
    Mutant("what was restarted has its old date when opened again", breaks: "reopen.removed") {
      $0.atReopening { $0.record.availableDate = $0.record.createdDate }
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
    Mutant("what was running stays so for ever", breaks: "reopen.interrupted") {
      $0.reopen = { _ in }
    },
    Mutant("leases are counted anew when opened again", breaks: "reopen.leases") {
      $0.keepsTokens = false
    },
  ]

  static let sharing = [
    Mutant("claims last no time", breaks: "sharing.durations", isShared: true) {
      $0.sharing = StoreSharing(leaseDuration: .zero)
    },
    Mutant("claims never run out", breaks: "sharing.runs-out", isShared: true) {
      $0.request = { request in
        var request = request
        request.leaseDuration = nil
        return request
      }
    },
    Mutant("the clock of who claims ends claims", breaks: "sharing.clocks", isShared: true) {
      $0.usesClockOfRequests = true
    },
    Mutant("a claim that is not held is extended", breaks: "sharing.extend", isShared: true) {
      $0.answers { change, outcome in
        if case .extend = change { return .done }
        return outcome
      }
    },
    Mutant("claims are not extended", breaks: "sharing.extended", isShared: true) {
      $0.rewrite = { change in
        if case .extend = change { return .unpark(name: "") }
        return change
      }
    },
    Mutant("claims are extended by a queue's clock", breaks: "sharing.extended", isShared: true) {
      $0.extendsFromRequests = true
    },
    Mutant("an extension lasts too short", breaks: "sharing.extended", isShared: true) {
      $0.rewrite = { change in
        guard case .extend(let lease, let duration) = change else { return change }
        return .extend(lease, for: duration / 2)
      }
    },
    Mutant("a claim of a clock that was ahead lasts", breaks: "sharing.clock-back", isShared: true)
    {
      $0.hasOneClock = true
      $0.rewrite = { change in
        if case .rebase = change { return .unpark(name: "") }
        return change
      }
    },
    Mutant("the ends of claims are no next date", breaks: "sharing.next-date", isShared: true) {
      $0.nextDate = { date, request, table in
        let waiting = table.records.filter { $0.state == .waiting }.map(\.availableDate)
        return waiting.filter { $0 > request.now }.min()
      }
    },
    Mutant("the store's clock tells the next date", breaks: "sharing.next-date", isShared: true) {
      $0.first = { $0.clock += 1_000_000 }
      $0.nextDate = { date, request, table in
        let waiting = table.records.filter { $0.state == .waiting }.map(\.availableDate)
        let ends = table.entries.compactMap(\.leaseEnd)
        return (waiting.filter { $0 > request.now } + ends).min()
      }
    },
    Mutant("a second store takes tasks over at once", breaks: "sharing.two", isShared: true) {
      $0.opensAnew = true
    },
    Mutant("whoever opens interrupts all others", breaks: "sharing.closed", isShared: true) {
      $0.opensAnew = true
    },
  ]

  static let concurrency = [
    Mutant("two claims read before either writes", breaks: "concurrency.claims") {
      $0.racesInClaim = true
    },
    Mutant("two changes read before either writes", breaks: "concurrency.changes") {
      $0.racesInApply = true
    },
    Mutant("two twins are looked for before either is kept", breaks: "concurrency.keys") {
      $0.racesInApply = true
    },
    Mutant("two ends are checked before either is kept", breaks: "concurrency.leases") {
      $0.racesInApply = true
    },
  ]

  static let model = [
    // No requirement with steps of its own has this case.
    Mutant("who pauses an urgent task that is claimed resets its retries", breaks: "model.random") {
      $0.afterwards { change, entry, _ in
        guard case .pause(.claimed) = change, entry.record.priority > .normal else { return }
        entry.record.retryCount = 0
      }
    }
  ]
}

extension PlainStore.Behaviour {
  fileprivate mutating func atReopening(
    _ body: @escaping @Sendable (inout ReferenceTable.Entry) -> Void
  ) {
    reopen = { table in
      table.interrupt()
      for index in table.entries.indices { body(&table.entries[index]) }
    }
  }
}
