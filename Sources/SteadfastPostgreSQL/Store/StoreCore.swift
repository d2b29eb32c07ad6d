#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Synchronization

/// The threads of a store, and the calls that wait for them.
final class StoreCore: StoreCalls {
  private struct State {
    /// The number of started threads, in the order claim, extend, read and write.
    var threadCount = 0
    var hasEnded = false
    /// Whether a queue listens, or other stores must be notified.
    var needsHints: Bool
    var hints: HintExchange?
  }

  private static let threadCount = 4

  private let listeners = HintListeners()
  let place: DatabaseLocation
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
  private let notes = FreedTaskNotes()

  init(_ place: DatabaseLocation, leaseDuration: Duration?) {
    self.place = place
    self.leaseDuration = leaseDuration
    state = Mutex(State(needsHints: place.isShared))
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
    listeners.end()
  }

  // MARK: Calls

  func call(_ call: StoreJob.Call) async throws -> StoreJob.Answer {
    try place.checkArguments()
    guard forkCount == ForkCount.current else {
      throw PostgreSQLError(
        .closed,
        "a forked process can't use its parent's store in \(place.name); make a new store"
      )
    }
    try startThreads()
    if call.isLast {
      opening.noteLastCall()
      endOthers()
    }
    if case .open = call {
      try await openIfClosed()
      return .nothing
    }
    if case .claim = call {
      try await openIfClosed()
      // If the tables are not shared, the writer's session keeps all other sessions out. So that
      // session also claims.
      let queue = place.isShared ? claiming : writing
      return try await queue.perform(call, orThrow: place.closed)
    }
    if call.onlyExtends, place.isShared {
      try await openIfClosed()
      return try await extending.perform(call, orThrow: place.closed)
    }
    guard call.reads else {
      // Changes that wait before the last call may still notify other stores.
      defer { if call.isLast { state.withLock { $0.hints }?.end() } }
      return try await writing.perform(call, orThrow: place.closed)
    }
    try await openIfClosed()
    return try await reading.perform(call, orThrow: place.closed)
  }

  private func openIfClosed() async throws {
    try await opening.open(by: writing, orThrow: place.closed)
  }

  // MARK: Threads

  private func startThreads() throws {
    try state.withLock { state in
      guard state.threadCount < Self.threadCount else { return }
      try startHints(&state)
      let hints = place.isShared ? state.hints : nil
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
    try SystemThread.start(in: others) { [place, claiming, leaseDuration, notes] in
      let session = Self.sessionBesideWriter(at: place)
      defer { session.close() }
      let claimer = Claimer(place, on: session, leaseDuration: leaseDuration, notes)
      while case .jobs(let jobs) = claiming.next(all: false) {
        for job in jobs { claimer.perform(job) }
      }
    }
  }

  private func startExtending() throws {
    try SystemThread.start(in: others) { [place, extending] in
      let session = Self.sessionBesideWriter(at: place)
      defer { session.close() }
      let extender = Extender(on: session)
      while case .jobs(let jobs) = extending.next(all: false) {
        for job in jobs { extender.perform(job) }
      }
    }
  }

  /// Returns a session that changes tasks.
  ///
  /// The session keeps other stores out even if the writer's session is lost.
  private static func sessionBesideWriter(at place: DatabaseLocation) -> Session {
    Session(place) { tables, _ in try place.lockOutOtherStores(on: tables.database) }
  }

  private func startReading() throws {
    try SystemThread.start(in: others) { [place, reading] in
      // A count may read all tasks.
      let session = Session(place) { tables, _ in
        try tables.database.execute(
          "select set_config('statement_timeout', '100s', false) "
            + "where current_setting('statement_timeout') = '30s'"
        )
      }
      while case .jobs(let jobs) = reading.next(all: false) {
        for job in jobs { Self.answerLookUp(job, on: session) }
      }
    }
  }

  private func startWriting(_ hints: HintExchange?) throws {
    try SystemThread.start { [place, writing, others, notes] in
      let writer = Writer(place, hints: hints, others: others, notes)
      while case .jobs(let jobs) = writing.next(all: true) { writer.perform(jobs) }
    }
  }

  private func startHints(_ state: inout State) throws {
    guard state.needsHints, state.hints == nil, !state.hasEnded else { return }
    let hints = try HintExchange(place, listeners)
    try SystemThread.start { hints.run() }
    state.hints = hints
  }

  /// Starts a sequence of hints; `nil` if the system can't provide a thread or descriptors for it.
  ///
  /// A statement of another connection can add a task even to a store that is not shared. So such a
  /// store listens once a queue requests hints.
  func hints() -> AsyncStream<Void>? {
    let stream = listeners.stream()
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

  private static func answerLookUp(_ job: StoreJob, on session: Session) {
    let result = Result { try session.lookUp { try $0.answer(job.call) } }
    job.continuation.resume(with: result.mapError(session.place.errorForCaller))
  }
}
#endif
