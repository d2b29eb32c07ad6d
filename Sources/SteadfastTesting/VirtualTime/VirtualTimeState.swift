import SteadfastQueue
import SteadfastRetry

/// The state that a ``VirtualTimeExecutor`` guards with its lock: jobs, real work and waiting code.
///
/// If a method returns a continuation, the caller must resume it once, after releasing the lock.
struct VirtualTimeState<Job> {
  typealias Driver = CheckedContinuation<Void, Never>
  typealias Advance = CheckedContinuation<Void, any Error>
  typealias Turn = CheckedContinuation<Void, Never>

  private(set) var jobs: RunQueue<Job>
  private(set) var advances = DeadlineHeap<Advance, VirtualClock.Instant>()
  /// The operations of `RealWork.performInTurn`.
  private(set) var turns = Turns<Turn>()
  /// The waits of tasks that an error message can describe.
  var waits = KnownWaits()
  /// The error of the first task that used the clock without running on the virtual time.
  private(set) var outsideUseError: VirtualTimeError?
  private(set) var bodyHasEnded = false
  private(set) var isClosed = false
  /// Whether another thread has added a job or an operation while no real work was in flight.
  private(set) var hasCallsFromOutside = false
  /// The number of jobs from other threads, and of starts and ends of real work.
  ///
  /// While this number grows, a missing job does not prove that the body can't continue.
  private(set) var signalsFromOutside: UInt64 = 0
  private var realWork = 0
  private var hasStarted = false
  private var drivingThread: ThreadIdentity?
  private var waitingDriver: Driver?

  init(order: VirtualTime.Order) { jobs = RunQueue(order: order) }

  var isHeld: Bool { realWork > 0 || turns.isUnderWay }

  /// Returns whether code on a thread runs outside of the virtual time while no real work is in
  /// flight.
  func isOutside(_ thread: ThreadIdentity) -> Bool {
    !isClosed && !isHeld && thread != drivingThread
  }

  mutating func recordOutsideUse(_ error: VirtualTimeError) {
    outsideUseError = outsideUseError ?? error
  }

  /// Adds a job, and returns the driver if it is waiting.
  mutating func enqueue(_ job: Job, from thread: ThreadIdentity) -> Driver? {
    if thread == drivingThread {
      jobs.append(job)
    } else {
      jobs.appendFromOutside(job)
      signalsFromOutside += 1
      // The first job starts the body. It always comes from the thread of the caller.
      if hasStarted { recordCallFromOutside() }
    }
    return waitingDriver.take()
  }

  /// Treats jobs from `thread`, until ``stopDriving()``, as jobs from inside the virtual time.
  mutating func startDriving(on thread: ThreadIdentity) {
    drivingThread = thread
    hasStarted = true
  }

  mutating func stopDriving() { drivingThread = nil }

  mutating func popJob() -> Job? { jobs.popNext() }

  /// Records that the body has ended, and returns the driver if it is waiting.
  mutating func recordBodyEnd() -> Driver? {
    bodyHasEnded = true
    return waitingDriver.take()
  }

  mutating func beginRealWork() {
    signalsFromOutside += 1
    realWork += 1
  }

  mutating func endRealWork() -> Driver? {
    precondition(realWork > 0, "real work ended that had not started")
    signalsFromOutside += 1
    realWork -= 1
    return realWork == 0 ? waitingDriver.take() : nil
  }

  /// Adds an operation that waits until it may run.
  ///
  /// `isTaken` is false if the virtual time is closed; then the operation need not wait.
  mutating func beginTurn(
    _ work: Turn,
    from thread: ThreadIdentity
  ) -> (isTaken: Bool, driver: Driver?) {
    guard !isClosed else { return (false, nil) }
    if thread != drivingThread { recordCallFromOutside() }
    turns.append(work)
    return (true, waitingDriver.take())
  }

  /// Records that the running operation has ended, and that its caller waits to continue.
  ///
  /// `isTaken` is false if the virtual time is closed; then the caller need not wait.
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

  /// Stores the driver until there is something to do; returns false if the driver need not wait.
  mutating func storeWaitingDriver(_ driver: Driver, onlyDuringRealWork: Bool) -> Bool {
    guard jobs.isEmpty, !turns.hasNext, !bodyHasEnded, !onlyDuringRealWork || isHeld
    else { return false }
    waitingDriver = driver
    return true
  }

  /// Makes the virtual time accept no more jobs.
  mutating func close() { isClosed = true }

  private mutating func recordCallFromOutside() {
    hasCallsFromOutside = hasCallsFromOutside || !isHeld
  }
}

/// The current waits that can be described, in the order in which they started.
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
    // The latest waits usually end first.
    guard let index = waits.lastIndex(where: { $0.number == number }) else { return }
    waits.remove(at: index)
  }
}
