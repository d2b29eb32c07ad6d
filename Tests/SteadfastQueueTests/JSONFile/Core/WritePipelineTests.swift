import Testing

@testable import SteadfastQueue

/// Tests the effects of each event in each stage of a pipeline.
@Suite struct WritePipelineTests {
  private struct Item: PipelineItem, Equatable, ExpressibleByIntegerLiteral {
    let number: Int
    var isClaim = false
    var needsFlush = true

    init(integerLiteral number: Int) { self.number = number }

    static func claim(_ number: Int) -> Item {
      var item = Item(integerLiteral: number)
      (item.isClaim, item.needsFlush) = (true, false)
      return item
    }

    static func relaxed(_ number: Int) -> Item {
      var item = Item(integerLiteral: number)
      item.needsFlush = false
      return item
    }
  }

  private typealias Pipeline = WritePipeline<Item, String>

  /// Makes a pipeline in a stage.
  ///
  /// In a stage with a flush, item 1 is being flushed, item 2 was written during the flush,
  /// and item 3 is pending.
  private static func pipeline(_ stage: Pipeline.Stage) -> Pipeline {
    var pipeline = Pipeline()
    switch stage {
    case .idle: return pipeline
    case .writing:
      #expect(pipeline.submit(3) == true)
      return pipeline
    case .flushing, .writingBesideFlush: break
    }
    #expect(pipeline.submit(1) == true)
    #expect(pipeline.takePending(orPostpone: "write") == [1])
    #expect(pipeline.recordWrite(of: [1], mustFlush: true) == .flush)
    #expect(pipeline.beginNextWrite() == false)
    #expect(pipeline.beginFlush() == true)
    #expect(pipeline.recordWrite(of: [2], mustFlush: true) == .wait)
    if stage == .flushing {
      #expect(pipeline.submit(3) == false)
    } else {
      #expect(pipeline.submit(.claim(3)) == true)
    }
    return pipeline
  }

  private static let stages: [Pipeline.Stage] = [.idle, .writing, .flushing, .writingBesideFlush]

  @Test(arguments: stages)
  private func `each pipeline that these tests make is in the requested stage`(
    stage: Pipeline.Stage
  ) {
    #expect(Self.pipeline(stage).stage == stage)
  }

  // MARK: Writing

  @Test(arguments: [
    (Pipeline.Stage.idle, false, true, Pipeline.Stage.writing), (.idle, true, true, .writing),
    (.writing, false, false, .writing), (.writing, true, false, .writing),
    (.flushing, false, false, .flushing), (.flushing, true, true, .writingBesideFlush),
    (.writingBesideFlush, false, false, .writingBesideFlush),
    (.writingBesideFlush, true, false, .writingBesideFlush),
  ])
  private func `a new item starts a write, unless a write is scheduled or a flush is running`(
    stage: Pipeline.Stage,
    isClaim: Bool,
    schedules: Bool,
    next: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let item = isClaim ? Item.claim(9) : 9
    #expect(pipeline.submit(item) == schedules)
    #expect(pipeline.stage == next)
    #expect(pipeline.pending.last == item)
  }

  @Test(arguments: zip(stages, [Pipeline.Stage.idle, .idle, .flushing, .flushing]))
  private func `a write ends if it finds no pending item`(
    stage: Pipeline.Stage,
    next: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    _ = pipeline.takePending(orPostpone: "write")
    #expect(pipeline.takePending(orPostpone: "write") == nil)
    #expect(pipeline.stage == next)
    #expect(pipeline.takePostponedJobs().jobs == [])
  }

  @Test(arguments: stages) private func `a write takes all pending items, in order`(
    stage: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let before = pipeline.pending
    _ = pipeline.submit(8)
    _ = pipeline.submit(.claim(9))
    #expect(pipeline.takePending(orPostpone: "write") == before + [8, .claim(9)])
    #expect(pipeline.pending == [])
  }

  @Test(arguments: stages)
  private func `a caller that writes takes the pending claims, but no pending changes`(
    stage: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let changes = pipeline.pending.filter { !$0.isClaim } + [8]
    let claims = pipeline.pending.filter(\.isClaim) + [.claim(7), .claim(9)]
    _ = pipeline.submit(.claim(7))
    _ = pipeline.submit(8)
    _ = pipeline.submit(.claim(9))
    #expect(pipeline.takePendingClaims() == claims)
    #expect(pipeline.pending == changes)
    #expect(pipeline.takePendingClaims() == nil)
    // The changes are written at once or, during a flush, when the flush has ended.
    #expect(pipeline.beginNextWrite() != pipeline.isFlushing)
  }

  @Test func `while a job is postponed until the flushes end, claims wait for the job`() {
    var pipeline = Self.pipeline(.writingBesideFlush)
    #expect(pipeline.postponeIfFlushing("compact") == true)
    #expect(pipeline.takePendingClaims() == nil)
    #expect(pipeline.pending == [.claim(3)])
  }

  @Test(arguments: zip(stages, [false, false, true, true]))
  private func `while a job is postponed until the flushes end, a write waits for the job`(
    stage: Pipeline.Stage,
    isBlocked: Bool
  ) {
    var pipeline = Self.pipeline(stage)
    _ = pipeline.submit(9)
    #expect(pipeline.postponeIfFlushing("compact") == isBlocked)
    #expect((pipeline.takePending(orPostpone: "write") == nil) == isBlocked)
    #expect(pipeline.takePostponedJobs().jobs == (isBlocked ? ["compact", "write"] : []))
  }

  @Test(arguments: [
    (Pipeline.Stage.idle, false, Pipeline.AfterWriting.commit, Pipeline.Stage.idle),
    (.idle, true, .flush, .flushing), (.writing, false, .commit, .writing),
    (.writing, true, .flush, .writingBesideFlush), (.flushing, false, .wait, .flushing),
    (.flushing, true, .wait, .flushing), (.writingBesideFlush, true, .wait, .writingBesideFlush),
  ])
  private func `a written change is committed, starts a flush, or waits for a flush`(
    stage: Pipeline.Stage,
    mustFlush: Bool,
    after: Pipeline.AfterWriting,
    next: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let before = pipeline.written
    #expect(pipeline.recordWrite(of: [8, 9], mustFlush: mustFlush) == after)
    #expect(pipeline.stage == next)
    #expect(pipeline.written == before + (after == .commit ? [] : [8, 9]))
  }

  @Test func `relaxed changes are committed at once, unless an earlier change is being flushed`() {
    var pipeline = Pipeline()
    #expect(pipeline.recordWrite(of: [.relaxed(1)], mustFlush: true) == .commit)
    #expect(pipeline.recordWrite(of: [.relaxed(2), 3], mustFlush: true) == .flush)
    #expect(pipeline.recordWrite(of: [.relaxed(4)], mustFlush: true) == .wait)
    #expect(pipeline.written == [.relaxed(2), 3, .relaxed(4)])
  }

  @Test(arguments: [
    (Pipeline.Stage.idle, Pipeline.Stage.idle), (.writing, .writing), (.flushing, .flushing),
    (.writingBesideFlush, .writingBesideFlush),
  ])
  private func `pending items are written next, or during a flush only if they include a claim`(
    stage: Pipeline.Stage,
    next: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    #expect(pipeline.beginNextWrite() == (stage == .writing || stage == .writingBesideFlush))
    #expect(pipeline.stage == next)
    _ = pipeline.takePending(orPostpone: "write")
    #expect(pipeline.beginNextWrite() == false)
    #expect(pipeline.stage == (pipeline.isFlushing ? .flushing : .idle))
  }

  // MARK: Flushing

  @Test func `a flush covers all written changes, and the next flush follows`() {
    var pipeline = Self.pipeline(.flushing)
    #expect(pipeline.flushing == [1])
    let end = pipeline.endFlush()
    #expect(end.flushed == [1] && end.hasMoreToFlush)
    #expect(pipeline.all == [2, 3])

    #expect(pipeline.beginFlush() == true)
    #expect(pipeline.flushing == [2] && pipeline.written == [])
    let next = pipeline.endFlush()
    #expect(next.flushed == [2] && next.hasMoreToFlush)

    #expect(pipeline.takePending(orPostpone: "write") == [3])
    #expect(pipeline.recordWrite(of: [3], mustFlush: true) == .wait)
    #expect(pipeline.beginFlush() == true)
    let last = pipeline.endFlush()
    #expect(last.flushed == [3] && !last.hasMoreToFlush)
    #expect(pipeline.beginFlush() == false)
    #expect(pipeline.stage == .idle)
    #expect(pipeline.takePostponedJobs() == ([], false))
  }

  @Test(arguments: [false, true])
  func `a write that is scheduled stays scheduled when the flushes end`(
    isScheduled: Bool
  ) {
    var pipeline = Self.pipeline(isScheduled ? .writingBesideFlush : .flushing)
    while pipeline.beginFlush() { _ = pipeline.endFlush() }
    #expect(pipeline.stage == (isScheduled ? .writing : .idle))
    #expect(pipeline.takePostponedJobs() == ([], !isScheduled))
    #expect(pipeline.stage == .writing)
  }

  @Test(arguments: zip(stages, [false, false, true, true]))
  private func `a job is postponed until nothing is being flushed`(
    stage: Pipeline.Stage,
    isPostponed: Bool
  ) {
    var pipeline = Self.pipeline(stage)
    for job in ["close", "verify"] {
      #expect(pipeline.postponeIfFlushing(job) == isPostponed)
    }
    #expect(pipeline.takePostponedJobs().jobs == (isPostponed ? ["close", "verify"] : []))
    #expect(pipeline.takePostponedJobs().jobs == [])
  }

  @Test func `only one flush is scheduled for an interval`() {
    var pipeline = Pipeline()
    #expect(pipeline.scheduleDelayedFlush() == true)
    #expect(pipeline.scheduleDelayedFlush() == false)
    pipeline.beginDelayedFlush()
    #expect(pipeline.scheduleDelayedFlush() == true)
  }

  // MARK: Failing

  @Test(arguments: stages)
  private func `a failed write fails the pending items, but not the items already written`(
    stage: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let (pending, rest) = (pipeline.pending, pipeline.flushing + pipeline.written)
    #expect(pipeline.takeFailed([8, 9], isPoisoned: false) == [8, 9] + pending)
    #expect(pipeline.all == rest)
    #expect(pipeline.stage == stage)
  }

  @Test(arguments: zip(stages, [Pipeline.Stage.idle, .writing, .idle, .writing]))
  private func `a poisoned file fails all uncommitted items, and isn't flushed`(
    stage: Pipeline.Stage,
    next: Pipeline.Stage
  ) {
    var pipeline = Self.pipeline(stage)
    let before = pipeline.flushing + pipeline.written
    let pending = pipeline.pending
    #expect(pipeline.postponeIfFlushing("close") == pipeline.isFlushing)
    #expect(pipeline.takeFailed([8, 9], isPoisoned: true) == before + [8, 9] + pending)
    #expect(pipeline.all == [])
    #expect(pipeline.stage == next)
    #expect(!pipeline.isFlushing)
    #expect(pipeline.takePostponedJobs().jobs == (stage == next ? [] : ["close"]))
  }
}
