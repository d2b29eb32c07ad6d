/// What a ``WritePipeline`` must know of the lines of a call.
protocol PipelineItem: Sendable {
  /// Whether the lines only say that attempts have begun.
  ///
  /// They must outlast the process, so that they are written. They need no flush.
  var isClaim: Bool { get }
  /// Whether the call returns only when the lines are flushed.
  var needsFlush: Bool { get }
}

/// Which lines wait, are written, are flushed and are stored.
///
/// This is a value: it decides, and its owner writes and flushes. One thread does what touches the
/// file, except a flush: while one is under way, other jobs go on. Claims are written during it,
/// and changes gather. When it has ended, these changes are written and flushed together, at once.
///
/// A change goes through up to three lists, in the order of the file: `pending`, `written` and
/// `flushing`. When its flush has ended, nothing can take it back, and its caller is resumed. A
/// claim is done when it is written.
struct WritePipeline<Item: PipelineItem, Job: Sendable>: Sendable {
  /// What the thread does, or is about to do.
  enum Stage: Sendable, Equatable {
    case idle
    /// It writes what is pending.
    case writing
    /// Written changes are flushed. Changes gather.
    case flushing
    /// Written changes are flushed, and claims are written.
    case writingBesideFlush
  }

  private(set) var stage = Stage.idle
  /// The items that are to be written.
  private(set) var pending: [Item] = []
  /// The changes that were written and are still to be flushed.
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

  /// Whether a change may be on its way into the file.
  var hasChanges: Bool { stage != .idle || !pending.isEmpty }

  private var isWriting: Bool {
    switch stage {
    case .idle, .flushing: false
    case .writing, .writingBesideFlush: true
    }
  }

  private mutating func set(isWriting: Bool, isFlushing: Bool) {
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
  /// - Returns: Whether a write is to be scheduled.
  mutating func submit(_ item: Item) -> Bool {
    pending.append(item)
    // Changes wait for the flush that is under way, even if they are written during it. So they
    // gather, and are written together. Claims need no flush.
    guard !isWriting, !isFlushing || item.isClaim else { return false }
    set(isWriting: true, isFlushing: isFlushing)
    return true
  }

  /// Takes all pending items, to write them.
  ///
  /// - Parameter job: what is to be done when nothing is being flushed, if that must come first.
  /// - Returns: The items; `nil` if there are none, or if the job was postponed.
  mutating func takePending(orPostpone job: Job) -> [Item]? {
    guard !pending.isEmpty else {
      set(isWriting: false, isFlushing: isFlushing)
      return nil
    }
    // The jobs that wait for the end of the flushing come first: without a pause in the writes, the
    // flushing might never end.
    if !postponed.isEmpty, postponeWhileFlushing(job) { return nil }
    defer { pending = [] }
    return pending
  }

  /// Takes the pending claims, to write them before the pending changes.
  ///
  /// No claim depends on a pending change: what is claimed is committed.
  ///
  /// - Returns: The claims; `nil` if there are none, or if other jobs come first.
  mutating func takeClaims() -> [Item]? {
    guard postponed.isEmpty else { return nil }
    let claims = pending.filter(\.isClaim)
    if claims.count == pending.count { pending = [] } else { pending.removeAll(where: \.isClaim) }
    return claims.isEmpty ? nil : claims
  }

  /// What to do after a write.
  enum AfterWriting: Equatable {
    /// The changes wait for no flush: commit them, and answer their callers.
    case commit
    /// A flush is under way. The next one flushes what was just written.
    case wait
    case flush
  }

  /// Takes note of changes that were written.
  ///
  /// - Parameters:
  ///   - changes: what was written, in the order of the file.
  ///   - mustFlush: whether a change that needs a flush gets one at once.
  /// - Returns: What to do next.
  mutating func wrote(_ changes: [Item], mustFlush: Bool) -> AfterWriting {
    // Changes are committed in the order of the file, so one that needs no flush waits for earlier
    // ones.
    let isFlushing = isFlushing
    guard isFlushing || mustFlush && changes.contains(where: \.needsFlush) else { return .commit }
    written += changes
    set(isWriting: isWriting, isFlushing: true)
    return isFlushing ? .wait : .flush
  }

  /// Decides whether to write again what has gathered.
  ///
  /// During a flush, that is so only if tasks were claimed.
  ///
  /// - Returns: Whether a write is to be scheduled.
  mutating func writeAgain() -> Bool {
    let isWriting = isFlushing ? pending.contains(where: \.isClaim) : !pending.isEmpty
    set(isWriting: isWriting, isFlushing: isFlushing)
    return isWriting
  }

  // MARK: Flushing

  /// Takes the written changes, to flush them.
  ///
  /// - Returns: Whether there are any. If not, the flushing is over.
  mutating func beginFlush() -> Bool {
    flushing = written
    written = []
    set(isWriting: isWriting, isFlushing: !flushing.isEmpty)
    return isFlushing
  }

  /// What a flush that has ended leaves to do.
  struct FlushEnd {
    /// The changes to commit, whose callers are resumed then.
    let flushed: [Item]
    /// Whether there is more to flush, written or not.
    let goesOn: Bool
  }

  /// Takes note that the changes of ``beginFlush()`` are on the disk.
  mutating func endFlush() -> FlushEnd {
    defer { flushing = [] }
    return FlushEnd(flushed: flushing, goesOn: !written.isEmpty || !pending.isEmpty)
  }

  /// Takes the jobs that were postponed, when nothing is being flushed any more.
  ///
  /// - Returns: The jobs, and whether a write is to be scheduled.
  mutating func endFlushing() -> (jobs: [Job], writes: Bool) {
    defer { postponed = [] }
    let hasGathered = !pending.isEmpty && !isWriting
    if hasGathered { set(isWriting: true, isFlushing: isFlushing) }
    return (postponed, hasGathered)
  }

  /// Postpones a job if something is being flushed, until nothing is.
  ///
  /// - Returns: Whether something is being flushed.
  mutating func postponeWhileFlushing(_ job: Job) -> Bool {
    if isFlushing { postponed.append(job) }
    return isFlushing
  }

  // MARK: Delayed flushes

  /// Decides whether to schedule a flush for the end of the interval.
  ///
  /// - Returns: `false` if one is scheduled already.
  mutating func scheduleFlush() -> Bool {
    defer { hasDelayedFlush = true }
    return !hasDelayedFlush
  }

  /// Takes note that the interval is over.
  mutating func beginDelayedFlush() { hasDelayedFlush = false }

  // MARK: Failing

  /// Takes the items that a failed write or flush leaves without effect, to roll them back.
  ///
  /// A pending change may rest on one that has failed, so all that is pending fails too. What was
  /// written before fails only if the file can't be used any more.
  ///
  /// - Parameters:
  ///   - group: the items whose write has failed.
  ///   - isPoisoned: whether the file can't be used any more.
  /// - Returns: The items in the order of the file. They are to be rolled back in reverse.
  mutating func fail(_ group: [Item], isPoisoned: Bool) -> [Item] {
    defer { pending = [] }
    guard isPoisoned else { return group + pending }
    defer {
      flushing = []
      written = []
      set(isWriting: isWriting, isFlushing: false)
    }
    return flushing + written + group + pending
  }
}
