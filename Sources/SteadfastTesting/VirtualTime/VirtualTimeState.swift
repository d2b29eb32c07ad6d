/// What a ``VirtualTimeExecutor`` guards with its lock: the jobs, and what the driver waits for.
///
/// Each event is one method. Those that return a continuation leave it to the caller to resume it,
/// once, after the lock is released.
struct VirtualTimeState<Job> {
  typealias Driver = CheckedContinuation<Void, Never>
  typealias Advance = CheckedContinuation<Void, any Error>

  private(set) var jobs: RunQueue<Job>
  private(set) var advances = DeadlineHeap<Advance>()
  private(set) var bodyHasEnded = false
  private(set) var isClosed = false
  /// Whether a job came from another thread, unannounced as real work.
  private(set) var hasJobsFromOutside = false
  private var realWork = 0
  private var hasStarted = false
  private var drivingThread: ThreadIdentity?
  private var waitingDriver: Driver?

  init(order: VirtualTime.Order) { jobs = RunQueue(order: order) }

  var isHeld: Bool { realWork > 0 }

  /// Takes in a job; also returns the driver, if it waits for one.
  mutating func enqueue(_ job: Job, from thread: ThreadIdentity) -> Driver? {
    if thread == drivingThread {
      jobs.append(job)
    } else {
      jobs.appendFromOutside(job)
      // The first job is the body, which the caller made ready.
      hasJobsFromOutside = hasJobsFromOutside || (hasStarted && !isHeld)
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

  mutating func beginRealWork() { realWork += 1 }

  mutating func endRealWork() -> Driver? {
    precondition(realWork > 0, "real work ended that had not begun")
    realWork -= 1
    return realWork == 0 ? waitingDriver.take() : nil
  }

  mutating func addAdvance(
    _ advance: Advance,
    to target: VirtualClock.Instant
  ) -> (ticket: DeadlineHeap<Advance>.Ticket?, driver: Driver?) {
    guard !isClosed else { return (nil, nil) }
    return (advances.insert(advance, deadline: target), waitingDriver.take())
  }

  mutating func removeAdvance(_ ticket: DeadlineHeap<Advance>.Ticket) -> Advance? {
    advances.remove(ticket)
  }

  mutating func popAdvance() -> (target: VirtualClock.Instant, advance: Advance)? {
    advances.popFirst(through: .last).map { ($0.deadline, $0.element) }
  }

  /// Lets the driver wait, unless what it waits for has happened; false if it has.
  mutating func letDriverWait(_ driver: Driver, forRealWork: Bool) -> Bool {
    guard jobs.isEmpty, !bodyHasEnded, !forRealWork || isHeld else { return false }
    waitingDriver = driver
    return true
  }

  /// Ends the world: jobs that come from now on are not its own.
  mutating func close() { isClosed = true }
}
