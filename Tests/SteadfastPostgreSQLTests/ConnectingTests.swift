#if PostgreSQL
import Foundation
import SteadfastDatabases
import SteadfastQueue
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

/// Connecting to the server: users, passwords, certificates, versions and poolers.
@Suite(.onServer)
struct PostgreSQLConnectingTests {
  @Test func `connecting as an unknown user is a permanent error`() async throws {
    let error = await PostgreSQLStore(try Server.connection(with: "user=nobody_here"))
      .openingError()
    #expect(error?.code == .notAllowed)
    #expect(error?.isTransient == false)
  }

  @Test func `opening a queue throws at once if the folder of the server's socket is missing`()
    async throws
  {
    let queue = TaskQueue(
      persistence: PostgreSQLStore("host=/nowhere dbname=app"),
      configuration: TaskQueueConfiguration(storeTimeout: .seconds(86_400))
    )
    let error = await #expect(throws: PostgreSQLError.self) { try await queue.open() }
    #expect(error?.code == .unreachable && error?.isProbablyLasting == true)
    #expect(error?.message.contains("/nowhere") == true)
  }

  @Test(arguments: [
    ("could not translate host name \"databse\" to address: Name or service not known", true),
    ("connection to server at \"db\" (10.0.0.1), port 5432 failed: Connection refused", false),
    (
      "connection to server on socket \"/tmp/.s.PGSQL.5432\" failed: No such file or directory",
      false
    ),
  ])
  func `a host without an address is probably a mistake, but not a host that is down`(
    text: String,
    isProbablyLasting: Bool
  ) throws {
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    let error = DatabaseLocation("host=/tmp dbname=app").connectError(for: failure)
    #expect(error.code == .unreachable && error.isTransient)
    #expect(error.isProbablyLasting == isProbablyLasting)
  }

  @Test(arguments: [
    "FATAL:  password authentication failed for user \"x\"", "no password supplied",
  ])
  func `a wrong password is a permanent error`(_ text: String) throws {
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    let error = DatabaseLocation("dbname=app").connectError(for: failure)
    #expect(error.code == .notAllowed)
    #expect(error.message.contains("Check the user, the password and the server's pg_hba.conf"))
  }

  @Test(.enabled(if: Server.guarded != nil, "STEADFAST_POSTGRESQL_GUARDED names no role"))
  func `a role can connect only with its password`() async throws {
    try await withTables { tables in
      let role = try #require(Server.guarded)
      let database = try tables.database()
      // A killed test run can leave the role, and perhaps its tables.
      let isDeferred = try database.first("select from pg_roles where rolname = $1", .text(role)) {
        _ in
        true
      }
      if isDeferred != nil {
        try database.execute("drop owned by \(role) cascade; drop role \(role)")
      }
      try database.execute("create role \(role) login superuser password 'open sesame'")
      defer { try? database.execute("drop role \(role)") }
      for password in ["", " password='open secret'"] {
        let store = PostgreSQLStore(try Server.connection(with: "user=\(role)" + password))
        let error = await store.openingError()
        #expect(error?.code == .notAllowed)
        #expect(error?.isTransient == false)
        let message = try #require(error?.message)
        #expect(message.contains("Check the user, the password and the server's pg_hba.conf"))
        #expect(!message.contains("secret"))
      }
      let store = PostgreSQLStore(
        try Server.connection(with: "user=\(role) password='open sesame'"),
        prefix: tables.prefix
      )
      #expect(await store.openingError() == nil)
      try await store.close()
    }
  }

  @Test func `connecting to a server that is down is a transient error`() async throws {
    let string = "host=/nowhere dbname=app password=secret"
    let error = await PostgreSQLStore(string).openingError()
    #expect(error?.code == .unreachable)
    #expect(error?.isTransient == true)
    #expect(error?.message.contains("the database app on /nowhere can't be reached") == true)
    #expect(error?.message.contains("secret") == false)
  }

  @Test func `a server that is too old is rejected`() throws {
    let settings = SessionSettings(DatabaseLocation("dbname=app"))
    #expect(throws: Never.self) { try settings.check(version: 130_000) }
    let error = #expect(throws: PostgreSQLError.self) { try settings.check(version: 120_022) }
    #expect(error?.code == .unsuitableServer)
    #expect(
      error?.message
        == "the server of the database app on this machine is PostgreSQL 12; the store needs version "
        + "13 or newer"
    )
  }

  @Test func `connecting to a server that reports an old version is a permanent error`()
    async throws
  {
    try await withProxy { proxy, tables in
      proxy.reportVersion("12")
      let error = await tables.store().openingError()
      #expect(error?.code == .unsuitableServer)
      #expect(error?.isTransient == false)
      #expect(
        error?.message.hasSuffix("is PostgreSQL 12; the store needs version 13 or newer") == true
      )
      proxy.reportVersion("13")
      let store = tables.store()
      #expect(await store.openingError() == nil)
      try await store.close()
    }
  }

  // MARK: TLS

  @Test(.onSecuredServer)
  func `a store connects over TLS and verifies the certificate`() async throws {
    let certificate = try #require(Server.certificate)
    let string = try #require(Server.secured) + " sslmode=verify-full sslrootcert=\(certificate)"
    try await withTables(on: string) { tables in
      let store = tables.store()
      let queue = TaskQueue(persistence: store)
      await queue.register(name: "A") { _, _ in }
      try await queue.enqueue(name: "A")
      #expect(try await queue.runAvailable() == 1)
      let isEncrypted = try tables.database().first(
        "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) "
          + "where application_name = 'Steadfast'"
      ) { $0.flag(0) }
      #expect(isEncrypted == true)
      try await store.close()
    }
  }

  @Test(
    .onSecuredServer,
    arguments: [
      ("host=other.example sslmode=verify-full", true),
      ("sslmode=verify-full sslrootcert=/nowhere", false),
      ("sslmode=verify-full sslrootcert=/etc/hostname", false),
    ]
  )
  func `connecting to an untrusted server is a permanent error`(
    _ parameters: String,
    _ hasCertificate: Bool
  ) async throws {
    var string = try #require(Server.secured) + " " + parameters
    if hasCertificate { string += " sslrootcert=\(try #require(Server.certificate))" }
    let error = await PostgreSQLStore(string).openingError()
    #expect(error?.code == .tlsFailed)
    #expect(error?.isTransient == false)
    #expect(error?.message.contains("Check sslmode, sslrootcert and the host's name") == true)
  }

  @Test(.onSecuredServer)
  func `connecting without encryption to a server that requires TLS is a permanent error`()
    async throws
  {
    let error = await PostgreSQLStore(try #require(Server.secured) + " sslmode=disable")
      .openingError()
    #expect(error?.code == .notAllowed)
    #expect(error?.isTransient == false)
  }

  @Test
  func `a host without TLS is a permanent error if the connection string names no other host`() {
    let failure = PostgreSQLFailure(
      state: "",
      text:
        "connection to server at \"db\" failed: server does not support SSL, but SSL was required",
      isConnectionLost: true
    )
    #expect(DatabaseLocation("host=db").connectError(for: failure).code == .tlsFailed)
    #expect(DatabaseLocation("host=db,other").connectError(for: failure).code == .unreachable)
  }

  // MARK: Poolers

  @Test(.enabled(if: Server.pooled != nil, "STEADFAST_POSTGRESQL_POOLED names no pooler"))
  func `a pooler that switches sessions is reported, and the reported changes are not stored`()
    async throws
  {
    let pooled = try #require(Server.pooled)
    try await withTables { tables in
      let owner = tables.store()
      try await owner.open()
      // The pooler uses one session for both stores.
      let stores = (0..<2).map { _ in TestTables(connection: pooled, prefix: tables.prefix).store()
      }
      var errors: [PostgreSQLError] = []
      var acknowledged: Set<TaskID> = []
      for number in 1...20 {
        let record = TaskRecord.numbered(number)
        let error = await stores[number % 2].error { _ = try await $0.insert(record) }
        if let error { errors.append(error) } else { acknowledged.insert(record.id) }
      }
      #expect(!errors.isEmpty)
      #expect(errors.allSatisfy { $0.code == .unsuitableServer && !$0.isTransient })
      #expect(errors.allSatisfy { $0.message.contains("pool_mode=session") })
      #expect(try await Set(owner.tasks(matching: TaskFilter()).map(\.id)) == acknowledged)
      try await owner.close()
    }
  }
}
#endif
