#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Sessions whose connection is lost during a commit.
@Suite(.onServer, .serialized, .timeLimit(.minutes(5)))
struct SessionTests {
  /// Returns a session on existing tables that waits 300 milliseconds for a response.
  private func openSession(
    on tables: TestTables,
    prepare: @escaping (_ isFirst: Bool) throws -> Void = { _ in }
  ) async throws -> Session {
    let store = tables.store()
    try await store.open()
    try await store.close()
    return Session(DatabaseLocation(tables.connection, prefix: tables.prefix)) { tables, isFirst in
      tables.database.patience = 300
      try prepare(isFirst)
    }
  }

  private func storeValue(named name: String, on session: Session) throws {
    try session.transaction(isDurable: true) { tables in
      tables.hasChanged = true
      _ = try tables.database.run(
        "insert into steadfast_value values ($1, '')",
        .text(name)
      )
    }
  }

  private func valueNames(in tables: TestTables) throws -> [String] {
    try tables.database().allRows("select name from steadfast_value order by name") { $0.text(0) }
  }

  @Test func `no change is stored after a pooler has switched to another session`() async throws {
    try await withTables { tables in
      let session = try await openSession(on: tables)
      try storeValue(named: "a", on: session)
      let own = session.backend
      session.backend += 1
      let error = #expect(throws: PostgreSQLError.self) { try storeValue(named: "b", on: session) }
      #expect(error?.code == .unsuitableServer)
      session.backend = own
      try storeValue(named: "c", on: session)
      #expect(try valueNames(in: tables) == ["a", "c"])
    }
  }

  @Test(arguments: ["40P01", "40001"])
  func `a transaction that collides with another one is retried`(
    _ state: String
  ) async throws {
    try await withTables { tables in
      let session = try await openSession(on: tables)
      var attempts = 0
      try session.transaction(isDurable: true) { tables in
        tables.hasChanged = true
        _ = try tables.database.run("insert into steadfast_value values ('a', '')")
        attempts += 1
        guard attempts < 3 else { return }
        try tables.database.execute("do $$ begin raise sqlstate '\(state)'; end $$")
      }
      #expect(attempts == 3)
      #expect(try valueNames(in: tables) == ["a"])
    }
  }

  @Test func `a transaction in one round trip stores all of its statements, or none`() async throws
  {
    try await withTables { tables in
      let session = try await openSession(on: tables)
      func store(_ names: String..., then body: (Connection) throws -> Void = { _ in }) throws {
        _ = try session.transactionInOneRoundTrip(isDurable: true) { tables in
          tables.hasChanged = true
          for name in names {
            try tables.database.send("insert into steadfast_value values ($1, '')", .text(name))
          }
          try body(tables.database)
        }
      }
      try store("a", "b")
      #expect(throws: PostgreSQLFailure.self) {
        try store("c") { try $0.send("select 1 / $1::integer", [.bytes([0, 0, 0, 0])]) }
      }
      // The statements were sent, but the server may not commit them.
      let failure = #expect(throws: PostgreSQLFailure.self) {
        try store("d") { database in
          database.mostBytes = 0
          try database.send("select $1::bytea", .bytes([7]))
        }
      }
      #expect(failure?.state == "54000")
      try store("e")
      #expect(try valueNames(in: tables) == ["a", "b", "e"])
    }
  }

  @Test(arguments: ["26000", "42P05"])
  func `a conflict of prepared statements is reported as a pooler that switches sessions`(
    _ state: String
  ) {
    let failure = PostgreSQLFailure(
      state: state,
      text: "ERROR:  prepared statement \"s1\" is not as it was"
    )
    let error = DatabaseLocation("dbname=app").storeError(for: failure)
    #expect(error.code == .unsuitableServer)
    #expect(!error.isTransient)
    #expect(error.message.contains("(prepared statement \"s1\" is not as it was)"))
    #expect(error.message.contains("pool_mode=session"))
  }

  @Test func `a connection that got no response is not reused`() async throws {
    try await withProxy { proxy, tables in
      let session = try await openSession(on: tables)
      try storeValue(named: "a", on: session)
      proxy.planCuts([.silence])
      try storeValue(named: "b", on: session)
      #expect(proxy.count(of: .silence) == 1)
      #expect(try session.lookUp { try $0.first("select 17::bigint") { $0.integer(0) } } == 17)
      try storeValue(named: "c", on: session)
      #expect(try valueNames(in: tables) == ["a", "b", "c"])
    }
  }

  @Test func `a response that comes too late makes the connection permanently unusable`()
    async throws
  {
    try await withTables { tables in
      let database = try tables.database()
      database.patience = 50
      #expect(throws: PostgreSQLFailure.self) { try database.hasRow("select pg_sleep(0.3)") }
      #expect(database.isLost)
      // The response has arrived by now, and the library reports the connection as usable.
      #expect(try tables.database().hasRow("select pg_sleep(0.5)"))
      #expect(database.isLost)
    }
  }

  @Test func `a script has the same time-out as a statement`() async throws {
    try await withTables { tables in
      let database = try tables.database()
      database.patience = 50
      let failure = try #require(throws: PostgreSQLFailure.self) {
        try database.execute("select pg_sleep(0.5)")
      }
      #expect(failure.isConnectionLost)
      #expect(database.isLost)
    }
  }

  @Test func `a script that fails leaves the connection usable`() async throws {
    try await withTables { tables in
      let database = try tables.database()
      let failure = try #require(throws: PostgreSQLFailure.self) {
        try database.execute("select 1; select 1 / 0; select 2")
      }
      #expect(failure.state == "22012")
      #expect(!failure.isConnectionLost)
      #expect(try database.first("select 17::bigint") { $0.integer(0) } == 17)
    }
  }

  @Test func `a connection waits for a response for longer than the server's statement time-out`()
    async throws
  {
    try await withTables { tables in
      let options = "options='-c statement_timeout=10min'"
      for (parameters, patience) in [("", 120_000), (options, 630_000)] {
        let location = DatabaseLocation(
          try Server.connection(with: parameters),
          prefix: tables.prefix
        )
        let database = try Connection(location.connection.get().parameters)
        try SessionSettings(location).apply(to: database)
        #expect(Int(database.patience) == patience)
      }
      let location = DatabaseLocation(try Server.connection(with: options), prefix: tables.prefix)
      let database = try Connection(location.connection.get().parameters)
      database.patience = 500
      try SessionSettings(location).apply(to: database)
      #expect(try database.hasRow("select pg_sleep(0.7)"))
    }
  }

  @Test func `a change on a server that has become read-only fails with a transient error`()
    async throws
  {
    try await withTables { tables in
      let session = try await openSession(on: tables)
      let failure = try #require(throws: PostgreSQLFailure.self) {
        try session.retrying(for: .seconds(0)) { tables in
          try tables.database.execute(
            "begin read only; insert into steadfast_value values ('a', '')"
          )
        }
      }
      #expect(failure.state == "25006")
      let error = try #require(session.location.errorForCaller(failure) as? PostgreSQLError)
      #expect(error.code == .unreachable)
      #expect(error.isTransient)
      #expect(error.message.contains("accepts no changes"))
      try storeValue(named: "b", on: session)
      #expect(try valueNames(in: tables) == ["b"])
    }
  }

  @Test(
    arguments: [
      PostgreSQLError(.inUse, "the tables are in use"),
      PostgreSQLError(.notAllowed, "not let in"),
      PostgreSQLFailure(state: "57014", text: "ERROR:  canceled"),
    ] as [any Error]
  )
  func `if a commit can't be looked up, the error says that the outcome is unknown, and why`(
    _ reason: any Error
  ) async throws {
    try await withProxy { proxy, tables in
      let session = try await openSession(on: tables) { isFirst in if !isFirst { throw reason } }
      try storeValue(named: "a", on: session)
      proxy.planCuts([.after])
      let error = try #require(throws: PostgreSQLError.self) {
        try storeValue(named: "b", on: session)
      }
      #expect(error.code == .outcomeUnknown)
      #expect(["in use", "not let in", "canceled"].contains { error.message.hasSuffix($0) })
      #expect(try valueNames(in: tables) == ["a", "b"])
    }
  }

  @Test func `looking up a commit waits for the server until the store stops waiting`() async throws
  {
    try await withProxy { proxy, tables in
      let lookUps = Log<Int>()
      let stop = Log<StopFlag>()
      let session = try await openSession(on: tables) { isFirst in
        guard !isFirst else { return }
        lookUps.add(1)
        if lookUps.count == 12 { stop.entries[0].set(true) }
        throw PostgreSQLFailure(state: "08006", text: "FATAL:  gone", isConnectionLost: true)
      }
      stop.add(session.location.stop)
      try storeValue(named: "a", on: session)
      proxy.planCuts([.after])
      let error = #expect(throws: PostgreSQLError.self) { try storeValue(named: "b", on: session) }
      #expect(error?.code == .outcomeUnknown && error?.isTransient == false)
      // These look-ups take longer than the server may be away for any other call.
      #expect(lookUps.count == 12)
      #expect(try valueNames(in: tables) == ["a", "b"])
    }
  }

  @Test func `looking up a commit waits until the session's lock is free`()
    async throws
  {
    try await withProxy { proxy, tables in
      let refusals = Log<Int>()
      let session = try await openSession(on: tables) { isFirst in
        guard !isFirst, refusals.entries.count < 3 else { return }
        refusals.add(1)
        throw PostgreSQLFailure(state: "55P03", text: "ERROR:  canceled due to lock time-out")
      }
      try storeValue(named: "a", on: session)
      proxy.planCuts([.after])
      try storeValue(named: "b", on: session)
      #expect(refusals.entries.count == 3)
      #expect(try valueNames(in: tables) == ["a", "b"])
    }
  }

  @Test func `a commit that was found by looking it up is acknowledged only after another commit`()
    async throws
  {
    try await withProxy { proxy, tables in
      let session = try await openSession(on: tables)
      func isRowOfTheChange(_ name: String) throws -> Bool {
        try tables.database().hasRow(
          """
          select from steadfast_value as value join steadfast_request as request
            on request.xmin = value.xmin
          where name = $1
          """,
          .text(name)
        )
      }
      try storeValue(named: "a", on: session)
      #expect(try isRowOfTheChange("a"))
      proxy.planCuts([.after])
      try storeValue(named: "b", on: session)
      #expect(try !isRowOfTheChange("b"))
      #expect(try valueNames(in: tables) == ["a", "b"])
    }
  }

  @Test func `a session reconnects if a rollback fails`() async throws {
    try await withProxy { _, tables in
      let session = try await openSession(on: tables)
      struct Refusal: Error {}
      #expect(throws: Refusal.self) {
        try session.transaction(isDurable: true) { tables in
          // The response to this statement is never read.
          tables.database.patience = 1
          try tables.database.send("select pg_sleep(0.5)")
          throw Refusal()
        }
      }
      try storeValue(named: "a", on: session)
      #expect(try valueNames(in: tables) == ["a"])
    }
  }

  @Test func `a session reconnects if a rollback gets no response`() async throws {
    try await withProxy { proxy, tables in
      let session = try await openSession(on: tables)
      struct Refusal: Error {}
      try storeValue(named: "a", on: session)
      proxy.withholdScript("rollback")
      #expect(throws: Refusal.self) {
        try session.transaction(isDurable: true) { _ in throw Refusal() }
      }
      #expect(proxy.count(of: .silence) == 1)
      try storeValue(named: "b", on: session)
      #expect(try valueNames(in: tables) == ["a", "b"])
    }
  }

  @Test(arguments: [Proxy.Cut.before, .after])
  func `destroying removes the tables even if a connection breaks at the commit`(
    _ cut: Proxy.Cut
  ) async throws {
    try await withProxy { proxy, tables in
      let store = tables.store()
      try await store.open()
      proxy.planCuts([cut])
      try await store.destroy()
      #expect(proxy.count(of: cut) == 1)
      #expect(try Schema().version(in: tables.database(), prefix: tables.prefix) == nil)
    }
  }
}
#endif
