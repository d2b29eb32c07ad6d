#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Databases that a store can't open and leaves unchanged, with an error that says what to do.
@Suite(.onServer)
struct PostgreSQLOpeningTests {
  /// Returns the tables of a test, with their columns.
  private func columns(of tables: TestTables) throws -> [String] {
    try tables.database().allRows(
      """
      select table_name || '.' || column_name from information_schema.columns
      where table_name like $1::text order by 1
      """,
      .text(tables.prefix + "%")
    ) { $0.text(0) }
  }

  @Test func `tables of a newer version are rejected and left unchanged`() async throws {
    try await withTables { tables in
      let first = tables.store()
      _ = try await first.insert(.numbered(1))
      try await first.close()
      try tables.database().execute("update steadfast_schema set version = 99")
      let before = try columns(of: tables)
      let store = tables.store()
      let error = await store.openingError()
      #expect(error?.code == .newerVersion)
      #expect(
        error?.message.hasSuffix(
          "were made by a newer version of Steadfast: they have version 99, and this package knows "
            + "versions up to \(Schema().version). The tables were not changed; update the package "
            + "Steadfast"
        ) == true
      )
      #expect(await store.error { try await $0.destroy() }?.code == .newerVersion)
      #expect(try columns(of: tables) == before)
      #expect(
        try tables.database().first("select count(*) from steadfast_task") {
          $0.integer(0)
        } == 1
      )
    }
  }

  @Test(arguments: ["task", "schema", "value"])
  func `a table of another program is rejected and left unchanged`(
    _ name: String
  ) async throws {
    try await withTables { tables in
      try tables.database().execute("create table steadfast_\(name) (mine text)")
      let before = try columns(of: tables)
      let store = tables.store()
      let error = await store.openingError()
      #expect(error?.code == .foreignTable)
      #expect(
        error?.message.contains(
          "has a table or sequence \(tables.prefix)_\(name) that was not made by Steadfast. "
            + "Nothing was changed"
        ) == true
      )
      #expect(await store.error { try await $0.destroy() }?.code == .foreignTable)
      #expect(try columns(of: tables) == before)
    }
  }

  @Test func `the error for a missing database names the database`() async throws {
    let store = PostgreSQLStore(try Server.connection(with: "dbname=no_such_database"))
    let error = await store.openingError()
    #expect(error?.code == .noDatabase)
    #expect(error?.isTransient == false)
    #expect(error?.message.contains("database \"no_such_database\" does not exist") == true)
  }

  @Test(arguments: ["hots=here", "host='here", "postgresql://host:port", "host=a\u{0}b"])
  func `a connection string with a typo is rejected before connecting`(
    _ string: String
  ) async throws {
    let error = await PostgreSQLStore(string).openingError()
    #expect(error?.code == .invalidArgument)
    #expect(error?.isTransient == false)
    #expect(error?.message.hasPrefix("the connection string can't be read: ") == true)
  }

  @Test(arguments: ["", "Jobs", "1a", "a-b", "pg_jobs", String(repeating: "a", count: 41)])
  func `a prefix that is not an identifier is rejected`(_ prefix: String) async throws {
    let store = PostgreSQLStore(try #require(Server.connection), prefix: prefix)
    #expect(await store.openingError()?.code == .invalidArgument)
  }

  @Test func `the error for a missing schema names the schema`() async throws {
    let store = PostgreSQLStore(try #require(Server.connection), schema: "no \"such\" schema")
    let error = await store.openingError()
    #expect(error?.code == .noSchema)
    #expect(error?.message.contains("has no schema no \"such\" schema that") == true)
  }

  @Test func `the tables are created in the chosen schema, whatever its name`() async throws {
    try await withTables { tables in
      let schema = "\"odd\" \(tables.prefix)"
      let quoted = "\"" + schema.replacing("\"", with: "\"\"") + "\""
      try tables.database().execute("create schema \(quoted)")
      let store = PostgreSQLStore(tables.connection, schema: schema, prefix: tables.prefix)
      #expect(try await store.insert(.numbered(1)) == [.done])
      #expect(try await tables.store().insert(.numbered(1)) == [.done])
      #expect(try await store.claim(.ofA()).tasks.count == 1)
      try await store.destroy()
      try tables.database().execute("drop schema \(quoted)")
      #expect(try await tables.store().count(matching: .unfinished) == 1)
    }
  }

  @Test func `a read-only session is rejected`() async throws {
    let options = "options='-c default_transaction_read_only=on'"
    let error = await PostgreSQLStore(try Server.connection(with: options)).openingError()
    #expect(error?.code == .readOnly)
    #expect(error?.message.contains("target_session_attrs=read-write") == true)
  }

  @Test func `that no host is writable is a transient error if the string names several hosts`()
    async throws
  {
    let server = try #require(Server.connection)
    let host = try #require(try ConnectionString(server).parameters.first { $0.name == "host" })
    let standby = "target_session_attrs=read-write options='-c default_transaction_read_only=on'"
    for (hosts, code) in [(1, PostgreSQLError.Code.readOnly), (2, .unreachable)] {
      let names = Array(repeating: host.value, count: hosts).joined(separator: ",")
      let error = await PostgreSQLStore(try Server.connection(with: "host=\(names) \(standby)"))
        .openingError()
      #expect(error?.code == code)
      #expect(error?.isTransient == (hosts > 1))
      #expect(error?.message.contains("accepts no changes") == true)
    }
  }

  @Test func `a store that may not create its tables throws an error with the statements to run`()
    async throws
  {
    try await withTables { tables in
      let error = await tables.store(migrates: false).openingError()
      #expect(error?.code == .tablesMissing)
      let script = try PostgreSQLStore.tables(prefix: tables.prefix)
      #expect(error?.statements == script)
      #expect(error?.message.contains("\n") == false)
      #expect(try columns(of: tables).isEmpty)
      try tables.database().execute(script)
      let store = tables.store(migrates: false)
      #expect(try await store.insert(.numbered(1)) == [.done])
    }
  }

  @Test func `a store with only the documented privileges works once the tables exist`()
    async throws
  {
    try await withTables { tables in
      let owner = tables.store()
      try await owner.open()
      let role = "role_\(tables.prefix)"
      try tables.database().execute(
        """
        create role \(role) login;
        grant usage on schema public to \(role);
        grant select, insert, update, delete on steadfast_task, steadfast_dependency,
          steadfast_memory, steadfast_value, steadfast_request, steadfast_schema to \(role);
        grant usage on sequence steadfast_place to \(role);
        """
      )
      let connection = try Server.connection(with: "user=\(role)")
      let store = PostgreSQLStore(connection, prefix: tables.prefix, migrates: false)
      #expect(try await store.insert(.numbered(1), .numbered(2, orderKey: "o")) == [.done, .done])
      let claim = try await store.claim(.ofA())
      let ends = claim.tasks.map { TaskChange.succeed($0.lease, at: Date(), retains: false) }
      #expect(try await store.apply(ends, durability: .durable) == [.done, .done])
      let other = PostgreSQLStore(connection, prefix: "other_\(tables.prefix.suffix(10))")
      let error = await other.openingError()
      #expect(error?.code == .noPrivilege)
      #expect(error?.message.contains("permission denied for schema public") == true)
      try await store.close()
      try tables.database().execute("drop owned by \(role); drop role \(role)")
    }
  }

  @Test func `an unshared store locks out other stores, and is locked out by shared stores`()
    async throws
  {
    try await withTables { tables in
      let store = tables.store(sharing: nil)
      try await store.open()
      for sharing in [nil, StoreSharing()] {
        let other = tables.store(sharing: sharing)
        let error = await other.openingError()
        #expect(error?.code == .inUse)
        let refusal = await other.error { try await $0.destroy() }
        #expect(refusal?.code == .inUse, "\(sharing as Any): \(refusal as Any)")
      }
      try await store.close()
      let (first, second) = (tables.store(), tables.store())
      try await first.open()
      try await second.open()
      #expect(await tables.store(sharing: nil).openingError()?.code == .inUse)
    }
  }

  @Test func `several stores can create the tables at the same time`() async throws {
    try await withTables { tables in
      let stores = (0..<4).map { _ in tables.store() }
      try await withThrowingTaskGroup { group in
        for store in stores { group.addTask { try await store.open() } }
        try await group.waitForAll()
      }
      _ = try await stores[0].insert(.numbered(1))
      #expect(try await stores[3].count(matching: .unfinished) == 1)
    }
  }

  @Test func `closing a store waits for running reads`() async throws {
    try await withTables { tables in
      let store = tables.store()
      _ = try await store.insert(.numbered(1))
      let hints = try #require(store.hints)
      let other = try tables.database()
      // Only the read waits for this lock.
      try other.execute("begin; lock table steadfast_value in access exclusive mode")
      let ends = Log<String>()
      async let value = {
        defer { ends.add("read") }
        return try await store.value(named: "v")
      }()
      let database = try tables.database()
      let waits = """
        select from pg_locks
        where relation = to_regclass('steadfast_value') and locktype = 'relation' and not granted
        """
      while try !database.hasRow(waits) { try #require(ends.entries.isEmpty) }
      async let closing: Void = {
        try await store.close()
        ends.add("closed")
      }()
      // The hints end as soon as the store accepts no more calls.
      for await _ in hints {}
      // If closing did not wait for the read, it would have ended by now.
      for _ in 1...100 where ends.entries.isEmpty { #expect(try database.hasRow(waits)) }
      #expect(ends.entries.isEmpty)
      try other.execute("commit")
      #expect(try await value == nil)
      try await closing
    }
  }

  @Test func `calls of a closed store throw, but destroying it succeeds`() async throws {
    try await withTables { tables in
      let store = tables.store()
      try await store.open()
      try await store.close()
      #expect(await store.openingError()?.code == .closed)
      #expect(await store.error { _ = try await $0.claim(.ofA()) }?.code == .closed)
      try await store.destroy()
      try await store.destroy()
      #expect(try columns(of: tables).isEmpty)
    }
  }
}
#endif
