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
  /// The number of dead rows at which claims start to use cursors.
  private static let manyDeadRows = 20_000
  /// The number of skipped tasks, among the first 1,000, at which claims start to use cursors.
  private static let manySkippedTasks = 500
  /// The shortest duration of a claim that triggers a count of the dead rows and skipped tasks.
  private static let slowClaim = Duration.milliseconds(3)
  /// The maximum number of locked order keys that a search for expired claims waits for.
  private static let mostBusyKeys = 8

  /// The maximum number of times that a claim is repeated because it found no task.
  private static let mostRepetitions = 3
  /// How long claims use cursors after the last check that found a reason for it.
  private static let cursorTime = Duration.seconds(30)

  private let location: DatabaseLocation
  private let session: Session
  /// The interval between searches for expired claims; `nil` if claims never expire.
  private let interval: DispatchTimeInterval?
  private var nextSearch = DispatchTime.now()
  /// The tokens of claims that may be stored, but whose tasks were not returned to a caller.
  private var unreturnedTokens: [UInt64] = []
  /// Records the tasks that the store's changes make available, while claims use cursors.
  private let freedTasks: FreedTaskRecorder
  /// The cursors of each queue.
  private var cursorsByQueue: [ExactText: ClaimCursors] = [:]
  private var keepsCursors: Bool
  private var nextCheck = ContinuousClock.now
  private var lastNeed = ContinuousClock.now

  init(
    _ location: DatabaseLocation,
    on session: Session,
    leaseDuration: Duration?,
    _ freedTasks: FreedTaskRecorder
  ) {
    self.location = location
    self.session = session
    self.freedTasks = freedTasks
    keepsCursors = location.alwaysKeepsCursors
    freedTasks.setRecording(isOn: keepsCursors)
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
    job.continuation.resume(with: result.map { .claim($0) }.mapError(location.errorForCaller))
  }

  /// Claims tasks.
  ///
  /// If a claim finds no task although tasks are available, other sessions have locked them, to
  /// claim them or to make them due. So this repeats the claim a few times.
  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    var claim = try claimOnce(request)
    for _ in 0..<Self.mostRepetitions {
      guard claim.tasks.isEmpty, request.limit > 0, let date = claim.nextDate, date <= request.now
      else { break }
      session.wait(milliseconds: 5)
      claim = try claimOnce(request)
    }
    return claim
  }

  private func claimOnce(_ request: ClaimRequest) throws -> Claim {
    let start = ContinuousClock.now
    let cursors = try keepsCursors ? cursors(for: request) : firstCursors(ifNeededBy: request)
    let found: [(task: ClaimedTask, position: Int)]
    do {
      found = try claimTasks(for: request, from: cursors)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      updateKeepsCursors(afterClaimTaking: start.duration(to: .now), for: request)
      throw failure
    }
    updateKeepsCursors(afterClaimTaking: start.duration(to: .now), for: request)
    // After an empty claim, finds out when to claim again.
    guard !found.isEmpty else {
      return Claim(tasks: [], nextDate: try nextDate(for: request, from: cursors))
    }
    if keepsCursors { recordClaims(found, inQueue: request.queue) }
    return Claim(tasks: found.map(\.task), nextDate: request.now)
  }

  /// Claims the first tasks, or with `starts`, tasks in known lanes from their cursors on.
  private func claimTasks(
    for request: ClaimRequest,
    from starts: ClaimCursors.Cursors?
  ) throws -> [(task: ClaimedTask, position: Int)] {
    // A random number distinguishes this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    let results = try session.transactionInOneRoundTrip(isDurable: false, isRepeatable: true) {
      tables in
      if !unreturnedTokens.isEmpty { try requeueUnreturnedTasks(of: tables) }
      if unreturnedTokens.last != token { unreturnedTokens.append(token) }
      if starts == nil { try tables.sendDelays(for: request, from: ClaimCursors.earliestDate) }
      try tables.sendClaim(request, from: starts, token: token)
    }
    guard let rows = results.last, rows.count > 0 else {
      unreturnedTokens = []
      return []
    }
    let (tasks, unreadable) = try session.openedTables().claimedTasks(in: rows, with: token)
    if !unreadable.isEmpty {
      try session.transaction(isDurable: false, isRepeatable: true) { tables in
        for task in unreadable { try tables.parkUnreadable(task, token: token, at: request.now) }
      }
    }
    unreturnedTokens = []
    return tasks
  }

  /// Makes available the tasks whose claims were stored, but could not be returned.
  private func requeueUnreturnedTasks(of tables: Tables) throws {
    try tables.database.send("begin")
    try tables.requeueTasks(claimedWith: unreturnedTokens)
    try tables.database.send("commit")
    try tables.database.flush()
  }

  // MARK: Cursors

  /// Returns cursors at the first tasks if the request limits the tasks of each name that it does
  /// not list; otherwise, `nil`.
  ///
  /// A queue makes no such request.
  private func firstCursors(ifNeededBy request: ClaimRequest) throws -> ClaimCursors.Cursors? {
    guard 1..<max(1, request.limit) ~= request.otherNames else { return nil }
    _ = try makeTasksDue(for: request, from: ClaimCursors.earliestDate)
    return try session.lookUp { try Tables.firstCursors(ofQueue: request.queue, in: $0) }
  }

  /// Returns the cursor from which a claim reads each lane, after a scan if one is due.
  private func cursors(for request: ClaimRequest) throws -> ClaimCursors.Cursors {
    let queue = ExactText(request.queue)
    let now = ContinuousClock.now
    var freed = freedTasks.takeRecords(forQueue: request.queue)
    var own = cursorsByQueue[queue] ?? ClaimCursors(isExact: location.alwaysKeepsCursors)
    defer { cursorsByQueue[queue] = own }
    own.lowerDelays(to: freed)
    let due = try makeTasksDue(for: request, from: own.delays)
    if due.count < Tables.mostDelayed { own.recordDelays(before: request.now) }
    for (lane, date) in due { freed.add(date, in: lane) }
    if let known = own.cursors(for: request, freed: freed, at: now) { return known }
    do {
      let firsts = try session.lookUp { try Tables.firstCursors(ofQueue: request.queue, in: $0) }
      return own.recordScan(firsts, for: request, from: now, to: .now)
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server cancelled the scan because of too many dead rows. Claims continue from their
      // current cursors.
      guard let known = own.recordFailedScan(from: now, to: .now) else { throw failure }
      return known
    }
  }

  /// Makes the delayed tasks due whose dates have passed, but are not before `start`.
  ///
  /// - Returns: The lanes and dates of the tasks.
  private func makeTasksDue(
    for request: ClaimRequest,
    from start: Date
  ) throws -> [(lane: ClaimCursors.Lane, date: Date)] {
    do {
      let results = try session.transactionInOneRoundTrip(isDurable: false, isRepeatable: true) {
        tables in
        try tables.sendDelays(for: request, from: start)
      }
      return results.last.map(Tables.dueTasks) ?? []
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server cancelled the statement because of too many dead rows. The next scan makes the
      // rest of the tasks due.
      return []
    }
  }

  private func recordClaims(_ found: [(task: ClaimedTask, position: Int)], inQueue queue: String) {
    for (task, position) in found {
      let record = task.record
      cursorsByQueue[ExactText(queue)]?.recordClaim(
        in: ClaimCursors.Lane(of: record),
        upTo: ClaimCursors.Cursor(date: record.availableDate, position: position)
      )
    }
  }

  /// Decides, after a claim of this duration, whether the next claims use cursors.
  private func updateKeepsCursors(afterClaimTaking time: Duration, for request: ClaimRequest) {
    let now = ContinuousClock.now
    guard keepsCursors || time >= Self.slowClaim, now >= nextCheck,
      !location.alwaysKeepsCursors
    else {
      return
    }
    nextCheck = now + .seconds(1)
    // The claim is already made, so errors are ignored here.
    let needsCursors = try? session.lookUp { database in
      try Tables.deadRowCount(in: database) >= Self.manyDeadRows
        || Tables.skippedCount(by: request, in: database) >= Self.manySkippedTasks
    }
    guard let needsCursors else { return }
    if needsCursors { lastNeed = now }
    // The next request may need cursors again.
    guard needsCursors || lastNeed.duration(to: now) >= Self.cursorTime,
      keepsCursors != needsCursors
    else { return }
    keepsCursors.toggle()
    freedTasks.setRecording(isOn: keepsCursors)
    cursorsByQueue = [:]
  }

  private func nextDate(
    for request: ClaimRequest,
    from cursors: ClaimCursors.Cursors?
  ) throws -> Date? {
    let date = try session.lookUp { database in
      try Tables.nextDate(
        for: request,
        from: cursors,
        delaysFrom: cursorsByQueue[ExactText(request.queue)]?.delays,
        findsExpiry: !keepsCursors,
        in: database
      )
    }
    guard let own = cursorsByQueue[ExactText(request.queue)], cursors != nil,
      !location.alwaysKeepsCursors
    else {
      return date
    }
    let scan = request.now + max(own.timeUntilScan(at: .now), .seconds(1)) / .seconds(1)
    return min(date ?? scan, scan)
  }

  // MARK: Expired claims

  /// Makes the tasks with expired claims available, at most three times per lease.
  ///
  /// If a test sets the clock, each claim does this.
  private func endOverdueClaims() throws {
    guard let interval, DispatchTime.now() >= nextSearch || location.clockOffset != nil else {
      return
    }
    let found: [Tables.OverdueTask]
    do {
      let start = ContinuousClock.now
      // If many claims have ended since the table was vacuumed, the search takes long.
      defer {
        let rest = Int(min(start.duration(to: .now) * 10, .seconds(3_600)) / .nanoseconds(1))
        nextSearch = max(.now() + interval, .now() + .nanoseconds(rest))
      }
      found = try session.transaction(isDurable: false) { try $0.tasks(withClaims: .expired) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      // The server cancelled the search because of too many dead rows. The claim continues anyway.
      return
    }
    guard !found.isEmpty else { return }
    let left = try requeueIfUnlocked(found, waitsForKeys: false).filter { $0.orderKey != nil }
    // If other sessions always wait for a key, the key is never free. So this session waits for the
    // key, too.
    let busy = Dictionary(grouping: left, by: \.orderKey).values.shuffled()
    for tasks in busy.prefix(Self.mostBusyKeys) {
      _ = try requeueIfUnlocked(tasks, waitsForKeys: true)
    }
    freedTasks.recordTasksFreedAnywhere()
  }

  /// Makes tasks available, except locked tasks, which the next search finds again.
  ///
  /// If making tasks available takes too long because a task is locked, the tasks of each order key
  /// are made available separately.
  ///
  /// - Returns: The tasks that were skipped because they or their order keys are locked.
  private func requeueIfUnlocked(
    _ tasks: [Tables.OverdueTask],
    waitsForKeys: Bool
  ) throws -> [Tables.OverdueTask] {
    do {
      let free = try session.transaction(isDurable: false) { tables in
        try tables.database.send("set local lock_timeout = '100ms'")
        let ids = tasks.map(\.id)
        if waitsForKeys { try tables.lockOrderKeys(of: ids) }
        let free = try tables.tryLock(ids)
        tables.hasChanged = !free.isEmpty
        try tables.requeueInterrupted(free, ifStill: .expired)
        return Set(free)
      }
      return tasks.filter { !free.contains($0.id) }
    } catch let failure as PostgreSQLFailure where failure.tookTooLong {
      let keys = Dictionary(grouping: tasks, by: \.orderKey)
      guard keys.count > 1 else { return [] }
      return try keys.values.flatMap { try requeueIfUnlocked($0, waitsForKeys: waitsForKeys) }
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

  private let session: Session

  init(on session: Session) { self.session = session }

  func perform(_ job: StoreJob) {
    guard case .apply(let batch, let isDurable) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result { try extend(batch.compactMap(\.extension), isDurable: isDurable) }
    job.continuation.resume(
      with: result.map { .outcomes($0) }.mapError(session.location.errorForCaller)
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
          try tables.extendIfUnlocked(leases, for: duration)
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
      session.wait(milliseconds: 20)
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
