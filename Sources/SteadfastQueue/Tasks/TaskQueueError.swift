public import SystemFoundation

/// An error that says what a queue could not do, why, and what to do about it.
public struct TaskQueueError: Error, CustomStringConvertible {
  /// The kind of an error.
  ///
  /// More kinds may be added.
  public struct Code: Hashable, Sendable, CustomStringConvertible {
    private let name: String

    private init(_ name: String) { self.name = name }

    /// The code's name, as in `waitsForItself`.
    public var description: String { name }

    /// An argument has a value that is not allowed, such as a negative number of retries.
    public static let invalidArgument = Code("invalidArgument")
    /// Two payload types have the same name, or two queues of a group have the same name.
    public static let nameTaken = Code("nameTaken")
    /// The group has no queue with this name.
    public static let unknownQueue = Code("unknownQueue")
    /// Another task has the unique key of a new task with ``UniquePolicy/reject``, or of a task
    /// that the call would restart.
    public static let duplicate = Code("duplicate")
    /// A dependency is not in the store, or has ended without success.
    public static let unmetDependency = Code("unmetDependency")
    /// `run()` or `runAvailable()` was called although the queue, or another queue on its store, is
    /// already running.
    public static let alreadyRunning = Code("alreadyRunning")
    /// The queue was shut down, and performs no more tasks.
    public static let shutDown = Code("shutDown")
    /// The queue's store failed; ``TaskQueueError/underlying`` is the store's error.
    public static let storeFailed = Code("storeFailed")
    /// The queue and its tasks were destroyed.
    public static let destroyed = Code("destroyed")
    /// A handler called a function that would wait for the end of its own attempt.
    public static let waitsForItself = Code("waitsForItself")
    /// The task's value is not known, or the task did not succeed and has no value.
    public static let noValue = Code("noValue")
    /// The store has no task with this ID.
    public static let unknownTask = Code("unknownTask")
    /// The task is being performed, so it can't be changed.
    public static let isRunning = Code("isRunning")
    /// A task's payload is not of the requested type, or can't be decoded as a value of that type.
    public static let undecodablePayload = Code("undecodablePayload")
    /// A sealed payload could not be opened, or a payload that must be sealed is not
    /// (``PayloadSeal``).
    ///
    /// ``TaskQueueError/underlying`` is the error that the ``PayloadSeal`` threw.
    public static let unopenedPayload = Code("unopenedPayload")
  }

  /// The kind of the error.
  public let code: Code
  /// What is wrong and what to do about it, for a person to read.
  public let message: String
  /// The error of the store or of the ``PayloadSeal`` that caused this error; `nil` if there is
  /// none.
  ///
  /// It is the store's error if the code is ``Code/storeFailed``, and the seal's error if the code
  /// is ``Code/unopenedPayload``.
  public let underlying: (any Error)?

  init(_ code: Code, _ message: String, underlying: (any Error)? = nil) {
    self.code = code
    self.message = message
    self.underlying = underlying
  }

  /// The message.
  public var description: String { message }
}

extension TaskQueueError: LocalizedError {
  /// The message.
  public var errorDescription: String? { message }
}

/// Checks the values of a change, more or less strictly.
///
/// Each check throws an error that contains the given name of the value.
struct ValueChecker {
  /// Checks that the values are valid, and that every store can store them.
  static let storable = ValueChecker(checksStorability: true)
  /// Checks only that the values are valid, as for a file that an earlier version wrote.
  static let readable = ValueChecker(checksStorability: false)

  private let checksStorability: Bool

  func check(_ date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    try TaskQueueError.check(date, name())
    if checksStorability { try TaskQueueError.check(storable: date, name()) }
  }

  func check(_ duration: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    if checksStorability { try TaskQueueError.check(storable: duration, name()) }
  }

  func check(timeLimit: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let timeLimit else { return }
    try check(timeLimit, name())
    try TaskQueueError.check(timeLimit: timeLimit, name())
  }

  func check(string: String, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    if checksStorability { try TaskQueueError.check(string: string, name()) }
  }

  func check(strings: Set<String>, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    if checksStorability { try TaskQueueError.check(strings: strings, name()) }
  }

  func check(queue: String) throws(TaskQueueError) {
    if checksStorability { try TaskQueueError.check(queue: queue) }
  }

  func check(_ failure: TaskFailure?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let failure else { return }
    try check(failure.date, "the date of \(name())")
    try check(string: failure.reason, "the text of \(name())")
    if let attempt = failure.attempt { try check(string: attempt.text, "the attempt of \(name())") }
  }

  func check(rememberedUnder name: String, _ value: [UInt8]) throws(TaskQueueError) {
    try TaskQueueError.check(rememberedUnder: name, value)
    try check(string: name, "the name of a value in a task's memory")
  }
}

/// Checks values: each check throws an error, with the given name of the value, if it is invalid.
extension TaskQueueError {
  static func check(_ date: Date?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let seconds = date?.timeIntervalSince1970, !seconds.isFinite else { return }
    throw TaskQueueError(.invalidArgument, "\(name()) is \(seconds); give a finite date")
  }

  static func check(_ limit: RetryLimit, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard case .atMost(let count) = limit, count < 0 else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(count); give 0 or more, or .alwaysRetry for no limit"
    )
  }

  static func check(timeLimit: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError)
  {
    // No store can represent a time limit above 2⁶⁰ s. The message has the lower limit for new
    // tasks.
    guard let timeLimit, timeLimit <= .zero || timeLimit > .seconds(Int64(1) << 60) else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is \(timeLimit); give more than zero and at most 100000000000 seconds, or nil "
        + "for no limit"
    )
  }

  static func check(delay: Duration?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    if let delay, delay < .zero {
      throw TaskQueueError(.invalidArgument, "\(name()) is \(delay); give zero or more")
    }
    try check(storable: delay, name())
  }

  static func check(_ count: Int?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard let count, count < 0 else { return }
    throw TaskQueueError(.invalidArgument, "\(name()) is \(count); give 0 or more")
  }

  static func check(key: String?, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    guard key == "" else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) is empty, so unrelated tasks would share it; give nil for no key"
    )
  }

  /// The maximum length of a queue's name, in bytes of UTF-8.
  private static var maxQueueNameLength: Int { 255 }

  /// Checks the name of a queue that is made; unlike a stored name, it may not be empty.
  static func check(nameOfQueue name: String) throws(TaskQueueError) {
    guard !name.isEmpty else {
      throw TaskQueueError(.invalidArgument, "the queue's name is empty; give the queue a name")
    }
    try check(queue: name)
  }

  static func check(queue name: String) throws(TaskQueueError) {
    guard name.utf8.count <= maxQueueNameLength else {
      throw TaskQueueError(
        .invalidArgument,
        "the name '\(name.prefix(80))…' of a queue has \(name.utf8.count) bytes of UTF-8; give at "
          + "most \(maxQueueNameLength)"
      )
    }
    guard !name.utf8.contains(where: { $0 < 0x20 }) else {
      throw TaskQueueError(
        .invalidArgument,
        "the name of a queue contains a control character: \(name.debugDescription); give a name "
          + "without it"
      )
    }
  }

  static func check(dependencies: Set<TaskID>, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    guard dependencies.count > TaskDependencies.mostTasks else { return }
    throw TaskQueueError(
      .invalidArgument,
      "\(name()) has \(dependencies.count) tasks; give at most \(TaskDependencies.mostTasks), or "
        + "enqueue a batch with a follower"
    )
  }

  static func check(_ conditions: Set<TaskCondition>, _ name: @autoclosure () -> String)
    throws(TaskQueueError)
  {
    if conditions.contains("") { throw emptyStringError(in: name()) }
  }

  static func check(_ tags: Set<String>, _ name: @autoclosure () -> String) throws(TaskQueueError) {
    try check(strings: tags, name())
    if tags.contains("") { throw emptyStringError(in: name()) }
  }

  /// The maximum number of keys in a task's metadata.
  private static var maxMetadataKeys: Int { 64 }
  /// The maximum length of the keys and values in a task's metadata, in bytes of UTF-8.
  private static var maxMetadataLength: Int { 4_096 }

  static func check(
    metadata: [String: String],
    _ name: @autoclosure () -> String
  ) throws(TaskQueueError) {
    guard !metadata.isEmpty else { return }
    guard metadata.count <= maxMetadataKeys else {
      throw TaskQueueError(
        .invalidArgument,
        "\(name()) has \(metadata.count) keys; give at most \(maxMetadataKeys)"
      )
    }
    let length = metadata.reduce(0) { $0 + $1.key.utf8.count + $1.value.utf8.count }
    guard length <= maxMetadataLength else {
      throw TaskQueueError(
        .invalidArgument,
        "the keys and values of \(name()) have \(length) bytes of UTF-8; give at most "
          + "\(maxMetadataLength), and store more data in the payload"
      )
    }
    for (key, value) in metadata {
      guard !key.isEmpty else {
        throw TaskQueueError(.invalidArgument, "\(name()) has an empty key; give the key a name")
      }
      try check(string: key, "a key of \(name())")
      try check(string: value, "the value of '\(key)' in \(name())")
    }
  }

  private static func emptyStringError(in name: String) -> TaskQueueError {
    TaskQueueError(.invalidArgument, "\(name) contains an empty string; remove it")
  }
}
