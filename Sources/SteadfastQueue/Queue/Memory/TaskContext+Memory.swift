import Synchronization
import SystemFoundation

/// Reads and changes the task's memory for steps, checkpoints, sleeps and completions.
extension TaskContext {
  /// The attempt that is performing the body of a step.
  private struct AttemptInStep: Sendable {
    let memory: ObjectIdentifier
    let number: AttemptNumber
  }

  /// The attempt whose step the current Swift task is performing.
  @TaskLocal private static var attemptInStep: AttemptInStep?

  /// Calls the body of a step, in which the handler can start no other step.
  func performStep<Value>(_ body: () async throws -> Value) async throws -> Value {
    let attempt = AttemptInStep(memory: ObjectIdentifier(memory), number: number)
    return try await Self.$attemptInStep.withValue(attempt) { try await body() }
  }

  /// Marks a name as used by the attempt, and loads the task's memory.
  ///
  /// `name` is the name that the handler has given, and `stored` the name in the task's memory. If
  /// `isRepeatable`, the attempt may use the name more than once, as for its checkpoint.
  ///
  /// - Throws: An error if the attempt can't use the name, or can do nothing more.
  func takeName(_ name: String, storedAs stored: String, isRepeatable: Bool = false) async throws {
    try checkHandlerIsRunning(using: name)
    if let other = Self.attemptInStep, other.memory == ObjectIdentifier(memory),
      other.number == number
    {
      throw StepError(
        .nested,
        name,
        "'\(name)' is in the body of a step, which must not contain steps, sleeps, completions or "
          + "checkpoints; move it out of that body"
      )
    }
    try checkIsValid(name, storedAs: stored)
    if !isRepeatable, !memory.with(number, { $0.markUsed(stored) }) {
      throw StepError(
        .nameUsedTwice,
        name,
        "the name '\(name)' is used twice in one attempt; give each step, sleep and completion its "
          + "own name, or pass a step's item as 'for:'"
      )
    }
    try await loadOnce()
    try checkIsNotSuspended()
  }

  private func checkIsValid(_ name: String, storedAs stored: String) throws {
    let fault: String
    if name.isEmpty {
      fault = "a step, sleep or completion has an empty name"
    } else if stored.utf8.count > TaskQueueError.maxValueNameSize {
      fault = "the name '\(name.prefix(80))…' has \(name.utf8.count) bytes of UTF-8"
    } else if name.hasNUL {
      fault = "the name '\(String(name.prefix(80)).withoutNUL)' contains a NUL (U+0000)"
    } else {
      return
    }
    throw StepError(.invalidName, name, "\(fault); give a name of 1 to 1,000 bytes without a NUL")
  }

  /// Calls the body; if it throws, the attempt may use the name again.
  func releasingNameOnError<Value>(
    _ stored: String,
    _ body: () async throws -> Value
  ) async throws -> Value {
    do {
      return try await body()
    } catch {
      memory.with(number) { $0.markUnused(stored) }
      throw error
    }
  }

  private func checkHandlerIsRunning(using name: String) throws {
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

  /// Throws if it is decided that the task will be suspended, parked or released when the attempt
  /// ends.
  func checkIsNotSuspended() throws {
    switch memory.with(number, { $0.ending }) {
    case .suspended?: throw TaskSuspended()
    case .parked?, .released?: throw CancellationError()
    case nil: break
    }
  }

  private func loadOnce() async throws {
    guard memory.with(number, { $0.stored == nil }) else { return }
    guard record.memorySize > 0 else { return memory.with(number) { $0.setLoaded(TaskMemory()) } }
    let stored = try await loadMemory()
    memory.with(number) { $0.setLoaded(stored) }
  }

  func loadMemory() async throws -> TaskMemory {
    do {
      return try await queue.store.memory(of: id)
    } catch let error as TaskQueueError where error.code == .unopenedPayload {
      throw parkAtEnd(after: error)
    } catch {
      throw releaseAtEnd(after: error, operation: "read a task's memory")
    }
  }

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
      // Another queue has claimed the task, so the store accepts no more results of this attempt.
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

  func encoded(_ value: some Encodable, _ name: String) throws -> [UInt8] {
    do {
      return try MemoryCoding.encode(value)
    } catch {
      // The message may become the task's last error, so it must not contain the value.
      let problem =
        switch error {
        case EncodingError.invalidValue(let part, let context):
          "the \(type(of: part)) in \(context.codingPath.shownPath) can't be written as JSON"
        default: "\(type(of: error)) was thrown"
        }
      throw StepError(.notEncodable, name, "the value of '\(name)' can't be encoded: \(problem)")
    }
  }

  /// Decodes a value from the task's memory; if that fails, the task will be parked.
  ///
  /// `type` is the type that the error names as the expected one.
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

  /// Decides that the task is parked when the attempt ends, and returns the error to throw.
  func parkAtEnd(after error: any Error) -> any Error {
    memory.with(number) { $0.decideEnding(.parked(reason: "\(error)")) }
    return error
  }

  /// Stops the queue because its store has failed, decides that the task is released when the
  /// attempt ends, and returns the error to throw.
  func releaseAtEnd(after error: any Error, operation: String) -> any Error {
    queue.dispatch.fail(error, to: operation)
    memory.with(number) { $0.decideEnding(.released) }
    return CancellationError()
  }

  /// Decides that the task is suspended when the attempt ends, and returns the error to throw.
  ///
  /// `names` are the names of the outcomes that the task awaits. If `end` is `nil`, only a
  /// completion wakes the task.
  func suspend(until end: WaitEnd?, awaiting names: [String] = []) -> TaskSuspended {
    let date = end?.date ?? .distantFuture
    memory.with(number) {
      $0.decideEnding(.suspended(until: date, awaiting: names, countedFrom: end?.countedFrom))
    }
    return TaskSuspended()
  }
}

/// The error for a value in a task's memory that does not have the expected type.
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

/// Encodes values for a task's memory as JSON, and decodes them.
enum MemoryCoding {
  static func encode(_ value: some Encodable) throws -> [UInt8] {
    try StableJSON.encode(value)
  }

  static func decode<Value: Decodable>(_ type: Value.Type, from bytes: [UInt8]) throws -> Value {
    try JSONDecoder().decode(type, from: Data(bytes))
  }
}

/// An attempt's copy of its task's memory: the bytes that the task has stored under names.
///
/// It also contains the attempt's decision about the task's next state.
struct AttemptMemory: Sendable {
  /// What happens to the task when the attempt ends, whatever its handler returns or throws.
  enum Ending: Sendable, Equatable {
    /// `countedFrom` is the clock's date when `until` was calculated from a duration; `nil` if the
    /// handler chose the date.
    case suspended(until: Date, awaiting: [String], countedFrom: Date?)
    /// A value in the memory can't be decoded or decrypted.
    case parked(reason: String)
    /// The store failed to read or write the task's memory.
    case released
  }

  let number: AttemptNumber
  /// The task's memory; `nil` until it is loaded.
  private(set) var stored: TaskMemory?
  /// The names that this attempt has used; they are equal only if their bytes are.
  private var used: Set<ExactText> = []
  /// Whether the attempt has added to the task's memory.
  private(set) var hasProgressed = false
  private(set) var ending: Ending?
  /// The latest checkpoint; `nil` if it is stored, is being stored, or does not exist.
  private(set) var unsaved: [UInt8]?
  /// The time on the queue's stopwatch when a checkpoint was last stored.
  private var savedAt: Duration?
  /// Whether a checkpoint is being stored.
  private(set) var isSaving = false

  init(of number: AttemptNumber) { self.number = number }

  /// The bytes under a name; `nil` if there are none, or if the memory is not loaded.
  subscript(name: String) -> [UInt8]? { stored?[name] }

  /// Sets the memory to what the store has returned, unless it is already loaded: then the attempt
  /// may have changed it since.
  mutating func setLoaded(_ memory: TaskMemory) { if stored == nil { stored = memory } }

  /// Sets the value under one name to that in a memory that was read from the store later.
  ///
  /// This is for the outcomes of completions: not only the attempt, but other callers store them.
  mutating func refresh(_ name: String, from memory: TaskMemory) { stored?[name] = memory[name] }

  /// Marks a name as used.
  ///
  /// - Returns: `false` if the name is already marked.
  mutating func markUsed(_ name: String) -> Bool { used.insert(ExactText(name)).inserted }

  /// Marks a name as not used: nothing was stored under it.
  mutating func markUnused(_ name: String) { used.remove(ExactText(name)) }

  /// Marks all names as not used, because the handler is called again in the same attempt.
  mutating func reuseNames() { used = [] }

  /// Records that a value was stored under a name.
  mutating func recordStored(_ value: [UInt8], under name: String) {
    // While a checkpoint was being stored, the handler may have saved a later one.
    if name != MemoryName.checkpoint { stored?[name] = value }
    hasProgressed = true
  }

  /// Returns the size that the memory would have with this value under a name.
  func size(with value: [UInt8], under name: String) -> Int {
    let old = self[name].map { name.utf8.count + $0.count } ?? 0
    return (stored?.size ?? 0) - old + name.utf8.count + value.count
  }

  /// Decides what happens to the task when the attempt ends.
  ///
  /// The first decision counts, except that several suspensions are merged.
  mutating func decideEnding(_ ending: Ending) {
    // Several Swift tasks of a handler may suspend the task. It then awaits all of their
    // completions, until the earliest of their dates. `countedFrom` is the latest of theirs: if the
    // clock was ahead for any of them, the task wakes early, and the handler calculates the date
    // again.
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

  /// The minimum time between two stored checkpoints, unless one must be stored at once.
  private static let savingInterval = Duration.seconds(1)

  /// Sets the latest checkpoint, which is not stored yet.
  mutating func save(_ value: [UInt8]) {
    unsaved = value
    stored?[MemoryName.checkpoint] = value
    hasProgressed = true
  }

  /// Returns the checkpoint to store now; `nil` if there is none, or if another one is being
  /// stored.
  ///
  /// If `isDue`, the checkpoint is stored even if another one was stored a moment ago. If `again`,
  /// it is stored even if it is already stored.
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

/// The ``AttemptMemory`` of a worker's current attempt.
///
/// A worker uses this object for all its attempts, one after another. So an attempt whose handler
/// does not use the memory costs only one atomic read.
final class WorkerMemory: Sendable {
  private let state = Mutex<AttemptMemory?>(nil)
  private let isUsed = Atomic(false)
  /// Callers that wait until a checkpoint is stored.
  private let savingWaiters = Waiters<Void>()

  /// Calls the body with the memory of an attempt, which is empty at first.
  ///
  /// A handler may use its context after its attempt has ended. The body then gets an empty memory,
  /// and does not change the memory of the worker's current attempt.
  func with<Result>(
    _ number: AttemptNumber,
    _ body: (inout sending AttemptMemory) throws -> sending Result
  ) rethrows -> Result {
    try state.withLock { state in
      if let current = state?.number, current > number {
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

  /// Whether the current attempt has used its memory.
  var isInUse: Bool { isUsed.load(ordering: .relaxed) }

  /// Removes and returns the memory of an attempt that has ended; `nil` if the attempt has not used
  /// it.
  func take(_ number: AttemptNumber) -> AttemptMemory? {
    guard isInUse else { return nil }
    return state.withLock { state in
      isUsed.store(false, ordering: .relaxed)
      defer { state = nil }
      return state?.number == number ? state : nil
    }
  }

  /// Records whether a checkpoint was stored, and resumes the callers that wait for this.
  func endSaving(_ number: AttemptNumber, _ value: [UInt8], at time: Duration, isStored: Bool) {
    with(number) { $0.endSaving(value, at: time, isStored: isStored) }
    savingWaiters.resumeAll(with: .success(()))
  }

  /// Waits until no checkpoint of an attempt is being stored.
  func waitWhileSaving(inAttempt number: AttemptNumber) async {
    await savingWaiters.waitUncancelled {
      state.withLock { $0?.number == number && $0?.isSaving == true } ? nil : ()
    }
  }
}

/// Makes the names under which a task's memory contains values.
///
/// Each name begins with what it is for, so that a step and a sleep with the same name don't
/// conflict.
enum MemoryName {
  static let checkpoint = "checkpoint"

  /// The name for the value of a step.
  static func step(_ name: String) -> String { stepPrefix + name }
  /// The name of the mark that is stored before a step starts that must not be repeated.
  static func intent(_ name: String) -> String { "intent:\(name)" }
  /// The name for the date of a sleep.
  static func sleep(_ name: String) -> String { "sleep:\(name)" }
  /// The name for the token and the deadline of a completion (``OpenCompletion``).
  static func completion(_ name: String) -> String { completionPrefix + name }
  /// The name of the mark that is stored after the body of a completion has returned.
  static func handedOut(_ name: String) -> String { "opened:\(name)" }
  /// The name for the outcome of a completion, whose value is empty until the completion arrives.
  static func outcome(_ token: TaskToken) -> String { "outcome:\(token.secretText)" }

  static let stepPrefix = "step:"
  static let completionPrefix = "completion:"

  /// The value under the name ``intent(_:)``.
  static let begun = Array("true".utf8)

  /// Returns the part of a name after a prefix; `nil` if the name does not start with the prefix.
  ///
  /// The comparison is by bytes: if a combining character follows the prefix, Swift considers it
  /// and the prefix's last character as one other character.
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
