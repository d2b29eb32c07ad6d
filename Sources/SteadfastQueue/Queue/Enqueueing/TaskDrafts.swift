import SystemFoundation

/// New tasks that are added in one step, and may wait for each other.
///
/// ``TaskQueue/enqueue(together:)`` passes a value of this type to a closure that adds the tasks.
public struct TaskDrafts {
  private let enqueuer: Enqueuer
  private let now: Date
  private(set) var records: [TaskRecord] = []

  init(for enqueuer: Enqueuer, at now: Date) {
    self.enqueuer = enqueuer
    self.now = now
  }

  /// Adds a task.
  ///
  /// A later task can name this task's ID in its ``TaskOptions/dependencies``. Options that are
  /// left out come from the payload and from the queue, as for any new task.
  ///
  /// - Parameters:
  ///   - payload: the payload that is passed to the handler.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default the payload's own.
  ///   - options: the options of the task. Leave out ``TaskOptions/onDuplicate``, or set it to
  ///     ``UniquePolicy/reject``.
  /// - Returns: the ID that the task will have.
  /// - Throws: a ``TaskQueueError`` if an option is invalid; what the payload's encoding throws.
  @discardableResult
  public mutating func add<Payload: TaskPayload>(
    _ payload: Payload,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> TaskID {
    try add(NewTask(payload, uniqueKey, options))
  }

  /// Adds a task with a name and any JSON as its payload.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is registered.
  ///   - payload: the JSON that is passed to the handler; by default `null`.
  ///   - uniqueKey: the task's unique key: tasks with the same key are performed one at a time; by
  ///     default none.
  ///   - options: the options of the task. Leave out ``TaskOptions/onDuplicate``, or set it to
  ///     ``UniquePolicy/reject``.
  /// - Returns: the ID that the task will have.
  /// - Throws: a ``TaskQueueError`` if an option is invalid; an `EncodingError` for JSON that
  ///   can't be stored.
  @discardableResult
  public mutating func add(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> TaskID {
    try add(NewTask(name, try StoredPayload(payload), uniqueKey, options))
  }

  /// Generates the ID of a task that is added later.
  func nextID() -> TaskID { enqueuer.generators.nextID(at: now) }

  @discardableResult
  mutating func add(
    _ draft: NewTask,
    id: TaskID? = nil,
    follower: TaskID? = nil
  ) throws -> TaskID {
    let draft = draft.filled(from: enqueuer.configuration.taskDefaults)
    guard draft.uniqueKey == nil || draft.options.onDuplicate ?? .reject == .reject else {
      throw TaskQueueError(
        .invalidArgument,
        "a task that is added together with others has a unique key and another onDuplicate than "
          + ".reject; leave onDuplicate out, or set it to .reject: if the key is in use, none of the "
          + "tasks is added"
      )
    }
    let record = try enqueuer.record(
      of: draft,
      follower: follower,
      id: id ?? nextID(),
      now: now
    )
    records.append(record)
    return record.id
  }
}

@available(*, unavailable)
extension TaskDrafts: Sendable {}
