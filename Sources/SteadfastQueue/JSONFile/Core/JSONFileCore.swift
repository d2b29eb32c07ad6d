import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The parts of a file store: the tasks in memory, the journal, and the I/O thread between them.
///
/// A caller stages its changes in the table and queues their lines. The thread takes all lines that
/// have gathered, writes and flushes them together, commits the changes, and resumes the callers.
/// The file comes first and memory second: a change that could not be written is rolled back.
///
/// Everything that touches the file happens on the thread, one job after another, with two
/// exceptions. While a flush is under way, claims are written, and changes gather. When it has
/// ended, these changes are written and flushed. And a caller that claims tasks writes its own
/// lines if the thread has nothing else to do: that takes less time than a hand-over. All changes
/// are committed in the order of the file.
final class JSONFileCore: Sendable {
  /// Takes the lock, and makes the storage to read and write.
  typealias Opener = @Sendable () throws -> (lock: FileLock?, storage: any JournalStorage)
  typealias ThreadMaker = @Sendable () throws -> any JobThread

  enum Phase {
    case unopened, open, closing, closed
    case poisoned(JSONFileError)
  }

  /// What waits until nothing is being flushed.
  enum PostponedJob: Sendable {
    case write, close
    case verify(CheckedContinuation<JSONFileReport, any Error>)
  }

  struct State {
    var phase = Phase.unopened
    var table = TaskTable()
    /// The lines of all calls that wait.
    var pipeline = WritePipeline<Submission, PostponedJob>()
    /// The size of the file in bytes when everything pending and being written is in it.
    ///
    /// It is kept up to date only if the size of the file is limited.
    var size = 0
    /// What the last compaction since the file was opened has found of the tasks' sizes.
    var underestimate = Underestimate()
    /// The callers that wait for the end of a compaction, and get whether it was finished.
    var compactionWaiters: [CheckedContinuation<Bool, any Error>] = []
    var thread: (any JobThread)?
    var lock: FileLock?
    /// Whether closing deletes the file.
    var deletesFile = false
    /// Whether the file was deleted.
    var isDestroyed = false
    /// The callers that wait until the file is deleted, which was closed.
    var destroyers: [CheckedContinuation<Void, any Error>] = []
    /// The callers that wait for the end of a closing that has begun.
    var closers: [CheckedContinuation<Void, any Error>] = []
  }

  /// The state that only the I/O thread uses.
  struct OpenFile {
    var storage: any JournalStorage
    var journal: Journal
    var compaction: Compaction?
    /// The size of the file after the last compaction since it was opened.
    ///
    /// If there was none, this is about the size that a compaction would have left at opening.
    var compactSize: Int
    /// While the file is smaller than this, no compaction is due, because one has failed.
    var postponedSize = 0
    /// The compact size that ends the postponement earlier, in bytes.
    var postponedCompactSize = 0
    /// Why the last compaction has failed, or `nil` if it has not.
    var failedCompaction: JSONFileStatistics.FailedCompaction?
  }

  let errors: JSONFileErrors
  let opener: Opener
  let flushing: JSONFileStore.Flushing
  let options: JSONFileStore.Options
  let compactionPolicy: CompactionPolicy
  /// Returns the date, for people to read.
  let date: @Sendable () -> Date
  /// Reports to people what no call can report to them.
  let announce: @Sendable (String) -> Void
  let makeThread: ThreadMaker
  let state = Mutex(State())
  let file = Mutex<OpenFile?>(nil)
  /// The count of forks when the thread was started; negative before that.
  let forkCount = Atomic(-1)
  /// Whether the file is open.
  ///
  /// Most calls read this, and so need not take the lock.
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
    // A file that must stay small is worth a compaction sooner.
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
  /// This is checked before any lock is taken, because a lock may have been held at the fork.
  var isForkedOff: Bool {
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
  /// This decides at once, and in order, which of them apply. When it returns, they are stored.
  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    guard !batch.isEmpty else { return [] }
    let (batch, lines) = try prepare(batch)
    while true {
      let outcomes = try await store(batch, lines, durability)
      // If there are none, they depended on changes that are stored by now.
      if !outcomes.isEmpty { return outcomes }
    }
  }

  /// Checks changes, encodes their payloads, and makes their lines.
  func prepare(_ batch: [TaskChange]) throws -> ([TaskChange], [JournalBody]) {
    for change in batch { try change.checkForm() }
    var batch = batch
    try batch.encodePayloads()
    return (batch, try batch.map(line))
  }

  /// Leases tasks, and writes that their attempts have begun.
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

  /// Stores what is pending, writes the last line of a closed file, and gives up the file.
  ///
  /// A caller that comes while the store closes waits for the same end.
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

  /// Closes the store as `close()` does, without waiting for the end.
  func abandon() {
    guard !isForkedOff else { return }
    let (step, lock) = state.withLock { ($0.beginClosing(nil), $0.lock) }
    guard case .close(let thread) = step else { return }
    lock?.beginRelease()
    thread.add { self.closeFile() }
  }

  /// Returns the thread, which is started if there is none.
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
