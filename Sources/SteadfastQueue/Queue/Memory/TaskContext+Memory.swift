import Synchronization
import SystemFoundation

/// How steps, checkpoints, sleeps and completions read and change what the task remembers.
extension TaskContext {
  /// Says that a Swift task is in the body of a step.
  private struct Mark: Sendable {
    let memory: ObjectIdentifier
    let number: AttemptNumber
  }

  @TaskLocal private static var mark: Mark?

  /// Calls the body of a step, so that a step within it is refused.
  func inStep<Value>(_ body: () async throws -> Value) async throws -> Value {
    let mark = Mark(memory: ObjectIdentifier(memory), number: number)
    return try await Self.$mark.withValue(mark) { try await body() }
  }

  /// Begins the use of a name, and reads what the task remembers.
  ///
  /// The second name is the one under which the task remembers. Only a checkpoint may use its name
  /// more than once.
  func begin(_ name: String, _ stored: String, isRepeatable: Bool = false) async throws {
    try checkIsUnderWay(name)
    if let mark = Self.mark, mark.memory == ObjectIdentifier(memory), mark.number == number {
      throw StepError(
        .nested,
        name,
        "the step '\(name)' is in the body of another step, which is repeated as a whole; call it "
          + "after that one"
      )
    }
    guard !name.isEmpty, stored.utf8.count <= TaskQueueError.maxValueNameSize, !name.hasNUL else {
      throw StepError(
        .invalidName,
        name,
        "the step '\(name.prefix(80))' has a name of \(name.utf8.count) bytes; give it 1 to 1,000 "
          + "bytes of UTF-8, without a NUL"
      )
    }
    if !isRepeatable, !memory.with(number, { $0.use(stored) }) {
      throw StepError(
        .nameUsedTwice,
        name,
        "the name '\(name)' is used twice in one attempt; give each step a name of its own, or say "
          + "what it is for with 'for:'"
      )
    }
    try await read()
    try checkIsNotSuspended()
  }

  /// Performs what uses a name; if that throws, the attempt may use the name again.
  func using<Value>(_ stored: String, _ body: () async throws -> Value) async throws -> Value {
    do {
      return try await body()
    } catch {
      memory.with(number) { $0.giveBack(stored) }
      throw error
    }
  }

  /// Throws if the attempt is over.
  private func checkIsUnderWay(_ name: String) throws {
    guard !queue.dispatch.machine.withLock({ $0.holds(number, worker) }) else { return }
    throw StepError(
      .attemptIsOver,
      name,
      "'\(name)' was used after the attempt had ended; wait for all that a handler starts before it "
        + "returns"
    )
  }

  /// Throws if the task is to be suspended: nothing more begins in this attempt.
  func checkIsNotSuspended() throws {
    switch memory.with(number, { $0.ending }) {
    case .suspended?: throw TaskSuspended()
    case .parked?, .released?: throw CancellationError()
    case nil: break
    }
  }

  /// Reads what the task remembers, unless the attempt has done so.
  private func read() async throws {
    guard memory.with(number, { $0.stored == nil }) else { return }
    // A task that remembers nothing need not be looked up.
    guard record.memorySize > 0 else { return memory.with(number) { $0.read(TaskMemory()) } }
    let stored = try await load()
    memory.with(number) { $0.read(stored) }
  }

  /// Reads what the store has the task remember.
  func load() async throws -> TaskMemory {
    do {
      return try await queue.store.memory(of: id)
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      throw park(error)
    } catch {
      throw release(error, "read what a task remembers")
    }
  }

  /// The bytes that the task remembers under a name.
  func remembered(_ name: String) -> [UInt8]? { memory.with(number) { $0[name] } }

  /// Has the task remember values, and returns when they are stored.
  ///
  /// - Throws: `CancellationError` if another queue has taken the task over, or the store fails.
  func remember(
    _ values: [(name: String, bytes: [UInt8])],
    _ durability: Durability = .durable
  ) async throws {
    let lease = Lease(id: id, token: leaseToken)
    let changes = values.map { TaskChange.remember(lease, named: $0.name, value: $0.bytes) }
    let outcomes: [ChangeOutcome]
    do {
      outcomes = try await queue.storage.persistInAttempt(changes, durability)
    } catch {
      throw release(error, "keep what a task remembers")
    }
    guard outcomes.allSatisfy(\.isDone) else {
      // Another queue has the task. What this attempt does is not stored any more.
      queue.dispatch.lost(lease)
      throw CancellationError()
    }
    memory.with(number) { memory in
      for (name, bytes) in values { memory.remembered(bytes, name) }
    }
  }

  /// Checks that a value may be remembered.
  func check(_ bytes: [UInt8], under name: String, _ stored: String) throws {
    guard bytes.count <= TaskQueueError.maxValueSize else {
      throw StepError(
        .tooLarge,
        name,
        "'\(name)' has a value of \(bytes.count) bytes, and a task remembers at most "
          + "\(TaskQueueError.maxValueSize) under a name; store it elsewhere, and remember where"
      )
    }
    let size = memory.with(number) { $0.size(with: bytes, under: stored) }
    let limit = queue.configuration.maxMemorySize
    guard size <= limit else {
      throw StepError(
        .tooLarge,
        name,
        "with '\(name)', the task would remember \(size) bytes, and maxMemorySize is \(limit); store "
          + "less of it, or split the task"
      )
    }
  }

  // MARK: Values

  /// Encodes a value as JSON.
  func encoded(_ value: some Encodable, _ name: String) throws -> [UInt8] {
    do {
      return try MemoryCoding.encode(value)
    } catch {
      // The text may become a task's last error, so it never has the value in it.
      let problem =
        switch error {
        case EncodingError.invalidValue(let part, let context):
          "the \(type(of: part)) in \(context.codingPath.shownPath) can't be written as JSON"
        default: "\(type(of: error)) was thrown"
        }
      throw StepError(.notEncodable, name, "the value of '\(name)' can't be encoded: \(problem)")
    }
  }

  /// Decodes a value that the task remembers.
  ///
  /// `type` is the one that the handler asks for.
  ///
  /// - Throws: An error after which the task is parked, whatever the handler does.
  func decoded<Value: Decodable>(
    _ bytes: [UInt8],
    _ name: String,
    as type: Any.Type = Value.self
  ) throws -> Value {
    do {
      return try MemoryCoding.decode(Value.self, from: bytes)
    } catch {
      throw park(UndecodableMemory(name: name, type: "\(type)"))
    }
  }

  /// Has the task parked when the attempt ends.
  func park(_ error: any Error) -> any Error {
    memory.with(number) { $0.decide(.parked(reason: "\(error)")) }
    return error
  }

  /// Has the task released when the attempt ends, because its store has failed.
  func release(_ error: any Error, _ operation: String) -> any Error {
    queue.dispatch.fail(error, to: operation)
    memory.with(number) { $0.decide(.released) }
    return CancellationError()
  }

  /// Has the task suspended when the attempt ends.
  ///
  /// Without an end, only what it awaits wakes it.
  func suspend(until end: WaitEnd?, awaiting names: [String] = []) -> TaskSuspended {
    let date = end?.date ?? .distantFuture
    memory.with(number) {
      $0.decide(.suspended(until: date, awaiting: names, countedFrom: end?.countedFrom))
    }
    return TaskSuspended()
  }
}

/// The error for something that a task remembers, and that is not of the type that is asked for.
///
/// What is remembered never appears in it.
struct UndecodableMemory: Error, CustomStringConvertible {
  let name: String
  let type: String

  var description: String {
    "what the task remembers under '\(name)' is not of the type \(type); register a handler that reads it, or "
      + "restart the task with forgetting: true"
  }
}

/// The JSON of what a task remembers.
enum MemoryCoding {
  static func encode(_ value: some Encodable) throws -> [UInt8] {
    try StableJSON.encode(value)
  }

  static func decode<Value: Decodable>(_ type: Value.Type, from bytes: [UInt8]) throws -> Value {
    try JSONDecoder().decode(type, from: Data(bytes))
  }
}

/// What an attempt knows of its task's memory, and what it has decided about the task's end.
///
/// It is a value without a store or a clock: each event is a method that says what to do.
struct AttemptMemory: Sendable {
  /// What becomes of the task when the attempt ends, whatever its handler returns or throws.
  enum Ending: Sendable, Equatable {
    /// If a date was counted by the clock, it was counted from the last one.
    case suspended(until: Date, awaiting: [String], countedFrom: Date?)
    /// Something that the task remembers can't be decoded or opened.
    case parked(reason: String)
    /// The store could not store what the task was to remember.
    case released
  }

  let number: AttemptNumber
  /// What the store is known to hold; `nil` until it was read.
  private(set) var stored: TaskMemory?
  /// The names that this attempt has used, by their bytes.
  private var used: Set<ExactText> = []
  /// Whether the attempt has added to what the task remembers.
  private(set) var hasProgressed = false
  private(set) var ending: Ending?
  /// The checkpoint that was saved last, while it is not stored.
  private(set) var unsaved: [UInt8]?
  /// When a checkpoint was stored last, on the queue's stopwatch.
  private var savedAt: Duration?
  /// Whether a checkpoint is being stored.
  private(set) var isSaving = false

  init(of number: AttemptNumber) { self.number = number }

  /// The bytes under a name; `nil` if there are none, or the memory was not read.
  subscript(name: String) -> [UInt8]? { stored?[name] }

  /// Takes note of what the store has returned, unless something newer is known.
  mutating func read(_ memory: TaskMemory) { if stored == nil { stored = memory } }

  /// Takes note of what the store has returned of values that others complete.
  mutating func reread(_ name: String, in memory: TaskMemory) { stored?[name] = memory[name] }

  /// Begins the use of a name.
  ///
  /// - Returns: Whether the attempt has not used it yet.
  mutating func use(_ name: String) -> Bool { used.insert(ExactText(name)).inserted }

  /// Ends the use of a name under which nothing was stored.
  mutating func giveBack(_ name: String) { used.remove(ExactText(name)) }

  /// Takes note that the store has stored a value under a name.
  mutating func remembered(_ value: [UInt8], _ name: String) {
    // Of checkpoints, a later one than the stored one may be known.
    if name != MemoryName.checkpoint { stored?[name] = value }
    hasProgressed = true
  }

  /// Returns how large the memory is with other bytes under a name.
  func size(with value: [UInt8], under name: String) -> Int {
    let old = self[name].map { name.utf8.count + $0.count } ?? 0
    return (stored?.size ?? 0) - old + name.utf8.count + value.count
  }

  /// Decides what becomes of the task, unless that is decided.
  mutating func decide(_ ending: Ending) {
    // What several sides of a handler await is gathered. The earliest date counts. If any was
    // counted by a clock that was ahead, the handler counts again.
    if case .suspended(let date, let names, let origin) = ending,
      case .suspended(let other, let others, let otherOrigin)? = self.ending
    {
      self.ending = .suspended(
        until: min(date, other),
        awaiting: others + names,
        countedFrom: [origin, otherOrigin].compactMap(\.self).max()
      )
    } else if self.ending == nil {
      self.ending = ending
    }
  }

  // MARK: Checkpoints

  /// How long a checkpoint may wait for the next one before it is stored.
  private static let savingInterval = Duration.seconds(1)

  /// Takes a checkpoint, which is stored now or later.
  mutating func save(_ value: [UInt8]) {
    unsaved = value
    stored?[MemoryName.checkpoint] = value
    hasProgressed = true
  }

  /// Returns the checkpoint to store now, if there is one.
  ///
  /// If it is due, it is stored even if one was stored a moment ago. `again` stores it even if it
  /// is stored already.
  mutating func beginSaving(at time: Duration, isDue: Bool, again: Bool) -> [UInt8]? {
    guard !isSaving, let value = unsaved ?? (again ? self[MemoryName.checkpoint] : nil) else {
      return nil
    }
    if !isDue, let savedAt, time - savedAt < Self.savingInterval { return nil }
    isSaving = true
    unsaved = nil
    return value
  }

  /// Takes note that a checkpoint was stored, or could not be.
  mutating func endSaving(_ value: [UInt8], at time: Duration, isStored: Bool) {
    isSaving = false
    if isStored {
      savedAt = time
    } else if unsaved == nil {
      unsaved = value
    }
  }
}

/// Holds the memory of the attempt that a worker makes.
///
/// There is one for each worker, not for each attempt, so an attempt whose handler remembers
/// nothing pays one atomic read.
final class WorkerMemory: Sendable {
  private let state = Mutex<AttemptMemory?>(nil)
  private let isUsed = Atomic(false)
  /// Callers that wait until a checkpoint was stored.
  private let savings = Waiters<Void>()

  /// Calls the body with the memory of an attempt, which begins empty.
  ///
  /// A context that outlives its attempt finds an empty one, and leaves the next attempt's alone.
  func with<Result>(
    _ number: AttemptNumber,
    _ body: (inout sending AttemptMemory) throws -> sending Result
  ) rethrows -> Result {
    try state.withLock { state in
      if let present = state?.number, present > number {
        var past = AttemptMemory(of: number)
        return try body(&past)
      }
      isUsed.store(true, ordering: .relaxed)
      // While `state` held the value too, a change would copy all that it holds.
      var memory = state.take() ?? AttemptMemory(of: number)
      if memory.number != number { memory = AttemptMemory(of: number) }
      defer { state = memory }
      return try body(&memory)
    }
  }

  /// Whether an attempt has used it.
  var isInUse: Bool { isUsed.load(ordering: .relaxed) }

  /// Returns the memory of an attempt that has ended, if it was used.
  func take(_ number: AttemptNumber) -> AttemptMemory? {
    guard isInUse else { return nil }
    return state.withLock { state in
      isUsed.store(false, ordering: .relaxed)
      defer { state = nil }
      return state?.number == number ? state : nil
    }
  }

  /// Takes note that a checkpoint was stored, or could not be.
  func endSaving(_ number: AttemptNumber, _ value: [UInt8], at time: Duration, isStored: Bool) {
    with(number) { $0.endSaving(value, at: time, isStored: isStored) }
    savings.resumeAll(with: .success(()))
  }

  /// Waits until no checkpoint of an attempt is being stored.
  func waitForSaving(_ number: AttemptNumber) async {
    await savings.waitUncancelled {
      state.withLock { $0?.number == number && $0?.isSaving == true } ? nil : ()
    }
  }
}

/// The names under which a queue has a task remember.
///
/// The kind comes first, so that a step and a sleep of the same name don't meet.
enum MemoryName {
  static let checkpoint = "checkpoint"

  /// The name for the value of a step.
  static func step(_ name: String) -> String { stepPrefix + name }
  /// The name for the intent to begin a step that is not repeated.
  static func intent(_ name: String) -> String { "intent:\(name)" }
  /// The name for the date of a sleep.
  static func sleep(_ name: String) -> String { "sleep:\(name)" }
  /// The name for the token and the deadline of a completion.
  static func completion(_ name: String) -> String { completionPrefix + name }
  /// The name that says that the token of a completion was handed out.
  static func handedOut(_ name: String) -> String { "opened:\(name)" }
  /// The name for the outcome of a completion, which is open until it comes.
  static func outcome(_ token: TaskToken) -> String { "outcome:\(token.secretText)" }

  static let stepPrefix = "step:"
  static let completionPrefix = "completion:"

  /// What a task remembers under the name of an intent.
  static let begun = Array("true".utf8)

  /// Returns what follows a prefix in a name; `nil` if the name does not begin with it.
  ///
  /// Both are compared by their bytes: the first character of what follows may combine with the
  /// end of the prefix.
  static func name(in stored: String, after prefix: String) -> String? {
    guard stored.utf8.starts(with: prefix.utf8) else { return nil }
    return String(stored.unicodeScalars.dropFirst(prefix.unicodeScalars.count))
  }
}

extension TaskMemory {
  /// The value of a step that has ended; `nil` if it has not.
  ///
  /// - Parameters:
  ///   - name: the name of the step, with what it is for in brackets, as in `pick[7]`.
  ///   - type: the type of the value.
  /// - Returns: The value; `nil` if the step has not ended.
  /// - Throws: What decoding the value throws.
  public func value<Value: Decodable>(
    ofStep name: String,
    as type: Value.Type = Value.self
  ) throws -> Value? {
    try self[MemoryName.step(name)].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// The names of the steps that have ended, with what they are for in brackets.
  public var steps: [String] {
    names.compactMap { MemoryName.name(in: $0, after: MemoryName.stepPrefix) }
  }

  /// The checkpoint that was saved last; `nil` if there is none.
  ///
  /// - Throws: What decoding it throws.
  public func checkpoint<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value? {
    try self[MemoryName.checkpoint].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// Sets the value of a step, as if it had ended with it; for tests.
  ///
  /// - Throws: What encoding the value throws.
  package mutating func setValue(_ value: some Encodable, ofStep name: String) throws {
    self[MemoryName.step(name)] = try MemoryCoding.encode(value)
  }

  /// Has the memory say that a step that is not repeated was interrupted; for tests.
  package mutating func setInterrupted(step name: String) {
    self[MemoryName.intent(name)] = MemoryName.begun
  }

  /// Sets the checkpoint; for tests.
  ///
  /// - Throws: What encoding the value throws.
  package mutating func setCheckpoint(_ value: some Encodable) throws {
    self[MemoryName.checkpoint] = try MemoryCoding.encode(value)
  }
}
