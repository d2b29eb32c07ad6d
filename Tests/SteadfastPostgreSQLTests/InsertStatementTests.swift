#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

private struct Receipt: TaskPayload, Equatable {
  var order: Int
  var options: TaskOptions { TaskOptions(priority: .high, tags: ["receipt", "\"a\\"]) }
}

/// Tasks that another connection enqueues within its own transaction.
@Suite(.onServer)
struct PostgreSQLInsertStatementTests {
  @Test func `a statement adds a task with the same options and defaults as enqueue`()
    async throws
  {
    try await withTables { tables in
      let queue = TaskQueue(
        persistence: tables.store(),
        configuration: TaskQueueConfiguration(taskDefaults: TaskOptions(maxRetries: 3))
      )
      let chosen = TaskOptions(
        delay: .seconds(3_600),
        timeLimit: .seconds(9),
        orderKey: "o",
        uniqueFor: .seconds(60),
        metadata: ["tenant": "it's \\ \"é\"", "trace": "1"]
      )
      let first = try await queue.enqueue(Receipt(order: 1), uniqueKey: "a", options: chosen)
      let statement = try queue.insertStatement(
        for: Receipt(order: 1),
        uniqueKey: "b",
        options: chosen
      )
      #expect(try tables.database().run(statement))
      let records = try await queue.tasks()
      #expect(records.map(\.id) == [first.id, statement.id])
      let (own, other) = (try #require(records.first), try #require(records.last))
      #expect(try other.payload(as: Receipt.self) == own.payload(as: Receipt.self))
      #expect(other.tags == own.tags && other.name == own.name)
      #expect(own.metadata == chosen.metadata && other.metadata == chosen.metadata)
      #expect(other.maxRetries == .atMost(3) && other.priority == own.priority)
      #expect(other.timeLimit == own.timeLimit && other.orderKey == own.orderKey)
      #expect(other.uniqueKey == "b" && other.keyRole == .holder)
      #expect(other.availableDate.timeIntervalSince(other.createdDate) == 3_600)
      #expect(
        other.uniqueUntil?.timeIntervalSince(other.createdDate)
          == own.uniqueUntil?.timeIntervalSince(own.createdDate)
      )
    }
  }

  @Test func `a task is committed or rolled back together with the program's own rows`()
    async throws
  {
    try await withTables { tables in
      let queue = TaskQueue(persistence: tables.store())
      try await queue.open()
      let database = try tables.database()
      let orders = "\(tables.prefix)_orders"
      try database.execute("create table \(orders) (number bigint primary key)")
      for number in 1...4 {
        try database.execute("begin; insert into \(orders) values (\(number))")
        #expect(try database.run(try queue.insertStatement(for: Receipt(order: number))))
        try database.execute(number.isMultiple(of: 2) ? "commit" : "rollback")
      }
      let receipts = try await queue.tasks().map { try $0.payload(as: Receipt.self).order }
      #expect(receipts == [2, 4])
      let numbers = try database.allRows("select number from \(orders) order by 1") {
        $0.integer(0)
      }
      #expect(numbers == receipts)
      try database.execute("drop table \(orders)")
    }
  }

  /// Such a transaction does not see what other transactions have committed since it started.
  ///
  /// If the function did not check the isolation level, a second task could be added for a key.
  @Test(arguments: ["repeatable read", "serializable"])
  func `a transaction with an old snapshot can't add a task with a key`(_ level: String)
    async throws
  {
    try await withTables { tables in
      let queue = TaskQueue(persistence: tables.store())
      try await queue.open()
      let database = try tables.database()
      func message(_ uniqueKey: String?, _ options: TaskOptions) throws -> String? {
        let statement = try queue.insertStatement(
          for: Receipt(order: 1),
          uniqueKey: uniqueKey,
          options: options
        )
        try database.execute("begin isolation level \(level)")
        defer { _ = try? database.execute("commit") }
        do {
          #expect(try database.run(statement))
          return nil
        } catch let failure as PostgreSQLFailure {
          return failure.reason
        }
      }
      let reason = "a task with a unique key or an order key is added in a transaction"
      #expect(try message("k", TaskOptions())?.hasPrefix(reason) == true)
      #expect(try message(nil, TaskOptions(orderKey: "o"))?.contains(level) == true)
      #expect(try message(nil, TaskOptions()) == nil)
      #expect(try await queue.count == 1)
    }
  }

  @Test func `a statement returns whether the task was added`() async throws {
    try await withTables { tables in
      let queue = TaskQueue(persistence: tables.store())
      try await queue.open()
      let database = try tables.database()
      func isAdded(_ policy: UniquePolicy) throws -> Bool {
        let options = TaskOptions(onDuplicate: policy)
        return try database.run(
          queue.insertStatement(for: Receipt(order: 1), uniqueKey: "1", options: options)
        )
      }
      #expect(try isAdded(.reject))
      #expect(try !isAdded(.keep))
      #expect(try !isAdded(.replace))
      let failure = #expect(throws: PostgreSQLFailure.self) { try isAdded(.reject) }
      #expect(failure?.reason == "a task with the unique key of the new one is there already")
      #expect(try await queue.count(matching: .unfinished) == 1)
    }
  }

  @Test func `a statement is rejected if another version made it or its function is missing`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      let statement = try #require(
        try store.insertStatement(for: .numbered(1), onDuplicate: .keep)
      )
      let database = try tables.database()
      #expect(throws: PostgreSQLFailure.self) { try database.run(statement) }
      try await store.open()
      let other = InsertStatement(
        id: statement.id,
        text: statement.text.replacing("_insert(2, ", with: "_insert(3, "),
        parameters: statement.parameters
      )
      let failure = #expect(throws: PostgreSQLFailure.self) { try database.run(other) }
      #expect(
        failure?.reason
          == "the statement that adds a task was made by another version of Steadfast than the "
          + "tables of the queue; use one version for both"
      )
      let member = TaskRecord.numbered(
        2,
        dependencies: TaskDependencies(follower: TaskRecord.numbered(1).id)
      )
      #expect(throws: PostgreSQLError.self) {
        try store.insertStatement(for: member, onDuplicate: .keep)
      }
      #expect(try await store.count(matching: TaskFilter()) == 0)
      try await store.close()
    }
  }

  @Test(arguments: [1, 2])
  func `a statement in the first form, which earlier versions made, adds a task without metadata`(
    missingArguments: Int
  ) async throws {
    try await withTables { tables in
      let queue = TaskQueue(persistence: tables.store())
      try await queue.open()
      func statement(_ tenant: String) throws -> InsertStatement {
        try queue.insertStatement(
          for: Receipt(order: 1),
          uniqueKey: "1",
          options: TaskOptions(onDuplicate: .replace, metadata: ["tenant": tenant])
        )
      }
      let new = try statement("eins")
      // The first version had neither of the last two arguments, and later ones had no metadata.
      let last = missingArguments == 1 ? ", $25::jsonb)" : ", $24::bigint, $25::jsonb)"
      #expect(new.text.contains(last))
      let old = InsertStatement(
        id: new.id,
        text: new.text.replacing("_insert(2, ", with: "_insert(1, ").replacing(last, with: ")"),
        parameters: new.parameters.dropLast(missingArguments)
      )
      let database = try tables.database()
      #expect(try database.run(old))
      #expect(try await queue.tasks().map(\.id) == [old.id])
      #expect(try await queue.tasks().map(\.metadata) == [[:]])
      #expect(try !database.run(statement("zwei")))
      #expect(try await queue.tasks().map(\.id) == [old.id])
      #expect(try await queue.tasks().map(\.metadata) == [["tenant": "zwei"]])
    }
  }

  @Test(arguments: 1..<Schema().version)
  func `migrating older tables adds the function for insertions, and keeps tasks and dates`(
    version: Int
  ) async throws {
    try await withTables { tables in
      let database = try tables.database()
      try SessionSettings(DatabaseLocation(tables.connection)).apply(to: database)
      let old = Schema(steps: Array(Schema().steps.prefix(version)))
      try old.migrate(database, prefix: tables.prefix, mayChange: true)
      // Each task was available a minute after its creation, task 2 because of a failure.
      try database.execute(
        """
        insert into steadfast_task (id, name, queue, payload, format, schema_version, priority,
          created_date, available_date, uses_backoff, holds_order, conditions, dependency_rule,
          tags, state, retry_count, interruption_count, put_off, name_count, failed_date,
          last_error)
        select ('01900000-0000-7000-8000-00000000000' || number)::uuid, 'A', '', '{}', 'json', 1,
          0, now(), now() + interval '1 minute', true, false, '{}', 'allSucceeded', '{}',
          'waiting', 0, 0, false, 0, case when number = 2 then now() + interval '1 second' end,
          case when number = 2 then 'no' end
        from generate_series(1, 2) as number
        """
      )
      let store = tables.store()
      try await store.open()
      let statement = try store.insertStatement(for: .numbered(3), onDuplicate: .keep)
      #expect(try database.run(try #require(statement)))
      let tasks = try await store.tasks(matching: TaskFilter())
      #expect(tasks.map(\.id) == [1, 2, 3].map { TaskRecord.numbered($0).id })
      #expect(tasks[0].countedFrom == nil)
      // Version 5 adds the column.
      #expect(tasks[1].countedFrom == (version < 5 ? tasks[1].failedDate : nil))
      #expect(tasks[2].countedFrom == tasks[2].createdDate)
      try await store.close()
    }
  }

  @Test
  func `a transaction that inserts a key waits for an earlier transaction that inserted the key`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      let (first, second) = (try tables.database(), try tables.database())
      func statement(_ number: Int) throws -> InsertStatement {
        try #require(
          try store.insertStatement(for: .numbered(number, uniqueKey: "k"), onDuplicate: .keep)
        )
      }
      try first.execute("begin")
      #expect(try first.run(statement(1)))
      try second.execute("set lock_timeout = '50ms'")
      let failure = #expect(throws: PostgreSQLFailure.self) { try second.run(statement(2)) }
      #expect(failure?.state == "55P03")
      try first.execute("commit")
      #expect(try !second.run(statement(2)))
      #expect(try await store.count(matching: TaskFilter()) == 1)
      try await store.close()
    }
  }

  @Test(.timeLimit(.minutes(5)), arguments: [nil, StoreSharing(pollInterval: .seconds(3_600))])
  func `a running queue performs tasks that another connection commits`(
    _ sharing: StoreSharing?
  ) async throws {
    try await withTables { tables in
      let queue = TaskQueue(persistence: tables.store(sharing: sharing))
      let (orders, perform) = AsyncStream<Int>.makeStream()
      await queue.register(Receipt.self) { receipt, _ in perform.yield(receipt.order) }
      try await queue.open()
      async let running: Void = queue.run()
      let database = try tables.database()
      var iterator = orders.makeAsyncIterator()
      for number in 1...20 {
        #expect(try database.run(try queue.insertStatement(for: Receipt(order: number))))
        // Returns when the task has been performed.
        #expect(await iterator.next() == number)
      }
      await queue.shutDown()
      try await running
    }
  }
}
#endif
