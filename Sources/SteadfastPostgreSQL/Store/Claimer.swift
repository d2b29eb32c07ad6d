#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Makes claims on a session; one thread uses both.
///
/// A claim need only survive the process, so claims do not wait for a flush, and no flush waits for
/// claims. A claim is sent together with its commit, and writes no request row, because its token
/// identifies the claimed tasks.
final class Claimer {
  /// The number of dead rows at which claims start to keep their positions.
  private static let manyDeadRows = 20_000
  /// The shortest duration of a claim that triggers a count of the dead rows.
  private static let slowClaim = Duration.milliseconds(3)
  /// The maximum number of locked order keys that a search for expired claims waits for.
  private static let mostBusyKeys = 8

  private let place: DatabaseLocation
  private let session: Session
  /// The interval between searches for expired claims; `nil` if claims have no end.
  private let interval: DispatchTimeInterval?
  private var nextLook = DispatchTime.now()
  /// The tokens of claims that may be stored, but whose tasks were not returned to a caller.
  private var tokensInDoubt: [UInt64] = []
  /// The tasks that the store's changes made available, while claims keep their positions.
  private let notes: FreedTaskNotes
  /// The positions from which the claims of each queue read.
  private var starts: [ExactText: ClaimCursors] = [:]
  private var keepsPlaces: Bool
  private var nextCount = ContinuousClock.now

  init(
    _ place: DatabaseLocation,
    on session: Session,
    leaseDuration: Duration?,
    _ notes: FreedTaskNotes
  ) {
    self.place = place
    self.session = session
    self.notes = notes
    keepsPlaces = place.alwaysKeepsPlaces
    notes.setRecording(isOn: keepsPlaces)
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
    job.continuation.resume(with: result.map { .claim($0) }.mapError(place.errorForCaller))
  }

  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    let start = ContinuousClock.now
    let places = try keepsPlaces ? places(for: request) : nil
    let found: [(task: ClaimedTask, position: Int)]
    do {
      found = try claimTasks(for: request, from: places)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      chooseWhetherToKeepPlaces(afterClaimTaking: start.duration(to: .now))
      throw failure
    }
    chooseWhetherToKeepPlaces(afterClaimTaking: start.duration(to: .now))
    // After an empty claim, finds out when to claim again.
    guard !found.isEmpty else {
      return Claim(tasks: [], nextDate: try nextDate(for: request, from: places))
    }
    if keepsPlaces { recordClaims(found, inQueue: request.queue) }
    return Claim(tasks: found.map(\.task), nextDate: request.now)
  }

  /// Claims tasks in all lanes, or from the known positions of lanes.
  private func claimTasks(
    for request: ClaimRequest,
    from starts: ClaimCursors.Places?
  ) throws -> [(task: ClaimedTask, position: Int)] {
    // A random number distinguishes this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    let results = try session.transactionAtOnce { tables in
      if !tokensInDoubt.isEmpty { try tables.requeue(claimedWith: tokensInDoubt) }
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
        for task in unreadable { try tables.parkUnreadable(task, token: token, at: request.now) }
      }
    }
    tokensInDoubt = []
    return tasks
  }

  // MARK: Places

  /// Returns the position from which a claim reads each lane.
  private func places(for request: ClaimRequest) throws -> ClaimCursors.Places {
    let queue = ExactText(request.queue)
    let now = ContinuousClock.now
    let freed = notes.takeRecords(forQueue: request.queue)
    var own = starts[queue] ?? ClaimCursors(isExact: place.alwaysKeepsPlaces)
    defer { starts[queue] = own }
    if let known = own.places(for: request, freed: freed, at: now) { return known }
    do {
      let firsts = try session.lookUp { try Tables.firstPlaces(ofQueue: request.queue, in: $0) }
      return own.recordLook(firsts, for: request, from: now, to: .now)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server cancelled the look because of too many dead rows. Claims continue from their
      // current positions.
      guard let known = own.recordFailedLook(from: now, to: .now) else { throw failure }
      return known
    }
  }

  private func recordClaims(_ found: [(task: ClaimedTask, position: Int)], inQueue queue: String) {
    for (task, position) in found {
      let record = task.record
      starts[ExactText(queue)]?.recordClaim(
        in: ClaimCursors.Lane(of: record),
        upTo: ClaimCursors.Place(date: record.availableDate, position: position)
      )
    }
  }

  /// Chooses, from the duration of a claim, whether the next claims keep their positions.
  private func chooseWhetherToKeepPlaces(afterClaimTaking time: Duration) {
    let now = ContinuousClock.now
    guard keepsPlaces || time >= Self.slowClaim, now >= nextCount, !place.alwaysKeepsPlaces else {
      return
    }
    nextCount = now + .seconds(1)
    // The claim is already made, so errors are ignored here.
    guard let count = try? session.lookUp({ try Tables.deadRowCount(in: $0) }),
      keepsPlaces != (count >= Self.manyDeadRows)
    else { return }
    keepsPlaces.toggle()
    notes.setRecording(isOn: keepsPlaces)
    starts = [:]
  }

  private func nextDate(
    for request: ClaimRequest,
    from places: ClaimCursors.Places?
  ) throws -> Date? {
    let date = try session.lookUp { try Tables.nextDate(for: request, from: places, in: $0) }
    guard let own = starts[ExactText(request.queue)], places != nil, !place.alwaysKeepsPlaces else {
      return date
    }
    let look = request.now + max(own.timeToLook(at: .now), .seconds(1)) / .seconds(1)
    return min(date ?? look, look)
  }

  // MARK: Expired claims

  /// Makes the tasks with expired claims available, at most three times per lease.
  ///
  /// In a test that has its own clock, each claim does this.
  private func endOverdueClaims() throws {
    guard let interval, DispatchTime.now() >= nextLook || place.clockOffset != nil else { return }
    let found: [Tables.OverdueTask]
    do {
      let start = ContinuousClock.now
      // If many claims have ended since the table was vacuumed, the search takes long.
      defer {
        let rest = Int(min(start.duration(to: .now) * 10, .seconds(3_600)) / .nanoseconds(1))
        nextLook = max(.now() + interval, .now() + .nanoseconds(rest))
      }
      found = try session.transaction(isDurable: false) { try $0.tasks(withClaims: .ofThePast) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server cancelled the search because of too many dead rows. The claim continues anyway.
      return
    }
    guard !found.isEmpty else { return }
    let left = try requeueUnlocked(found, waitsForKeys: false).filter { $0.orderKey != nil }
    // While other sessions wait in line for a key, the key is never free. So this session waits in
    // line, too.
    let busy = Dictionary(grouping: left, by: \.orderKey).values.shuffled()
    for tasks in busy.prefix(Self.mostBusyKeys) {
      _ = try requeueUnlocked(tasks, waitsForKeys: true)
    }
    notes.recordTasksFreedAnywhere()
  }

  /// Makes tasks available, except locked tasks, which the next search finds again.
  ///
  /// If the turn of an order key goes to a locked task, the tasks with other keys do not wait for
  /// that task.
  ///
  /// - Returns: The tasks that were skipped because they or their order keys are locked.
  private func requeueUnlocked(
    _ tasks: [Tables.OverdueTask],
    waitsForKeys: Bool
  ) throws -> [Tables.OverdueTask] {
    do {
      let free = try session.transaction(isDurable: false) { tables in
        try tables.database.send("set local lock_timeout = '100ms'")
        let ids = tasks.map(\.id)
        if waitsForKeys { try tables.lockOrders(of: ids) }
        let free = try tables.lockUnlocked(ids)
        tables.hasChanged = !free.isEmpty
        try tables.requeueInterrupted(free, ifStill: .ofThePast)
        return Set(free)
      }
      return tasks.filter { !free.contains($0.id) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      let keys = Dictionary(grouping: tasks, by: \.orderKey)
      guard keys.count > 1 else { return [] }
      return try keys.values.flatMap { try requeueUnlocked($0, waitsForKeys: waitsForKeys) }
    }
  }
}

/// Extends claims on a session; one thread uses both.
///
/// Claims can expire while an extension waits. So an extension does not wait for other changes,
/// which wait for locks, or for new claims, which may take long. A task that another session has
/// locked delays only the extension of its own claim.
final class Extender {
  /// How long a call waits for locked tasks, unless a tenth of the lease is shorter.
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
    job.continuation.resume(
      with: result.map { .outcomes($0) }.mapError(session.place.errorForCaller)
    )
  }

  /// Extends claims; a claim whose task another session has locked is extended when the task is
  /// unlocked.
  ///
  /// - Throws: A transient failure if a task stays locked. The other claims are extended anyway.
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
          try tables.extendUnlocked(leases, for: duration)
        }
        for lease in leases where found[lease] != false { left[lease] = nil }
        extended.formUnion(found.filter(\.value).keys)
      }
      if left.isEmpty { return extensions.map { extended.contains($0.lease) ? .done : .stale } }
      guard ContinuousClock.now < end else {
        throw PostgreSQLFailure(
          state: "55P03",
          text: "other sessions have locked \(left.count) of the tasks whose claims were to be "
            + "extended; repeat the call, as a queue does"
        )
      }
      _ = pauses.wait(timeout: .now() + Self.pause)
    }
  }
}

extension StoreJob.Call {
  /// Whether the call only extends claims.
  var onlyExtends: Bool {
    guard case .apply(let batch, _) = self else { return false }
    return !batch.isEmpty && batch.allSatisfy { $0.extension != nil }
  }
}

extension PreparedChange {
  /// The claim that the change extends; `nil` for other changes.
  fileprivate var `extension`: (lease: Lease, duration: Duration)? {
    if case .extend(let lease, let duration) = change { (lease, duration) } else { nil }
  }
}
#endif
