import Testing

@testable import SteadfastQueue

private struct Hidden: TaskPayload { struct Deep: TaskPayload {} }

private enum Mail {
  struct Send: TaskPayload {}
  struct Box<Content: Codable & Sendable>: TaskPayload {
    var content: Content
    struct Lid: TaskPayload {}
  }
}

/// Tests the default names of tasks: the names of their payload types.
@Suite struct TypeNameTests {
  @Test(arguments: [
    ("App.PostComment", "PostComment"),
    ("App.Mail.Send", "Mail.Send"),
    ("App.Mail.(unknown context at $55d409e3d488).Hidden", "Mail.Hidden"),
    ("App.(unknown context at $5).(unknown context at $6).Local.Deep", "Local.Deep"),
    ("App.(Hidden in _5E7CA1).Deep", "Hidden.Deep"),
    ("App.(Hidden in $10b3)", "Hidden"),
    ("App.Box<Swift.Int>", "Box<Int>"),
    ("App.Box<App.Mail.Send>.Lid", "Box<Mail.Send>.Lid"),
    ("App.Box<App.Box<Swift.Array<Swift.Int>>>", "Box<Box<Array<Int>>>"),
    ("App.Box<App.(unknown context at $5).Hidden>", "Box<Hidden>"),
    ("App.Pair<Swift.Int, FoundationEssentials.Date>", "Pair<Int, Date>"),
    ("App.Box<(Swift.Int, a: Swift.String)>", "Box<(Int, a: String)>"),
    ("(extension in App):Swift.Array<Swift.Int>.Nested", "Array<Int>.Nested"),
    ("App.`dot.name`.Deep", "`dot.name`.Deep"),
    ("App.`raw name`", "`raw name`"),
    ("App.Größe", "Größe"),
    ("App.`torn", "`torn"),
    ("App.(torn", "(torn"),
    ("Bare", "Bare"),
    ("", ""),
  ])
  func `a name has no parts that differ between builds`(_ name: String, _ expected: String) {
    #expect(TypeName.withoutModules(name) == expected)
  }

  @Test func `an error names a type with its module, and without addresses`() {
    struct Local: TaskPayload {}
    #expect(TypeName.readable(Local.self) == "SteadfastQueueTests.TypeNameTests.Local")
    #expect(
      TypeName.readable(Mail.Box<[Int]>.self)
        == "SteadfastQueueTests.Mail.Box<Swift.Array<Swift.Int>>"
    )
  }

  @Test func `a task is named after its type and the types around it`() {
    struct Local: TaskPayload {}
    #expect(Note.taskName == "Note")
    #expect(Mail.Send.taskName == "Mail.Send")
    #expect(Hidden.taskName == "Hidden")
    #expect(Hidden.Deep.taskName == "Hidden.Deep")
    #expect(Local.taskName == "TypeNameTests.Local")
    #expect(Mail.Box<Int>.taskName == "Mail.Box<Int>")
    #expect(Mail.Box<[Note]>.Lid.taskName == "Mail.Box<Array<Note>>.Lid")
  }

  @Test func `concurrent threads get the same name for a type`() async {
    let names = TypeNames()
    let found = await withTaskGroup(of: [String].self) { group in
      for _ in 0..<8 {
        group.addTask {
          [Int.self, String.self, Note.self, Mail.Send.self, Mail.Box<Int>.self]
            .map { names.name(of: $0) }
        }
      }
      return await group.reduce(into: Set<[String]>()) { $0.insert($1) }
    }
    #expect(found == [["Int", "String", "Note", "Mail.Send", "Mail.Box<Int>"]])
  }
}
