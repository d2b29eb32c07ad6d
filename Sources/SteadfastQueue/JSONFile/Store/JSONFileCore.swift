import SteadfastRetry
import Synchronization
import SystemFoundation

/// A file store without its public interface: the tasks in memory, the file, and the thread that
/// writes changes to the file.
///
/// A caller stages its changes in the table, and queues their lines. Staged changes can still be
/// rolled back. The I/O thread writes and flushes all queued lines together, commits the changes,
/// and resumes the callers. If the lines can't be written, the changes are rolled back.
///
/// Only the I/O thread uses the file, for one job after another, with two exceptions. First, the
/// lines of claims are written even during a flush; other lines are written after the flush, and
/// are flushed together. Second, if the thread is idle, a caller that claims tasks writes its own
/// lines, because that takes less time than a switch of threads. All changes are committed in the
/// order of their lines.
final class JSONFileCore: Sendable {
  /// Acquires the lock, and makes the storage of the file.
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
    /// The lines that calls have queued, and those that are being written or flushed.
    var pipeline = WritePipeline<Submission, PostponedJob>()
    /// The size that the file has after all queued lines are written, in bytes.
    ///
    /// Only updated if `maxFileSize` is set.
    var size = 0
    /// How much larger than estimated the file was after the last compaction; zero before the first
    /// compaction since opening.
    var underestimate = SizeUnderestimate()
    /// The callers that wait until a compaction ends; each receives whether the compaction
    /// succeeded.
    var compactionWaiters: [CheckedContinuation<Bool, any Error>] = []
    var thread: (any JobThread)?
    var lock: FileLock?
    /// Whether closing deletes the file.
    var deletesFile = false
    /// Whether the file was deleted.
    var isDestroyed = false
    /// The callers that wait until a file that the store does not have open is deleted.
    var destroyers: [CheckedContinuation<Void, any Error>] = []
    /// The callers that wait until the store is closed.
    var closers: [CheckedContinuation<Void, any Error>] = []
  }

  /// An open file, and the compaction that is rewriting it, if there is one.
  struct OpenFile {
    var storage: any JournalStorage
    var journal: Journal
    var compaction: Compaction?
    /// The size of the file after its last compaction, in bytes.
    ///
    /// Until the first compaction since opening, this is the estimated size that a compaction at
    /// opening would have left.
    var compactSize: Int
    /// The size, in bytes, at which the file is compacted again after a compaction has failed; 0 if
    /// none has.
    var postponedSize = 0
    /// The size of the tasks, in bytes, at which the file is compacted again even if it has not
    /// reached `postponedSize`.
    var postponedCompactSize = 0
    /// The failure of the last compaction; `nil` if that compaction succeeded, or there was none.
    var failedCompaction: JSONFileStatistics.FailedCompaction?
  }

  let errors: JSONFileErrors
  let opener: Opener
  let flushing: JSONFileStore.Flushing
  let options: JSONFileStore.Options
  let compactionPolicy: CompactionPolicy
  /// Returns the current date.
  let date: @Sendable () -> Date
  /// Writes a warning about a problem that no call throws.
  let announce: @Sendable (String) -> Void
  let makeThread: ThreadMaker
  let state = Mutex(State())
  let file = Mutex<OpenFile?>(nil)
  /// The fork count of the process when the thread was started; negative before that.
  let forkCount = Atomic(-1)
  /// Whether the file is open.
  ///
  /// Calls read this first, to avoid acquiring the lock of `state`.
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
    // A file with a size limit is compacted earlier, so that it does not become full of obsolete
    // lines.
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

  /// Whether this process was forked after the thread was started, so that the thread and the lock
  /// belong to the parent.
  ///
  /// Check this before acquiring a mutex: a mutex that was locked during the fork is never unlocked
  /// in the child.
  var isForkedChild: Bool {
    let count = forkCount.load(ordering: .relaxed)
    return count >= 0 && count != ForkCount.current
  }

  func open() async throws {
    if isForkedChild { throw errors.usedByForkedChild }
    if isServing.load(ordering: .acquiring) { return }
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try await performOnThread { core in try core.openFile() }
  }

  /// Stores changes.
  ///
  /// The changes are checked and staged in the order of the calls. When the call returns, they are
  /// stored.
  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    guard !batch.isEmpty else { return [] }
    let (batch, lines) = try prepare(batch)
    while true {
      let outcomes = try await store(batch, lines: lines, durability: durability)
      // If there are no outcomes, the batch depended on changes that were not stored yet. They are
      // stored now, so the batch is staged again.
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

  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await waitForThread { continuation in
      submit(resuming: continuation) { state in
        let claim = state.table.claim(request)
        guard !claim.tasks.isEmpty else { return .result(claim) }
        return .lines(
          Submission(
            lines: claim.tasks.map { JournalBody(attemptStartOf: $0.lease.id) },
            caller: .claim(claim, continuation)
          )
        )
      }
    }
  }

  func statistics() async throws -> JSONFileStatistics {
    try await performOnThread { core in try core.readStatistics() }
  }

  /// Stores all queued changes, writes a line that records the closing, and closes the file.
  ///
  /// If the store is already closing, the call waits until it is closed.
  func close() async throws {
    if isForkedChild { throw errors.usedByForkedChild }
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
    guard !isForkedChild else { return }
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

  /// Returns whether the file is open; throws if the store was closed, or has failed.
  func isOpen(_ phase: Phase) throws(JSONFileError) -> Bool {
    switch phase {
    case .unopened: return false
    case .open: return true
    case .closing, .closed: throw errors.closed
    case .poisoned(let error): throw error
    }
  }
}

// `maxFileSize` applies only to changes that add tasks, change a task's payload, tags or metadata,
// or set a larger value. A change that ends a task must always be written, because that frees
// space. A value that a task remembers must be written too, because the work that it records would
// be repeated otherwise.
extension JSONFileCore {
  /// Stores changes, given together with their lines.
  ///
  /// If the lines don't fit into the file, the call first compacts the file, if that helps.
  ///
  /// - Returns: An outcome for each change; an empty array if nothing was stored, because the batch
  ///   depended on changes that were not stored yet. These are stored when the call returns.
  func store(
    _ batch: [TaskChange],
    lines: [JournalBody],
    durability: Durability
  ) async throws -> [ChangeOutcome] {
    // One compaction may not be enough: other callers may use the space that it frees, and the new
    // size is only estimated.
    for _ in 0..<2 {
      do {
        return try await submit(batch, lines: lines, durability: durability)
      } catch let full as FileFull {
        guard full.shouldCompact else { throw errors.fileFullError(full) }
        guard try await compactNow() else {
          throw errors.fileFullError(full, failedCompaction: file.withLock { $0?.failedCompaction })
        }
      }
    }
    do {
      return try await submit(batch, lines: lines, durability: durability)
    } catch let full as FileFull {
      throw errors.fileFullError(full)
    }
  }

  /// Returns the line of a change.
  ///
  /// - Throws: A ``JSONFileError`` if the line is longer than the format allows, or adds a task
  ///   that is larger than `maxTaskSize`; the error that encoding a payload throws.
  func makeLine(of change: TaskChange) throws -> JournalBody {
    let line = try JournalBody(.change(change))
    let length = line.bytes.count
    func tooLargeError(_ limit: Int, setBy rule: String) -> JSONFileError {
      errors.taskTooLargeError(change, lineLength: length, limit: limit, setBy: rule)
    }
    let limit = JournalBody.maxLength(of: change)
    guard length <= limit else { throw tooLargeError(limit, setBy: "the format's limit") }
    if case .insert = change, let limit = options.maxTaskSize, length > limit {
      throw tooLargeError(limit, setBy: "the store's maxTaskSize")
    }
    return line
  }

  /// Throws an error if an update would make its task too large.
  ///
  /// The whole updated task counts, because a compaction writes it as one line.
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
  /// - Returns: The outcomes, as in ``store(_:lines:durability:)``.
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
          // If a change is uncertain, nothing of the batch is staged. An empty submission makes the
          // caller wait for the changes on which the batch depends.
          return .lines(Submission(lines: [], caller: .changes([], durability, continuation)))
        }
        let submission = Submission(
          lines: state.table.linesToWrite(lines, for: staged),
          caller: .changes(staged, durability, continuation)
        )
        if let full = state.fileFullError(for: submission, limit: options.maxFileSize) {
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

/// Waiting for the I/O thread.
extension JSONFileCore {
  /// Suspends until the continuation that `body` receives is resumed.
  ///
  /// In a test with virtual time, only one such call runs at a time.
  func waitForThread<Value: Sendable>(
    _ body: (CheckedContinuation<Value, any Error>) -> Void
  ) async throws -> Value {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { body($0) }
    }
  }

  /// How a call continues: with a result at once, or when lines have been written.
  enum Decision<Value> {
    case result(Value)
    /// Write the lines. Their submission resumes the caller.
    case lines(Submission)
  }

  /// Calls `decide`, and either resumes the continuation at once, or queues lines whose caller is
  /// resumed when they are stored.
  ///
  /// If the file is not open, the continuation is resumed with an error.
  func submit<Value: Sendable>(
    resuming continuation: CheckedContinuation<Value, any Error>,
    _ decide: (inout State) throws -> Decision<Value>
  ) {
    var isClaim = false
    let (result, thread) = state.withLock {
      state -> (Result<Value, any Error>?, (any JobThread)?) in
      do {
        guard try isOpen(state.phase) else { throw errors.closed }
        switch try decide(&state) {
        case .result(let value): return (.success(value), nil)
        case .lines(let submission):
          state.size += options.maxFileSize == nil ? 0 : submission.byteCount
          isClaim = submission.isClaim
          return (nil, state.pipeline.submit(submission) ? state.thread : nil)
        }
      } catch {
        return (.failure(error), nil)
      }
    }
    if let result { continuation.resume(with: result) }
    guard let thread else { return }
    // A claim needs no flush, and writing its lines takes less time than a switch to another
    // thread.
    if isClaim, writeClaimsNow(unlessBusy: thread) { return }
    thread.add { self.writePending() }
  }

  /// Performs `body` on the I/O thread, which is started if necessary.
  func performOnThread<Value: Sendable>(
    _ body: @escaping @Sendable (JSONFileCore) throws -> Value
  ) async throws -> Value {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { continuation.resume(with: Result { try body(self) }) }
    }
  }
}

/// The lines of a call, and the caller that waits until they are stored.
///
/// This is a class, because copying a value with several fields from list to list would be slow.
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

  /// Commits the changes to the table, after their lines were stored.
  ///
  /// - Returns: The outcomes. Resume the caller with them after the table is unlocked.
  func commit(to table: inout TaskTable) -> Committed {
    let outcomes: [ChangeOutcome] =
      switch caller {
      case .changes(let staged, _, _) where staged.count == 1: table.commit(staged[0]).inArray
      case .changes(let staged, _, _): staged.map { table.commit($0) }
      case .claim: []
      }
    return Committed(submission: self, outcomes: outcomes)
  }

  /// Rolls back the changes or the claim, because their lines could not be stored.
  func rollBack(_ table: inout TaskTable) {
    switch caller {
    case .changes(let staged, _, _): for change in staged.reversed() { table.rollBack(change) }
    case .claim(let claim, _): table.unclaim(claim)
    }
  }

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

/// Changes that were committed, and whose caller was not resumed yet.
struct Committed: Sendable {
  let submission: Submission
  let outcomes: [ChangeOutcome]

  func resumeCaller() { submission.succeed(with: outcomes) }
}

// The jobs of the I/O thread. They run one after another, and only they use the file.
extension JSONFileCore {
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

  /// Writes the queued lines, and schedules the next write after the jobs that are already waiting.
  ///
  /// The next write includes the lines that were queued during this write.
  func writePending() {
    guard compactIfDue(),
      let group = state.withLock({ $0.pipeline.takePending(orPostpone: .write) })
    else { return }
    if write(group) { scheduleNextWrite() }
  }

  /// Writes the queued claims on the calling thread, unless the I/O thread has another job.
  ///
  /// - Returns: Whether the claims were written.
  func writeClaimsNow(unlessBusy thread: any JobThread) -> Bool {
    var isDone = false
    _ = thread.performOnCallerIfIdle {
      // If the system limits the size of files, a write may send a signal, which only the store's
      // own threads block.
      guard file.withLock({ $0?.storage.isSizeLimited == false }),
        let claims = state.withLock({ $0.pipeline.takePendingClaims() })
      else { return }
      _ = write(claims, isByCaller: true)
      scheduleNextWrite()
      isDone = true
    }
    return isDone
  }

  /// Schedules a write, if lines were queued during the last one.
  ///
  /// During a flush, only the lines of claims count: other lines wait until the flush ends.
  private func scheduleNextWrite() {
    let thread = state.withLock { $0.pipeline.beginNextWrite() ? $0.thread : nil }
    thread?.add { self.writePending() }
  }

  private func perform(_ job: PostponedJob) {
    switch job {
    case .write: writePending()
    case .close: closeFile()
    case .verify(let continuation): verifyFile(continuation)
    }
  }

  /// Writes the lines of the submissions, and flushes them if necessary.
  ///
  /// - Returns: Whether to schedule the next write; `false` if a flush has already done so.
  private func write(_ group: [Submission], isByCaller: Bool = false) -> Bool {
    do throws(Journal.Failure) {
      try withJournal { storage, journal throws(Journal.Failure) in
        try storage.checkLocation(of: journal)
        // Reserving space takes longer than writing a claim.
        try journal.append(group.map(\.lines), reserves: !isByCaller)
      }
    } catch {
      rollBackAndFail(group, because: error)
      recordFileSize()
      return true
    }
    recordFileSize()
    // A claim need not survive a power cut, so its caller is resumed without a flush. Its tasks are
    // already leased in the table.
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

  /// Flushes the written changes, again and again until none are left, while other jobs continue.
  ///
  /// Changes that are queued during a flush are written and flushed after it, when its callers have
  /// been resumed.
  private func flushWritten(on thread: any JobThread) {
    var mustCompact = false
    while true {
      let postponed = state.withLock { state in
        state.pipeline.beginFlush() ? nil : state.pipeline.takePostponedJobs()
      }
      if let (jobs, writes) = postponed {
        return schedule(jobs, writes: writes || jobs.isEmpty && mustCompact, on: thread)
      }
      guard let flush = file.withLock({ $0?.journal.beginFlush() }) else { return }
      do throws(Journal.Failure) {
        try thread.performBesideOtherJobs { () throws(Journal.Failure) in _ = try flush.perform() }
      } catch {
        // Another thread may be writing lines, which must be rolled back too. This job runs after
        // that write.
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
      // The callers are resumed before the next write, so that it includes the changes of those
      // that call again at once.
      for changes in end.committed { changes.resumeCaller() }
      // If another job is running, nothing is written here, because waiting for that job could take
      // long.
      if end.hasMoreToFlush, thread.tryToExcludeOtherJobs() { writePending() }
    }
  }

  /// Schedules jobs that were postponed until the end of a flush.
  ///
  /// If `writes` is `true`, a write of the queued lines is scheduled after the jobs.
  private func schedule(_ jobs: [PostponedJob], writes: Bool, on thread: any JobThread) {
    for job in jobs { thread.add { self.perform(job) } }
    if writes { thread.add { self.writePending() } }
  }

  /// If changes are flushed at intervals, schedules a flush, unless one is already scheduled.
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

  /// Rolls back the changes that a failed write or flush affects, and resumes their callers with
  /// the error.
  ///
  /// All queued changes are rolled back too, because they may depend on a failed one. Changes that
  /// were written earlier are rolled back only if the failure is `poisoned`. Then the store also
  /// closes the file.
  func rollBackAndFail(_ group: [Submission], because failure: Journal.Failure) {
    let error = errors.writeFailedError(because: failure)
    // The thread is read here, because a caller that receives the error may close the store at
    // once, which removes the thread from `state`.
    let thread = state.withLock { $0.thread }
    let endsUse = if case .poisoned = failure { true } else { false }
    let (failed, isPoisoned, lock) = state.withLock { state in
      let failed = state.pipeline.takeFailed(group, isPoisoned: endsUse)
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      // If the store is already closing, the job that closes the store also closes the file.
      guard endsUse, case .open = state.phase else {
        return (failed, false, FileLock?.none)
      }
      state.phase = .poisoned(error)
      isServing.store(false, ordering: .releasing)
      defer { state.lock = nil }
      return (failed, true, state.lock)
    }
    if isPoisoned {
      // Another store may open the file now.
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
    schedule(jobs, writes: writes, on: thread)
  }
}

extension JSONFileCore.State {
  /// The next step after changes were written.
  fileprivate enum AfterWriting {
    case commit([Committed])
    case wait
    /// Flush the changes and, if `writesToo` is `true`, write queued claims at the same time.
    case flush(writesToo: Bool)
  }

  /// Records that changes were written, and commits them if they need not be flushed first.
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
  /// - Returns: The committed changes, and whether other changes must be written or flushed.
  fileprivate mutating func endFlush() -> (committed: [Committed], hasMoreToFlush: Bool) {
    let end = pipeline.endFlush()
    return (end.flushed.map { $0.commit(to: &table) }, end.hasMoreToFlush)
  }
}

extension [TaskChange] {
  /// Replaces each new payload with its encoded bytes.
  ///
  /// So a later compaction or verification uses exactly the bytes that were stored, and no code of
  /// a payload's type runs on the store's thread.
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
      default: continue
      }
    }
  }
}
