import SteadfastQueue
import SteadfastRetry
import SystemFoundation

/// A random step in the comparison of a store with a reference.
///
/// Steps refer to tasks and claims by number. So a step can still be performed after earlier steps
/// have been left out.
enum ModelStep: Sendable {
  struct NewTask: Sendable {
    var number: Int
    var queue: String
    var name: String
    var version: Int
    var priority: Int
    var delay: Double
    var key: String?
    var uniqueFor: Double?
    var maxDelay: Double?
    var expiresIn: Double?
    var order: String?
    var holds: Bool
    var conditions: Set<TaskCondition>
    var dependencies: Set<Int>
    var rule: DependencyRule
    var follower: Int?
    var policy: UniquePolicy
  }

  enum End: Sendable, CaseIterable {
    case succeed, retry, retryWithoutFailure, abandon, release, park
    case cancel, pause, restart, restartForgetting, reschedule
    case suspend, suspendEndlessly
  }

  enum Control: Sendable, CaseIterable {
    case cancel, pause, resume, restart, restartForgetting, reschedule, update, remove
  }

  enum Change: Sendable {
    case insert(NewTask)
    /// Repeats one of the latest insertions.
    case insertAgain(back: Int)
    case end(claim: Int, End, retains: Bool, delay: Double, awaiting: [String])
    case remember(claim: Int, [String: [UInt8]])
    /// Completes a value; the store refuses this unless the task waits for the value.
    case complete(task: Int, String, [UInt8])
    case control(task: Int, Control, retains: Bool)
    /// Sets a value, expecting either its current bytes or bytes that are probably wrong.
    case value(String, isPresent: Bool, to: [UInt8]?)
  }

  case change(Change)
  case batch([Change])
  /// Claims tasks; the run sets the request's date and the duration of its leases.
  case claim(ClaimRequest)
  case unpark(name: String, queue: String, below: Int?)
  case prune(TaskState, age: Double?, keepingLatest: Int?, queue: String)
  /// Only for a store whose queues have one clock.
  case rebase(back: Double)
  /// Only for a store that several queues share.
  case extend(claim: Int)
  /// Stores a command with a claimed task; expects either its current command or none.
  ///
  /// Only for a store that several queues share.
  case command(claim: Int, StoredCommand?, expectsCurrent: Bool)
  case reopen
}

/// A generator of random steps; the same seed gives the same steps.
struct ModelDrawing {
  private var random: SplitMix64
  private var lastNumber = 0
  let names = ["A", "B", "C"]
  /// Most tasks are in one queue, so that they interact.
  private let queues = ["", "", "", "other"]

  init(seed: UInt64) { random = Randomness.seeded(seed).makeGenerator() }

  private mutating func drawNumber(below bound: Int) -> Int {
    Int.random(in: 0..<bound, using: &random)
  }

  private mutating func draw<Choice>(_ choices: [Choice]) -> Choice {
    choices[drawNumber(below: choices.count)]
  }

  mutating func drawStep() -> ModelStep {
    switch drawNumber(below: 40) {
    case 0..<20: .change(drawChange())
    case 20..<23: .batch((0...drawNumber(below: 4)).map { _ in drawChange() })
    case 23..<32: drawClaim()
    case 32: .unpark(name: draw(names), queue: draw(queues), below: draw([nil, nil, 1, 2, 3]))
    case 33, 34:
      .prune(
        draw([.succeeded, .abandoned, .cancelled]),
        age: draw([nil, 0, 10, 30]),
        keepingLatest: draw([nil, 0, 1, 3]),
        queue: draw(queues)
      )
    case 35: .rebase(back: Double(1 + drawNumber(below: 40)))
    case 36: .extend(claim: drawNumber(below: 1000))
    case 37:
      .command(
        claim: -1 - drawNumber(below: 6),
        draw([nil] + StoredCommand.allCases),
        expectsCurrent: drawNumber(below: 4) > 0
      )
    default: .reopen
    }
  }

  private mutating func drawClaim() -> ModelStep {
    var limits: [String: Int] = [:]
    for name in names where drawNumber(below: 3) > 0 { limits[name] = draw([0, 1, 2, .max]) }
    var versions: [String: Int] = [:]
    for name in names where drawNumber(below: 3) == 0 { versions[name] = draw([0, 1, 2, 2]) }
    return .claim(
      ClaimRequest(
        limit: drawNumber(below: 5),
        queue: draw(queues),
        names: limits,
        otherNames: draw([0, 0, 1, 3]),
        versions: versions,
        now: .second(0),
        conditions: draw([[], ["a"], ["a", "b"], ["a", "b"]])
      )
    )
  }

  private mutating func drawChange() -> ModelStep.Change {
    switch drawNumber(below: 12) {
    case 0..<4:
      return drawNumber(below: 8) == 0
        ? .insertAgain(back: drawNumber(below: 4)) : .insert(drawNewTask())
    case 4..<7:
      // Choose one of the latest claims, because most earlier claims have ended.
      return .end(
        claim: -1 - drawNumber(below: 6),
        draw(ModelStep.End.allCases + [.suspend, .suspendEndlessly]),
        retains: draw([true, false]),
        delay: Double(drawNumber(below: 20)),
        awaiting: draw([[], [draw(Self.stepNames)], Self.stepNames])
      )
    case 7:
      let values = (0...drawNumber(below: 2)).map { _ in
        (
          draw(Self.stepNames),
          draw([[], [], [UInt8(drawNumber(below: 256))]] + Self.stepValues)
        )
      }
      return .remember(claim: -1 - drawNumber(below: 4), Dictionary(values) { first, _ in first })
    case 8:
      return .complete(task: drawNumberOfRecentTask(), draw(Self.stepNames), draw([[1], [2, 3]]))
    case 9 where drawNumber(below: 2) == 0:
      return .value(
        draw(Self.valueNames),
        isPresent: drawNumber(below: 4) > 0,
        to: draw([nil, [], [0], [0, 1], [255]])
      )
    default:
      return .control(
        task: drawNumberOfRecentTask(),
        draw(ModelStep.Control.allCases + [.cancel, .restart, .restart, .remove]),
        retains: draw([true, false])
      )
    }
  }

  /// Returns the number of a task: usually a recent one, because most of those are still stored.
  private mutating func drawNumberOfRecentTask() -> Int {
    drawNumber(below: 3) > 0
      ? max(1, lastNumber - drawNumber(below: 8)) : drawNumber(below: lastNumber + 2)
  }

  static let valueNames = ["A", "value", "\u{e9}", "e\u{301}"]
  static let stepNames = ["step", "\u{e9}t", "e\u{301}t"]
  private static let stepValues: [[UInt8]] = [Array("text".utf8), [0, 255]]

  private mutating func drawNewTask() -> ModelStep.NewTask {
    lastNumber += 1
    // Sometimes use an ID that is already taken.
    let number = drawNumber(below: 20) == 0 ? drawNumber(below: lastNumber) + 1 : lastNumber
    let dependencies = drawDependencies(of: number)
    let follower = drawFollower(of: number)
    let policy = draw([UniquePolicy.keep, .replace, .reject, .join])
    let isPlain = dependencies.isEmpty && follower == nil
    return ModelStep.NewTask(
      number: number,
      queue: draw(queues),
      name: draw(names),
      version: draw([1, 1, 1, 1, 0, 2, 3]),
      priority: draw([-1, 0, 0, 1, .max]),
      delay: Double(drawNumber(below: 25) - 10),
      key: drawNumber(below: 3) == 0 ? "key \(drawNumber(below: 3))" : nil,
      uniqueFor: drawNumber(below: 4) == 0 ? Double(drawNumber(below: 200)) : nil,
      maxDelay: drawNumber(below: 4) == 0 ? Double(drawNumber(below: 80)) : nil,
      expiresIn: drawNumber(below: 3) == 0 ? Double(drawNumber(below: 40)) : nil,
      order: drawNumber(below: 3) == 0 ? "order \(drawNumber(below: 2))" : nil,
      holds: drawNumber(below: 3) == 0,
      conditions: draw([[], [], [], ["a"], ["a", "b"], ["c"]]),
      dependencies: dependencies,
      rule: drawNumber(below: 3) == 0 ? .allEnded : .allSucceeded,
      follower: follower,
      // A task that has dependencies or a follower can't replace another task.
      policy: policy == .replace && !isPlain ? .keep : policy
    )
  }

  /// Returns the numbers of some recent tasks, which may no longer be stored.
  private mutating func drawDependencies(of number: Int) -> Set<Int> {
    guard drawNumber(below: 2) == 0 else { return [] }
    let numbers = Set(
      (0...drawNumber(below: 2)).map { _ in lastNumber - 1 - drawNumber(below: 6) }
    )
    return numbers.filter { $0 > 0 && $0 != number }
  }

  /// Returns the number of a recent task or of the next new task; usually `nil`, for no follower.
  private mutating func drawFollower(of number: Int) -> Int? {
    guard drawNumber(below: 4) == 0 else { return nil }
    let follower =
      drawNumber(below: 3) == 0 ? lastNumber + 1 : lastNumber - 1 - drawNumber(below: 5)
    return follower > 0 && follower != number ? follower : nil
  }
}

// Each `step` property describes a value in the steps of a report, with tasks as numbers and dates
// as seconds.

extension TaskChange {
  var step: String {
    switch self {
    case .insert(let record, let policy): "insert \(record.step) (\(policy))"
    case .move(let target, let move): "\(move.kind) \(target.step)\(move.step)"
    case .end(let target, let end):
      "end \(target.step) as \(end.state) at \(end.date.step)"
        + (end.failure.map { ", \($0.step)" } ?? "") + (end.retains ? ", retaining it" : "")
    case .update(let id, let update): "update \(id.number) with \(update.step)"
    case .remove(let id): "remove \(id.number)"
    case .extend(let lease, let duration): "extend \(lease.step) for \(duration.step)"
    case .command(let id, let old, let new):
      "command \(id.number): from \(old?.rawValue ?? "none") to \(new?.rawValue ?? "none")"
    case .memory(let change): change.step
    case .broad(let change): change.step
    case .setValue(let name, let old, let new):
      "set the value '\(name.prefix(80))' from \(old.step) to \(new.step)"
    @unknown default: "\(self)"
    }
  }
}

extension TaskMove {
  fileprivate var step: String {
    (availableDate.map { " to \($0.step)" } ?? "")
      + (retryCount.map { ", retries \($0)" } ?? "")
      + (failure.map { ", \($0.step)" } ?? countedFrom.map { ", counted from \($0.step)" } ?? "")
      + (knownVersion.map { ", knowing version \($0)" } ?? "")
      + (forgetsMemory ? ", forgetting" : "")
  }
}

extension MemoryChange {
  fileprivate var step: String {
    switch self {
    case .remember(let lease, let name, let value):
      "\(lease.step) remembers '\(name.prefix(80))': \([UInt8]?(value).step)"
    case .suspend(let lease, let date, let names, let origin):
      "suspend \(lease.step) until \(date.step)"
        + (origin.map { ", counted from \($0.step)" } ?? "")
        + (names.isEmpty ? "" : ", awaiting \(names.map { "'\($0.prefix(80))'" })")
    case .complete(let id, let name, let value):
      "complete '\(name.prefix(80))' of \(id.number): \([UInt8]?(value).step)"
    @unknown default: "\(self)"
    }
  }
}

extension BroadChange {
  fileprivate var step: String {
    switch self {
    case .unpark(let name, let queue, let version):
      "unpark \(name)\(queue.isEmpty ? "" : " in \(queue)")"
        + (version.map { ", parked below version \($0)" } ?? "")
    case .prune(let state, let date, let count, let now, let queue):
      "prune \(state)\(queue.isEmpty ? "" : " in \(queue)") at \(now.step)"
        + (date.map { ", ended before \($0.step)" } ?? "")
        + (count.map { ", keeping \($0)" } ?? "")
    case .rebase(let date): "rebase to \(date.step)"
    @unknown default: "\(self)"
    }
  }
}

extension BatchProgress? {
  fileprivate var step: String {
    guard let self else { return "" }
    return ", batch: \(self.succeeded) of \(self.total) succeeded, \(self.failed) failed"
  }
}

extension TaskUpdate {
  fileprivate var step: String {
    var parts: [String] = []
    if payload != nil { parts.append("another payload") }
    if let priority { parts.append("priority \(priority.rawValue)") }
    if let maxRetries { parts.append("maxRetries \(maxRetries)") }
    if let usesBackoff { parts.append("usesBackoff \(usesBackoff)") }
    if let timeLimit { parts.append("timeLimit \(timeLimit)") }
    if let expiryDate { parts.append("expiryDate \(expiryDate.step)") }
    if let tags { parts.append("tags \(tags.sorted())") }
    if let metadata { parts.append("metadata \(metadata.step)") }
    return parts.isEmpty ? "nothing" : parts.joined(separator: ", ")
  }
}

extension [String: String] {
  /// The metadata, sorted by its keys, or the number of keys if there are many.
  var step: String {
    if count > 20 { return "\(count) keys" }
    let pairs = sorted { $0.key < $1.key }.map { "\($0.key): \($0.value.prefix(80))" }
    return "[" + pairs.joined(separator: ", ") + "]"
  }
}

extension [UInt8]? {
  /// The bytes of a value, or their count if there are many.
  var step: String {
    guard let self else { return "none" }
    return self.count > 20 ? "\(self.count) bytes" : "\(self)"
  }
}

extension Duration {
  var step: String { "\(self / .seconds(1)) s" }
}

extension TaskFailure {
  fileprivate var step: String { "'\(reason)' at \(date.step)" }
}

extension Lease {
  var step: String {
    "\(id.number) (lease \(token)\(command.map { ", \($0)" } ?? ""))"
  }
}

extension TaskTarget {
  fileprivate var step: String {
    switch self {
    case .claimed(let lease): "claimed \(lease.step)"
    case .unclaimed(let id): "unclaimed \(id.number)"
    }
  }
}

extension ChangeOutcome {
  var step: String {
    switch self {
    case .replaced(let id): "replaced \(id.number)"
    case .duplicate(let id): "duplicate of \(id.number)"
    case .superseded(let id): "superseded by \(id.number)"
    case .unmetDependency(let id): "unmet dependency \(id.number)"
    case .commanded(let command): "commanded to \(command)"
    case .doneWithConsequences(let consequences):
      "done, cascading to \(consequences.tasks.map(\.number))\(consequences.batch.step)"
    case .done, .identityTaken, .stale, .batchRefused, .valueDiffers: "\(self)"
    @unknown default: "\(self)"
    }
  }
}

extension TaskRecord {
  fileprivate var step: String {
    var text = "\(id.number) '\(name)'"
    if !queue.isEmpty { text += " in \(queue)" }
    if priority.rawValue != 0 { text += " priority \(priority.rawValue)" }
    if availableDate != .second(0) { text += " at \(availableDate.step)" }
    if let uniqueKey { text += " key '\(uniqueKey)'" }
    if let uniqueUntil { text += " unique until \(uniqueUntil.step)" }
    if let latestDate { text += " at the latest at \(latestDate.step)" }
    if let expiryDate { text += " expires at \(expiryDate.step)" }
    if let orderKey {
      text += " order '\(orderKey)'\(blocksOrderOnFailure ? " (blocks it on failure)" : "")"
    }
    text += dependencies.step
    if !conditions.isEmpty { text += " requires \(conditions.sorted().map(\.rawValue))" }
    return text
  }
}

extension TaskDependencies {
  /// The string ``step`` without its leading comma or space, or `none` if it is empty.
  var summary: String {
    let step = step
    return step.isEmpty ? "none" : String(step.drop { $0 == "," || $0 == " " })
  }

  /// A description of the dependencies and their progress, which starts with a space or a comma;
  /// empty if the task has none.
  var step: String {
    var text = ""
    if !tasks.isEmpty || rule != .allSucceeded {
      text += " after \(tasks.map(\.number).sorted()), \(rule)"
    }
    if let follower { text += " before \(follower.number)" }
    if !failed.isEmpty {
      let failed = failed.sorted { $0.key < $1.key }.map { "\($0.key.number) \($0.value)" }
      text += failed.count > 20 ? " failed: \(failed.count) tasks" : " failed: \(failed)"
    }
    if let cause { text += " because of \(cause.number)" }
    return text + batch.step
  }
}

extension [TaskRecord] {
  var step: String {
    count > 20
      ? "\(count) tasks" : "[" + map { "\($0.id.number) \($0.state)" }.joined(separator: ", ") + "]"
  }
}

extension Claim {
  var step: String {
    let list = tasks.count > 20 ? ["\(tasks.count) tasks"] : tasks.map(\.lease.step)
    return "[\(list.joined(separator: ", "))], next date \(nextDate?.step ?? "none")"
  }
}

extension TaskFilter {
  var step: String {
    var criteria: [String] = []
    func list<Element>(_ set: Set<Element>, _ text: (Element) -> String) -> String {
      "[" + set.map(text).sorted().joined(separator: ", ") + "]"
    }
    if let ids { criteria.append("ids \(list(ids) { "\($0.number)" })") }
    if let names { criteria.append("names \(list(names) { $0 })") }
    if !excludedNames.isEmpty { criteria.append("names but \(list(excludedNames) { $0 })") }
    if let states { criteria.append("states \(list(states) { "\($0)" })") }
    if let uniqueKeys { criteria.append("keys \(list(uniqueKeys) { $0 })") }
    if let orderKeys { criteria.append("order keys \(list(orderKeys) { $0 })") }
    if let unmetBy { criteria.append("unmet by \(list(unmetBy) { $0.rawValue })") }
    if let tags { criteria.append("tags \(list(tags) { $0 })") }
    if let metadata { criteria.append("metadata \(metadata.step)") }
    if let isPostponed { criteria.append(isPostponed ? "postponed" : "not postponed") }
    if let remembers { criteria.append(remembers ? "remembering" : "remembering nothing") }
    if let hasCommand { criteria.append(hasCommand ? "with a command" : "without a command") }
    if let availableDates {
      let (from, to) = (availableDates.lowerBound.step, availableDates.upperBound.step)
      criteria.append("available from \(from) to before \(to)")
    }
    if let failedDates {
      let (from, to) = (failedDates.lowerBound.step, failedDates.upperBound.step)
      criteria.append("failed from \(from) to before \(to)")
    }
    return criteria.isEmpty ? "all tasks" : criteria.joined(separator: ", ")
  }
}

/// Collects changes into a batch like one that a queue makes.
///
/// A queue's batch has at most one change for each task and each value, and no change that depends
/// on the outcome of another change. This collector skips a change that would break that rule.
struct ModelBatch {
  private(set) var changes: [TaskChange] = []
  private let reference: ReferenceTable
  /// The tasks that the batch changes directly, including new ones.
  private var touched: Set<TaskID> = []
  /// The tasks that the changes may affect: the changed tasks, those that wait for them, and so on.
  private var affected: Set<TaskID> = []
  private var added: Set<TaskID> = []
  /// The dependencies of new tasks.
  private var newDependencies: Set<TaskID> = []
  /// The new members of each follower's batch.
  private var members: [TaskID: Set<TaskID>] = [:]
  /// The unique keys of the changed tasks, with their queues and names.
  private var keys: Set<[String]> = []
  /// The unique keys of all tasks that the changes may affect.
  private var affectedKeys: Set<[String]> = []
  /// The names of the batch's values.
  private var names: Set<ExactText> = []

  init(_ reference: ReferenceTable) { self.reference = reference }

  /// The dependencies and followers of new tasks.
  private var awaited: Set<TaskID> { newDependencies.union(members.keys) }

  /// Adds a change of the task with this ID, unless an earlier change of the batch conflicts.
  mutating func add(_ change: TaskChange, of id: TaskID) {
    let along = reference.tasksAffected(byChangeTo: id)
    guard !affected.contains(id), along.isDisjoint(with: touched),
      along.isDisjoint(with: awaited)
    else { return }
    let keysAlong = keys(of: along)
    guard keys.isDisjoint(with: keysAlong), affectedKeys.isDisjoint(with: keys(of: [id])) else {
      return
    }
    touched.insert(id)
    affected.formUnion(along)
    keys.formUnion(keys(of: [id]))
    affectedKeys.formUnion(keysAlong)
    changes.append(change)
  }

  private func keys(of ids: Set<TaskID>) -> Set<[String]> {
    Set(ids.compactMap(reference.record).compactMap { $0.nameAndKey })
  }

  /// Adds an insertion, unless an earlier change of the batch conflicts.
  mutating func insert(_ record: TaskRecord, onDuplicate policy: UniquePolicy) {
    let id = record.id
    guard !touched.contains(id), !newDependencies.contains(id), !reference.isAwaited(id),
      allowsDependencies(of: record)
    else { return }
    if let key = record.nameAndKey {
      guard !keys.contains(key), !affectedKeys.contains(key) else { return }
      let twins = reference.records.filter { $0.isTwin(of: record) }.map(\.id)
      guard awaited.isDisjoint(with: twins) else { return }
      keys.insert(key)
      affected.formUnion(twins.flatMap(reference.tasksAffected))
    }
    touched.insert(id)
    added.insert(id)
    newDependencies.formUnion(record.dependencies.tasks)
    if let follower = record.dependencies.follower {
      members[follower, default: []].insert(id)
    }
    changes.append(.insert(record, onDuplicate: policy))
  }

  /// Returns whether the batch may insert a task that has these dependencies and this follower.
  ///
  /// No other change in the batch may affect the dependencies and the follower, and the new task
  /// must not create a cycle.
  private func allowsDependencies(of record: TaskRecord) -> Bool {
    let (tasks, follower) = (record.dependencies.tasks, record.dependencies.follower)
    let others = tasks.union(follower.map { [$0] } ?? [])
    guard others.subtracting(added).isDisjoint(with: affected) else { return false }
    guard let follower else { return true }
    var table = reference
    _ = table.apply(changes)
    return table.tasksAffected(byChangeTo: follower)
      .isDisjoint(with: tasks.union(members[record.id] ?? []))
  }

  /// Lets a task remember values, in the order of their names, which is the same in each run.
  mutating func remember(_ values: [String: [UInt8]], by lease: Lease) {
    let changes = values.sorted { $0.key < $1.key }.map { name, value in
      TaskChange.remember(lease, named: name, value: value)
    }
    let count = self.changes.count
    add(changes[0], of: lease.id)
    // In a batch, a task may have several changes of this kind, or one change of another kind.
    if self.changes.count > count { self.changes += changes.dropFirst() }
  }

  /// Adds a change that sets a value, and expects the current bytes or bytes that are probably
  /// wrong.
  mutating func setValue(named name: String, expectsPresent: Bool, to bytes: [UInt8]?) {
    guard names.insert(ExactText(name)).inserted else { return }
    let present = reference.values[ExactText(name)]
    changes.append(.setValue(named: name, from: expectsPresent ? present : [0], to: bytes))
  }
}

extension TaskRecord {
  fileprivate var nameAndKey: [String]? { uniqueKey.map { [queue, name, $0] } }
}

extension Date {
  /// Rounds down to a multiple of 40 seconds, so that tasks often have the same date.
  fileprivate static func roundedDown(_ seconds: Double) -> Date {
    .second((seconds / 40).rounded(.down) * 40)
  }
}

extension TaskRecord {
  /// Makes the record of a randomly drawn task that is enqueued at this date.
  static func drawn(_ task: ModelStep.NewTask, at seconds: Double) -> TaskRecord {
    TaskRecord(
      id: .numbered(task.number),
      name: task.name,
      payload: StoredPayload(
        Array("\(task.number)".utf8),
        format: .json,
        version: task.version
      ),
      priority: TaskQueue.Priority(rawValue: task.priority),
      createdDate: .second(seconds),
      uniqueKey: task.key,
      uniqueUntil: task.uniqueFor.map { .second(seconds + $0) },
      latestDate: task.maxDelay.map { .roundedDown(seconds + $0) },
      orderKey: task.order,
      blocksOrderOnFailure: task.holds,
      conditions: task.conditions,
      dependencies: TaskDependencies(
        on: Set(task.dependencies.map(TaskID.numbered)),
        rule: task.rule,
        follower: task.follower.map(TaskID.numbered)
      ),
      queue: task.queue,
      metadata: task.number % 3 == 0 ? ["request": "\(task.number)", "tenant": "eins"] : [:],
      expiryDate: task.expiresIn.map { .second(seconds + $0) },
      availableDate: .roundedDown(seconds + task.delay),
      countedFrom: task.number % 2 == 0 ? .second(seconds) : nil
    )
  }
}

extension TaskUpdate {
  /// Makes an update that changes almost everything, or only the priority.
  fileprivate static func drawn(at seconds: Double, changesAll: Bool) -> TaskUpdate {
    let number = abs(Int(seconds)) % 7
    guard changesAll else { return TaskUpdate(priority: .init(rawValue: number % 3 - 1)) }
    return TaskUpdate(
      payload: StoredPayload([UInt8(number)], format: .binary, version: number + 1),
      priority: number % 2 == 0 ? .init(rawValue: number % 3 - 1) : nil,
      maxRetries: number % 3 == 0 ? .alwaysRetry : .atMost(number),
      usesBackoff: number % 2 == 0,
      timeLimit: .seconds(number + 1),
      expiryDate: .second(1e6 + seconds),
      tags: number % 3 == 0 ? [] : ["tag \(number)"],
      metadata: number % 3 == 1 ? nil : number == 0 ? [:] : ["update": "\(number)"]
    )
  }
}

extension TaskChange {
  /// Makes a change that ends the claim of a task.
  static func ending(
    _ lease: Lease,
    _ end: ModelStep.End,
    retains: Bool,
    at seconds: Double,
    delay: Double,
    awaiting names: [String]
  ) -> TaskChange {
    let date = Date.second(seconds)
    let attempt = retains ? FailedAttempt(.failed, duration: .seconds(delay)) : nil
    let failure = TaskFailure(reason: "failed at \(seconds)", date: date, attempt: attempt)
    let later = Date.roundedDown(seconds + delay)
    let retryCount = Int(delay) % 5
    let origin = retains ? date : nil
    return switch end {
    case .succeed: .succeed(lease, at: date, retains: retains)
    case .retry:
      .retry(lease, availableDate: later, retryCount: retryCount, failure: failure)
    case .retryWithoutFailure:
      .retry(
        lease,
        availableDate: later,
        retryCount: retryCount,
        failure: nil,
        countedFrom: origin
      )
    case .abandon: .abandon(lease, failure: failure, retains: retains)
    case .release: .release(lease)
    case .park:
      .park(lease, failure: failure, knownVersion: retryCount == 0 ? nil : retryCount)
    case .cancel: .cancel(.claimed(lease), at: date, retains: retains)
    case .pause: .pause(.claimed(lease))
    case .restart: .restart(.claimed(lease), availableDate: later)
    case .restartForgetting: .restart(.claimed(lease), availableDate: later, forgets: true)
    case .reschedule:
      .reschedule(.claimed(lease), availableDate: later, countedFrom: origin)
    case .suspend: .suspend(lease, until: later, awaiting: names, countedFrom: origin)
    case .suspendEndlessly: .suspend(lease, until: .distantFuture, awaiting: names)
    }
  }

  /// Makes a change to an unclaimed task.
  static func controlling(
    _ id: TaskID,
    _ control: ModelStep.Control,
    retains: Bool,
    at seconds: Double
  ) -> TaskChange {
    let date = Date.second(seconds)
    return switch control {
    case .cancel: .cancel(.unclaimed(id), at: date, retains: retains)
    case .pause: .pause(.unclaimed(id))
    case .resume: .resume(id)
    case .restart: .restart(.unclaimed(id), availableDate: .roundedDown(seconds))
    case .restartForgetting:
      .restart(.unclaimed(id), availableDate: .roundedDown(seconds), forgets: true)
    case .reschedule:
      .reschedule(
        .unclaimed(id),
        availableDate: .roundedDown(seconds),
        countedFrom: retains ? date : nil
      )
    case .update: .update(id, .drawn(at: seconds, changesAll: retains))
    case .remove: .remove(id)
    }
  }
}
