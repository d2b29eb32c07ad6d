#if SQLite
import Foundation
import SteadfastDatabases
import SteadfastQueue
import SteadfastTesting
import TestSupport
import Testing

@testable import SteadfastSQLite

private struct Receipt: TaskPayload, Equatable {
  var order: Int
  var options: TaskOptions { TaskOptions(priority: .high, tags: ["receipt"]) }
}

/// Tasks that another connection enqueues within its own transaction.
struct InsertStatementTests {
  private func rows(at url: URL) throws -> [String] {
    let columns = """
      hex(id), name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, unique_key, key_role, unique_until, time_limit, state, metadata
      """
    // Tags are stored in the order of a set, so they are sorted here.
    let tags = "(select group_concat(value) from (select value from json_each(tags) order by 1))"
    let values = columns.split(separator: ",").map { "quote(\($0))" } + [tags]
    let row = values.joined(separator: " || ' ' || ")
    return try database(at: url).allRows("select \(row) from steadfast_task order by seq") {
      $0.text(0)
    }
  }

  @Test func `a statement adds a task with the same options and defaults as enqueue`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let clock = VirtualClock()
      func queue(_ name: String) -> TaskQueue {
        TaskQueue(
          persistence: .sqlite(at: folder.appending(path: name)),
          configuration: TaskQueueConfiguration(
            taskDefaults: TaskOptions(maxRetries: 3, tags: ["shop"], metadata: ["tenant": "it's"]),
            randomness: .seeded(7)
          ),
          clock: clock
        )
      }
      let (own, other) = (queue("own"), queue("other"))
      try await other.open()
      let connection = try database(at: folder.appending(path: "other"))
      let chosen = TaskOptions(delay: .seconds(3), timeLimit: .seconds(9), uniqueFor: .seconds(60))
      for (key, options) in [(nil, TaskOptions()), ("a", chosen), ("a", TaskOptions())] {
        let task = try await own.enqueue(Receipt(order: 5), uniqueKey: key, options: options)
        let statement = try other.insertStatement(
          for: Receipt(order: 5),
          uniqueKey: key,
          options: options
        )
        try connection.run(statement)
        if task.isNew { #expect(statement.id == task.id) }
      }
      let rows = try rows(at: folder.appending(path: "own"))
      #expect(try self.rows(at: folder.appending(path: "other")) == rows)
      #expect(rows.count == 2)
    }
  }

  @Test func `a task is committed or rolled back together with the program's own rows`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let queue = TaskQueue(persistence: .sqlite(at: url, prefix: "jobs"))
      try await queue.open()
      let connection = try database(at: url)
      try connection.execute("create table orders (number integer primary key)")
      for number in 1...4 {
        try connection.execute("begin immediate")
        try connection.run("insert into orders values (?1)", .integer(number))
        try connection.run(try queue.insertStatement(for: Receipt(order: number)))
        try connection.execute(number.isMultiple(of: 2) ? "commit" : "rollback")
      }
      let receipts = try await queue.tasks().map { try $0.payload(as: Receipt.self).order }
      #expect(receipts == [2, 4])
      let orders = try connection.allRows("select number from orders order by 1") { $0.integer(0) }
      #expect(orders == receipts)
    }
  }

  @Test func `a transaction can check whether its statement added a task`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let queue = TaskQueue(persistence: .sqlite(at: url))
      try await queue.open()
      let connection = try database(at: url)
      func isAdded(_ policy: UniquePolicy) throws -> Bool {
        let statement = try queue.insertStatement(
          for: Receipt(order: 1),
          uniqueKey: "1",
          options: TaskOptions(onDuplicate: policy)
        )
        try connection.run(statement)
        guard case .bytes(let id) = statement.parameters[0] else { return false }
        return try connection.hasRow("select 1 from steadfast_insertion where id = ?1", .bytes(id))
      }
      #expect(try isAdded(.reject))
      #expect(try !isAdded(.keep))
      #expect(throws: SQLiteFailure.self) { try isAdded(.reject) }
      #expect(try await queue.count(matching: .unfinished) == 1)
    }
  }

  @Test func `a statement of a sealed store contains the sealed payload`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let seal = PayloadSeal(seal: { bytes, _ in Data(bytes.reversed()) }) { bytes, _ in
        Data(bytes.reversed())
      }
      let queue = TaskQueue(persistence: SQLiteStore(at: url).sealingPayloads(with: seal))
      try await queue.open()
      let statement = try queue.insertStatement(for: Receipt(order: 12))
      #expect(statement.parameters.contains(.bytes(Array("}21:\"redro\"{".utf8))))
      #expect(statement.parameters.contains(.text("sealedJSON")))
      try database(at: url).run(statement)
      #expect(try await queue.tasks().map { try $0.payload(as: Receipt.self).order } == [12])
    }
  }

  @Test func `a statement from a queue of a group adds the task to that queue`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let group = TaskQueueGroup(persistence: .sqlite(at: url))
      let (mail, other) = (try await group.addQueue("mail"), try await group.addQueue("other"))
      try await mail.open()
      try database(at: url).run(try mail.insertStatement(for: Receipt(order: 1), uniqueKey: "1"))
      #expect(try await mail.tasks().map(\.uniqueKey) == ["1"])
      #expect(try await other.count(matching: .unfinished) == 0)
    }
  }

  @Test func `a statement that another version made is rejected`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let queue = TaskQueue(persistence: .sqlite(at: url))
      try await queue.open()
      let statement = try queue.insertStatement(for: Receipt(order: 1))
      let other = InsertStatement(
        id: statement.id,
        text: statement.text.replacing("values (2, ", with: "values (3, "),
        parameters: statement.parameters
      )
      let connection = try database(at: url)
      let failure = #expect(throws: SQLiteFailure.self) { try connection.run(other) }
      #expect(
        failure?.text
          == "the statement that adds a task was made by another version of Steadfast than the "
          + "tables of the queue; use one version for both"
      )
      var odd = statement.parameters
      odd[3] = .text("{}")
      let text = InsertStatement(id: statement.id, text: statement.text, parameters: odd)
      #expect(throws: SQLiteFailure.self) { try connection.run(text) }
      #expect(try await queue.count(matching: .unfinished) == 0)
    }
  }

  @Test(arguments: [1, 2])
  func `a statement in the first form, which earlier versions made, adds a task without metadata`(
    missingColumns: Int
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let queue = TaskQueue(persistence: .sqlite(at: url))
      try await queue.open()
      let statement = try queue.insertStatement(
        for: Receipt(order: 1),
        uniqueKey: "1",
        options: TaskOptions(onDuplicate: .replace, metadata: ["tenant": "eins"])
      )
      // The first version had neither of the last two columns, and later ones had no metadata.
      let columns = missingColumns == 1 ? ", metadata)" : ", counted_from, metadata)"
      let marks = String(repeating: ", ?", count: missingColumns) + ")"
      let old = InsertStatement(
        id: statement.id,
        text: statement.text.replacing("values (2, ", with: "values (1, ")
          .replacing(columns, with: ")").replacing(marks, with: ")"),
        parameters: statement.parameters.dropLast(missingColumns)
      )
      #expect(old.text != statement.text)
      let connection = try database(at: url)
      try connection.run(old)
      #expect(try await queue.tasks().map(\.id) == [old.id])
      #expect(try await queue.tasks().map(\.metadata) == [[:]])
      let next = try queue.insertStatement(
        for: Receipt(order: 2),
        uniqueKey: "1",
        options: TaskOptions(onDuplicate: .replace, metadata: ["tenant": "zwei"])
      )
      try connection.run(next)
      #expect(try await queue.tasks().map(\.id) == [old.id])
      #expect(try await queue.tasks().map(\.metadata) == [["tenant": "zwei"]])
    }
  }

  @Test func `migrating tables of the first version adds the view for insertions`() async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let connection = try database(at: url)
      try Schema(steps: [Schema().steps[0]]).migrate(connection, prefix: "steadfast")
      let queue = TaskQueue(persistence: .sqlite(at: url))
      let statement = try queue.insertStatement(for: Receipt(order: 1))
      let failure = #expect(throws: SQLiteFailure.self) { try connection.run(statement) }
      #expect(failure?.text == "no such table: steadfast_insertion")
      try await queue.open()
      try connection.run(statement)
      #expect(try await queue.tasks().map(\.id) == [statement.id])
    }
  }

  @Test func `a task that a statement can't add is rejected`() async throws {
    let other = TaskQueue(persistence: InMemoryStore())
    let error = #expect(throws: TaskQueueError.self) {
      try other.insertStatement(for: Receipt(order: 1))
    }
    #expect(error?.code == .invalidArgument)
    #expect(error?.message.contains("has no SQL statement that adds a task") == true)
    let store = SQLiteStore(at: URL(filePath: "/nowhere/db"))
    let member = TaskRecord.make(2, dependencies: TaskDependencies(follower: TaskRecord.make(1).id))
    #expect(throws: SQLiteError.self) {
      try store.insertStatement(for: member, onDuplicate: .keep)
    }
    let queue = TaskQueue(persistence: store)
    #expect(throws: TaskQueueError.self) {
      try queue.insertStatement(for: Receipt(order: 1), options: TaskOptions(delay: .seconds(-1)))
    }
  }

  @Test func `a task that a statement adds waits for a running task with the same order key`()
    async throws
  {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let store = SQLiteStore(at: url)
      let (first, second) = (TaskRecord.make(1, orderKey: "o"), TaskRecord.make(2, orderKey: "o"))
      let third = TaskRecord.make(3, orderKey: "o")
      func claim() async throws -> [ClaimedTask] { try await store.claim(.make()).tasks }
      func apply(_ change: TaskChange) async throws -> ChangeOutcome {
        try await store.apply([change], durability: .durable)[0]
      }
      _ = try await store.insert(first, second)
      let date = ClaimRequest.make().now
      let failure = TaskFailure(reason: "no", date: date)
      let lease = try #require(try await claim().first).lease
      #expect(try await apply(.abandon(lease, failure: failure, retains: true)) == .done)
      let running = try #require(try await claim().first)
      #expect(running.record.id == second.id)
      #expect(try await apply(.restart(.unclaimed(first.id), availableDate: date)) == .done)
      let statement = try store.insertStatement(for: third, onDuplicate: .keep)
      try database(at: url).run(try #require(statement))
      #expect(try await claim().isEmpty)
      var order: [TaskID] = []
      var next: ClaimedTask? = running
      while let task = next {
        order.append(task.record.id)
        #expect(try await apply(.succeed(task.lease, at: date, retains: false)) == .done)
        next = try await claim().first
      }
      #expect(order == [second.id, first.id, third.id])
    }
  }

  @Test(.timeLimit(.minutes(5)), arguments: [nil, StoreSharing(pollInterval: .seconds(3_600))])
  func `a running queue performs tasks that another connection commits`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withTemporaryFolder { folder in
      let url = folder.appending(path: "db")
      let queue = TaskQueue(persistence: .sqlite(at: url, sharing: sharing))
      let (orders, perform) = AsyncStream<Int>.makeStream()
      await queue.register(Receipt.self) { receipt, _ in perform.yield(receipt.order) }
      try await queue.open()
      async let running: Void = queue.run()
      let connection = try database(at: url)
      var iterator = orders.makeAsyncIterator()
      for number in 1...20 {
        try connection.run(try queue.insertStatement(for: Receipt(order: number)))
        // Returns when the task has been performed.
        #expect(await iterator.next() == number)
      }
      await queue.shutDown()
      try await running
    }
  }
}
#endif
