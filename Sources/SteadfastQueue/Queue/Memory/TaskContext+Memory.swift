import Synchronization
import SystemFoundation

/// Reads and changes the task's memory for steps, checkpoints, sleeps and completions.
extension TaskContext {
  /// Marks a Swift task that is in the body of a step.
  private struct Mark: Sendable {
    let memory: ObjectIdentifier
    let number: AttemptNumber
  }

  @TaskLocal private static var mark: Mark?

  /// Calls the body of a step, and makes a step within it fail.
  func inStep<Value>(_ body: () async throws -> Value) async throws -> Value {
    let mark = Mark(memory: ObjectIdentifier(memory), number: number)
    return try await Self.$mark.withValue(mark) { try await body() }
  }

  /// Begins the use of a name, and loads the task's memory.
  ///
  /// `name` is the name in the handler, and `stored` the name in the task's memory. If
  /// `isRepeatable`, the attempt may use the name more than once, as it does for a checkpoint.
  func beginUse(of name: String, storedAs stored: String, isRepeatable: Bool = false) async throws {
    try checkIsUnderWay(name)
    if let mark = Self.mark, mark.memory == ObjectIdentifier(memory), mark.number == number {
      throw StepError(
        .nested,
        name,
        "the step '\(name)' is in the body of another step, which is repeated as a whole; call it "
          + "after that step"
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
    if !isRepeatable, !memory.with(number, { $0.beginUse(of: stored) }) {
      throw StepError(
        .nameUsedTwice,
        name,
        "the name '\(name)' is used twice in one attempt; give each step its own name, or pass the "
          + "item that it is for as 'for:'"
      )
    }
    try await loadOnce()
    try checkIsNotSuspended()
  }

  /// Performs a body that uses a name, which the attempt may use again if the body throws.
  func using<Value>(_ stored: String, _ body: () async throws -> Value) async throws -> Value {
    do {
      return try await body()
    } catch {
      memory.with(number) { $0.endUse(of: stored) }
      throw error
    }
  }

  /// Throws if the attempt is over.
  private func checkIsUnderWay(_ name: String) throws {
    guard !queue.dispatch.machine.withLock({ $0.isHandlerRunning(number, of: worker) }) else {
      return
    }
    throw StepError(
      .attemptIsOver,
      name,
      "'\(name)' was used after the attempt had ended; in the handler, wait for all Swift tasks "
        + "that it starts before it returns"
    )
  }

  /// Throws if the task will be suspended, parked or released when the attempt ends.
  ///
  /// Nothing more may start in such an attempt.
  func checkIsNotSuspended() throws {
    switch memory.with(number, { $0.ending }) {
    case .suspended?: throw TaskSuspended()
    case .parked?, .released?: throw CancellationError()
    case nil: break
    }
  }

  /// Loads the task's memory, unless the attempt has already loaded it.
  private func loadOnce() async throws {
    guard memory.with(number, { $0.stored == nil }) else { return }
    // An empty memory need not be read from the store.
    guard record.memorySize > 0 else { return memory.with(number) { $0.setLoaded(TaskMemory()) } }
    let stored = try await loadMemory()
    memory.with(number) { $0.setLoaded(stored) }
  }

  /// Returns the task's memory from the store.
  func loadMemory() async throws -> TaskMemory {
    do {
      return try await queue.store.memory(of: id)
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      throw parkAtEnd(after: error)
    } catch {
      throw releaseAtEnd(after: error, operation: "read a task's memory")
    }
  }

  /// Returns the bytes under a name in the task's memory.
  func storedBytes(under name: String) -> [UInt8]? { memory.with(number) { $0[name] } }

  /// Adds values to the task's memory, and returns when they are stored.
  ///
  /// - Throws: `CancellationError` if another queue has claimed the task, or the store fails.
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
      throw releaseAtEnd(after: error, operation: "store a task's memory")
    }
    guard outcomes.allSatisfy(\.isDone) else {
      // Another queue has claimed the task. The results of this attempt are no longer stored.
      queue.dispatch.handleLostLease(lease)
      throw CancellationError()
    }
    memory.with(number) { memory in
      for (name, bytes) in values { memory.recordStored(bytes, under: name) }
    }
  }

  /// Throws if a value is too large for the task's memory.
  func checkSize(of bytes: [UInt8], name: String, storedAs stored: String) throws {
    guard bytes.count <= TaskQueueError.maxValueSize else {
      throw StepError(
        .tooLarge,
        name,
        "'\(name)' has a value of \(bytes.count) bytes, but the maximum is "
          + "\(TaskQueueError.maxValueSize); store the value elsewhere, and return its location"
      )
    }
    let size = memory.with(number) { $0.size(with: bytes, under: stored) }
    let limit = queue.configuration.maxMemorySize
    guard size <= limit else {
      throw StepError(
        .tooLarge,
        name,
        "with '\(name)', the task's memory would have \(size) bytes, but maxMemorySize is "
          + "\(limit); store less, or split the task"
      )
    }
  }

  // MARK: Values

  /// Encodes a value as JSON.
  func encoded(_ value: some Encodable, _ name: String) throws -> [UInt8] {
    do {
      return try MemoryCoding.encode(value)
    } catch {
      // The text may become a task's last error, so it must not contain the value.
      let problem =
        switch error {
        case EncodingError.invalidValue(let part, let context):
          "the \(type(of: part)) in \(context.codingPath.shownPath) can't be written as JSON"
        default: "\(type(of: error)) was thrown"
        }
      throw StepError(.notEncodable, name, "the value of '\(name)' can't be encoded: \(problem)")
    }
  }

  /// Decodes a value from the task's memory.
  ///
  /// `type` is the type that the handler expects.
  ///
  /// - Throws: An error after which the task is parked, even if the handler catches it.
  func decoded<Value: Decodable>(
    _ bytes: [UInt8],
    _ name: String,
    as type: Any.Type = Value.self
  ) throws -> Value {
    do {
      return try MemoryCoding.decode(Value.self, from: bytes)
    } catch {
      throw parkAtEnd(after: UndecodableMemory(name: name, type: "\(type)"))
    }
  }

  /// Makes the queue park the task when the attempt ends.
  func parkAtEnd(after error: any Error) -> any Error {
    memory.with(number) { $0.decide(.parked(reason: "\(error)")) }
    return error
  }

  /// Makes the queue release the task when the attempt ends, because its store has failed.
  func releaseAtEnd(after error: any Error, operation: String) -> any Error {
    queue.dispatch.fail(error, to: operation)
    memory.with(number) { $0.decide(.released) }
    return CancellationError()
  }

  /// Makes the queue suspend the task when the attempt ends.
  ///
  /// If `end` is `nil`, only the completions with these names wake the task.
  func suspend(until end: WaitEnd?, awaiting names: [String] = []) -> TaskSuspended {
    let date = end?.date ?? .distantFuture
    memory.with(number) {
      $0.decide(.suspended(until: date, awaiting: names, countedFrom: end?.countedFrom))
    }
    return TaskSuspended()
  }
}

/// The error for a remembered value that does not have the expected type.
///
/// The error never contains the value.
struct UndecodableMemory: Error, CustomStringConvertible {
  let name: String
  let type: String

  var description: String {
    "the value under '\(name)' in the task's memory does not have the type \(type); register a "
      + "handler that can decode it, or retry the task with forgetting: true"
  }
}

/// Encodes and decodes remembered values as JSON.
enum MemoryCoding {
  static func encode(_ value: some Encodable) throws -> [UInt8] {
    try StableJSON.encode(value)
  }

  static func decode<Value: Decodable>(_ type: Value.Type, from bytes: [UInt8]) throws -> Value {
    try JSONDecoder().decode(type, from: Data(bytes))
  }
}

/// An attempt's copy of its task's memory, and the attempt's decision about the task's next state.
///
/// It is a value that has no store and no clock. Each event is a method that returns what to do.
struct AttemptMemory: Sendable {
  /// What happens to the task when the attempt ends, whatever its handler returns or throws.
  enum Ending: Sendable, Equatable {
    /// `countedFrom` is the clock's date when `until` was calculated, or `nil` if the date was
    /// chosen.
    case suspended(until: Date, awaiting: [String], countedFrom: Date?)
    /// A remembered value can't be decoded or unsealed.
    case parked(reason: String)
    /// The store failed to read or store the task's memory.
    case released
  }

  let number: AttemptNumber
  /// The known contents of the stored memory; `nil` until it was read.
  private(set) var stored: TaskMemory?
  /// The names that this attempt has used, compared by their bytes.
  private var used: Set<ExactText> = []
  /// Whether the attempt has added to the task's memory.
  private(set) var hasProgressed = false
  private(set) var ending: Ending?
  /// The latest checkpoint, if it is not stored yet.
  private(set) var unsaved: [UInt8]?
  /// When a checkpoint was last stored, on the queue's stopwatch.
  private var savedAt: Duration?
  /// Whether a checkpoint is being stored.
  private(set) var isSaving = false

  init(of number: AttemptNumber) { self.number = number }

  /// The bytes under a name; `nil` if there are none, or the memory has not been read.
  subscript(name: String) -> [UInt8]? { stored?[name] }

  /// Sets the memory as the store returned it, unless it is already known, and may be newer.
  mutating func setLoaded(_ memory: TaskMemory) { if stored == nil { stored = memory } }

  /// Updates one name, whose value is stored by callers that complete a wait.
  mutating func refresh(_ name: String, from memory: TaskMemory) { stored?[name] = memory[name] }

  /// Begins the use of a name.
  ///
  /// - Returns: `false` if the attempt has already used it.
  mutating func beginUse(of name: String) -> Bool { used.insert(ExactText(name)).inserted }

  /// Ends the use of a name under which nothing was stored.
  mutating func endUse(of name: String) { used.remove(ExactText(name)) }

  /// Records that a value was stored under a name.
  mutating func recordStored(_ value: [UInt8], under name: String) {
    // For a checkpoint, a later one than the stored one may already be known.
    if name != MemoryName.checkpoint { stored?[name] = value }
    hasProgressed = true
  }

  /// Returns the size that the memory would have with other bytes under a name.
  func size(with value: [UInt8], under name: String) -> Int {
    let old = self[name].map { name.utf8.count + $0.count } ?? 0
    return (stored?.size ?? 0) - old + name.utf8.count + value.count
  }

  /// Decides what happens to the task when the attempt ends, unless that is already decided.
  mutating func decide(_ ending: Ending) {
    // Concurrent parts of a handler may all suspend the task. Merge what they await, and use the
    // earliest date. Use the latest origin: if the clock was ahead for any of them, the handler
    // recalculates its date.
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

  /// The minimum time between two stored checkpoints, unless one is due.
  private static let savingInterval = Duration.seconds(1)

  /// Sets the latest checkpoint, which is stored now or later.
  mutating func save(_ value: [UInt8]) {
    unsaved = value
    stored?[MemoryName.checkpoint] = value
    hasProgressed = true
  }

  /// Returns the checkpoint to store now, if there is one.
  ///
  /// If `isDue`, it is stored even if another one was stored a moment ago. If `again`, it is stored
  /// even if it is already stored.
  mutating func beginSaving(at time: Duration, isDue: Bool, again: Bool) -> [UInt8]? {
    guard !isSaving, let value = unsaved ?? (again ? self[MemoryName.checkpoint] : nil) else {
      return nil
    }
    if !isDue, let savedAt, time - savedAt < Self.savingInterval { return nil }
    isSaving = true
    unsaved = nil
    return value
  }

  /// Records whether a checkpoint was stored.
  mutating func endSaving(_ value: [UInt8], at time: Duration, isStored: Bool) {
    isSaving = false
    if isStored {
      savedAt = time
    } else if unsaved == nil {
      unsaved = value
    }
  }
}

/// The memory of a worker's current attempt.
///
/// There is one for each worker, not for each attempt, so an attempt whose handler does not use its
/// memory costs only one atomic read.
final class WorkerMemory: Sendable {
  private let state = Mutex<AttemptMemory?>(nil)
  private let isUsed = Atomic(false)
  /// Callers that wait until a checkpoint is stored.
  private let savings = Waiters<Void>()

  /// Calls the body with the memory of an attempt, which is empty at first.
  ///
  /// A context that outlives its attempt gets an empty memory, and does not change the memory of
  /// the next attempt.
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
      // Take the value out of `state`, so that a change does not copy its contents.
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

  /// Records whether a checkpoint was stored, and resumes callers that wait for that.
  func endSaving(_ number: AttemptNumber, _ value: [UInt8], at time: Duration, isStored: Bool) {
    with(number) { $0.endSaving(value, at: time, isStored: isStored) }
    savings.resumeAll(with: .success(()))
  }

  /// Waits until no checkpoint of an attempt is being stored.
  func waitWhileSaving(inAttempt number: AttemptNumber) async {
    await savings.waitUncancelled {
      state.withLock { $0?.number == number && $0?.isSaving == true } ? nil : ()
    }
  }
}

/// The names in a task's memory.
///
/// The kind comes first, so that a step and a sleep with the same name don't conflict.
enum MemoryName {
  static let checkpoint = "checkpoint"

  /// The name for the value of a step.
  static func step(_ name: String) -> String { stepPrefix + name }
  /// The name for the intent to start a step that is not repeated.
  static func intent(_ name: String) -> String { "intent:\(name)" }
  /// The name for the date of a sleep.
  static func sleep(_ name: String) -> String { "sleep:\(name)" }
  /// The name for the token and the deadline of a completion.
  static func completion(_ name: String) -> String { completionPrefix + name }
  /// The name whose presence means that the body of a completion has passed its token on.
  static func handedOut(_ name: String) -> String { "opened:\(name)" }
  /// The name for the outcome of a completion, whose value is empty until the completion arrives.
  static func outcome(_ token: TaskToken) -> String { "outcome:\(token.secretText)" }

  static let stepPrefix = "step:"
  static let completionPrefix = "completion:"

  /// The value under the name of an intent.
  static let begun = Array("true".utf8)

  /// Returns the part of a name after a prefix; `nil` if the name does not start with the prefix.
  ///
  /// Both are compared by their bytes, because the first character after the prefix may combine
  /// with its last one.
  static func name(in stored: String, after prefix: String) -> String? {
    guard stored.utf8.starts(with: prefix.utf8) else { return nil }
    return String(stored.unicodeScalars.dropFirst(prefix.unicodeScalars.count))
  }
}

extension TaskMemory {
  /// Returns the value of a step that has ended.
  ///
  /// - Parameters:
  ///   - name: the name of the step, with its item in brackets, as in `pick[7]`.
  ///   - type: the type of the value.
  /// - Returns: The value; `nil` if the step has not ended.
  /// - Throws: What decoding the value throws.
  public func value<Value: Decodable>(
    ofStep name: String,
    as type: Value.Type = Value.self
  ) throws -> Value? {
    try self[MemoryName.step(name)].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// The names of the steps that have ended, with their items in brackets.
  public var steps: [String] {
    names.compactMap { MemoryName.name(in: $0, after: MemoryName.stepPrefix) }
  }

  /// Returns the latest checkpoint; `nil` if there is none.
  ///
  /// - Throws: What decoding it throws.
  public func checkpoint<Value: Decodable>(as type: Value.Type = Value.self) throws -> Value? {
    try self[MemoryName.checkpoint].map { try MemoryCoding.decode(type, from: $0) }
  }

  /// Sets the value of a step, as if it had ended with that value; for tests.
  ///
  /// - Throws: What encoding the value throws.
  package mutating func setValue(_ value: some Encodable, ofStep name: String) throws {
    self[MemoryName.step(name)] = try MemoryCoding.encode(value)
  }

  /// Marks a step that is not repeated as interrupted; for tests.
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
