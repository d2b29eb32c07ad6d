#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import Testing

@testable import SteadfastPostgreSQL

/// The cursors from which claims read; these tests use no database.
struct ClaimCursorsTests {
  private typealias Lane = ClaimCursors.Lane
  private typealias Cursor = ClaimCursors.Cursor

  private let mail = Lane(name: ExactText("Mail"), rank: ~0)
  private let call = Lane(name: ExactText("Call"), rank: ~0)
  private let start = ContinuousClock.now
  private let date = Date(timeIntervalSince1970: 1_800_000_000)

  private func cursor(_ second: Double, _ position: Int = .min) -> Cursor {
    Cursor(date: date + second, position: position)
  }

  private func request(_ second: Double, _ conditions: Set<TaskCondition> = []) -> ClaimRequest {
    ClaimRequest(
      limit: 8,
      names: ["Mail": 8],
      now: date + second,
      conditions: conditions,
      leaseDuration: nil
    )
  }

  /// Returns the state after a scan that found these first cursors and ended at `start`.
  private func cursorsAfterScan(
    _ firsts: [Lane: Cursor],
    _ request: ClaimRequest,
    after time: Duration = .milliseconds(10)
  ) -> ClaimCursors {
    var starts = ClaimCursors()
    _ = starts.recordScan(firsts, for: request, from: start - time, to: start)
    return starts
  }

  @Test func `the first claim requires a scan, and reads each lane from its first task`() {
    var starts = ClaimCursors()
    #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: start) == nil)
    let firsts = [mail: cursor(5, 3), call: cursor(20)]
    let cursors = starts.recordScan(
      firsts,
      for: request(9),
      from: start,
      to: start + .milliseconds(10)
    )
    // A new task can come before a lane's first task, if the first task's date is in the future.
    #expect(cursors == [mail: cursor(5, 3), call: cursor(8.9)])
  }

  @Test func `a claim reads from the cursor that claims had reached two lags before`() {
    var starts = cursorsAfterScan([mail: cursor(5, 3)], request(9), after: .seconds(10))
    func begin(_ milliseconds: Int) -> Cursor? {
      starts.cursors(
        for: request(9),
        freed: FreedTasks(),
        at: start + .milliseconds(milliseconds)
      )?[
        mail
      ]
    }
    starts.recordClaim(in: mail, upTo: cursor(6, 4))
    #expect(begin(99) == cursor(5, 3))
    #expect(begin(100) == cursor(5, 3))
    starts.recordClaim(in: mail, upTo: cursor(7, 5))
    #expect(begin(150) == cursor(5, 3))
    #expect(begin(200) == cursor(6, 4))
    #expect(begin(300) == cursor(7, 5))
  }

  @Test func `claiming a task before a lane's cursor moves the cursor back`() {
    var starts = cursorsAfterScan([mail: cursor(5)], request(9), after: .seconds(10))
    starts.recordClaim(in: mail, upTo: cursor(7))
    _ = starts.cursors(for: request(9), freed: FreedTasks(), at: start + .milliseconds(100))
    starts.recordClaim(in: mail, upTo: cursor(6))
    let cursors = starts.cursors(
      for: request(9),
      freed: FreedTasks(),
      at: start + .milliseconds(200)
    )
    #expect(cursors == [mail: cursor(6)])
  }

  @Test func `a store's new tasks move the cursors of their lanes back, and add new lanes`() {
    var starts = cursorsAfterScan([mail: cursor(5)], request(9))
    let freed = FreedTasks(dates: [mail: date + 3, call: date + 4])
    let cursors = starts.cursors(for: request(9), freed: freed, at: start + .milliseconds(1))
    #expect(cursors == [mail: cursor(3), call: cursor(4)])
  }

  @Test func `a lane without tasks is still read, from one lag before the last scan`() {
    var starts = cursorsAfterScan([mail: cursor(5), call: cursor(2)], request(9))
    let end = start + .seconds(2)
    let cursors = starts.recordScan([mail: cursor(6)], for: request(11), from: end, to: end)
    #expect(cursors == [mail: cursor(6), call: cursor(10.9)])
    let next = starts.cursors(for: request(11), freed: FreedTasks(), at: end + .milliseconds(1))
    #expect(next == cursors)
  }

  @Test func `a retry moves the cursors of all lanes back`() {
    var starts = cursorsAfterScan([mail: cursor(5), call: cursor(2)], request(9))
    let freed = FreedTasks(earliest: date + 4)
    let cursors = starts.cursors(for: request(9), freed: freed, at: start + .milliseconds(1))
    #expect(cursors == [mail: cursor(4), call: cursor(2)])
  }

  @Test
  func `the next scan follows after a second, or after ten times the duration of the last scan`() {
    var starts = cursorsAfterScan([mail: cursor(5)], request(9))
    let now = start + .milliseconds(9)
    #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: now) != nil)
    let freed = FreedTasks(areAnywhere: true)
    #expect(starts.cursors(for: request(9), freed: freed, at: now) != nil)
    #expect(starts.timeUntilScan(at: now) == .milliseconds(1))
    let later = start + .milliseconds(10)
    #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: later) == nil)
    for (time, pause) in [(10, 1_000), (200, 2_000)] {
      starts = cursorsAfterScan([mail: cursor(5)], request(9), after: .milliseconds(time))
      let end = start + .milliseconds(pause)
      let before = end - .milliseconds(1)
      #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: before) != nil)
      #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: end) == nil)
    }
  }

  @Test func `after a failed scan, claims continue, and the next scan is postponed`() {
    var starts = cursorsAfterScan([mail: cursor(5)], request(9))
    let end = start + .seconds(40)
    #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: start + .seconds(10)) == nil)
    #expect(starts.recordFailedScan(from: end - .seconds(30), to: end) == [mail: cursor(5)])
    for (second, needsScan) in [(41, false), (339, false), (340, true)] {
      let now = start + .seconds(second)
      #expect((starts.cursors(for: request(9), freed: FreedTasks(), at: now) == nil) == needsScan)
    }
    var new = ClaimCursors()
    #expect(new.recordFailedScan(from: start, to: end) == nil)
  }

  @Test func `a condition that is met again requires a scan before the next claim`() {
    let wifi: TaskCondition = "wifi"
    var starts = cursorsAfterScan([mail: cursor(5)], request(9, [wifi]))
    func needsScan(_ conditions: Set<TaskCondition>, _ milliseconds: Int) -> Bool {
      starts.cursors(
        for: request(9, conditions),
        freed: FreedTasks(),
        at: start + .milliseconds(milliseconds)
      ) == nil
    }
    #expect(!needsScan([wifi], 11))
    #expect(!needsScan([], 12))
    #expect(needsScan([wifi], 13))
  }

  @Test func `another payload version requires a scan before the next claim`() {
    var starts = cursorsAfterScan([mail: cursor(5)], request(9))
    func needsScan(_ version: Int, _ milliseconds: Int) -> Bool {
      var request = request(9)
      request.versions = ["Mail": version]
      let time = start + .milliseconds(milliseconds)
      return starts.cursors(for: request, freed: FreedTasks(), at: time) == nil
    }
    #expect(needsScan(1, 11))
    _ = starts.recordScan([mail: cursor(5)], for: request(9), from: start, to: start)
    #expect(!needsScan(1, 12))
    #expect(needsScan(2, 13))
  }

  @Test func `an exact store requires a scan at once if any tasks became available`() {
    var starts = ClaimCursors(isExact: true)
    _ = starts.recordScan([:], for: request(9), from: start - .seconds(1), to: start)
    #expect(starts.cursors(for: request(9), freed: FreedTasks(), at: start) != nil)
    #expect(starts.cursors(for: request(9), freed: FreedTasks(areAnywhere: true), at: start) == nil)
  }

  // MARK: Recording

  private func batchGroup(_ changes: TaskChange...) throws -> BatchGroup {
    BatchGroup([try changes.map { try PreparedChange($0) }])
  }

  @Test func `freed tasks are recorded only while claims use cursors`() throws {
    let freedTasks = FreedTaskRecorder()
    freedTasks.record(
      try batchGroup(.insert(.numbered(1), onDuplicate: .keep)),
      hasFreedOthers: true
    )
    #expect(freedTasks.takeRecords(forQueue: "").dates.isEmpty)
    freedTasks.setRecording(isOn: true)
    #expect(!freedTasks.takeRecords(forQueue: "").areAnywhere)
  }

  @Test
  func `the records for a queue have the queue's new tasks, and changes that affect all queues`()
    throws
  {
    let freedTasks = FreedTaskRecorder()
    freedTasks.setRecording(isOn: true)
    for queue in ["", "b"] { _ = freedTasks.takeRecords(forQueue: queue) }
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let retry = TaskChange.retry(lease, availableDate: date, retryCount: 1, failure: nil)
    freedTasks.record(
      try batchGroup(.insert(.numbered(1), onDuplicate: .keep), retry),
      hasFreedOthers: false
    )
    let own = freedTasks.takeRecords(forQueue: "")
    let lane = Lane(name: ExactText("A"), rank: ~TaskRecord.numbered(1).priority.rawValue)
    #expect(own.dates == [lane: TaskRecord.numbered(1).availableDate])
    #expect(own.earliest == date)
    #expect(!own.areAnywhere)
    let other = freedTasks.takeRecords(forQueue: "b")
    #expect(other.dates.isEmpty)
    #expect(other.earliest == date)
    #expect(freedTasks.takeRecords(forQueue: "b").earliest == nil)
  }

  @Test func `a change that requeues tasks requires a scan in all queues`() throws {
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let changes: [TaskChange] = [
      .release(lease), .unpark(name: "A"), .resume(lease.id), .rebase(date),
      .restart(.unclaimed(lease.id), availableDate: date),
      .complete(lease.id, named: "a", value: [1]),
      .reschedule(.unclaimed(lease.id), availableDate: date),
      .suspend(lease, until: date, awaiting: ["a"]),
    ]
    for change in changes {
      let freedTasks = FreedTaskRecorder()
      freedTasks.setRecording(isOn: true)
      _ = freedTasks.takeRecords(forQueue: "b")
      freedTasks.record(try batchGroup(change), hasFreedOthers: false)
      #expect(freedTasks.takeRecords(forQueue: "b").areAnywhere, "\(change)")
      #expect(!freedTasks.takeRecords(forQueue: "b").areAnywhere)
    }
  }

  @Test func `the end of a task requires a scan only if other tasks became available`() throws {
    let freedTasks = FreedTaskRecorder()
    freedTasks.setRecording(isOn: true)
    _ = freedTasks.takeRecords(forQueue: "")
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let end = TaskChange.succeed(lease, at: date, retains: false)
    freedTasks.record(try batchGroup(end), hasFreedOthers: false)
    #expect(!freedTasks.takeRecords(forQueue: "").areAnywhere)
    freedTasks.record(try batchGroup(end), hasFreedOthers: true)
    #expect(freedTasks.takeRecords(forQueue: "").areAnywhere)
  }
}
#endif
