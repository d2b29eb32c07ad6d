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
/// happens on the thread, one thing after another.
final class JSONFileCore: Sendable {
  /// Takes the lock, and makes the storage to read and write.
  typealias Opener = @Sendable () throws -> (lock: FileLock?, storage: any JournalStorage)

  private enum Phase {
    case unopened, open, closed
    case poisoned(JSONFileError)
  }

  private struct State {
    var phase = Phase.unopened
    var table = TaskTable()
    var pending: [Submission] = []
    /// Whether the thread is at work on what is pending, or about to be.
    var isWriting = false
    var thread: IOThread?
    var lock: FileLock?
  }

  private let errors: JSONFileErrors
  private let opener: Opener
  private let state = Mutex(State())
  private let journal = Mutex<Journal?>(nil)

  init(_ url: URL, opener: @escaping Opener) {
    errors = JSONFileErrors(url: url)
    self.opener = opener
  }

  /// The real file.
  convenience init(_ url: URL) {
    self.init(url) { (try FileLock.acquire(for: url.path), FileStorage(path: url.path)) }
  }

  func read<Result>(_ body: (TaskTable) -> Result) -> Result {
    state.withLock { body($0.table) }
  }

  // MARK: Calls

  /// Opens the file, if it is not open.
  func open() async throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    try await onThread { core in try core.openFile() }
  }

  /// Stores changes.
  ///
  /// Which of them apply is decided in order, at once; when it returns they are stored.
  func apply(_ batch: [TaskChange], _ durability: Durability) async throws -> [ChangeOutcome] {
    guard !batch.isEmpty else { return [] }
    for change in batch { try change.checkForm() }
    let lines = try batch.map { change in
      let line = try JournalBody(.change(change))
      guard line.bytes.count <= JournalBody.maxLength else { throw errors.taskTooLarge(line) }
      return line
    }
    return try await waitForThread { continuation in
      submit(continuation) { table in
        let staged = table.stage(batch)
        return Submission(
          lines: zip(lines, staged).filter { $1.isKept }.map(\.0),
          caller: .changes(staged, durability, continuation)
        )
      }
    }
  }

  /// Leases tasks, and writes that they have begun.
  func claim(_ request: ClaimRequest) async throws -> Claim {
    try await waitForThread { continuation in
      submit(continuation) { table in
        let claim = table.claim(request)
        guard !claim.tasks.isEmpty else {
          continuation.resume(returning: claim)
          return nil
        }
        return Submission(
          lines: claim.tasks.map { JournalBody(beginningOf: $0.lease.id) },
          caller: .claim(claim, continuation)
        )
      }
    }
  }

  /// Stores what is pending, seals the file, and gives it up.
  func close() async throws {
    if isClosed { return }
    // The thread ends when it has done its jobs.
    defer { state.withLock { $0.thread = nil } }
    try await onThread { core in try core.closeFile() }
  }

  /// Closes the file and deletes it.
  func destroy() async throws {
    let isUnopened = state.withLock { state in
      if case .unopened = state.phase { true } else { false }
    }
    // Whoever deletes the file must hold its lock.
    if isUnopened { try await open() }
    if isClosed { throw errors.closed }
    defer { state.withLock { $0.thread = nil } }
    try await onThread { core in try core.closeFile(deleting: true) }
  }

  /// As `close()`, without waiting.
  func abandon() {
    let (thread, lock) = state.withLock { state in
      defer { state.thread = nil }
      return (state.thread, state.lock)
    }
    guard let thread else { return }
    lock?.beginRelease()
    thread.add {
      // Nobody is left to be told. What was acknowledged is stored.
      try? self.closeFile()
    }
  }

  /// Suspends until the thread has resumed the continuation; in virtual time, in turn.
  private func waitForThread<Value: Sendable>(
    _ body: (CheckedContinuation<Value, any Error>) -> Void
  ) async throws -> Value {
    try await RealWork.performInTurn {
      try await withCheckedThrowingContinuation { body($0) }
    }
  }

  private var isClosed: Bool {
    state.withLock { state in
      if case .closed = state.phase { true } else { false }
    }
  }

  private func isOpen(_ phase: Phase) throws(JSONFileError) -> Bool {
    switch phase {
    case .unopened: return false
    case .open: return true
    case .closed: throw errors.closed
    case .poisoned(let error): throw error
    }
  }

  /// Leaves lines for the thread, unless the file is not open.
  private func submit<Value>(
    _ continuation: CheckedContinuation<Value, any Error>,
    _ make: (inout TaskTable) -> Submission?
  ) {
    let result = state.withLock { state -> Result<IOThread?, any Error> in
      do {
        guard try isOpen(state.phase) else { throw errors.closed }
        guard let submission = make(&state.table) else { return .success(nil) }
        state.pending.append(submission)
        defer { state.isWriting = true }
        return .success(state.isWriting ? nil : state.thread)
      } catch {
        return .failure(error)
      }
    }
    switch result {
    case .success(let thread): thread?.add { self.writePending() }
    case .failure(let error): continuation.resume(throwing: error)
    }
  }
}

// MARK: - On the thread

extension JSONFileCore {
  private func onThread(
    _ body: @escaping @Sendable (JSONFileCore) throws -> Void
  ) async throws {
    let thread = try state.withLock { state throws -> IOThread in
      if let thread = state.thread { return thread }
      _ = try isOpen(state.phase)
      let thread = try errors.translating { try IOThread() }
      state.thread = thread
      return thread
    }
    try await waitForThread { continuation in
      thread.add { continuation.resume(with: Result { try body(self) }) }
    }
  }

  private func openFile() throws {
    if try state.withLock({ state in try isOpen(state.phase) }) { return }
    let (lock, opened) = try errors.translating {
      let (lock, storage) = try opener()
      return (lock, try Journal.open(storage))
    }
    journal.withLock { $0 = opened.journal }
    state.withLock { state in
      state.lock = lock
      state.table = opened.table
      state.phase = .open
    }
  }

  private func closeFile(deleting: Bool = false) throws {
    var lock: FileLock?
    var isClosed = false
    while !isClosed {
      writePending()
      // Nothing may be added between the last look at what is pending and the closing.
      (isClosed, lock) = state.withLock { state in
        guard state.pending.isEmpty else { return (false, nil) }
        state.phase = .closed
        defer { state.lock = nil }
        return (true, state.lock)
      }
    }
    defer { lock?.release() }
    try errors.translating {
      try journal.withLock { journal in
        defer { journal = nil }
        try deleting ? journal?.delete() : journal?.close()
      }
    }
  }

  private func writePending() {
    while let group = takePending() { write(group) }
  }

  private func takePending() -> [Submission]? {
    state.withLock { state in
      guard !state.pending.isEmpty else {
        state.isWriting = false
        return nil
      }
      defer { state.pending = [] }
      return state.pending
    }
  }

  private func write(_ group: [Submission]) {
    do throws(Journal.Failure) {
      try withJournal { journal throws(Journal.Failure) in
        try journal.append(group.flatMap(\.lines))
      }
    } catch {
      return fail(group, error)
    }
    // A claim need only survive the process; what it leased is leased already.
    for claim in group where claim.isClaim { claim.succeed() }
    let changes = group.filter { !$0.isClaim }
    do throws(Journal.Failure) {
      if changes.contains(where: \.needsFlush) {
        try withJournal { journal throws(Journal.Failure) in try journal.synchronize() }
      }
    } catch {
      return fail(changes, error)
    }
    state.withLock { state in
      for submission in changes { submission.commit(to: &state.table) }
    }
    for submission in changes { submission.succeed() }
  }

  private func withJournal(
    _ body: (inout Journal) throws(Journal.Failure) -> Void
  ) throws(Journal.Failure) {
    try journal.withLock { journal throws(Journal.Failure) in
      guard var open = journal.take() else {
        preconditionFailure("lines were written to a closed file")
      }
      defer { journal = open }
      try body(&open)
    }
  }

  /// Takes everything back that is staged: what is pending may rest on what has failed.
  private func fail(_ group: [Submission], _ failure: Journal.Failure) {
    let error = errors.writing(failure)
    let failed = state.withLock { state in
      let failed = group + state.pending
      state.pending = []
      for submission in failed.reversed() { submission.rollBack(&state.table) }
      if case .poisoned = failure { state.phase = .poisoned(error) }
      return failed
    }
    for submission in failed { submission.fail(error) }
  }
}
