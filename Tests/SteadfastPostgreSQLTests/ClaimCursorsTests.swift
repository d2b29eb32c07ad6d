#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import Testing

@testable import SteadfastPostgreSQL

/// The places at which claims start to read, computed without a database.
struct ClaimCursorsTests {
  private typealias Lane = ClaimCursors.Lane
  private typealias Place = ClaimCursors.Place

  private let mail = Lane(name: ExactText("Mail"), rank: ~0)
  private let call = Lane(name: ExactText("Call"), rank: ~0)
  private let start = ContinuousClock.now
  private let date = Date(timeIntervalSince1970: 1_800_000_000)

  private func place(_ second: Double, _ position: Int = .min) -> Place {
    Place(date: date + second, position: position)
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

  /// Returns cursors whose last look found these places and ended at `start`.
  private func looked(
    _ firsts: [Lane: Place],
    _ request: ClaimRequest,
    after time: Duration = .milliseconds(10)
  ) -> ClaimCursors {
    var starts = ClaimCursors()
    _ = starts.note(firsts, for: request, from: start - time, to: start)
    return starts
  }

  @Test func `the first claim looks, and starts at the first task of each lane`() {
    var starts = ClaimCursors()
    #expect(starts.places(for: request(9), after: DeletedRows(), at: start) == nil)
    let firsts = [mail: place(5, 3), call: place(20)]
    let places = starts.note(firsts, for: request(9), from: start, to: start + .milliseconds(10))
    // A new task can come before a lane's first task, if that one's date is in the future.
    #expect(places == [mail: place(5, 3), call: place(8.9)])
  }

  @Test func `a claim starts where earlier claims had arrived before the lag`() {
    var starts = looked([mail: place(5, 3)], request(9), after: .seconds(10))
    func begin(_ milliseconds: Int) -> Place? {
      starts.places(
        for: request(9),
        after: DeletedRows(),
        at: start + .milliseconds(milliseconds)
      )?[
        mail
      ]
    }
    starts.note(mail, upTo: place(6, 4))
    #expect(begin(99) == place(5, 3))
    #expect(begin(100) == place(5, 3))
    starts.note(mail, upTo: place(7, 5))
    #expect(begin(150) == place(5, 3))
    #expect(begin(200) == place(6, 4))
    #expect(begin(300) == place(7, 5))
  }

  @Test func `claiming a task before a lane's place moves the place back`() {
    var starts = looked([mail: place(5)], request(9), after: .seconds(10))
    starts.note(mail, upTo: place(7))
    _ = starts.places(for: request(9), after: DeletedRows(), at: start + .milliseconds(100))
    starts.note(mail, upTo: place(6))
    let places = starts.places(
      for: request(9),
      after: DeletedRows(),
      at: start + .milliseconds(200)
    )
    #expect(places == [mail: place(6)])
  }

  @Test func `a store's new tasks move the places of their lanes back, and add new lanes`() {
    var starts = looked([mail: place(5)], request(9))
    let freed = DeletedRows(dates: [mail: date + 3, call: date + 4])
    let places = starts.places(for: request(9), after: freed, at: start + .milliseconds(1))
    #expect(places == [mail: place(3), call: place(4)])
  }

  @Test func `an empty lane is still read, from the lag before the look`() {
    var starts = looked([mail: place(5), call: place(2)], request(9))
    let end = start + .seconds(2)
    let places = starts.note([mail: place(6)], for: request(11), from: end, to: end)
    #expect(places == [mail: place(6), call: place(10.9)])
    let next = starts.places(for: request(11), after: DeletedRows(), at: end + .milliseconds(1))
    #expect(next == places)
  }

  @Test func `a retry moves the places of all lanes back`() {
    var starts = looked([mail: place(5), call: place(2)], request(9))
    let freed = DeletedRows(earliest: date + 4)
    let places = starts.places(for: request(9), after: freed, at: start + .milliseconds(1))
    #expect(places == [mail: place(4), call: place(2)])
  }

  @Test func `looks are a second or ten times their duration apart, less if tasks were freed`() {
    var starts = looked([mail: place(5)], request(9))
    let now = start + .milliseconds(9)
    #expect(starts.places(for: request(9), after: DeletedRows(), at: now) != nil)
    let freed = DeletedRows(areAnywhere: true)
    #expect(starts.places(for: request(9), after: freed, at: now) != nil)
    #expect(starts.timeToLook(at: now) == .milliseconds(1))
    let later = start + .milliseconds(10)
    #expect(starts.places(for: request(9), after: DeletedRows(), at: later) == nil)
    for (time, pause) in [(10, 1_000), (200, 2_000)] {
      starts = looked([mail: place(5)], request(9), after: .milliseconds(time))
      let end = start + .milliseconds(pause)
      let before = end - .milliseconds(1)
      #expect(starts.places(for: request(9), after: DeletedRows(), at: before) != nil)
      #expect(starts.places(for: request(9), after: DeletedRows(), at: end) == nil)
    }
  }

  @Test func `after a failed look, claims continue, and the next look is postponed`() {
    var starts = looked([mail: place(5)], request(9))
    let end = start + .seconds(40)
    #expect(starts.places(for: request(9), after: DeletedRows(), at: start + .seconds(10)) == nil)
    #expect(starts.noteFailedLook(from: end - .seconds(30), to: end) == [mail: place(5)])
    for (second, looks) in [(41, false), (339, false), (340, true)] {
      let now = start + .seconds(second)
      #expect((starts.places(for: request(9), after: DeletedRows(), at: now) == nil) == looks)
    }
    var new = ClaimCursors()
    #expect(new.noteFailedLook(from: start, to: end) == nil)
  }

  @Test func `a condition that holds again makes the next claim look`() {
    let wifi: TaskCondition = "wifi"
    var starts = looked([mail: place(5)], request(9, [wifi]))
    func needsLook(_ conditions: Set<TaskCondition>, _ milliseconds: Int) -> Bool {
      starts.places(
        for: request(9, conditions),
        after: DeletedRows(),
        at: start + .milliseconds(milliseconds)
      ) == nil
    }
    #expect(!needsLook([wifi], 11))
    #expect(!needsLook([], 12))
    #expect(needsLook([wifi], 13))
  }

  @Test func `an exact store looks at once if tasks were freed`() {
    var starts = ClaimCursors(isExact: true)
    _ = starts.note([:], for: request(9), from: start - .seconds(1), to: start)
    #expect(starts.places(for: request(9), after: DeletedRows(), at: start) != nil)
    #expect(starts.places(for: request(9), after: DeletedRows(areAnywhere: true), at: start) == nil)
  }

  // MARK: Notes

  private func group(_ changes: TaskChange...) throws -> BatchGroup {
    BatchGroup([try changes.map { try PreparedChange($0) }])
  }

  @Test func `notes are empty until claims use places`() throws {
    let notes = DeletedRowNotes()
    notes.note(try group(.insert(.numbered(1), onDuplicate: .keep)), hasFreedOthers: true)
    #expect(notes.take(forQueue: "").dates.isEmpty)
    notes.set(isOn: true)
    #expect(!notes.take(forQueue: "").areAnywhere)
  }

  @Test func `a queue's notes have its new tasks, and changes that affect all queues`() throws {
    let notes = DeletedRowNotes()
    notes.set(isOn: true)
    for queue in ["", "b"] { _ = notes.take(forQueue: queue) }
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let retry = TaskChange.retry(lease, availableDate: date, retryCount: 1, failure: nil)
    notes.note(
      try group(.insert(.numbered(1), onDuplicate: .keep), retry),
      hasFreedOthers: false
    )
    let own = notes.take(forQueue: "")
    let lane = Lane(name: ExactText("A"), rank: ~TaskRecord.numbered(1).priority.rawValue)
    #expect(own.dates == [lane: TaskRecord.numbered(1).availableDate])
    #expect(own.earliest == date)
    #expect(!own.areAnywhere)
    let other = notes.take(forQueue: "b")
    #expect(other.dates.isEmpty)
    #expect(other.earliest == date)
    #expect(notes.take(forQueue: "b").earliest == nil)
  }

  @Test func `a change that requeues tasks makes all queues look`() throws {
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let changes: [TaskChange] = [
      .release(lease), .unpark(name: "A"), .resume(lease.id), .rebase(date),
      .restart(.unclaimed(lease.id), availableDate: date),
      .complete(lease.id, named: "a", value: [1]),
      .reschedule(.unclaimed(lease.id), availableDate: date),
      .suspend(lease, until: date, awaiting: ["a"]),
    ]
    for change in changes {
      let notes = DeletedRowNotes()
      notes.set(isOn: true)
      _ = notes.take(forQueue: "b")
      notes.note(try group(change), hasFreedOthers: false)
      #expect(notes.take(forQueue: "b").areAnywhere, "\(change)")
      #expect(!notes.take(forQueue: "b").areAnywhere)
    }
  }

  @Test func `the end of a task makes queues look only if it freed others`() throws {
    let notes = DeletedRowNotes()
    notes.set(isOn: true)
    _ = notes.take(forQueue: "")
    let lease = Lease(id: TaskRecord.numbered(9).id, token: 1)
    let end = TaskChange.succeed(lease, at: date, retains: false)
    notes.note(try group(end), hasFreedOthers: false)
    #expect(!notes.take(forQueue: "").areAnywhere)
    notes.note(try group(end), hasFreedOthers: true)
    #expect(notes.take(forQueue: "").areAnywhere)
  }
}
#endif
