import SteadfastTesting

/// Builds the lines of a history.
///
/// The response to a call comes one second after the request, unless the example writes both lines
/// separately.
struct HistoryScript {
  /// The response that a process gets for a call.
  enum Answer { case done, stale, refused, unanswered, none }

  private(set) var lines: [HistoryLine] = []
  /// The current date, in seconds.
  var date: Double = 0
  private var calls = 0
  private var attempts = 0

  static func id(_ number: UInt64) -> TaskID { TaskID(high: 0, low: number) }

  /// Adds a line with the current date.
  mutating func add(_ event: HistoryEvent, by process: String) {
    lines.append(HistoryLine(date: Int64(date * 1e6), process: process, event: event))
  }

  /// Advances the date of the lines that follow.
  mutating func advanceDate(by seconds: Double) { date += seconds }

  // MARK: Calls

  /// Writes a request for changes, and returns the number of the call.
  mutating func request(_ changes: [HistoryChange], by process: String) -> Int {
    calls += 1
    add(.asked(call: calls, changes: changes), by: process)
    return calls
  }

  /// Writes the response to a call.
  mutating func answer(
    call: Int,
    of process: String,
    with answer: Answer = .done,
    count: Int = 1,
    along: [TaskID]? = nil
  ) {
    switch answer {
    case .done, .stale:
      let outcome = HistoryOutcome(answer == .done ? .done : .stale, tasks: along)
      add(.answered(call: call, outcomes: Array(repeating: outcome, count: count)), by: process)
    case .refused: add(.refused(call: call, reason: "no"), by: process)
    case .unanswered: add(.unanswered(call: call, reason: "the connection is lost"), by: process)
    case .none: break
    }
  }

  /// Writes a request for changes and its response.
  mutating func apply(
    _ changes: [HistoryChange],
    by process: String,
    answer: Answer = .done,
    along: [TaskID]? = nil
  ) {
    let call = request(changes, by: process)
    date += 1
    self.answer(call: call, of: process, with: answer, count: changes.count, along: along)
  }

  /// Writes that the process `p1` inserts a task.
  mutating func insertTask(
    _ number: UInt64,
    answer: Answer = .done,
    orderKey: String? = nil,
    follower: UInt64? = nil,
    after: [UInt64]? = nil
  ) {
    let insertion = Self.insertion(
      of: number,
      orderKey: orderKey,
      follower: follower,
      after: after
    )
    apply([insertion], by: "p1", answer: answer)
  }

  /// Returns a change that inserts a task.
  static func insertion(
    of number: UInt64,
    orderKey: String? = nil,
    follower: UInt64? = nil,
    after: [UInt64]? = nil
  ) -> HistoryChange {
    let task = HistoryTask(
      id: id(number),
      orderKey: orderKey,
      follower: follower.map(id),
      after: after?.map(id)
    )
    return HistoryChange(.insert, task: id(number), new: task)
  }

  /// Writes a change of a single task.
  mutating func change(
    by process: String,
    _ kind: HistoryChange.Kind,
    task number: UInt64,
    lease: UInt64?,
    answer: Answer = .done,
    seconds: Double? = nil,
    retryCount: Int? = nil,
    along: [UInt64]? = nil
  ) {
    let change = HistoryChange(
      kind,
      task: Self.id(number),
      lease: lease,
      seconds: seconds,
      retryCount: retryCount
    )
    apply([change], by: process, answer: answer, along: along?.map(Self.id))
  }

  /// Writes that a task ends with success.
  mutating func succeed(
    by process: String,
    task number: UInt64,
    lease: UInt64,
    answer: Answer = .done
  ) {
    change(by: process, .succeed, task: number, lease: lease, answer: answer)
  }

  /// Writes a claim of a task, for 30 seconds by default, and its response.
  mutating func claim(
    by process: String,
    task number: UInt64,
    lease: UInt64,
    retries: Int = 0,
    interruptions: Int = 0,
    seconds: Double? = 30
  ) {
    let call = requestTasks(by: process, seconds: seconds)
    date += 1
    grantTask(
      number,
      to: process,
      call: call,
      lease: lease,
      retries: retries,
      interruptions: interruptions
    )
  }

  /// Writes the request of a claim, and returns the number of the call.
  mutating func requestTasks(by process: String, seconds: Double? = 30) -> Int {
    calls += 1
    add(.claiming(call: calls, seconds: seconds), by: process)
    return calls
  }

  /// Writes the response to a claim.
  mutating func grantTask(
    _ number: UInt64,
    to process: String,
    call: Int,
    lease: UInt64,
    retries: Int = 0,
    interruptions: Int = 0
  ) {
    let grant = HistoryGrant(
      task: Self.id(number),
      lease: lease,
      name: "job",
      retryCount: retries,
      interruptionCount: interruptions
    )
    add(.granted(call: call, tasks: [grant]), by: process)
  }

  /// Writes a claim of a task, one attempt, and the success of the task.
  mutating func perform(by process: String, task number: UInt64, lease: UInt64) {
    claim(by: process, task: number, lease: lease)
    let attempt = beginAttempt(by: process, task: number, lease: lease)
    endAttempt(by: process, attempt)
    succeed(by: process, task: number, lease: lease)
  }

  // MARK: Handlers

  /// Writes the start of an attempt, and returns the number of the attempt.
  mutating func beginAttempt(by process: String, task number: UInt64, lease: UInt64) -> Int {
    attempts += 1
    add(.attemptBegan(attempt: attempts, task: Self.id(number), lease: lease), by: process)
    return attempts
  }

  /// Writes the end of the attempt with this number.
  mutating func endAttempt(by process: String, _ attempt: Int) {
    add(.attemptEnded(attempt: attempt), by: process)
  }

  // MARK: The end of the history

  mutating func recordEndOfFaults() { add(.faultsEnded, by: "p1") }

  /// Writes a final look-up, which finds these tasks in these states.
  mutating func recordRemainingTasks(_ tasks: [UInt64: String] = [:]) {
    let left = tasks.map { HistoryTask(id: Self.id($0.key), state: $0.value) }
    add(.remaining(tasks: left), by: "p1")
  }
}
