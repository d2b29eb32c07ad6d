/// The properties of a call's lines that a ``WritePipeline`` needs.
protocol PipelineItem: Sendable {
  /// Whether the lines only record the start of attempts.
  ///
  /// They must survive the end of the process, so they are written. They need no flush.
  var isClaim: Bool { get }
  /// Whether the call returns only after the lines are flushed.
  var needsFlush: Bool { get }
}

/// The lines that are pending, being written, being flushed, or stored.
///
/// This is a value: it decides, and its owner writes and flushes. One thread performs all jobs that
/// touch the file, except flushes. During a flush, other jobs continue: claims are written, and
/// changes wait. After the flush, these changes are written and flushed together, at once.
///
/// A change moves through up to three lists, in the order of the file: `pending`, `written` and
/// `flushing`. After its flush, it can't be rolled back, and its caller is resumed. A claim is done
/// when it is written.
struct WritePipeline<Item: PipelineItem, Job: Sendable>: Sendable {
  /// The present or next work of the thread.
  enum Stage: Sendable, Equatable {
    case idle
    /// Pending lines are being written.
    case writing
    /// Written changes are being flushed. New changes wait.
    case flushing
    /// Written changes are being flushed, and claims are being written.
    case writingBesideFlush
  }

  private(set) var stage = Stage.idle
  /// The items to write.
  private(set) var pending: [Item] = []
  /// The changes that were written but not flushed yet.
  private(set) var written: [Item] = []
  /// The changes that are being flushed.
  private(set) var flushing: [Item] = []
  /// The jobs that wait until nothing is being flushed.
  private var postponed: [Job] = []
  /// Whether a flush is scheduled for the end of an interval.
  private var hasDelayedFlush = false

  var isFlushing: Bool {
    switch stage {
    case .idle, .writing: false
    case .flushing, .writingBesideFlush: true
    }
  }

  /// Whether a change may be on its way to the file.
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
    // Changes wait for the present flush, even if they are written during it. So they are
    // collected, and written together. Claims need no flush.
    guard !isWriting, !isFlushing || item.isClaim else { return false }
    setStage(isWriting: true, isFlushing: isFlushing)
    return true
  }

  /// Removes and returns all pending items, to write them.
  ///
  /// - Parameter job: The job to perform when nothing is being flushed, if postponed jobs must run
  ///   first.
  /// - Returns: The items; `nil` if there are none, or if the job was postponed.
  mutating func takePending(orPostpone job: Job) -> [Item]? {
    guard !pending.isEmpty else {
      setStage(isWriting: false, isFlushing: isFlushing)
      return nil
    }
    // The postponed jobs come first: if writing never paused, flushing might never end.
    if !postponed.isEmpty, postponeIfFlushing(job) { return nil }
    defer { pending = [] }
    return pending
  }

  /// Removes and returns the pending claims, to write them before the pending changes.
  ///
  /// No claim depends on a pending change, because claimed tasks are committed.
  ///
  /// - Returns: The claims; `nil` if there are none, or if other jobs come first.
  mutating func takePendingClaims() -> [Item]? {
    guard postponed.isEmpty else { return nil }
    let claims = pending.filter(\.isClaim)
    if claims.count == pending.count { pending = [] } else { pending.removeAll(where: \.isClaim) }
    return claims.isEmpty ? nil : claims
  }

  /// The next step after a write.
  enum AfterWriting: Equatable {
    /// The changes need not wait for a flush: commit them, and resume their callers.
    case commit
    /// A flush is under way. The next flush covers the changes that were just written.
    case wait
    case flush
  }

  /// Records changes that were written.
  ///
  /// - Parameters:
  ///   - changes: The written changes, in the order of the file.
  ///   - mustFlush: Whether a change that needs a flush gets one at once.
  /// - Returns: The next step.
  mutating func recordWrite(of changes: [Item], mustFlush: Bool) -> AfterWriting {
    // Changes are committed in the order of the file, so a change that needs no flush waits for
    // earlier ones.
    let isFlushing = isFlushing
    guard isFlushing || mustFlush && changes.contains(where: \.needsFlush) else { return .commit }
    written += changes
    setStage(isWriting: isWriting, isFlushing: true)
    return isFlushing ? .wait : .flush
  }

  /// Decides whether to write the lines that were queued during the last write.
  ///
  /// During a flush, this happens only if tasks were claimed.
  ///
  /// - Returns: Whether to schedule a write.
  mutating func beginNextWrite() -> Bool {
    let isWriting = isFlushing ? pending.contains(where: \.isClaim) : !pending.isEmpty
    setStage(isWriting: isWriting, isFlushing: isFlushing)
    return isWriting
  }

  // MARK: Flushing

  /// Moves the written changes to `flushing`, to flush them.
  ///
  /// - Returns: Whether there are any. If not, flushing is over.
  mutating func beginFlush() -> Bool {
    flushing = written
    written = []
    setStage(isWriting: isWriting, isFlushing: !flushing.isEmpty)
    return isFlushing
  }

  /// The work that remains after a flush.
  struct FlushEnd {
    /// The changes to commit; then their callers are resumed.
    let flushed: [Item]
    /// Whether other changes must be flushed: written ones, or pending ones.
    let hasMoreToFlush: Bool
  }

  /// Records that the changes of ``beginFlush()`` are on the disk.
  mutating func endFlush() -> FlushEnd {
    defer { flushing = [] }
    return FlushEnd(flushed: flushing, hasMoreToFlush: !written.isEmpty || !pending.isEmpty)
  }

  /// Removes and returns the postponed jobs, when nothing is being flushed anymore.
  ///
  /// - Returns: The jobs, and whether to schedule a write.
  mutating func takePostponedJobs() -> (jobs: [Job], writes: Bool) {
    defer { postponed = [] }
    let mustWrite = !pending.isEmpty && !isWriting
    if mustWrite { setStage(isWriting: true, isFlushing: isFlushing) }
    return (postponed, mustWrite)
  }

  /// If something is being flushed, postpones a job until nothing is.
  ///
  /// - Returns: Whether something is being flushed.
  mutating func postponeIfFlushing(_ job: Job) -> Bool {
    if isFlushing { postponed.append(job) }
    return isFlushing
  }

  // MARK: Delayed flushes

  /// Decides whether to schedule a flush for the end of the interval.
  ///
  /// - Returns: `false` if one is already scheduled.
  mutating func scheduleDelayedFlush() -> Bool {
    defer { hasDelayedFlush = true }
    return !hasDelayedFlush
  }

  /// Records that the interval is over.
  mutating func beginDelayedFlush() { hasDelayedFlush = false }

  // MARK: Failing

  /// Removes and returns the items that a failed write or flush affects, to roll them back.
  ///
  /// A pending change may depend on one that has failed, so all pending changes fail too. Changes
  /// that were written before fail only if the file is no longer usable.
  ///
  /// - Parameters:
  ///   - group: The items whose write has failed.
  ///   - isPoisoned: Whether the file is no longer usable.
  /// - Returns: The items in the order of the file. Roll them back in reverse order.
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
