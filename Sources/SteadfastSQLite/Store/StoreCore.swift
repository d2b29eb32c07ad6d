#if SQLite
import Dispatch
import SteadfastDatabases
import SteadfastQueue
import Synchronization

/// The threads of a store, and the calls that wait for them.
final class StoreCore: StoreCalls {
  private struct State {
    /// The number of started threads; the writer starts first, and then the readers.
    var threadCount = 0
    /// Stops the thread that triggers checks for changes by other connections; `nil` if there is
    /// none.
    var watch: StopSignal?
  }

  private static let readerCount = 2
  /// The interval between checks for changes by other connections, if the system does not report
  /// writes to a file.
  private static let sharedInterval = Duration.milliseconds(40)
  /// The same interval for an unshared store, which only notices tasks that the statements of other
  /// programs add.
  private static let unsharedInterval = Duration.seconds(1)

  private let listeners = HintListeners()
  let location: DatabaseLocation
  private let isShared: Bool
  private let clock: @Sendable () -> Double
  private let file = StoreFile()
  private let writing = JobQueue()
  private let reading = JobQueue()
  /// The reader threads.
  private let readers = DispatchGroup()
  private let opening = OpenState()
  private let state = Mutex(State())
  private let forkCount = ForkCount.current

  init(_ location: DatabaseLocation, isShared: Bool, clock: @escaping @Sendable () -> Double) {
    self.location = location
    self.isShared = isShared
    self.clock = clock
  }

  /// Closes the database without waiting until it is closed.
  ///
  /// When this is called, no call is in progress. So nothing changes after the call, and another
  /// store can use the tables at once.
  func end() {
    writing.end()
    endReading()
    file.releaseLock()
  }

  private func endReading() {
    reading.end()
    listeners.endAll()
    state.withLock { $0.watch }?.stop()
  }

  /// Starts a sequence of hints.
  ///
  /// From then on, the writer thread checks for changes. If the system can't provide a thread, the
  /// sequence ends at once.
  func makeHints() -> AsyncStream<Void> {
    let stream = listeners.makeStream { [weak self] in self?.stopWatchIfUnused() }
    // A closed store has already ended the sequence.
    guard !listeners.isEmpty else { return stream }
    do {
      try startWatch()
    } catch {
      listeners.endAll()
    }
    return stream
  }

  private func startWatch() throws(SystemCallError) {
    try state.withLock { state throws(SystemCallError) in
      guard state.watch == nil else { return }
      let interval = isShared ? Self.sharedInterval : Self.unsharedInterval
      let log = file.logPath ?? location.logPath
      state.watch = try DatabaseWatcher.start(watchingLogAt: log, intervalWithoutFile: interval) {
        [writing] in
        writing.wake()
      }
    }
    // The first check may have come before there was a listener.
    writing.wake()
  }

  private func stopWatchIfUnused() {
    state.withLock { state in
      // If a sequence starts during this call, it starts another thread afterwards.
      guard listeners.isEmpty else { return }
      state.watch?.stop()
      state.watch = nil
    }
  }

  // MARK: Calls

  func call(_ call: StoreJob.Call) async throws -> StoreJob.Output {
    try location.checkArguments()
    guard forkCount == ForkCount.current else {
      throw SQLiteError(
        .closed,
        location.url,
        "a forked process can't use its parent's store in \(location.path); make a new store"
      )
    }
    do {
      try startThreads()
    } catch {
      throw location.errorForCaller(error)
    }
    if call.endsStore {
      opening.recordLastCall()
      endReading()
    }
    if case .open = call {
      try await openIfClosed()
      return .nothing
    }
    guard call.isReadOnly else {
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
      if state.threadCount == 0 {
        try SystemThread.start { [location, isShared, clock, file, writing, listeners, readers] in
          let writer = Writer(
            location,
            isShared: isShared,
            clock: clock,
            file: file,
            readers: readers
          )
          Self.runWriter(writer, jobs: writing, listeners: listeners)
        }
        state.threadCount = 1
      }
      while state.threadCount <= Self.readerCount {
        try SystemThread.start(in: readers) { [location, file, reading] in
          Self.runReader(jobs: reading, file: file, at: location)
        }
        state.threadCount += 1
      }
    }
  }

  /// Performs jobs, and reports changes by other connections, until the queue of jobs ends.
  private static func runWriter(_ writer: Writer, jobs: JobQueue, listeners: HintListeners) {
    while true {
      switch jobs.waitForJobs(all: true) {
      case .jobs(let jobs): writer.perform(jobs)
      case .wokenUp: break
      case .ended:
        writer.close()
        return
      }
      if !listeners.isEmpty, writer.otherConnectionsMadeChanges() { listeners.notifyAll() }
    }
  }

  /// Answers look-ups until the queue of jobs ends.
  private static func runReader(jobs: JobQueue, file: StoreFile, at location: DatabaseLocation) {
    var database: Connection?
    while case .jobs(let jobs) = jobs.waitForJobs(all: false) {
      for job in jobs {
        let result = Result {
          let opened = try database ?? file.openForReading(at: location)
          database = opened
          guard !opened.hasMoved else { throw location.displacedError }
          return try opened.performLookUp(job.call)
        }
        job.continuation.resume(with: result.mapError(location.errorForCaller))
      }
    }
  }
}
#endif
