#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Synchronization

/// The threads of a store, and the calls that wait for them.
final class StoreCore: StoreCalls {
  private struct State {
    /// The number of started threads; they start in the order claim, extend, read and write.
    var threadCount = 0
    var hasEnded = false
    /// Whether a queue listens, or other stores must be notified.
    var needsHints: Bool
    var hints: HintExchange?
  }

  private static let threadCount = 4

  private let listeners = HintListeners()
  let location: DatabaseLocation
  private let leaseDuration: Duration?
  private let writing = JobQueue()
  private let claiming = JobQueue()
  private let extending = JobQueue()
  private let reading = JobQueue()
  /// The threads that claim, extend and read.
  private let others = DispatchGroup()
  private let opening = OpenState()
  private let state: Mutex<State>
  private let forkCount = ForkCount.current
  private let freedTasks = FreedTaskRecorder()

  init(_ location: DatabaseLocation, leaseDuration: Duration?) {
    self.location = location
    self.leaseDuration = leaseDuration
    state = Mutex(State(needsHints: location.isShared))
  }

  /// Lets the threads end after they complete their jobs.
  func end() {
    writing.end()
    endOthers()
    state.withLock { $0.hints }?.end()
  }

  private func endOthers() {
    state.withLock { $0.hasEnded = true }
    claiming.end()
    extending.end()
    reading.end()
    listeners.endAll()
  }

  // MARK: Calls

  func call(_ call: StoreJob.Call) async throws -> StoreJob.Output {
    try location.checkArguments()
    guard forkCount == ForkCount.current else {
      throw PostgreSQLError(
        .closed,
        "a forked process can't use its parent's store in \(location.name); make a new store"
      )
    }
    try startThreads()
    if call.endsStore {
      location.close.set(true)
      opening.recordLastCall()
      endOthers()
    }
    if case .open = call {
      try await openIfClosed()
      return .nothing
    }
    if case .claim = call {
      try await openIfClosed()
      // If the tables are not shared, the writer's session locks out all other sessions. So that
      // session also claims.
      let queue = location.isShared ? claiming : writing
      return try await queue.perform(call, orThrow: location.closedError)
    }
    if call.onlyExtends, location.isShared {
      try await openIfClosed()
      return try await extending.perform(call, orThrow: location.closedError)
    }
    guard call.isReadOnly else {
      // Changes that wait before the last call may still notify other stores.
      defer { if call.endsStore { state.withLock { $0.hints }?.end() } }
      return try await writing.perform(call, orThrow: location.closedError)
    }
    try await openIfClosed()
    return try await reading.perform(call, orThrow: location.closedError)
  }

  private func openIfClosed() async throws {
    try await opening.open(using: writing, orThrow: location.closedError)
  }

  // MARK: Threads

  private func startThreads() throws {
    try state.withLock { state in
      guard state.threadCount < Self.threadCount else { return }
      try startHints(&state)
      let hints = location.isShared ? state.hints : nil
      let starts = [
        startClaiming, startExtending, startReading, { try self.startWriting(hints) },
      ]
      // If the system can't start a thread, a later call starts the remaining ones.
      for start in starts[state.threadCount...] {
        try start()
        state.threadCount += 1
      }
    }
  }

  private func startClaiming() throws {
    try SystemThread.start(in: others) { [location, claiming, leaseDuration, freedTasks] in
      let session = Self.makeChangingSession(at: location)
      defer { session.close() }
      let claimer = Claimer(location, on: session, leaseDuration: leaseDuration, freedTasks)
      while case .jobs(let jobs) = claiming.waitForJobs(all: false) {
        for job in jobs { claimer.perform(job) }
      }
    }
  }

  private func startExtending() throws {
    try SystemThread.start(in: others) { [location, extending] in
      let session = Self.makeChangingSession(at: location)
      defer { session.close() }
      let extender = Extender(on: session)
      while case .jobs(let jobs) = extending.waitForJobs(all: false) {
        for job in jobs { extender.perform(job) }
      }
    }
  }

  /// Returns a session that changes tasks on a thread other than the writer.
  ///
  /// The session locks out other stores even if the writer's session is lost.
  private static func makeChangingSession(at location: DatabaseLocation) -> Session {
    Session(location) { tables, _ in try location.lockOutOtherStores(on: tables.database) }
  }

  private func startReading() throws {
    try SystemThread.start(in: others) { [location, reading] in
      // A count may read all tasks.
      let session = Session(location) { tables, _ in
        try tables.database.execute(
          "select set_config('statement_timeout', '100s', false) "
            + "where current_setting('statement_timeout') = '30s'"
        )
      }
      while case .jobs(let jobs) = reading.waitForJobs(all: false) {
        for job in jobs { Self.performLookUp(job, on: session) }
      }
    }
  }

  private func startWriting(_ hints: HintExchange?) throws {
    try SystemThread.start { [location, writing, others, freedTasks] in
      let writer = Writer(location, hints: hints, others: others, freedTasks)
      while case .jobs(let jobs) = writing.waitForJobs(all: true) { writer.perform(jobs) }
    }
  }

  private func startHints(_ state: inout State) throws {
    guard state.needsHints, state.hints == nil, !state.hasEnded else { return }
    let hints = try HintExchange(location, listeners)
    try SystemThread.start { hints.run() }
    state.hints = hints
  }

  /// Starts a sequence of hints; `nil` if the system can't provide a thread or descriptors for it.
  ///
  /// A statement of another connection can add a task even to a store that is not shared. So such a
  /// store listens once a queue requests hints.
  func makeHints() -> AsyncStream<Void>? {
    let stream = listeners.makeStream()
    do {
      try state.withLock { state in
        state.needsHints = true
        if state.threadCount == Self.threadCount { try startHints(&state) }
      }
      return stream
    } catch {
      return nil
    }
  }

  private static func performLookUp(_ job: StoreJob, on session: Session) {
    let result = Result { try session.lookUp { try $0.performLookUp(job.call) } }
    job.continuation.resume(with: result.mapError(session.location.errorForCaller))
  }
}
#endif
