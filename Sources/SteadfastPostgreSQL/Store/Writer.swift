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
  /// How many groups are checked first, after a group contained a task that is not plain.
  private static let mostCarefulGroups = 32

  private let location: DatabaseLocation
  private let session: Session
  private let hints: HintExchange?
  /// The other threads of the store; closing the store waits for their ends.
  private let others: DispatchGroup
  /// Makes claims that never expire, for a store that uses the tables alone.
  private let claimer: Claimer
  private let freedTasks: FreedTaskRecorder
  private var carefulGroupCount = 0
  private var isClosed = false
  private var isDestroyed = false

  init(
    _ location: DatabaseLocation,
    hints: HintExchange?,
    others: DispatchGroup,
    _ freedTasks: FreedTaskRecorder
  ) {
    self.location = location
    self.freedTasks = freedTasks
    self.hints = hints
    self.others = others
    session = Session(location, isFirst: true) { tables, isFirst in
      try Self.prepare(tables, at: location, isFirst: isFirst)
    }
    claimer = Claimer(location, on: session, leaseDuration: nil, freedTasks)
  }

  func perform(_ jobs: [StoreJob]) {
    var group: [StoreJob] = []
    var byteCount = 0
    for job in jobs {
      if case .apply(let batch, _) = job.call {
        group.append(job)
        byteCount += batch.reduce(0) { $0 + $1.payload.count }
        guard group.count >= Self.mostCalls || byteCount >= Self.mostBytes else { continue }
        performInOneTransaction(group)
        (group, byteCount) = ([], 0)
        continue
      }
      performInOneTransaction(group)
      (group, byteCount) = ([], 0)
      finish(job, with: Result { try performSeparately(job.call) })
    }
    performInOneTransaction(group)
  }

  private func finish(_ job: StoreJob, with result: Result<StoreJob.Output, any Error>) {
    job.continuation.resume(with: result.mapError(location.errorForCaller))
  }

  // MARK: Batches

  /// Performs calls in one transaction, and repeats them with savepoints if one call fails.
  private func performInOneTransaction(_ jobs: [StoreJob]) {
    guard !jobs.isEmpty else { return }
    do {
      let outcomes = try store(BatchGroup(jobs.map(\.batch)), for: jobs)
      for (job, outcomes) in zip(jobs, outcomes) {
        finish(job, with: .success(.outcomes(outcomes)))
      }
    } catch {
      retryFailedGroup(
        jobs,
        after: error,
        using: mayConcernOnlyOneCall(error) ? performWithSavepoints : nil
      )
    }
  }

  /// Repeats the calls of a failed transaction in another way if some of them may then succeed.
  ///
  /// Otherwise, all of the calls fail.
  private func retryFailedGroup(
    _ jobs: [StoreJob],
    after error: any Error,
    using anotherWay: (([StoreJob]) -> Void)?
  ) {
    if jobs.count > 1, (error as? PostgreSQLFailure)?.tookTooLong == true {
      performInOwnTransactions(jobs, after: error)
    } else if jobs.count > 1, let anotherWay {
      anotherWay(jobs)
    } else {
      for job in jobs { finish(job, with: StoreJob.result(ofCallRolledBackBy: error)) }
    }
  }

  /// Performs each call in its own transaction, so that a slow call fails alone.
  private func performInOwnTransactions(_ jobs: [StoreJob], after error: any Error) {
    var slowCount = 0
    for job in jobs {
      guard slowCount < Self.mostSlowCalls else {
        finish(job, with: .failure(error))
        continue
      }
      let result = Result {
        try store(BatchGroup([job.batch]), for: [job])
      }
      switch result {
      case .success(let outcomes): finish(job, with: .success(.outcomes(outcomes[0])))
      case .failure(let failure):
        if !mayConcernOnlyOneCall(failure) { slowCount += 1 }
        finish(job, with: StoreJob.result(ofCallRolledBackBy: failure))
      }
    }
  }

  /// Performs calls in one transaction with a savepoint for each call.
  private func performWithSavepoints(_ jobs: [StoreJob]) {
    do {
      let results = try store(BatchGroup(jobs.map(\.batch)), for: jobs) { tables, group in
        try Self.performInSavepoints(group, in: tables)
      }
      for (job, result) in zip(jobs, results) { finish(job, with: result) }
    } catch {
      retryFailedGroup(jobs, after: error, using: nil)
    }
  }

  /// Stores the changes of a group in one transaction.
  private func store(_ group: BatchGroup, for jobs: [StoreJob]) throws -> [[ChangeOutcome]] {
    guard !isClosed else { throw location.closedError }
    let isCareful = carefulGroupCount > 0 && group.namesLeases
    if isCareful { carefulGroupCount -= 1 }
    guard !isCareful, let plain = group.plainChanges() else {
      return try store(group, for: jobs) { try $0.apply($1) }
    }
    do {
      _ = try session.transactionInOneRoundTrip(isDurable: jobs.contains(where: \.isDurable)) {
        $0.hasChanged = true
        try $0.send(plain)
      }
    } catch let failure as PostgreSQLFailure where failure.isMismatch {
      carefulGroupCount = Self.mostCarefulGroups
      return try store(group, for: jobs) { try $0.apply($1) }
    }
    announce(group, hasFreedOthers: false)
    return group.batches.map { $0.map { _ in .done } }
  }

  /// Stores the changes of a group in one transaction, and returns the result of `body`.
  ///
  /// The transaction starts again with more locks each time that the changes turn out to affect
  /// more tasks.
  private func store<Success>(
    _ group: BatchGroup,
    for jobs: [StoreJob],
    _ body: (Tables, BatchGroup) throws -> Success
  ) throws -> Success {
    guard !isClosed else { throw location.closedError }
    var group = group
    while true {
      do {
        let isDurable = jobs.contains(where: \.isDurable)
        let (success, hasFreed) = try session.transaction(isDurable: isDurable) { tables in
          tables.hasChanged = true
          return (try body(tables, group), tables.hasFreedOthers)
        }
        announce(group, hasFreedOthers: hasFreed)
        return success
      } catch let error as MissingLocksError {
        group.others = error.tasks
      } catch let error as NotPlainError {
        group.notPlain.formUnion(error.tasks)
      }
    }
  }

  /// Announces stored changes to the claims of this store and of others.
  private func announce(_ group: BatchGroup, hasFreedOthers: Bool) {
    freedTasks.record(group, hasFreedOthers: hasFreedOthers)
    if group.concernsOtherQueues || hasFreedOthers { hints?.notifyOtherStores() }
  }

  /// Returns whether an error may concern only one of the calls in a transaction.
  private func mayConcernOnlyOneCall(_ error: any Error) -> Bool {
    if let failure = error as? PostgreSQLFailure {
      return !failure.isConnectionLost && !failure.isCollision && !failure.isTemporary
    }
    return !(error is PostgreSQLError)
  }

  /// Performs each call in a savepoint, and rolls back to the savepoint if the call fails.
  private static func performInSavepoints(
    _ group: BatchGroup,
    in tables: Tables
  ) throws -> [Result<StoreJob.Output, any Error>] {
    let database = tables.database
    try tables.lock(LockPlan(group.batches), others: group.others)
    return try group.batches.map { batch in
      try database.send("savepoint call")
      do {
        let outcomes = try tables.apply(batch)
        try database.send("release call")
        try database.flush()
        return .success(.outcomes(outcomes))
      } catch let failure as PostgreSQLFailure where failure.isCollision || failure.isTemporary {
        throw failure
      } catch {
        _ = try? database.flush()
        try database.execute("rollback to call; release call")
        tables.changedOrderKeys = []
        return StoreJob.result(ofCallRolledBackBy: error)
      }
    }
  }

  // MARK: Opening and closing

  private func performSeparately(_ call: StoreJob.Call) throws -> StoreJob.Output {
    switch call {
    case .claim(let request):
      guard !isClosed else { throw location.closedError }
      return .claim(try claimer.claim(request))
    case .open:
      guard !isClosed else { throw location.closedError }
      // This notices that the connection was lost while no call used it.
      _ = try session.lookUp { try $0.hasRow("select 1") }
    case .close: close()
    case .destroy: try destroy()
    case .apply, .tasks, .count, .contains, .census, .value, .values, .memory: break
    }
    return .nothing
  }

  private static func prepare(_ tables: Tables, at location: DatabaseLocation, isFirst: Bool) throws
  {
    let database = tables.database
    try location.lockOutOtherStores(on: database)
    try Schema().migrate(database, prefix: location.prefix, mayChange: location.migrates)
    if isFirst {
      try database.send("delete from steadfast_request where date < now() - interval '1 day'")
      try database.flush()
    }
    // During an outage of the connection, stores with another kind of sharing may have used the
    // tables.
    let claimsOfAlone = isFirst ? Tables.OverdueClaims.all : .withExpiry
    try requeueTasks(of: tables, withClaims: location.isShared ? .withoutExpiry : claimsOfAlone)
  }

  /// Makes available the tasks that are still claimed by stores that can't come back.
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
    // This session creates no missing tables, and locks out other stores until the tables are
    // removed. So no store opens tables that are then removed.
    let removing = Session(location, isFirst: true) { [location] tables, _ in
      try location.lockOutOtherStores(on: tables.database)
    }
    defer { removing.close() }
    try removing.transaction(isDurable: true, isRepeatable: true) { tables in
      try Schema().drop(from: tables.database, prefix: location.prefix)
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
