/// The lines of one call, as a ``WritePipeline`` treats them.
protocol PipelineItem: Sendable {
  /// Whether the lines only record that attempts start.
  ///
  /// Such lines must survive a crash of the process, but not a power cut. So they are written, but
  /// need no flush.
  var isClaim: Bool { get }
  /// Whether the lines must be flushed before the call returns.
  var needsFlush: Bool { get }
}

/// The calls whose lines are waiting to be written, being written, or being flushed.
///
/// The pipeline only decides what to do next: its owner writes and flushes. An item is the lines of
/// one call: a claim, or changes. During a flush, new claims are written, and new changes wait.
/// After the flush, these changes are written and flushed together.
///
/// An item of changes moves from `pending` to `written` and to `flushing`. After its flush, it can
/// no longer be rolled back. A claim is removed when it is written.
struct WritePipeline<Item: PipelineItem, Job: Sendable>: Sendable {
  /// What is being done, or is scheduled to be done.
  enum Stage: Sendable, Equatable {
    case idle
    /// Items are being written, or a write is scheduled.
    case writing
    /// Changes are being flushed.
    case flushing
    /// Changes are being flushed and, at the same time, claims are being written.
    case writingBesideFlush
  }

  private(set) var stage = Stage.idle
  /// The items that were not written yet.
  private(set) var pending: [Item] = []
  /// The changes that were written, and whose flush has not started.
  private(set) var written: [Item] = []
  /// The changes that are being flushed.
  private(set) var flushing: [Item] = []
  /// The jobs that wait until nothing is being flushed.
  private var postponed: [Job] = []
  /// Whether a flush at the end of the interval is scheduled.
  private var hasDelayedFlush = false

  var isFlushing: Bool {
    switch stage {
    case .idle, .writing: false
    case .flushing, .writingBesideFlush: true
    }
  }

  /// Whether there may be changes that are not stored yet.
  var hasChanges: Bool { stage != .idle || !pending.isEmpty }

  private var isWriting: Bool {
    switch stage {
    case .idle, .flushing: false
    case .writing, .writingBesideFlush: true
    }
  }

  private mutating func setStage(isWriting: Bool, isFlushing: Bool) {
    stage =
      switch (isWriting, isFlushing) {
      case (false, false): .idle
      case (true, false): .writing
      case (false, true): .flushing
      case (true, true): .writingBesideFlush
      }
  }

  // MARK: Writing

  /// Adds an item.
  ///
  /// - Returns: Whether to schedule a write.
  mutating func submit(_ item: Item) -> Bool {
    pending.append(item)
    // During a flush, only claims are written. Changes would have to wait for the next flush
    // anyway, so they are collected and written together after the current flush.
    guard !isWriting, !isFlushing || item.isClaim else { return false }
    setStage(isWriting: true, isFlushing: isFlushing)
    return true
  }

  /// Removes and returns all pending items, to write them.
  ///
  /// - Parameter job: The job that would write the items. If other jobs wait for the end of a
  ///   flush, this job is postponed until after them.
  /// - Returns: The items; `nil` if there are none, or the job was postponed.
  mutating func takePending(orPostpone job: Job) -> [Item]? {
    guard !pending.isEmpty else {
      setStage(isWriting: false, isFlushing: isFlushing)
      return nil
    }
    // Without this, new writes could cause new flushes forever, and the postponed jobs would never
    // run.
    if !postponed.isEmpty, postponeIfFlushing(job) { return nil }
    defer { pending = [] }
    return pending
  }

  /// Removes and returns the pending claims, to write them before changes that are also pending.
  ///
  /// A claim never depends on a pending change, because only tasks whose insertion is stored are
  /// claimed.
  ///
  /// - Returns: The claims; `nil` if there are none, or other jobs wait for the end of a flush.
  mutating func takePendingClaims() -> [Item]? {
    guard postponed.isEmpty else { return nil }
    let claims = pending.filter(\.isClaim)
    if claims.count == pending.count { pending = [] } else { pending.removeAll(where: \.isClaim) }
    return claims.isEmpty ? nil : claims
  }

  /// The next step after a write.
  enum AfterWriting: Equatable {
    /// Commit the changes and resume their callers: no flush is needed.
    case commit
    /// Wait for the current flush. The next flush covers the changes that were just written.
    case wait
    case flush
  }

  /// Records changes that were written.
  ///
  /// - Parameters:
  ///   - changes: The changes, in the order of their lines in the file.
  ///   - mustFlush: Whether to flush at once if any of the changes needs it.
  /// - Returns: The next step.
  mutating func recordWrite(of changes: [Item], mustFlush: Bool) -> AfterWriting {
    // Changes are committed in the order of their lines, so even a change that needs no flush waits
    // for earlier changes that are being flushed.
    let isFlushing = isFlushing
    guard isFlushing || mustFlush && changes.contains(where: \.needsFlush) else { return .commit }
    written += changes
    setStage(isWriting: isWriting, isFlushing: true)
    return isFlushing ? .wait : .flush
  }

  /// Ends a write, and decides whether another write must follow.
  ///
  /// Another write follows if items are pending; during a flush, only if claims are pending.
  ///
  /// - Returns: Whether to schedule a write.
  mutating func beginNextWrite() -> Bool {
    let isWriting = isFlushing ? pending.contains(where: \.isClaim) : !pending.isEmpty
    setStage(isWriting: isWriting, isFlushing: isFlushing)
    return isWriting
  }

  // MARK: Flushing

  /// Moves the written changes to `flushing`, because a flush starts.
  ///
  /// - Returns: Whether there are any changes to flush.
  mutating func beginFlush() -> Bool {
    flushing = written
    written = []
    setStage(isWriting: isWriting, isFlushing: !flushing.isEmpty)
    return isFlushing
  }

  /// What remains to be done after a flush.
  struct FlushEnd {
    /// The flushed changes: commit them, and resume their callers.
    let flushed: [Item]
    /// Whether there are other changes, which must be flushed, or written and flushed.
    let hasMoreToFlush: Bool
  }

  /// Records that the flush which ``beginFlush()`` started has succeeded.
  mutating func endFlush() -> FlushEnd {
    defer { flushing = [] }
    return FlushEnd(flushed: flushing, hasMoreToFlush: !written.isEmpty || !pending.isEmpty)
  }

  /// Removes and returns the jobs that were postponed until the end of a flush.
  ///
  /// - Returns: The jobs, and whether to schedule a write after them.
  mutating func takePostponedJobs() -> (jobs: [Job], writes: Bool) {
    defer { postponed = [] }
    let mustWrite = !pending.isEmpty && !isWriting
    if mustWrite { setStage(isWriting: true, isFlushing: isFlushing) }
    return (postponed, mustWrite)
  }

  /// Postpones a job until the end of the flush, if changes are being flushed.
  ///
  /// - Returns: Whether the job was postponed.
  mutating func postponeIfFlushing(_ job: Job) -> Bool {
    if isFlushing { postponed.append(job) }
    return isFlushing
  }

  // MARK: Delayed flushes

  /// Records that a flush at the end of the interval is scheduled.
  ///
  /// - Returns: Whether to schedule it: `false` if a flush is already scheduled.
  mutating func scheduleDelayedFlush() -> Bool {
    defer { hasDelayedFlush = true }
    return !hasDelayedFlush
  }

  /// Records that the interval is over, so that a later change schedules a flush again.
  mutating func beginDelayedFlush() { hasDelayedFlush = false }

  // MARK: Failing

  /// Removes and returns the items that a failed write or flush affects, to roll them back.
  ///
  /// All pending items fail too, because they may depend on a failed one. Changes that were written
  /// earlier fail only if the file is no longer usable.
  ///
  /// - Parameters:
  ///   - group: The items whose write has failed; none if a flush has failed.
  ///   - isPoisoned: Whether the file is no longer usable.
  /// - Returns: The items, in the order of their lines. Roll them back in reverse order.
  mutating func takeFailed(_ group: [Item], isPoisoned: Bool) -> [Item] {
    defer { pending = [] }
    guard isPoisoned else { return group + pending }
    defer {
      flushing = []
      written = []
      setStage(isWriting: isWriting, isFlushing: false)
    }
    return flushing + written + group + pending
  }
}
