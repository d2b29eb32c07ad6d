#if SQLite
import SystemSQLite
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// Performs calls on the writer thread, with its connection.
///
/// Calls that wait at the same time share one transaction and one flush.
final class Writer {
  private let location: DatabaseLocation
  private let isShared: Bool
  private let clock: @Sendable () -> Double
  private let file: StoreFile
  /// The reader threads; closing the tables waits for their ends.
  private let readers: DispatchGroup
  private var tables: Tables?
  private var isClosed = false
  private var isDestroyed = false
  private var isRelaxed = false
  private var dataVersion = 0

  init(
    _ location: DatabaseLocation,
    isShared: Bool,
    clock: @escaping @Sendable () -> Double,
    file: StoreFile,
    readers: DispatchGroup
  ) {
    self.file = file
    self.readers = readers
    self.location = location
    self.isShared = isShared
    self.clock = clock
  }

  func perform(_ jobs: [StoreJob]) {
    var group: [StoreJob] = []
    for job in jobs {
      guard job.runsOutsideTransaction else {
        group.append(job)
        continue
      }
      performInOneTransaction(group)
      group = []
      finish(job, with: Result { try performSeparately(job.call) }.map { .nothing })
    }
    performInOneTransaction(group)
  }

  private func performSeparately(_ call: StoreJob.Call) throws {
    switch call {
    case .open: _ = try openedTables()
    case .close: close()
    case .destroy: try destroy()
    case .apply, .claim, .tasks, .count, .contains, .census, .value, .values, .memory: break
    }
  }

  /// Performs calls in one transaction.
  ///
  /// A savepoint copies each page that changes after it, so the calls are first made without
  /// savepoints. If one of several calls must be rolled back, all of them are rolled back and
  /// repeated with savepoints.
  private func performInOneTransaction(_ jobs: [StoreJob]) {
    guard !jobs.isEmpty else { return }
    do {
      let answers = try transaction(isDurable: jobs.contains(where: \.isDurable)) { tables in
        try jobs.map { try Self.perform($0.call, in: tables) }
      }
      for (job, answer) in zip(jobs, answers) { job.continuation.resume(returning: answer) }
    } catch {
      if jobs.count > 1, mayConcernOnlyOneCall(error) {
        performWithSavepoints(jobs)
      } else {
        for job in jobs { finish(job, with: StoreJob.result(ofCallRolledBackBy: error)) }
      }
    }
  }

  /// Performs calls in one transaction with a savepoint for each call.
  ///
  /// If that transaction fails, each call gets its own transaction.
  private func performWithSavepoints(_ jobs: [StoreJob]) {
    do {
      let results = try transaction(isDurable: jobs.contains(where: \.isDurable)) { tables in
        try jobs.map { try Self.performInSavepoint($0.call, in: tables) }
      }
      for (job, result) in zip(jobs, results) { finish(job, with: result) }
    } catch {
      if mayConcernOnlyOneCall(error) {
        for job in jobs { performInOneTransaction([job]) }
      } else {
        for job in jobs { finish(job, with: .failure(error)) }
      }
    }
  }

  /// Returns whether an error may concern only one of the calls in a transaction.
  private func mayConcernOnlyOneCall(_ error: any Error) -> Bool {
    tables != nil && (error as? SQLiteFailure)?.primaryCode != SQLITE_BUSY
  }

  private func finish(_ job: StoreJob, with result: Result<StoreJob.Output, any Error>) {
    job.continuation.resume(with: result.mapError(location.errorForCaller))
  }

  /// Performs a call in a savepoint, and rolls back to the savepoint if the call fails.
  private static func performInSavepoint(
    _ call: StoreJob.Call,
    in tables: Tables
  ) throws -> Result<StoreJob.Output, any Error> {
    let database = tables.database
    try database.run("savepoint call")
    do {
      let answer = try perform(call, in: tables)
      try database.run("release call")
      return .success(answer)
    } catch {
      // If the error ended the transaction, the earlier calls are lost as well.
      guard !database.isIdle else { throw error }
      try database.run("rollback to call")
      try database.run("release call")
      return StoreJob.result(ofCallRolledBackBy: error)
    }
  }

  private static func perform(
    _ call: StoreJob.Call,
    in tables: Tables
  ) throws -> StoreJob.Output {
    switch call {
    case .apply(let batch, _): .outcomes(try tables.apply(batch))
    case .claim(let request): .claim(try tables.claim(request))
    case .open, .close, .destroy, .tasks, .count, .contains, .census, .value, .values, .memory:
      .nothing
    }
  }

  private func transaction<Success>(
    isDurable: Bool,
    _ body: (Tables) throws -> Success
  ) throws -> Success {
    let tables = try openedTables()
    let database = tables.database
    try file.checkPaths(of: database, at: location)
    try setCommitWaits(isDurable, on: database)
    return try Self.transaction(on: database) { try body(tables) }
  }

  private static func transaction<Success>(
    on database: Connection,
    _ body: () throws -> Success
  ) throws -> Success {
    try database.run("begin immediate")
    do {
      let success = try body()
      try database.run("commit")
      return success
    } catch {
      // Some errors end the transaction by themselves.
      if !database.isIdle { try? database.execute("rollback") }
      throw error
    }
  }

  /// Sets whether the next commit waits for the disk.
  ///
  /// The changes of a commit that doesn't wait survive the end of the process. The next commit that
  /// waits also flushes the commits before it.
  private func setCommitWaits(_ isDurable: Bool, on database: Connection) throws {
    guard isRelaxed == isDurable else { return }
    try database.execute("pragma synchronous = \(isDurable ? "full" : "normal")")
    isRelaxed = !isDurable
  }

  // MARK: Opening and closing

  private func openedTables() throws -> Tables {
    guard !isClosed else { throw location.closedError }
    if let tables { return tables }
    try location.checkForHardLinks()
    try location.checkEmptyFile()
    let database = try Connection(location.path, .making, prefix: location.prefix)
    try location.checkFirstPage(of: database)
    guard !database.isReadOnly else {
      throw SQLiteFailure(code: SQLITE_READONLY, text: "the file or its disk is read-only")
    }
    try Library.checkVersion(for: location)
    // Check first: a foreign database must not change, not even its journal mode.
    _ = try Schema().version(in: database, prefix: location.prefix)
    let lock = try acquireLock(of: database)
    try configure(database)
    isRelaxed = false
    let tables = Tables(database, isShared: isShared, clock: clock)
    try Self.transaction(on: database) {
      try Schema().migrate(database, prefix: location.prefix)
      try tables.endClaimsWithoutExpiry()
    }
    dataVersion = try readDataVersion(database)
    try file.recordFile(of: database, at: location)
    file.keepLock(lock)
    self.tables = tables
    return tables
  }

  private func configure(_ database: Connection) throws {
    guard try requestWriteAheadLog(on: database) == "wal" else {
      throw SQLiteError(
        .cannotOpen,
        location.url,
        "\(location.path) can't have a write-ahead log, perhaps because it is on a network file "
          + "system; choose a file on a local disk"
      )
    }
    // On Darwin, a plain flush leaves bytes in the drive's cache.
    try database.execute(
      "pragma synchronous = full; pragma fullfsync = on; "
        + "pragma checkpoint_fullfsync = on"
    )
  }

  /// Requests the write-ahead log, and returns the resulting journal mode.
  ///
  /// If other connections request it at the same time, SQLite fails instead of waiting, so this
  /// retries.
  private func requestWriteAheadLog(on database: Connection) throws -> String? {
    let end = ContinuousClock.now + .milliseconds(Connection.busyTimeout)
    while true {
      do {
        return try database.first("pragma journal_mode = wal") { $0.text(0) }
      } catch let failure as SQLiteFailure
        where failure.primaryCode == SQLITE_BUSY && ContinuousClock.now < end
      {
        sqlite3_sleep(1)
      }
    }
  }

  /// Returns a lock that locks out other stores.
  ///
  /// Shared stores don't lock out each other.
  private func acquireLock(of database: Connection) throws(SQLiteError) -> FileLock {
    do throws(FileLock.Refusal) {
      return try FileLock.acquire(
        forStoreIn: database.path,
        named: "-\(location.prefix)",
        isShared: isShared
      )
    } catch {
      throw location.storeError(for: error)
    }
  }

  /// Closes the database, and releases the lock.
  func close() {
    // The connection that is closed last removes the log beside the file.
    readers.wait()
    isClosed = true
    tables = nil
    file.releaseLock()
  }

  private func destroy() throws {
    guard !isDestroyed else { return }
    // Keeps the lock until the tables are removed, so that the next store finds no tables.
    let (known, held) = (tables?.database, file.takeLock())
    close()
    if let database = try known ?? databaseToDestroy() {
      // Fails if another store uses the tables.
      let lock = try held ?? acquireLock(of: database)
      defer { withExtendedLifetime(lock) {} }
      try Self.transaction(on: database) {
        try Schema().drop(from: database, prefix: location.prefix)
      }
    }
    isDestroyed = true
  }

  private func databaseToDestroy() throws -> Connection? {
    try location.checkEmptyFile()
    let database: Connection
    do throws(SQLiteFailure) {
      database = try Connection(location.path, .writing, prefix: location.prefix)
    } catch {
      // This code has many causes. If the file is missing, there is nothing to destroy.
      guard error.primaryCode == SQLITE_CANTOPEN, location.isMissing else { throw error }
      return nil
    }
    try location.checkFirstPage(of: database)
    return database
  }

  // MARK: Hints

  /// Returns whether other connections changed the database since the last call of this method.
  func otherConnectionsMadeChanges() -> Bool {
    guard let database = tables?.database, let version = try? readDataVersion(database),
      version != dataVersion
    else { return false }
    dataVersion = version
    return true
  }

  private func readDataVersion(_ database: Connection) throws -> Int {
    try database.first("pragma data_version") { $0.integer(0) } ?? 0
  }
}
#endif
