import Testing

@testable import SteadfastQueue

/// Reads lines about dependencies that no queue would write.
@Suite struct ForgedDependencyTests {
  private func table(reading bodies: String...) throws -> TaskTable {
    let table = try JournalReader.read(ForgedFile.bytes(bodies)).table
    #expect(table.brokenInvariants() == [])
    return table
  }

  private func field(_ name: String, task number: Int) -> String {
    #","\#(name)":"\#(TaskID.numbered(number))""#
  }

  private func after(task number: Int) -> String { #","after":["\#(TaskID.numbered(number))"]"# }

  private func changeBody(_ kind: String, _ number: Int, _ fields: String = "") -> String {
    #""k":"\#(kind)","id":"\#(TaskID.numbered(number))"\#(fields)}"#
  }

  @Test func `a task waits for a task that is inserted after it`() throws {
    let table = try table(reading: ForgedFile.insertion(2, after(task: 1)), ForgedFile.insertion(1))
    #expect(table.slot(of: .numbered(2)).map { table.entries[$0].waitsForOthers } == true)
  }

  @Test func `a task waits for a new task that has the ID of a removed task`() throws {
    let table = try table(
      reading: ForgedFile.insertion(1),
      ForgedFile.insertion(2, after(task: 1)),
      ForgedFile.begin(1),
      changeBody("succeed", 1, #","at":1.0"#),
      ForgedFile.insertion(1)
    )
    #expect(table.slot(of: .numbered(2)).map { table.entries[$0].waitsForOthers } == true)
  }

  @Test func `a follower that a compacted file lists without a batch gets none when a member ends`()
    throws
  {
    let table = try table(
      reading: ForgedFile.task(1, place: 1, field("follower", task: 2)),
      ForgedFile.task(2, place: 2),
      changeBody("cancel", 1, #","at":1.0,"keep":true"#)
    )
    #expect(table.record(of: .numbered(2))?.dependencies.batch == nil)
  }

  @Test func `a follower that is inserted after a restart counts the remaining tasks of its batch`()
    throws
  {
    let table = try table(
      reading: ForgedFile.insertion(1, field("follower", task: 2)),
      changeBody("cancel", 1, #","at":1.0,"keep":true"#),
      changeBody("restart", 1, #","available":1.0"#),
      ForgedFile.insertion(2)
    )
    #expect(table.record(of: .numbered(2))?.dependencies.batch?.isPossible != false)
  }

  @Test func `a task that was not cancelled has no cause`() throws {
    let table = try table(reading: ForgedFile.task(2, place: 1, field("cause", task: 1)))
    #expect(table.record(of: .numbered(2))?.dependencies.cause == nil)
  }

  @Test func `a new task can begin only if it waits for no other task`() {
    let bodies = [
      ForgedFile.insertion(1), ForgedFile.insertion(2, after(task: 1)), ForgedFile.begin(2),
    ]
    #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes(bodies)) }
  }

  @Test func `a compacted task with open dependencies can begin only in the line after its own`()
    throws
  {
    let tasks = [ForgedFile.task(1, place: 1), ForgedFile.task(2, place: 2, after(task: 1))]
    let running = try table(reading: tasks[0], tasks[1], ForgedFile.begin(2))
    // The end of the file interrupts task 2.
    #expect(running.record(of: .numbered(2))?.interruptionCount == 1)
    let later = [tasks[1], tasks[0], ForgedFile.begin(2)]
    #expect(throws: JournalProblem.self) { try JournalReader.read(ForgedFile.bytes(later)) }
  }

  @Test func `a batch of changes can end a task and add the task's follower`() {
    var table = TaskTable()
    table.insert(.make(1, dependencies: TaskDependencies(follower: .numbered(2))))
    let cancellation = TaskChange.cancel(
      .unclaimed(.numbered(1)),
      at: .seconds(1),
      retains: false
    )
    let outcomes = table.apply([cancellation, .insert(.make(2), onDuplicate: .keep)])
    #expect(outcomes.last == .done)
    #expect(table.record(of: .numbered(2))?.state == .waiting)
    #expect(table.brokenInvariants() == [])
  }
}
