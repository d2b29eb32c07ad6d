import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reports costs that grow with the number of tasks or names.
///
/// Each row has a target.
func reportScale() async throws {
  printRow("\namong many", "    measured      target")
  if isRowSelected("cancelAll") { try await reportCancelling() }
  if isRowSelected("a page") { try await reportPages() }
  if isRowSelected("a claim") { try await reportNames() }
  if isRowSelected("an enqueue beside") { try await reportStalls() }
  try await reportCensus("memory", of: InMemoryStore(), atMost: 5)
  try await withScratchFile { url in
    let store = JSONFileStore(at: url)
    try await store.open()
    try await reportCensus("a file", of: store, atMost: 5)
    try await store.close()
  }
}

/// Reports the duration of a census of a million tasks with 12 names.
///
/// One in eleven was abandoned, one in seven is retried, and one in five has a later date.
func reportCensus(
  _ name: String,
  of store: some Persistence,
  atMost target: Double
) async throws {
  let title = "\(name): census of 1,000,000 tasks"
  guard isRowSelected(title) else { return }
  let count = 1_000_000
  for start in stride(from: 0, to: count, by: 1_000) {
    let records = (start..<start + 1_000).map { number in
      let isAbandoned = number % 11 == 0
      let isRetried = !isAbandoned && number % 7 == 0
      return TaskRecord(
        id: TaskID(high: 1, low: UInt64(number)),
        name: "name \(number % 12)",
        payload: StoredPayload([], format: .binary),
        createdDate: .now,
        state: isAbandoned ? .abandoned : .waiting,
        availableDate: number % 5 == 0 ? .now + 1_000_000 : .now,
        retryCount: isRetried ? 1 : 0,
        isPostponed: isRetried,
        finishedDate: isAbandoned ? .now : nil
      )
    }
    let insertions = records.map { TaskChange.insert($0, onDuplicate: .keep) }
    _ = try await store.apply(insertions, durability: .relaxed)
  }
  var times: [Double] = []
  for _ in 0..<7 {
    let start = ContinuousClock.now
    let census = try await store.census(at: .now)
    times.append(start.duration(to: .now) / .milliseconds(1))
    guard census.rows.reduce(0, { $0 + $1.count }) == count else { throw Failed() }
  }
  printRow("\(title), median", median(times), "ms", atMost: target)
}

private func printRow(_ name: String, _ value: Double, _ unit: String, atMost target: Double) {
  let measured = "\(decimal(value, digits: 2)) \(unit)".leftPadded(to: 12)
  printRow(name, measured + "≤ \(decimal(target, digits: 1)) \(unit)".leftPadded(to: 12))
}

private func makeQueue(
  pending count: Int,
  tags: Set<String> = [],
  in store: some Persistence = InMemoryStore()
) async throws -> TaskQueue {
  let queue = Steadfast(store, workers: 1).queue
  for start in stride(from: 0, to: count, by: 10_000) {
    let numbers = start..<min(start + 10_000, count)
    try await queue.enqueue(
      contentsOf: numbers.map { Increment(number: $0) },
      options: TaskOptions(tags: tags)
    )
  }
  return queue
}

/// On a busy machine, only the rows of processor time are meaningful.
private func reportCancelling() async throws {
  func costs(
    ofCancelling count: Int,
    rounds: Int
  ) async throws -> (elapsed: Double, processor: Double) {
    var costs: [(elapsed: Double, processor: Double)] = []
    for _ in 0..<rounds {
      let queue = try await makeQueue(pending: count)
      let start = ContinuousClock.now
      let processorStart = processorNanoseconds()
      let cancelled = Double(try await queue.cancelAll())
      let processor = processorNanoseconds() - processorStart
      costs.append((start.duration(to: .now) / .nanoseconds(1) / cancelled, processor / cancelled))
    }
    return (median(costs.map(\.elapsed)), median(costs.map(\.processor)))
  }
  let few = try await costs(ofCancelling: 10_000, rounds: 15)
  let many = try await costs(ofCancelling: 1_000_000, rounds: 3)
  func column(_ cost: Double) -> String { "\(decimal(cost, digits: 0)) ns".leftPadded(to: 12) }
  printRow("cancelAll, a task of 10,000", column(few.elapsed) + column(few.processor) + " CPU")
  printRow("cancelAll, a task of 1,000,000", column(many.elapsed) + column(many.processor) + " CPU")
  printRow("cancelAll, a task of many / of few", many.elapsed / few.elapsed, "×", atMost: 1.5)
  printRow("cancelAll, the same, CPU", many.processor / few.processor, "×", atMost: 1.5)
}

/// The duration of each look-up is an upper bound of the time for which a look-up holds the lock.
private func reportPages() async throws {
  let queue = try await makeQueue(pending: 1_000_000)
  var times: [Double] = []
  var last: TaskID?
  while true {
    let start = ContinuousClock.now
    let page = try await queue.tasks(matching: .unfinished, after: last, limit: 1000)
    times.append(start.duration(to: .now) / .milliseconds(1))
    guard let id = page.last?.id else { break }
    last = id
  }
  printRow("a page of 1,000 among 1,000,000, median", median(times), "ms", atMost: 1)
  printRow("a page, 99 of 100", percentile(99, of: times), "ms", atMost: 1)
}

/// Reports the cost of claiming and ending one task at a time.
private func reportNames() async throws {
  let count = 100_000
  func cost(names: Int, withTasks: Int) async throws -> Double {
    let store = InMemoryStore()
    let queue = Steadfast(store, workers: 1).queue
    for number in 0..<count {
      try await queue.enqueue(name: "name \(number % withTasks)", .integer(number))
    }
    let room = Dictionary(uniqueKeysWithValues: (0..<names).map { ("name \($0)", Int.max) })
    let start = ContinuousClock.now
    for _ in 0..<count {
      let claim = try await store.claim(ClaimRequest(limit: 1, names: room, now: .now))
      let ends = claim.tasks.map { TaskChange.succeed($0.lease, at: .now, retains: false) }
      _ = try await store.apply(ends, durability: .relaxed)
    }
    return start.duration(to: .now) / .nanoseconds(1) / Double(count)
  }
  var ratios: [(Double, Double)] = []
  for _ in 0..<5 {
    let one = try await cost(names: 1, withTasks: 1)
    let listed = try await cost(names: 10_000, withTasks: 1)
    let spread = try await cost(names: 10_000, withTasks: 10_000)
    ratios.append((listed / one, spread / one))
  }
  printRow("a claim with 10,000 names / with 1", median(ratios.map(\.0)), "×", atMost: 1.5)
  printRow("a claim, 10,000 names with tasks / 1", median(ratios.map(\.1)), "×", atMost: 3)
}

/// Reports how long concurrent enqueues wait during an operation on a million tasks.
///
/// On a busy machine, a thread that waits for a lock also waits for a processor. On such a machine,
/// only the rows of processor time show how long a lock is held.
private func reportStalls() async throws {
  let timed = TimedStore()
  let queue = try await makeQueue(pending: 1_000_000, tags: ["all"], in: timed)
  try await reportStall("nothing", in: queue) { _ in
    try await ContinuousClock().sleep(for: .seconds(1))
  }
  try await reportStall("a look for few of many", in: queue) { queue in
    _ = try await queue.cancel(matching: TaskFilter(tags: ["none"]))
  }
  _ = timed.takeChanges()
  // A look-up scans all tasks in slices of 512.
  let slices = timed.takePages().map { $0 / (1_000_000 / 512) }
  printRow("an enqueue beside: a slice, CPU", slices.max() ?? 0, "ms", atMost: 1)
  try await reportStall("cancelling all", in: queue) { queue in
    _ = try await queue.cancel(matching: TaskFilter(tags: ["all"]))
  }
  let times = timed.takeChanges()
  printRow("an enqueue beside: longest change, CPU", times.max() ?? 0, "ms", atMost: 1)
  printRow("an enqueue beside: median change, CPU", median(times), "ms", atMost: 1)
}

private func reportStall(
  _ name: String,
  in queue: TaskQueue,
  _ body: @escaping @Sendable (TaskQueue) async throws -> Void
) async throws {
  let end = Countdown(1)
  let times = try await withThrowingTaskGroup(of: Void.self) { group in
    group.addTask {
      defer { end.countDown() }
      try await body(queue)
    }
    var times: [Double] = []
    while !end.isOver {
      let start = ContinuousClock.now
      try await queue.enqueue(Increment(number: times.count))
      times.append(start.duration(to: .now) / .milliseconds(1))
      // Without a pause, these enqueues would take processor time from the operation.
      try await ContinuousClock().sleep(for: .microseconds(200))
    }
    try await group.waitForAll()
    return times
  }
  printRow("an enqueue beside \(name), longest", times.max() ?? 0, "ms", atMost: 2)
  printRow("an enqueue beside \(name), 99 %", percentile(99, of: times), "ms", atMost: 2)
}
