import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a file store is made of: the tasks in memory, the journal, and the thread between them.
///
/// Callers stage their changes in the table and leave their lines; the thread takes all that have
/// gathered, writes and flushes them in one go, commits them, and lets the callers go on. Store
/// first, memory second: what could not be written is rolled back. Whatever touches the file
/// happens on the thread, one thing after another, except for a flush: while it is under way, claims
/// are written, and changes gather, which are written and flushed at once when it has ended, while
/// its callers go on. All are committed in the order of the file.
final class JSONFileCore: Sendable {
  /// Takes the lock, and makes the storage to read and write.
  typealias Opener = @Sendable () throws -> (lock: FileLock?, storage: any JournalStorage)
  typealias ThreadMaker = @Sendable () throws -> any JobThread

  enum Phase {
    case unopened, open, closing, closed
    case poisoned(JSONFileError)
  }

  struct State {
    var phase = Phase.unopened
    var table = TaskTable()
    var pending: [Submission] = []
    /// How many bytes the file will have when what is pending and being written is in it; kept only
    /// where it is limited.
    var size = 0
    /// Those who wait for the end of a compaction: whether it was finished.
    var compactionWaiters: [CheckedContinuation<Bool, any Error>] = []
    /// Whether the thread is at work on what is pending, or about to be.
    var isWriting = false
    /// What was written and is still to be flushed.
    var written: [Submission] = []
    /// What is being flushed.
    var flushing: [Submission] = []
    /// What was flushed, is committed and whose callers still wait.
    var committed: [Submission] = []
    /// Whether somebody is at work on what was written.
    var isFlushing = false
    /// What waits until nothing is being flushed.
    var afterFlush: [@Sendable () -> Void] = []
    /// Whether the thread is to flush when an interval has passed.
    var willFlush = false
    var thread: (any JobThread)?
    var lock: FileLock?
    /// Whether closing deletes the file.
    var deletesFile = false
    /// Those who wait for the end of a closing that has begun.
    var closers: [CheckedContinuation<Void, any Error>] = []
  }

  /// What only the thread uses.
  struct OpenFile {
    var storage: any JournalStorage
    var journal: Journal
    var compaction: Compaction?
    /// About what size the file would have had if it had been compacted when it was opened, or has
    /// had since then when it was.
    var compactSize: Int
    /// While it is smaller, it is not compacted: a compaction has failed.
    var postponedSize = 0
    /// Why the last compaction has failed.
    var failedCompaction: JSONFileStatistics.FailedCompaction?
  }

  let errors: JSONFileErrors
  let opener: Opener
  let flushing: JSONFileStore.Flushing
  let options: JSONFileStore.Options
  let compactionPolicy: CompactionPolicy
  /// Tells the date, for people to read.
  let date: @Sendable () -> Date
  /// Tells people what no call can tell them.
  let announce: @Sendable (String) -> Void
  private let makeThread: ThreadMaker
  let state = Mutex(State())
  let file = Mutex<OpenFile?>(nil)
  /// The count of forks when the thread was started; negative before.
  private let forkCount = Atomic(-1)
  /// Whether the file is open, so that most calls need not take the lock to see it.
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
    // A file that is to stay small is worth it sooner.
    let limit = options.maxFileSize ?? .max
    policy.minimumSize = min(policy.minimumSize, limit)
    policy.spareSize = min(policy.spareSize, limit / 8)
    self.compactionPolicy = policy
    self.date = date
    self.announce = announce
    makeThread = thread
    self.opener = opener
  }

  /// The real file.
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

  /// Whether this is a child that was forked off: the thread and the lock are its parent's.
  ///
  /// Asked before any lock is taken, which might have been held when the child was forked off.
  private var isForkedOff: Bool {
    let count = forkCount.load(ordering: .relaxed)
    return count >= 0 && count != ForkCount.current
  }

  /// Opens the file, if it is not open.
  func open() async throws {
    if isForkedOff { throw errors.forkedOff }
    if isServing.load(ordering: .acquiring) { return }
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try await onThread { core in try core.openFile() }
  }

  /// Stores changes.
  ///
  /// Which of them apply is decided in order, at once; when it returns they are stored.
  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    guard !batch.isEmpty else { return [] }
    for change in batch { try change.checkForm() }
    var batch = batch
    try batch.encodePayloads()
    let lines = try batch.map { change in
      let line = try JournalBody(.change(change))
      let limit = JournalBody.maxLength(of: change)
      guard line.bytes.count <= limit else {
        throw errors.taskTooLarge(line, limit: limit, "that of the format")
      }
      try checkSize(of: change, line)
      return line
    }
    return try await store(batch, lines, durability)
  }

  /// Leases tasks, and writes that they have begun.
  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await waitForThread { continuation in
      submit(continuation) { state in
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
    try await onThread { core in try core.readStatistics() }
  }

  /// Stores what is pending, seals the file, and gives it up.
  ///
  /// Whoever calls it meanwhile waits for the same end.
  func close() async throws {
    if isForkedOff { throw errors.forkedOff }
    try await waitForThread { continuation in
      let step = state.withLock { state in
        isServing.store(false, ordering: .releasing)
        return state.beginClosing(continuation)
      }
      switch step {
      case .wait: break
      case .done: continuation.resume()
      case .fail(let error): continuation.resume(throwing: error)
      case .close(let thread): thread.add { self.closeFile() }
      }
    }
  }

  /// Deletes the file and gives it up.
  func destroy() async throws {
    // Whoever deletes the file must hold its lock.
    try await open()
    try state.withLock { state in
      // Perhaps somebody closes it meanwhile.
      guard try isOpen(state.phase) else { throw errors.closed }
      state.deletesFile = true
    }
    try await close()
  }

  /// As `close()`, without waiting.
  func abandon() {
    guard !isForkedOff else { return }
    let (step, lock) = state.withLock { ($0.beginClosing(nil), $0.lock) }
    guard case .close(let thread) = step else { return }
    lock?.beginRelease()
    thread.add { self.closeFile() }
  }

  /// Suspends until the thread has resumed the continuation; in virtual time, in turn.
  func waitForThread<Value: Sendable>(
    _ body: (CheckedContinuation<Value, any Error>) -> Void
  ) async throws -> Value {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { body($0) }
    }
  }

  /// What is known of a call when it has been decided.
  enum Decision<Value> {
    case answer(Value)
    case lines(Submission)
  }

  /// Leaves lines for the thread, unless the file is not open.
  func submit<Value: Sendable>(
    _ continuation: CheckedContinuation<Value, any Error>,
    _ decide: (inout State) throws -> Decision<Value>
  ) {
    let (answer, thread) = state.withLock {
      state -> (Result<Value, any Error>?, (any JobThread)?) in
      do {
        guard try isOpen(state.phase) else { throw errors.closed }
        switch try decide(&state) {
        case .answer(let value): return (.success(value), nil)
        case .lines(let submission):
          state.size += options.maxFileSize == nil ? 0 : submission.byteCount
          state.pending.append(submission)
          // Changes wait for the flush that is under way, written or not: what gathers meanwhile
          // is written in one go. Claims need no flush.
          if state.isFlushing, !submission.isClaim { return (nil, nil) }
        }
        defer { state.isWriting = true }
        return (nil, state.isWriting ? nil : state.thread)
      } catch {
        return (.failure(error), nil)
      }
    }
    if let answer { continuation.resume(with: answer) }
    thread?.add { self.writePending() }
  }

  /// Does a job on the thread, which is started if there is none.
  func onThread<Value: Sendable>(
    _ body: @escaping @Sendable (JSONFileCore) throws -> Value
  ) async throws -> Value {
    let thread = try thread()
    return try await waitForThread { continuation in
      thread.add { continuation.resume(with: Result { try body(self) }) }
    }
  }

  /// The thread, which is started if there is none.
  func thread() throws -> any JobThread {
    try state.withLock { state in
      if let thread = state.thread { return thread }
      _ = try isOpen(state.phase)
      let thread = try errors.translating { try makeThread() }
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
