import SteadfastQueue
import SteadfastRetry

/// What a ``VirtualTimeExecutor`` guards with its lock: the jobs, and what the driver waits for.
///
/// Each event is one method. Those that return a continuation leave it to the caller to resume it,
/// once, after the lock is released.
struct VirtualTimeState<Job> {
  typealias Driver = CheckedContinuation<Void, Never>
  typealias Advance = CheckedContinuation<Void, any Error>
  typealias Turn = CheckedContinuation<Void, Never>

  private(set) var jobs: RunQueue<Job>
  private(set) var advances = DeadlineHeap<Advance, VirtualClock.Instant>()
  private(set) var turns = Turns<Turn>()
  /// What is waited for, as far as that is known.
  var waits = KnownWaits()
  /// The first sleep that began where it can't be driven.
  private(set) var mistake: VirtualTimeError?
  private(set) var bodyHasEnded = false
  private(set) var isClosed = false
  /// Whether a job, or a work that wants its turn, came from another thread, unannounced as real
  /// work.
  private(set) var hasCallsFromOutside = false
  /// How often anything has come from outside so far: a job, or the begin or end of real work.
  ///
  /// A look that finds nothing to do proves nothing while this number moves.
  private(set) var signalsFromOutside: UInt64 = 0
  private var realWork = 0
  private var hasStarted = false
  private var drivingThread: ThreadIdentity?
  private var waitingDriver: Driver?

  init(order: VirtualTime.Order) { jobs = RunQueue(order: order) }

  var isHeld: Bool { realWork > 0 || turns.isUnderWay }

  /// Whether code that runs on this thread now is neither the world's own nor waited for.
  func isLeft(by thread: ThreadIdentity) -> Bool {
    !isClosed && !isHeld && thread != drivingThread
  }

  mutating func note(_ mistake: VirtualTimeError) { self.mistake = self.mistake ?? mistake }

  /// Takes in a job; also returns the driver, if it waits for one.
  mutating func enqueue(_ job: Job, from thread: ThreadIdentity) -> Driver? {
    if thread == drivingThread {
      jobs.append(job)
    } else {
      jobs.appendFromOutside(job)
      signalsFromOutside += 1
      // The first job is the body, which the caller made ready.
      if hasStarted { noteCallFromOutside() }
    }
    return waitingDriver.take()
  }

  /// Makes `thread` the one whose jobs run in order, until ``stopDriving()``.
  mutating func startDriving(on thread: ThreadIdentity) {
    drivingThread = thread
    hasStarted = true
  }

  mutating func stopDriving() { drivingThread = nil }

  mutating func popJob() -> Job? { jobs.popNext() }

  mutating func endBody() -> Driver? {
    bodyHasEnded = true
    return waitingDriver.take()
  }

  mutating func beginRealWork() {
    signalsFromOutside += 1
    realWork += 1
  }

  mutating func endRealWork() -> Driver? {
    precondition(realWork > 0, "real work ended that had not begun")
    signalsFromOutside += 1
    realWork -= 1
    return realWork == 0 ? waitingDriver.take() : nil
  }

  /// Adds a work that wants its turn; false if the world is closed, where none is needed.
  mutating func beginTurn(
    _ work: Turn,
    from thread: ThreadIdentity
  ) -> (isTaken: Bool, driver: Driver?) {
    guard !isClosed else { return (false, nil) }
    if thread != drivingThread { noteCallFromOutside() }
    turns.append(work)
    return (true, waitingDriver.take())
  }

  /// The work whose turn it is has ended; false if its caller need not wait, in a closed world.
  mutating func endTurn(_ caller: Turn) -> (isTaken: Bool, driver: Driver?) {
    guard !isClosed else { return (false, nil) }
    turns.end(caller)
    return (true, waitingDriver.take())
  }

  mutating func popTurn() -> Turn? { isClosed ? turns.popAny() : turns.popNext() }

  mutating func addAdvance(
    _ advance: Advance,
    to target: VirtualClock.Instant
  ) -> (ticket: DeadlineHeap<Advance, VirtualClock.Instant>.Ticket?, driver: Driver?) {
    guard !isClosed else { return (nil, nil) }
    return (advances.insert(advance, deadline: target), waitingDriver.take())
  }

  mutating func removeAdvance(
    _ ticket: DeadlineHeap<Advance, VirtualClock.Instant>.Ticket
  ) -> Advance? {
    advances.remove(ticket)
  }

  mutating func popAdvance() -> (target: VirtualClock.Instant, advance: Advance)? {
    advances.popFirst(through: .last).map { ($0.deadline, $0.element) }
  }

  /// Lets the driver wait, unless what it waits for has happened; false if it has.
  mutating func letDriverWait(_ driver: Driver, forRealWork: Bool) -> Bool {
    guard jobs.isEmpty, !turns.hasNext, !bodyHasEnded, !forRealWork || isHeld
    else { return false }
    waitingDriver = driver
    return true
  }

  /// Ends the world: jobs that come from now on are not its own.
  mutating func close() { isClosed = true }

  private mutating func noteCallFromOutside() {
    hasCallsFromOutside = hasCallsFromOutside || !isHeld
  }
}

/// The waits that are under way and can be told, in the order in which they began.
struct KnownWaits {
  private var waits: [(number: UInt64, wait: KnownWait)] = []
  private var lastNumber: UInt64 = 0

  var all: [KnownWait] { waits.map(\.wait) }

  mutating func add(_ wait: KnownWait) -> UInt64 {
    lastNumber += 1
    waits.append((lastNumber, wait))
    return lastNumber
  }

  mutating func remove(_ number: UInt64) {
    // Mostly the latest ones end first.
    guard let index = waits.lastIndex(where: { $0.number == number }) else { return }
    waits.remove(at: index)
  }
}
