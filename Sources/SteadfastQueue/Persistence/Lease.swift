/// Proof of a claim: a store changes a claimed task for nobody else.
public struct Lease: Sendable, Hashable {
  /// The task that was claimed.
  public let id: TaskID
  /// What tells this claim of the task from earlier and later ones.
  public let token: UInt64

  /// Makes a lease; a store does.
  public init(id: TaskID, token: UInt64) {
    self.id = id
    self.token = token
  }
}
