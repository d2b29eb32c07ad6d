/// A change that was checked, and holds what it needs until it is committed or rolled back.
struct StagedChange: Sendable {
  let outcome: ChangeOutcome
  /// What the commit does; `nil` if the change has no effect, and is not to be written.
  private(set) var effect: Effect?
  /// Whether, because of this change, no change of the batch is written either.
  private(set) var refusesBatch = false
  /// Whether the outcome rests on changes that are staged, and may be another one once they are
  /// committed.
  private(set) var isUncertain = false

  /// What the commit of a change does.
  enum Effect: Sendable {
    /// Lines up a new task, which is in the table already.
    ///
    /// If it is a successor, it becomes the holder if there is none any more. The `displaced` tasks
    /// have expired, and lose their roles for its unique key.
    case insertion(slot: Int, isSuccessor: Bool = false, displaced: [Int] = [])
    /// Gives the task of a slot what a new one has, which has the same unique key.
    indirect case replacement(TaskRecord, slot: Int)
    /// Removes a task whose attempt has failed, and puts its successor in its place.
    case supersession(TaskChange, slot: Int, successor: Int)
    /// Changes the task of a slot.
    case change(TaskChange, slot: Int)
    /// Changes what a task remembers, and holds nothing until then.
    case memory(TaskChange)
    /// Changes no task, or several.
    case broadChange(TaskChange)
    /// Sets the value of this name, which may take more bytes than the one before.
    case value(named: String, grows: Bool)
  }

  init(_ effect: Effect, outcome: ChangeOutcome = .done) {
    self.effect = effect
    self.outcome = outcome
  }

  private init(
    withoutEffect outcome: ChangeOutcome,
    refusesBatch: Bool,
    isUncertain: Bool = false
  ) {
    self.outcome = outcome
    self.refusesBatch = refusesBatch
    self.isUncertain = isUncertain
  }

  /// A change that comes too late.
  static let stale = StagedChange(withoutEffect: .stale, refusesBatch: false)

  /// A change of a value that is not the one that the change names.
  static let valueDiffers = StagedChange(withoutEffect: .valueDiffers, refusesBatch: true)

  /// An insertion whose ID another task has.
  static let identityTaken = StagedChange(withoutEffect: .identityTaken, refusesBatch: true)

  /// An insertion that was sent before, and whose task is in the table.
  static let sentBefore = StagedChange(withoutEffect: .done, refusesBatch: false)

  /// An insertion of a task that would wait for another one without end.
  ///
  /// It is not certain if that depends on a change that is staged.
  static func unmet(_ dependency: TaskID, isCertain: Bool) -> StagedChange {
    StagedChange(
      withoutEffect: .unmetDependency(dependency),
      refusesBatch: true,
      isUncertain: !isCertain
    )
  }

  /// An insertion, or a restart, that another task with its unique key prevents.
  ///
  /// If the policy is to reject it, no change of the batch is written.
  static func duplicate(of twin: TaskID, _ policy: UniquePolicy) -> StagedChange {
    StagedChange(withoutEffect: .duplicate(of: twin), refusesBatch: policy == .reject)
  }

  /// Whether the change is to be written, and then committed.
  var isKept: Bool { effect != nil }

  /// The result of a change whose batch was refused.
  func refused() -> StagedChange {
    let isStored = isKept || outcome == .done
    return StagedChange(
      withoutEffect: isStored ? .batchRefused : outcome,
      refusesBatch: refusesBatch,
      isUncertain: isUncertain
    )
  }
}
