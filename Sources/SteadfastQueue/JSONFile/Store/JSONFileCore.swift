import SteadfastRetry
import Synchronization
import SystemFoundation

/// The parts of a file store: the tasks in memory, the journal, and the I/O thread between them.
///
/// A caller stages its changes in the table and queues their lines. The thread writes and flushes
/// all waiting lines together, commits the changes, and resumes the callers. The file comes first
/// and memory second: a change that could not be written is rolled back.
///
/// Everything that touches the file happens on the thread, one job after another, with two
/// exceptions. First, during a flush, claims are written, and changes wait. After the flush, these
/// changes are written and flushed. Second, a caller that claims tasks writes its own lines if the
/// thread is idle, because that takes less time than a switch of threads. All changes are committed
/// in the order of the file.
final class JSONFileCore: Sendable {
  /// Acquires the lock, and makes the storage to read and write.
  typealias Opener = @Sendable () throws -> (lock: FileLock?, storage: any JournalStorage)
  typealias ThreadMaker = @Sendable () throws -> any JobThread

  enum Phase {
    case unopened, open, closing, closed
    case poisoned(JSONFileError)
  }

  /// A job that waits until nothing is being flushed.
  enum PostponedJob: Sendable {
    case write, close
    case verify(CheckedContinuation<JSONFileReport, any Error>)
  }

  struct State {
    var phase = Phase.unopened
    var table = TaskTable()
    /// The lines of all waiting calls.
    var pipeline = WritePipeline<Submission, PostponedJob>()
    /// The size of the file in bytes, including the lines that are pending or being written.
    ///
    /// It is updated only if the size of the file is limited.
    var size = 0
    /// The error of the size estimate that the last compaction since the opening has measured.
    var underestimate = SizeEstimateError()
    /// The callers that wait for a compaction to end; each receives whether it has finished.
    var compactionWaiters: [CheckedContinuation<Bool, any Error>] = []
    var thread: (any JobThread)?
    var lock: FileLock?
    /// Whether closing deletes the file.
    var deletesFile = false
    /// Whether the file was deleted.
    var isDestroyed = false
    /// The callers that wait until the closed file is deleted.
    var destroyers: [CheckedContinuation<Void, any Error>] = []
    /// The callers that wait until the store has closed.
    var closers: [CheckedContinuation<Void, any Error>] = []
  }

  /// The state that only the I/O thread uses.
  struct OpenFile {
    var storage: any JournalStorage
    var journal: Journal
    var compaction: Compaction?
    /// The size of the file after the last compaction since it was opened.
    ///
    /// If there was none, this is approximately the size that a compaction at opening would have
    /// left.
    var compactSize: Int
    /// The size that the file must reach before the next compaction, after one has failed.
    var postponedSize = 0
    /// The compact size, in bytes, at which the next compaction is due even if the file is smaller.
    var postponedCompactSize = 0
    /// The failure of the last compaction, or `nil` if it has not failed.
    var failedCompaction: JSONFileStatistics.FailedCompaction?
  }

  let errors: JSONFileErrors
  let opener: Opener
  let flushing: JSONFileStore.Flushing
  let options: JSONFileStore.Options
  let compactionPolicy: CompactionPolicy
  /// Returns the date, for people to read.
  let date: @Sendable () -> Date
  /// Announces problems to people that no call can report.
  let announce: @Sendable (String) -> Void
  let makeThread: ThreadMaker
  let state = Mutex(State())
  let file = Mutex<OpenFile?>(nil)
  /// The count of forks when the thread was started; negative before that.
  let forkCount = Atomic(-1)
  /// Whether the file is open.
  ///
  /// Most calls read this, so they need not acquire the lock.
  let isServing = Atomic(false)

  init(
    _ url: URL,
    flushing: JSONFileStore.Flushing = .eachBatch,
    options: JSONFileStore.Options = JSONFileStore.Options(),
    compactionPolicy: CompactionPolicy = CompactionPolicy(),
    date: @escaping @Sendable () -> Date = { Date() },
    announce: @escaping @Sendable (String) -> Void = { StandardError.write($0) },
    thread: @escaping ThreadMaker = { try IOThread() },
    opener: @escaping Opener
  ) {
    errors = JSONFileErrors(url: url)
    self.flushing = flushing
    self.options = options
    var policy = compactionPolicy
    // If the file's size is limited, a compaction pays off earlier.
    let limit = options.maxFileSize ?? .max
    policy.minimumSize = min(policy.minimumSize, limit)
    policy.spareSize = min(policy.spareSize, limit / 8)
    self.compactionPolicy = policy
    self.date = date
    self.announce = announce
    makeThread = thread
    self.opener = opener
  }

  /// Makes a core with the real file system.
  convenience init(
    _ url: URL,
    flushing: JSONFileStore.Flushing,
    options: JSONFileStore.Options
  ) {
    self.init(url, flushing: flushing, options: options) {
      (
        try FileLock.acquire(for: url.path, options),
        FileStorage(path: url.path, options)
      )
    }
  }

  func read<Result>(_ body: (TaskTable) -> Result) -> Result {
    state.withLock { body($0.table) }
  }

  // MARK: Calls

  /// Whether this process is a forked child, whose parent owns the thread and the lock.
  ///
  /// This is checked before acquiring any lock, because a lock may have been held during the fork.
  var isForkedOff: Bool {
    let count = forkCount.load(ordering: .relaxed)
    return count >= 0 && count != ForkCount.current
  }

  /// Opens the file, if it is not open.
  func open() async throws {
    if isForkedOff { throw errors.forkedOff }
    if isServing.load(ordering: .acquiring) { return }
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try await performOnThread { core in try core.openFile() }
  }

  /// Stores changes.
  ///
  /// The call decides at once, and in order, which changes apply. When it returns, they are stored.
  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    guard !batch.isEmpty else { return [] }
    let (batch, lines) = try prepare(batch)
    while true {
      let outcomes = try await store(batch, lines: lines, durability: durability)
      // No outcomes: the batch depended on changes that were not stored yet, but are stored now.
      if !outcomes.isEmpty { return outcomes }
    }
  }

  /// Checks changes, encodes their payloads, and makes their lines.
  func prepare(_ batch: [TaskChange]) throws -> ([TaskChange], [JournalBody]) {
    for change in batch { try change.checkForm() }
    var batch = batch
    try batch.encodePayloads()
    return (batch, try batch.map(makeLine))
  }

  /// Leases tasks, and writes lines for the start of their attempts.
  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await waitForThread { continuation in
      submit(resuming: continuation) { state in
        let claim = state.table.claim(request)
        guard !claim.tasks.isEmpty else { return .answer(claim) }
        return .lines(
          Submission(
            lines: claim.tasks.map { JournalBody(beginningOf: $0.lease.id) },
            caller: .claim(claim, continuation)
          )
        )
      }
    }
  }

  func statistics() async throws -> JSONFileStatistics {
    try await performOnThread { core in try core.readStatistics() }
  }

  /// Stores all pending changes, writes the last line, and closes the file.
  ///
  /// A caller that comes while the store is closing waits until it has closed.
  func close() async throws {
    if isForkedOff { throw errors.forkedOff }
    try await waitForThread { continuation in
      let step = state.withLock { state in
        isServing.store(false, ordering: .releasing)
        return state.beginClosing(resuming: continuation)
      }
      switch step {
      case .wait: break
      case .done: continuation.resume()
      case .fail(let error): continuation.resume(throwing: error)
      case .close(let thread): thread.add { self.closeFile() }
      }
    }
  }

  /// Closes the store like `close()`, without waiting.
  func abandon() {
    guard !isForkedOff else { return }
    let (step, lock) = state.withLock { ($0.beginClosing(resuming: nil), $0.lock) }
    guard case .close(let thread) = step else { return }
    lock?.announceRelease()
    thread.add { self.closeFile() }
  }

  /// Returns the thread, and starts it if there is none.
  func thread() throws -> any JobThread {
    try state.withLock { state in
      if let thread = state.thread { return thread }
      _ = try isOpen(state.phase)
      let thread = try errors.translateErrors { try makeThread() }
      forkCount.store(ForkCount.current, ordering: .relaxed)
      state.thread = thread
      return thread
    }
  }

  func isOpen(_ phase: Phase) throws(JSONFileError) -> Bool {
    switch phase {
    case .unopened: return false
    case .open: return true
    case .closing, .closed: throw errors.closed
    case .poisoned(let error): throw error
    }
  }
}

// The limit of the file's size applies only to changes that add tasks, change a task's payload or
// tags, or set a larger value. A change that ends a task must be written, because that frees space.
// A value that a task remembers must be written too, because the work for it is done.
extension JSONFileCore {
  /// Stores changes whose lines were made.
  ///
  /// If the lines don't fit, this compacts the file first.
  ///
  /// - Returns: An outcome for each change; none if the batch depends on changes that were not
  ///   stored when the call was made, but are stored now.
  func store(
    _ batch: [TaskChange],
    lines: [JournalBody],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    // Other callers may use the space that a compaction frees, and its size is only an estimate.
    for _ in 0..<2 {
      do {
        return try await submit(batch, lines: lines, durability: durability)
      } catch let full as FileFull {
        guard full.isMendedByCompaction else { throw errors.fileFull(full) }
        guard try await compactNow() else {
          throw errors.fileFull(full, failedCompaction: file.withLock { $0?.failedCompaction })
        }
      }
    }
    do {
      return try await submit(batch, lines: lines, durability: durability)
    } catch let full as FileFull {
      throw errors.fileFull(full)
    }
  }

  /// Returns the line of a change.
  ///
  /// - Throws: A ``JSONFileError`` if the line is longer than the format allows, or adds a task
  ///   that is larger than `maxTaskSize`; the error that encoding a payload throws.
  func makeLine(of change: TaskChange) throws -> JournalBody {
    let line = try JournalBody(.change(change))
    let limit = JournalBody.maxLength(of: change)
    guard line.bytes.count <= limit else {
      throw errors.taskTooLarge(line, limit: limit, setBy: "that of the format")
    }
    if case .insert = change, let limit = options.maxTaskSize, line.bytes.count > limit {
      throw errors.taskTooLarge(line, limit: limit, setBy: "its maxTaskSize")
    }
    return line
  }

  /// Refuses an update that would make its task too large.
  ///
  /// A task is too large if a compaction could not write it, or if it exceeds `maxTaskSize`.
  /// Properties that the update does not change count too.
  func checkSizes(of staged: [StagedChange], in table: TaskTable) throws {
    for change in staged {
      guard case .change(.update(_, let update), let slot) = change.effect,
        update.addsBytes
      else { continue }
      var record = table.entries[slot].record
      record.apply(update)
      _ = try makeLine(of: .insert(record, onDuplicate: .keep))
    }
  }

  /// Stages changes, and queues their lines for the I/O thread.
  ///
  /// - Returns: The result of ``store(_:lines:durability:)``.
  /// - Throws: A ``FileFull`` if the lines don't fit into the file.
  private func submit(
    _ batch: [TaskChange],
    lines: [JournalBody],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    try await waitForThread { continuation in
      submit(resuming: continuation) { state in
        let staged = state.table.stage(batch)
        if staged.contains(where: \.isUncertain), state.pipeline.hasChanges {
          // Nothing of such a batch is staged. Its caller resumes after the changes it depends on.
          return .lines(Submission(lines: [], caller: .changes([], durability, continuation)))
        }
        let submission = Submission(
          lines: state.table.linesToWrite(lines, for: staged),
          caller: .changes(staged, durability, continuation)
        )
        if let full = state.shortage(for: submission, limit: options.maxFileSize) {
          submission.rollBack(&state.table)
          throw full
        }
        do { try checkSizes(of: staged, in: state.table) } catch {
          submission.rollBack(&state.table)
          throw error
        }
        for (line, change) in zip(lines, staged) {
          state.table.setByteCount(line.byteCount, of: change)
        }
        return .lines(submission)
      }
    }
  }
}

/// How callers wait for the thread.
extension JSONFileCore {
  /// Suspends until the thread resumes the continuation.
  ///
  /// In virtual time, such calls take turns.
  func waitForThread<Value: Sendable>(
    _ body: (CheckedContinuation<Value, any Error>) -> Void
  ) async throws -> Value {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { body($0) }
    }
  }

  /// The result of a call: an immediate answer, or lines to write.
  enum Decision<Value> {
    case answer(Value)
    case lines(Submission)
  }

  /// Determines the result of a call, and queues its lines for the thread.
  ///
  /// If the file is not open, the call fails.
  func submit<Value: Sendable>(
    resuming continuation: CheckedContinuation<Value, any Error>,
    _ decide: (inout State) throws -> Decision<Value>
  ) {
    var isClaim = false
    let (answer, thread) = state.withLock {
      state -> (Result<Value, any Error>?, (any JobThread)?) in
      do {
        guard try isOpen(state.phase) else { throw errors.closed }
        switch try decide(&state) {
        case .answer(let value): return (.success(value), nil)
        case .lines(let submission):
          state.size += options.maxFileSize == nil ? 0 : submission.byteCount
          isClaim = submission.isClaim
          return (nil, state.pipeline.submit(submission) ? state.thread : nil)
        }
      } catch {
        return (.failure(error), nil)
      }
    }
    if let answer { continuation.resume(with: answer) }
    guard let thread else { return }
    // A claim needs no flush. Writing it here takes less time than a switch to another thread.
    if isClaim, writeClaimsNow(unlessBusy: thread) { return }
    thread.add { self.writePending() }
  }

  /// Performs a job on the thread, which is started if necessary.
  func performOnThread<Value: Sendable>(
    _ body: @escaping @Sendable (JSONFileCore) throws -> Value
  ) async throws -> Value {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { continuation.resume(with: Result { try body(self) }) }
    }
  }
}

/// The lines of a call that waits until they are stored, and its caller.
///
/// It is an object because it moves between lists, and has many parts to copy.
final class Submission: PipelineItem {
  enum Caller: Sendable {
    case changes(
      [StagedChange],
      Durability,
      CheckedContinuation<[ChangeOutcome], any Error>
    )
    case claim(Claim, CheckedContinuation<Claim, any Error>)
  }

  let lines: [JournalBody]
  let caller: Caller

  init(lines: [JournalBody], caller: Caller) {
    self.lines = lines
    self.caller = caller
  }

  var isClaim: Bool {
    switch caller {
    case .changes: false
    case .claim: true
    }
  }

  /// Whether the lines must be flushed before the caller continues.
  var needsFlush: Bool {
    switch caller {
    case .changes(_, let durability, _): durability == .durable
    case .claim: false
    }
  }

  /// Commits the changes after the lines are stored.
  ///
  /// - Returns: The outcomes, with which the caller is resumed once the table is unlocked.
  func commit(to table: inout TaskTable) -> Committed {
    let outcomes: [ChangeOutcome] =
      switch caller {
      case .changes(let staged, _, _) where staged.count == 1: table.commit(staged[0]).inArray
      case .changes(let staged, _, _): staged.map { table.commit($0) }
      case .claim: []
      }
    return Committed(submission: self, outcomes: outcomes)
  }

  /// Rolls back the changes or the claim if the lines could not be stored.
  func rollBack(_ table: inout TaskTable) {
    switch caller {
    case .changes(let staged, _, _): for change in staged.reversed() { table.rollBack(change) }
    case .claim(let claim, _): table.unclaim(claim)
    }
  }

  /// Resumes the caller, with the outcomes of the committed changes.
  func succeed(with outcomes: [ChangeOutcome] = []) {
    switch caller {
    case .changes(_, _, let continuation): continuation.resume(returning: outcomes)
    case .claim(let claim, let continuation): continuation.resume(returning: claim)
    }
  }

  func fail(_ error: any Error) {
    switch caller {
    case .changes(_, _, let continuation): continuation.resume(throwing: error)
    case .claim(_, let continuation): continuation.resume(throwing: error)
    }
  }
}

/// Committed changes whose caller has yet to be resumed.
struct Committed: Sendable {
  let submission: Submission
  let outcomes: [ChangeOutcome]

  func resumeCaller() { submission.succeed(with: outcomes) }
}

// The jobs of the I/O thread, which run one after another: everything that touches the file.
extension JSONFileCore {
  /// Returns statistics about the file.
  func readStatistics() throws -> JSONFileStatistics {
    let (tasks, live) = try state.withLock { state in
      guard try isOpen(state.phase) else { throw errors.closed }
      return (state.table.taskCount, state.table.liveRecordCount)
    }
    return try file.withLock { file in
      guard let journal = file?.journal else { throw errors.closed }
      return JSONFileStatistics(
        taskCount: tasks,
        recordCount: Int(journal.nextSequence),
        liveRecordCount: live,
        byteCount: journal.size,
        lastCompaction: journal.lastCompaction,
        failedCompaction: file?.failedCompaction
      )
    }
  }

  /// Writes the pending lines, then schedules the next write behind other jobs.
  ///
  /// The next write includes the lines that were queued during this one.
  func writePending() {
    guard compactIfDue(),
      let group = state.withLock({ $0.pipeline.takePending(orPostpone: .write) })
    else { return }
    if write(group) { continueWriting() }
  }

  /// Writes the pending claims on the calling thread, unless another job is running or waiting.
  ///
  /// - Returns: Whether the claims were written.
  func writeClaimsNow(unlessBusy thread: any JobThread) -> Bool {
    var isDone = false
    _ = thread.performNow {
      // Only the store's own threads block signals.
      guard file.withLock({ $0?.storage.isSizeLimited == false }),
        let claims = state.withLock({ $0.pipeline.takePendingClaims() })
      else { return }
      _ = write(claims, isByCaller: true)
      continueWriting()
      isDone = true
    }
    return isDone
  }

  /// Schedules a write of the lines that were queued.
  ///
  /// During a flush, it schedules a write only if tasks were claimed.
  private func continueWriting() {
    let thread = state.withLock { $0.pipeline.beginNextWrite() ? $0.thread : nil }
    thread?.add { self.writePending() }
  }

  /// Performs a job that was postponed until nothing is being flushed.
  private func perform(_ job: PostponedJob) {
    switch job {
    case .write: writePending()
    case .close: closeFile()
    case .verify(let continuation): verifyFile(continuation)
    }
  }

  /// Writes the lines of a group, and flushes them if a flush is due.
  ///
  /// - Returns: Whether the caller must schedule the next write. A flush schedules it itself.
  private func write(_ group: [Submission], isByCaller: Bool = false) -> Bool {
    do throws(Journal.Failure) {
      try withJournal { storage, journal throws(Journal.Failure) in
        try storage.checkPlace(of: journal)
        // Reserving space takes longer than writing a claim.
        try journal.append(group.map(\.lines), reserves: !isByCaller)
      }
    } catch {
      rollBackAndFail(group, because: error)
      recordFileSize()
      return true
    }
    recordFileSize()
    // A claim need only survive the end of the process, so it needs no flush. Its tasks are already
    // leased.
    for claim in group where claim.isClaim { claim.succeed() }
    let changes = group.filter { !$0.isClaim }
    guard !changes.isEmpty else { return true }
    let (next, thread) = state.withLock { state in
      (state.recordWrite(of: changes, flushing: flushing.moment), state.thread)
    }
    switch (next, thread) {
    case (.commit(let committed), _):
      for changes in committed { changes.resumeCaller() }
      if changes.contains(where: \.needsFlush) { scheduleFlush() }
      return true
    case (.wait, _): return true
    case (.flush(let writesToo), let thread?):
      if writesToo { thread.add { self.writePending() } }
      flushWritten(on: thread)
      return false
    case (.flush, nil): preconditionFailure("a store without a thread has written")
    }
  }

  /// Flushes the written changes until none are left, while other jobs continue.
  ///
  /// The next flush covers the changes that are queued during the present one. It starts when the
  /// callers of the present one have been resumed.
  private func flushWritten(on thread: any JobThread) {
    var mustCompact = false
    while true {
      let postponed = state.withLock { state in
        state.pipeline.beginFlush() ? nil : state.pipeline.takePostponedJobs()
      }
      if let (jobs, writes) = postponed {
        return start(jobs, writes: writes || jobs.isEmpty && mustCompact, on: thread)
      }
      guard let flush = file.withLock({ $0?.journal.beginFlush() }) else { return }
      do throws(Journal.Failure) {
        try thread.yieldTurn { () throws(Journal.Failure) in _ = try flush.perform() }
      } catch {
        // A write that is under way is rolled back too, after it has ended.
        thread.add { self.rollBackAndFail([], because: error) }
        return
      }
      let end = file.withLock { file in
        file?.journal.endFlush(flush)
        return state.withLock { state in
          defer { mustCompact = isCompactionDue(in: file, state) }
          return state.endFlush()
        }
      }
      // Some of the callers call again before the next write, which then includes their changes
      // too.
      for changes in end.committed { changes.resumeCaller() }
      // If there is more to flush and another job is running, that job may take long, so no write
      // starts here.
      if end.goesOn, thread.takeTurn() { writePending() }
    }
  }

  /// Starts the jobs that were postponed until nothing is being flushed.
  ///
  /// If `writes` is `true`, the pending lines are written after them.
  private func start(_ jobs: [PostponedJob], writes: Bool, on thread: any JobThread) {
    for job in jobs { thread.add { self.perform(job) } }
    if writes { thread.add { self.writePending() } }
  }

  /// Schedules a flush for the end of the interval, unless one is already scheduled.
  private func scheduleFlush() {
    guard case .atMostEvery(let interval) = flushing.moment else { return }
    let thread = state.withLock { $0.pipeline.scheduleDelayedFlush() ? $0.thread : nil }
    thread?.add(after: interval) { self.flushAfterInterval() }
  }

  private func flushAfterInterval() {
    state.withLock { $0.pipeline.beginDelayedFlush() }
    guard file.withLock({ $0 != nil }) else { return }
    do throws(Journal.Failure) {
      try withJournal { _, journal throws(Journal.Failure) in try journal.synchronize() }
    } catch {
      rollBackAndFail([], because: error)
    }
  }

  private func withJournal(
    _ body: (any JournalStorage, inout Journal) throws(Journal.Failure) -> Void
  ) throws(Journal.Failure) {
    try file.withLock { file throws(Journal.Failure) in
      guard var open = file.take() else {
        preconditionFailure("lines were written to a closed file")
      }
      defer { file = open }
      try body(open.storage, &open.journal)
    }
  }

  /// Rolls back all staged changes, because a pending change may depend on one that failed.
  ///
  /// A change that was written before is rolled back only if the file is no longer usable.
  func rollBackAndFail(_ group: [Submission], because failure: Journal.Failure) {
    let error = errors.writeFailed(because: failure)
    // A caller that gets the error may close the store at once. Then the store no longer has a
    // thread.
    let thread = state.withLock { $0.thread }
    let endsUse = if case .poisoned = failure { true } else { false }
    let (failed, isPoisoned, lock) = state.withLock { state in
      let failed = state.pipeline.takeFailed(group, isPoisoned: endsUse)
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // If the store has started to close in between, closing it closes the file.
      guard endsUse, case .open = state.phase else {
        return (failed, false, FileLock?.none)
      }
      state.phase = .poisoned(error)
      isServing.store(false, ordering: .releasing)
      defer { state.lock = nil }
      return (failed, true, state.lock)
    }
    if isPoisoned {
      // This store can no longer use the file, but another store may open it.
      file.withLock { file in
        file?.compaction?.abandon()
        file?.journal.abandon()
        file = nil
      }
      lock?.release()
      resumeCompactionWaiters(with: .failure(error))
    }
    for submission in failed { submission.fail(error) }
    guard endsUse, let thread else { return }
    let (jobs, writes) = state.withLock { $0.pipeline.takePostponedJobs() }
    start(jobs, writes: writes, on: thread)
  }
}

extension JSONFileCore.State {
  /// What follows a write of changes.
  fileprivate enum AfterWriting {
    case commit([Committed])
    case wait
    /// Flush, and write at the same time if `writesToo`: tasks were claimed during the last write.
    case flush(writesToo: Bool)
  }

  /// Records written changes, and commits them if they need not wait for a flush.
  fileprivate mutating func recordWrite(
    of changes: [Submission],
    flushing moment: JSONFileStore.Flushing.Moment
  ) -> AfterWriting {
    switch pipeline.recordWrite(of: changes, mustFlush: moment == .eachBatch) {
    case .commit: .commit(changes.map { $0.commit(to: &table) })
    case .wait: .wait
    case .flush: .flush(writesToo: pipeline.beginNextWrite())
    }
  }

  /// Commits the changes of a completed flush.
  ///
  /// - Returns: The changes, and whether others must be flushed.
  fileprivate mutating func endFlush() -> (committed: [Committed], goesOn: Bool) {
    let end = pipeline.endFlush()
    return (end.flushed.map { $0.commit(to: &table) }, end.goesOn)
  }
}

extension [TaskChange] {
  /// Encodes new payloads permanently.
  ///
  /// So a later compaction or verification uses exactly the acknowledged bytes. No code of a
  /// payload's type runs on the store's thread.
  ///
  /// - Throws: The error that a payload's encoding throws.
  mutating func encodePayloads() throws {
    for index in indices {
      switch self[index] {
      case .insert(let record, let policy):
        guard !record.payload.isEncoded else { continue }
        let encoded = record.replacing(payload: try record.payload.encoded())
        self[index] = .insert(encoded, onDuplicate: policy)
      case .update(let id, let update):
        guard let payload = update.payload, !payload.isEncoded else { continue }
        self[index] = .update(id, update.replacing(payload: try payload.encoded()))
      case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
        .reschedule, .remove, .extend, .prune, .rebase, .remember, .suspend, .complete, .setValue:
        continue
      }
    }
  }
}
