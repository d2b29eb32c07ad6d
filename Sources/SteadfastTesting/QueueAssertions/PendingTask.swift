public import SteadfastQueue

/// A task that has not ended, with its decoded payload.
public struct PendingTask<Payload: TaskPayload>: Sendable, Identifiable {
  /// The payload that its handler will get.
  public let payload: Payload
  /// The task's record in the store, such as its state, its dates and its priority.
  public let record: TaskRecord

  /// The task's ID.
  public var id: TaskID { record.id }
}

extension PendingTask: Equatable where Payload: Equatable {
  /// Returns whether both are the same task, with equal payloads.
  public static func == (left: PendingTask, right: PendingTask) -> Bool {
    left.id == right.id && left.payload == right.payload
  }
}
