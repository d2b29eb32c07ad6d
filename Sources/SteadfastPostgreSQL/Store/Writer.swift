#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// Performs calls on the writer thread, with its session.
///
/// Batches that wait at the same time share one transaction and one flush.
final class Writer {
  /// The maximum number of calls in one transaction.
  private static let mostCalls = 500
  /// The number of payload bytes after which a transaction gets no more calls.
  private static let mostBytes = 8_000_000
  /// The number of slow calls after which the remaining calls of a group fail.
  private static let mostSlowCalls = 3
  /// After a group that contained a task that was not plain, the number of groups to check first.
  private static let mostCarefulGroups = 32

  private let place: DatabaseLocation
  private let session: Session
  private let hints: HintExchange?
  /// The other threads of the store, which end before the store is closed.
  private let others: DispatchGroup
  /// Makes claims that have no end, for a store that uses the tables alone.
  private let claimer: Claimer
  private let notes: FreedTaskNotes
  private var carefulGroupCount = 0
  private var isClosed = false
  private var isDestroyed = false

  init(
    _ place: DatabaseLocation,
    hints: HintExchange?,
    others: DispatchGroup,
    _ notes: FreedTaskNotes
  ) {
    self.place = place
    self.notes = notes
    self.hints = hints
    self.others = others
    session = Session(place, isFirst: true) { tables, isFirst in
      try Self.prepare(tables, at: place, isFirst: isFirst)
    }
    claimer = Claimer(place, on: session, leaseDuration: nil, notes)
  }

  func perform(_ jobs: [StoreJob]) {
    var group: [StoreJob] = []
    var byteCount = 0
    for job in jobs {
      if case .apply(let batch, _) = job.call {
        group.append(job)
        byteCount += batch.reduce(0) { $0 + $1.payload.count }
        guard group.count >= Self.mostCalls || byteCount >= Self.mostBytes else { continue }
        performTogether(group)
        (group, byteCount) = ([], 0)
        continue
      }
      performTogether(group)
      (group, byteCount) = ([], 0)
      finish(job, with: Result { try performAlone(job.call) })
    }
    performTogether(group)
  }

  private func finish(_ job: StoreJob, with result: Result<StoreJob.Answer, any Error>) {
    job.continuation.resume(with: result.mapError(place.errorForCaller))
  }

  // MARK: Batches

  /// Performs calls in one transaction, and repeats them with savepoints if one call fails.
  private func performTogether(_ jobs: [StoreJob]) {
    guard !jobs.isEmpty else { return }
    do {
      let outcomes = try outcomes(of: BatchGroup(jobs.map(\.batch)), for: jobs) { try $0.apply($1) }
      for (job, outcomes) in zip(jobs, outcomes) {
        finish(job, with: .success(.outcomes(outcomes)))
      }
    } catch {
      performAgain(jobs, after: error, using: mayConcernOnlyOneCall(error) ? performApart : nil)
    }
  }

  /// Repeats the calls of a failed group in another way, if some of them may then succeed.
  private func performAgain(
    _ jobs: [StoreJob],
    after error: any Error,
    using another: (([StoreJob]) -> Void)?
  ) {
    if jobs.count > 1, (error as? PostgreSQLFailure)?.tookTooLong == true {
      performOneByOne(jobs, after: error)
    } else if jobs.count > 1, let another {
      another(jobs)
    } else {
      for job in jobs { finish(job, with: StoreJob.result(of: error)) }
    }
  }

  /// Performs each call in its own transaction, so that a slow call fails alone.
  private func performOneByOne(_ jobs: [StoreJob], after error: any Error) {
    var slowCount = 0
    for job in jobs {
      guard slowCount < Self.mostSlowCalls else {
        finish(job, with: .failure(error))
        continue
      }
      let result = Result {
        try outcomes(of: BatchGroup([job.batch]), for: [job]) { try $0.apply($1) }
      }
      switch result {
      case .success(let outcomes): finish(job, with: .success(.outcomes(outcomes[0])))
      case .failure(let failure):
        if !mayConcernOnlyOneCall(failure) { slowCount += 1 }
        finish(job, with: StoreJob.result(of: failure))
      }
    }
  }

  /// Performs calls in one transaction with a savepoint for each call.
  private func performApart(_ jobs: [StoreJob]) {
    do {
      let results = try outcomes(of: BatchGroup(jobs.map(\.batch)), for: jobs) { tables, group in
        try Self.resultsInSavepoints(of: group, in: tables)
      }
      for (job, result) in zip(jobs, results) { finish(job, with: result) }
    } catch {
      performAgain(jobs, after: error, using: nil)
    }
  }

  /// Makes the changes of a group, and starts again with more locks each time that more tasks are
  /// found to be affected.
  private func outcomes<Success>(
    of group: BatchGroup,
    for jobs: [StoreJob],
    _ body: (Tables, BatchGroup) throws -> Success
  ) throws -> Success {
    guard !isClosed else { throw place.closed }
    var group = group
    if carefulGroupCount > 0, group.namesLeases {
      carefulGroupCount -= 1
      group.isCareful = true
    }
    while true {
      do {
        let isDurable = jobs.contains(where: \.isDurable)
        let (success, hasFreed) = try session.transaction(isDurable: isDurable) { tables in
          tables.hasChanged = true
          return (try body(tables, group), tables.hasFreedOthers)
        }
        notes.record(group, hasFreedOthers: hasFreed)
        if group.concernsOtherQueues || hasFreed { hints?.notifyOtherStores() }
        return success
      } catch let failure as PostgreSQLFailure
        where failure.state == Tables.mismatch && !group.isCareful
      {
        group.isCareful = true
        carefulGroupCount = Self.mostCarefulGroups
      } catch let error as MoreToLock {
        group.others = error.tasks
      } catch let error as NotPlain {
        group.notPlain.formUnion(error.tasks)
      }
    }
  }

  /// Returns whether an error may concern only one of the calls in a transaction.
  private func mayConcernOnlyOneCall(_ error: any Error) -> Bool {
    if let failure = error as? PostgreSQLFailure {
      return !failure.isConnectionLost && !failure.isCollision && !failure.isPassing
    }
    return !(error is PostgreSQLError)
  }

  /// Performs each call in a savepoint, and rolls back to the savepoint if the call fails.
  private static func resultsInSavepoints(
    of group: BatchGroup,
    in tables: Tables
  ) throws -> [Result<StoreJob.Answer, any Error>] {
    let database = tables.database
    try tables.lock(LockPlan(group.batches), others: group.others)
    return try group.batches.map { batch in
      try database.send("savepoint call")
      do {
        let outcomes = try tables.apply(batch)
        try database.send("release call")
        try database.flush()
        return .success(.outcomes(outcomes))
      } catch let failure as PostgreSQLFailure where failure.isCollision || failure.isPassing {
        throw failure
      } catch {
        _ = try? database.flush()
        try database.execute("rollback to call; release call")
        tables.changedOrders = []
        return StoreJob.result(of: error)
      }
    }
  }

  // MARK: Opening and closing

  private func performAlone(_ call: StoreJob.Call) throws -> StoreJob.Answer {
    switch call {
    case .claim(let request):
      guard !isClosed else { throw place.closed }
      return .claim(try claimer.claim(request))
    case .open:
      guard !isClosed else { throw place.closed }
      // This notices a session that was lost while it was idle.
      _ = try session.lookUp { try $0.hasRow("select 1") }
    case .close: close()
    case .destroy: try destroy()
    case .apply, .tasks, .count, .contains, .value, .memory: break
    }
    return .nothing
  }

  private static func prepare(_ tables: Tables, at place: DatabaseLocation, isFirst: Bool) throws {
    let database = tables.database
    try place.lockOutOtherStores(on: database)
    try Schema().migrate(database, prefix: place.prefix, mayChange: place.migrates)
    if isFirst {
      try database.send("delete from steadfast_request where date < now() - interval '1 day'")
      try database.flush()
    }
    // While the connection was lost, stores with another kind of sharing may have used the tables.
    let claimsOfAlone = isFirst ? Tables.OverdueClaims.all : .withEnd
    try requeueTasks(of: tables, withClaims: place.isShared ? .withoutEnd : claimsOfAlone)
  }

  /// Makes the tasks available that are still claimed by stores that can't come back.
  private static func requeueTasks(
    of tables: Tables,
    withClaims claims: Tables.OverdueClaims
  ) throws {
    var plan = LockPlan()
    plan.tasks = try Set(tables.tasks(withClaims: claims).map(\.id))
    guard !plan.tasks.isEmpty else { return }
    try tables.database.send("begin")
    try tables.lock(plan)
    try tables.requeueInterrupted(plan.tasks.sorted(), ifStill: claims)
    try tables.database.send("commit")
    try tables.database.flush()
  }

  private func close() {
    others.wait()
    isClosed = true
    session.close()
  }

  private func destroy() throws {
    guard !isDestroyed else { return }
    close()
    // This session creates no tables. So the next store that opens finds no tables, and that store
    // loses nothing.
    let removing = Session(place, isFirst: true) { [place] tables, _ in
      try place.lockOutOtherStores(on: tables.database)
    }
    defer { removing.close() }
    try removing.transaction(isDurable: true, isRepeatable: true) { tables in
      try Schema().drop(from: tables.database, prefix: place.prefix)
    }
    isDestroyed = true
  }
}

extension StoreJob {
  /// The changes to make, if the call makes any.
  fileprivate var batch: [PreparedChange] {
    if case .apply(let batch, _) = call { batch } else { [] }
  }
}
#endif
