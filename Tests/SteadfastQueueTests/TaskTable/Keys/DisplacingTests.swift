import Foundation
import Testing

@testable import SteadfastQueue

/// Tests expired tasks that lose their unique key to a new task, with staged changes and in a file.
@Suite struct DisplacingTests {
  var table = TaskTable()

  private static let new = TaskChange.insert(
    .make(3, key: "k", created: 100),
    onDuplicate: .keep
  )

  /// Adds a task that expires at 100 s.
  private mutating func insert(_ number: Int) {
    table.insert(.make(number, key: "k", expires: .seconds(100)))
  }

  private func role(_ number: Int) -> UniqueKeyRole? {
    table.record(of: .numbered(number))?.keyRole
  }

  /// The numbers of the tasks that a lookup by the key finds.
  private var numbers: [Int] {
    table.tasks(matching: TaskFilter(uniqueKeys: ["k"]), after: nil, limit: 9)
      .map { Int($0.id.low) }
  }

  @Test
  mutating func `an expired task regains its key if the new task that took it is rolled back`() {
    insert(1)
    let staged = table.stage(Self.new)
    #expect(staged.outcome == .done)
    #expect(table.claim(9, at: 100).numbers == [])
    #expect(table.stage(.pause(.unclaimed(.numbered(1)))).outcome == .stale)
    #expect(numbers == [1])
    table.rollBack(staged)
    #expect(role(1) == .holder && numbers == [1])
    #expect(table.brokenInvariants() == [])
    table.commit(table.stage(Self.new))
    #expect(role(1) == nil && role(3) == .holder && numbers == [1, 3])
    #expect(table.brokenInvariants() == [])
    #expect(table.claim(9, at: 100).numbers == [1, 3])
  }

  @Test
  mutating func `an expired successor becomes the holder if the new task is rolled back`() {
    table.insert(.make(1, key: "k"))
    let lease = table.claim(1)[0].lease
    insert(2)
    let end = table.stage(.succeed(lease, at: .seconds(99), retains: false))
    let staged = table.stage(Self.new)
    table.commit(end)
    table.rollBack(staged)
    #expect(role(2) == .holder && numbers == [2])
    #expect(table.brokenInvariants() == [])
    #expect(table.claim(9, at: 99).numbers == [2])
  }

  @Test
  mutating func `an expired task does not lose its key while an update or restart is staged`() {
    insert(1)
    for change in [
      TaskChange.update(.numbered(1), TaskUpdate(expiryDate: .seconds(200))),
      .restart(.unclaimed(.numbered(1)), availableDate: .seconds(150)),
    ] {
      let staged = table.stage(change)
      #expect(table.stage(Self.new).outcome == .duplicate(of: .numbered(1)))
      table.rollBack(staged)
    }
    #expect(table.stage(Self.new).outcome == .done)
  }

  @Test mutating func `an expired task that is the follower of the new task loses its key too`() {
    insert(1)
    let dependencies = TaskDependencies(follower: .numbered(1))
    let new = TaskRecord.make(3, key: "k", created: 100, dependencies: dependencies)
    table.insert(new)
    #expect(role(1) == nil && role(3) == .holder)
    #expect(table.brokenInvariants() == [])
    #expect(table.claim(9, at: 100).numbers == [3])
  }

  @Test
  mutating func `a restart prevented by a key reports the key's holder, not the successor`() {
    insert(1)
    table.insert(.make(2, key: "k", created: 100))
    _ = table.apply([.pause(.unclaimed(.numbered(1)))])
    _ = table.claim(1, at: 100)
    table.insert(.make(3, key: "k", created: 101))
    let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .seconds(102))
    #expect(role(3) == .successor)
    #expect(table.apply([restart]) == [.duplicate(of: .numbered(2))])
  }

  @Test
  func `a task that has lost its key does not regain it when a compacted file is read`() throws {
    var lines: [JournalEntry] = [
      .addition(.make(1, key: "k", expires: .seconds(100)), .holder),
      .addition(.make(3, key: "k", created: 100), .holder),
    ]
    let written = try UniqueKeyTests().read(lines)
    lines = [1, 3].map { number in
      let entry = written.entries[written.slot(of: .numbered(number))!]
      return .task(
        KeptTask(record: entry.record, position: entry.position, hasLostKey: entry.isKeyless)
      )
    }
    for var found in [written, try UniqueKeyTests().read(lines)] {
      #expect(found.brokenInvariants() == [])
      let roles = [1, 3].map { found.record(of: .numbered($0))?.keyRole }
      #expect(roles == [nil, .holder])
      let restart = TaskChange.restart(.unclaimed(.numbered(1)), availableDate: .seconds(100))
      #expect(found.apply([restart]) == [.duplicate(of: .numbered(3))])
      let update = TaskChange.update(.numbered(1), TaskUpdate(expiryDate: .seconds(200)))
      #expect(found.apply([update]) == [.stale])
      let end = TaskChange.cancel(.unclaimed(.numbered(3)), at: .seconds(101), retains: true)
      #expect(found.apply([end]) == [.done])
      #expect(found.apply([restart]) == [.done])
      #expect(found.record(of: .numbered(1))?.keyRole == .holder)
      #expect(found.brokenInvariants() == [])
    }
  }

  @Test func `a line that gives a key to a new task before its holder has expired is rejected`() {
    var found = TaskTable()
    #expect(found.replay(.addition(.make(1, key: "k", expires: .seconds(101)), .holder)) == true)
    #expect(found.replay(.addition(.make(3, key: "k", created: 100), .holder)) == false)
    #expect(found.record(of: .numbered(1))?.keyRole == .holder)
    // Earlier versions wrote lines that name the successor.
    #expect(found.replay(.addition(.make(4, key: "k", created: 101), .successor)) == true)
    #expect(found.record(of: .numbered(1))?.keyRole == .holder)
    #expect(found.brokenInvariants() == [])
  }
}
