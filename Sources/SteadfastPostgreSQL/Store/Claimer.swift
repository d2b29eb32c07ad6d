#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What makes claims on a session; one thread uses both.
///
/// A claim need only survive the process, so it waits for no flush, and none waits for it. It goes
/// out along with its commit, and writes no row of a request: its token tells what it has taken.
final class Claimer {
  /// From how many rows on that are gone claims keep their places.
  private static let manyDeadRows = 20_000
  /// How long a claim takes, at least, after which they are counted.
  private static let slowClaim = Duration.milliseconds(3)
  /// For how many order keys that others have locked a look waits, at most.
  private static let mostBusyKeys = 8

  private let place: DatabaseLocation
  private let session: Session
  /// How long claims that have run out may wait until they are ended; `nil` if they have no end.
  private let interval: DispatchTimeInterval?
  private var nextLook = DispatchTime.now()
  /// The tokens of claims that no caller was told of, but which may have been stored.
  private var tokensInDoubt: [UInt64] = []
  /// What the store's changes have made available, while claims keep their places.
  private let notes: DeletedRowNotes
  /// Where the claims of each queue begin.
  private var starts: [ExactText: ClaimCursors] = [:]
  private var keepsPlaces: Bool
  private var nextCount = ContinuousClock.now

  init(
    _ place: DatabaseLocation,
    on session: Session,
    leaseDuration: Duration?,
    _ notes: DeletedRowNotes
  ) {
    self.place = place
    self.session = session
    self.notes = notes
    keepsPlaces = place.alwaysKeepsPlaces
    notes.set(isOn: keepsPlaces)
    interval = leaseDuration.map { duration in
      .nanoseconds(Int(min(max(duration, .zero), .seconds(3_600)) / .nanoseconds(3)))
    }
  }

  func perform(_ job: StoreJob) {
    guard case .claim(let request) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result { try claim(request) }
    job.continuation.resume(with: result.map { .claim($0) }.mapError(place.error))
  }

  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    let start = ContinuousClock.now
    let places = try keepsPlaces ? places(for: request) : nil
    let found: [(task: ClaimedTask, position: Int)]
    do {
      found = try take(request, from: places)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      choose(after: start.duration(to: .now))
      throw failure
    }
    choose(after: start.duration(to: .now))
    // A claim of nothing looks whether there is something.
    guard !found.isEmpty else { return Claim(tasks: [], nextDate: try nextDate(request, places)) }
    if keepsPlaces { note(found, ofQueue: request.queue) }
    return Claim(tasks: found.map(\.task), nextDate: request.now)
  }

  /// Claims tasks, in all lanes or in those of which the places are known.
  private func take(
    _ request: ClaimRequest,
    from starts: ClaimCursors.Places?
  ) throws -> [(task: ClaimedTask, position: Int)] {
    // A random number tells this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    let results = try session.transactionAtOnce { tables in
      if !tokensInDoubt.isEmpty { try tables.putBack(claimedWith: tokensInDoubt) }
      if tokensInDoubt.last != token { tokensInDoubt.append(token) }
      try tables.sendClaim(request, from: starts, token: token)
    }
    guard let rows = results.last, rows.count > 0 else {
      tokensInDoubt = []
      return []
    }
    let (tasks, unreadable) = try session.openedTables().claimedTasks(in: rows, with: token)
    if !unreadable.isEmpty {
      try session.transaction(isDurable: false, isRepeatable: true) { tables in
        for task in unreadable { try tables.park(task, token: token, at: request.now) }
      }
    }
    tokensInDoubt = []
    return tasks
  }

  // MARK: Places

  /// Where the claim begins in each lane.
  private func places(for request: ClaimRequest) throws -> ClaimCursors.Places {
    let queue = ExactText(request.queue)
    let now = ContinuousClock.now
    let freed = notes.take(forQueue: request.queue)
    var own = starts[queue] ?? ClaimCursors(isExact: place.alwaysKeepsPlaces)
    defer { starts[queue] = own }
    if let known = own.places(for: request, after: freed, at: now) { return known }
    do {
      let firsts = try session.look { try Tables.firstPlaces(ofQueue: request.queue, in: $0) }
      return own.note(firsts, for: request, from: now, to: .now)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server has given the look up, beside too many dead rows. Claims go on from where they
      // are.
      guard let known = own.noteFailedLook(from: now, to: .now) else { throw failure }
      return known
    }
  }

  private func note(_ found: [(task: ClaimedTask, position: Int)], ofQueue queue: String) {
    for (task, position) in found {
      let record = task.record
      starts[ExactText(queue)]?.note(
        ClaimCursors.Lane(of: record),
        upTo: ClaimCursors.Place(date: record.availableDate, position: position)
      )
    }
  }

  /// Chooses whether the next claims keep their places, after one that has taken so long.
  private func choose(after time: Duration) {
    let now = ContinuousClock.now
    guard keepsPlaces || time >= Self.slowClaim, now >= nextCount, !place.alwaysKeepsPlaces else {
      return
    }
    nextCount = now + .seconds(1)
    // The claim is made, whatever becomes of this.
    guard let count = try? session.look({ try Tables.deadRowCount(in: $0) }),
      keepsPlaces != (count >= Self.manyDeadRows)
    else { return }
    keepsPlaces.toggle()
    notes.set(isOn: keepsPlaces)
    starts = [:]
  }

  private func nextDate(
    _ request: ClaimRequest,
    _ places: ClaimCursors.Places?
  ) throws -> Date? {
    let date = try session.look { try Tables.nextDate(for: request, from: places, in: $0) }
    guard let own = starts[ExactText(request.queue)], places != nil, !place.alwaysKeepsPlaces else {
      return date
    }
    let look = request.now + max(own.timeToLook(at: .now), .seconds(1)) / .seconds(1)
    return min(date ?? look, look)
  }

  // MARK: Claims that are over

  /// Makes the tasks available whose claims have run out, three times in a lease.
  ///
  /// The clock of a test does not run: there, each claim looks.
  private func endOverdueClaims() throws {
    guard let interval, DispatchTime.now() >= nextLook || place.clockOffset != nil else { return }
    let found: [Tables.OverdueTask]
    do {
      let start = ContinuousClock.now
      // Where many claims are over whose rows are not removed, a look takes long.
      defer {
        let rest = Int(min(start.duration(to: .now) * 10, .seconds(3_600)) / .nanoseconds(1))
        nextLook = max(.now() + interval, .now() + .nanoseconds(rest))
      }
      found = try session.transaction(isDurable: false) { try $0.overdueTasks(.ofThePast) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server has given the look up, beside too many dead rows. The claim goes on without it.
      return
    }
    guard !found.isEmpty else { return }
    let left = try interrupt(found, waitsForKeys: false).filter { $0.orderKey != nil }
    // A key for which other sessions wait in turn is free at no moment: this one waits its turn.
    let busy = Dictionary(grouping: left, by: \.orderKey).values.shuffled()
    for tasks in busy.prefix(Self.mostBusyKeys) { _ = try interrupt(tasks, waitsForKeys: true) }
    notes.noteOthers()
  }

  /// Makes tasks available but for those that others have locked, which the next look finds again.
  ///
  /// The turn of an order key may go to a task that is locked: then the others do not wait for it.
  ///
  /// - Returns: The tasks that were passed over at once, since they or their order keys are locked.
  private func interrupt(
    _ tasks: [Tables.OverdueTask],
    waitsForKeys: Bool
  ) throws -> [Tables.OverdueTask] {
    do {
      let free = try session.transaction(isDurable: false) { tables in
        try tables.database.send("set local lock_timeout = '100ms'")
        let ids = tasks.map(\.id)
        if waitsForKeys { try tables.lockOrders(of: ids) }
        let free = try tables.lockFree(ids)
        tables.hasChanged = !free.isEmpty
        try tables.interrupt(free, .ofThePast)
        return Set(free)
      }
      return tasks.filter { !free.contains($0.id) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      let keys = Dictionary(grouping: tasks, by: \.orderKey)
      guard keys.count > 1 else { return [] }
      return try keys.values.flatMap { try interrupt($0, waitsForKeys: waitsForKeys) }
    }
  }
}

/// What extends claims on a session; one thread uses both.
///
/// Claims run out while their extension waits. So it doesn't wait for other changes, which wait for
/// locks, or for claims, which may take long. A task that another session has locked delays only
/// the extension of its own claim.
final class Extender {
  /// How long a call waits for tasks that are locked, or a tenth of the lease if that is shorter.
  private static let patience = Duration.seconds(1)
  private static let pause = DispatchTimeInterval.milliseconds(20)

  private let session: Session
  private let pauses = DispatchSemaphore(value: 0)

  init(on session: Session) { self.session = session }

  func perform(_ job: StoreJob) {
    guard case .apply(let batch, let isDurable) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result { try extend(batch.compactMap(\.extension), isDurable: isDurable) }
    job.continuation.resume(with: result.map { .outcomes($0) }.mapError(session.place.error))
  }

  /// Extends claims, at once where no other session has locked the task.
  ///
  /// - Throws: A failure that passes if a task stays locked. The other claims are extended then.
  private func extend(
    _ extensions: [(lease: Lease, duration: Duration)],
    isDurable: Bool
  ) throws -> [ChangeOutcome] {
    // Of several extensions of one claim, the last one counts.
    var left = Dictionary(extensions.map { ($0.lease, $0.duration) }) { $1 }
    var extended: Set<Lease> = []
    let shortest = left.values.min() ?? .zero
    let end = ContinuousClock.now + min(Self.patience, shortest / 10)
    while true {
      for (duration, claims) in Dictionary(grouping: left, by: \.value) {
        let leases = claims.map(\.key)
        let found = try session.transaction(isDurable: isDurable, isRepeatable: true) { tables in
          try tables.extendFree(leases, for: duration)
        }
        for lease in leases where found[lease] != false { left[lease] = nil }
        extended.formUnion(found.filter(\.value).keys)
      }
      if left.isEmpty { return extensions.map { extended.contains($0.lease) ? .done : .stale } }
      guard ContinuousClock.now < end else {
        throw PostgreSQLFailure(
          state: "55P03",
          text: "other sessions have locked \(left.count) of the tasks whose claims are extended"
        )
      }
      _ = pauses.wait(timeout: .now() + Self.pause)
    }
  }
}

extension StoreJob.Call {
  /// Whether all that the call does is to extend claims.
  var onlyExtends: Bool {
    guard case .apply(let batch, _) = self else { return false }
    return !batch.isEmpty && batch.allSatisfy { $0.extension != nil }
  }
}

extension PreparedChange {
  /// The claim that the change extends, if it does so.
  fileprivate var `extension`: (lease: Lease, duration: Duration)? {
    if case .extend(let lease, let duration) = change { (lease, duration) } else { nil }
  }
}
#endif
