public import SteadfastQueue

/// A task that has not ended, with its payload as a value.
public struct PendingTask<Payload: TaskPayload>: Sendable, Identifiable {
  /// What its handler will be given.
  public let payload: Payload
  /// All else that its store keeps of it: its state, its dates, its priority.
  public let record: TaskRecord

  /// The task's identity.
  public var id: TaskID { record.id }
}

extension PendingTask: Equatable where Payload: Equatable {
  /// Whether both are the same task, with equal payloads.
  public static func == (left: PendingTask, right: PendingTask) -> Bool {
    left.id == right.id && left.payload == right.payload
  }
}
