import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

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
    guard !queue.machine.withLock({ $0.holds(number, worker) }) else { return }
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
      outcomes = try await queue.persistInAttempt(changes, durability)
    } catch {
      throw release(error, "keep what a task remembers")
    }
    guard outcomes.allSatisfy(\.isDone) else {
      // Another queue has the task. What this attempt does is not stored any more.
      queue.lost(lease)
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
    queue.fail(error, to: operation)
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
