import SteadfastTesting

/// Builds the lines of a history.
///
/// Each call lasts a second from its request to its response, unless other lines come between.
struct HistoryScript {
  /// The response that a process gets for a call.
  enum Answer { case done, stale, refused, unanswered, none }

  private(set) var lines: [HistoryLine] = []
  /// The current date, in seconds.
  var date: Double = 0
  private var calls = 0
  private var attempts = 0

  static func id(_ number: UInt64) -> TaskID { TaskID(high: 0, low: number) }

  mutating func add(_ process: String, _ event: HistoryEvent) {
    lines.append(HistoryLine(date: Int64(date * 1e6), process: process, event: event))
  }

  mutating func pass(_ seconds: Double) { date += seconds }

  // MARK: Calls

  /// Writes a request for changes, and returns the number of the call.
  mutating func ask(_ process: String, _ changes: [HistoryChange]) -> Int {
    calls += 1
    add(process, .asked(call: calls, changes: changes))
    return calls
  }

  mutating func answer(
    _ process: String,
    _ call: Int,
    _ answer: Answer = .done,
    count: Int = 1,
    along: [TaskID]? = nil
  ) {
    switch answer {
    case .done, .stale:
      let outcome = HistoryOutcome(answer == .done ? .done : .stale, tasks: along)
      add(process, .answered(call: call, outcomes: Array(repeating: outcome, count: count)))
    case .refused: add(process, .refused(call: call, reason: "no"))
    case .unanswered: add(process, .unanswered(call: call, reason: "the connection is lost"))
    case .none: break
    }
  }

  mutating func change(
    _ process: String,
    _ changes: [HistoryChange],
    _ answer: Answer = .done,
    along: [TaskID]? = nil
  ) {
    let call = ask(process, changes)
    date += 1
    self.answer(process, call, answer, count: changes.count, along: along)
  }

  mutating func insert(
    _ number: UInt64,
    _ answer: Answer = .done,
    orderKey: String? = nil,
    follower: UInt64? = nil,
    after: [UInt64]? = nil
  ) {
    change("p1", [Self.insertion(number, orderKey, follower, after)], answer)
  }

  static func insertion(
    _ number: UInt64,
    _ orderKey: String? = nil,
    _ follower: UInt64? = nil,
    _ after: [UInt64]? = nil
  ) -> HistoryChange {
    let task = HistoryTask(
      id: id(number),
      orderKey: orderKey,
      follower: follower.map(id),
      after: after?.map(id)
    )
    return HistoryChange(.insert, task: id(number), new: task)
  }

  mutating func step(
    _ process: String,
    _ kind: HistoryChange.Kind,
    _ number: UInt64,
    lease: UInt64?,
    _ answer: Answer = .done,
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
    self.change(process, [change], answer, along: along?.map(Self.id))
  }

  mutating func succeed(
    _ process: String,
    _ number: UInt64,
    lease: UInt64,
    _ answer: Answer = .done
  ) {
    step(process, .succeed, number, lease: lease, answer)
  }

  /// Claims a task for 30 seconds.
  mutating func claim(
    _ process: String,
    _ number: UInt64,
    lease: UInt64,
    retries: Int = 0,
    interruptions: Int = 0,
    seconds: Double? = 30
  ) {
    let call = askForTasks(process, seconds: seconds)
    date += 1
    grant(process, call, number, lease: lease, retries: retries, interruptions: interruptions)
  }

  mutating func askForTasks(_ process: String, seconds: Double? = 30) -> Int {
    calls += 1
    add(process, .claiming(call: calls, seconds: seconds))
    return calls
  }

  mutating func grant(
    _ process: String,
    _ call: Int,
    _ number: UInt64,
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
    add(process, .granted(call: call, tasks: [grant]))
  }

  /// Claims a task and performs it.
  mutating func perform(_ process: String, _ number: UInt64, lease: UInt64) {
    claim(process, number, lease: lease)
    let attempt = begin(process, number, lease: lease)
    end(process, attempt)
    succeed(process, number, lease: lease)
  }

  // MARK: Handlers

  mutating func begin(_ process: String, _ number: UInt64, lease: UInt64) -> Int {
    attempts += 1
    add(process, .attemptBegan(attempt: attempts, task: Self.id(number), lease: lease))
    return attempts
  }

  mutating func end(_ process: String, _ attempt: Int) {
    add(process, .attemptEnded(attempt: attempt))
  }

  // MARK: The end of the history

  mutating func endFaults() { add("p1", .faultsEnded) }

  mutating func remain(_ tasks: [UInt64: String] = [:]) {
    let left = tasks.map { HistoryTask(id: Self.id($0.key), state: $0.value) }
    add("p1", .remaining(tasks: left))
  }
}
