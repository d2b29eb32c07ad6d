import SystemFoundation

/// New tasks that are added in one step, and may wait for each other.
///
/// ``TaskQueue/enqueue(together:)`` hands it to a closure that fills it.
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
  /// A later task can name its ID in its ``TaskOptions/dependencies``. Options that are left out
  /// are taken from the payload and from the queue, as for any new task.
  ///
  /// - Parameters:
  ///   - payload: what the handler is given.
  ///   - uniqueKey: a key of which one task at a time is performed; by default the payload's own.
  ///   - options: the options of the task. ``TaskOptions/onDuplicate`` must not be chosen, or be
  ///     ``UniquePolicy/reject``.
  /// - Returns: the ID that the task will have.
  /// - Throws: a ``TaskQueueError`` if an option makes no sense; what the payload's encoding
  ///   throws.
  @discardableResult
  public mutating func add<Payload: TaskPayload>(
    _ payload: Payload,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> TaskID {
    try add(TaskDraft(payload, uniqueKey, options))
  }

  /// Adds a task that has a name and any JSON.
  ///
  /// - Parameters:
  ///   - name: the name under which its handler is found.
  ///   - payload: what the handler is given; by default `null`.
  ///   - uniqueKey: a key of which one task at a time is performed; by default none.
  ///   - options: the options of the task, as for a task with a payload type.
  /// - Returns: the ID that the task will have.
  /// - Throws: a ``TaskQueueError`` if an option makes no sense; an `EncodingError` for JSON that
  ///   can't be stored.
  @discardableResult
  public mutating func add(
    name: String,
    _ payload: JSONValue = .null,
    uniqueKey: String? = nil,
    options: TaskOptions = TaskOptions()
  ) throws -> TaskID {
    try add(TaskDraft(name, try StoredPayload(payload), uniqueKey, options))
  }

  /// Draws the ID of a task that is added later.
  func nextID() -> TaskID { enqueuer.generators.nextID(at: now) }

  @discardableResult
  mutating func add(
    _ draft: TaskDraft,
    id: TaskID? = nil,
    follower: TaskID? = nil
  ) throws -> TaskID {
    let draft = draft.filled(from: enqueuer.configuration.taskDefaults)
    guard draft.uniqueKey == nil || draft.options.onDuplicate ?? .reject == .reject else {
      throw TaskQueueError(
        .invalidArgument,
        "onDuplicate is given for a task that is added together with others: if another task has "
          + "its unique key, none of them is added; leave it out, or give .reject"
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
