#if PostgreSQL
import Testing

@testable import SteadfastPostgreSQL

/// Connection strings, and errors about them, which never show a password.
@Suite
struct ConnectionStringTests {
  @Test(arguments: [
    ("postgresql://user:se%zzcret@host/app", "invalid percent-encoded token"),
    ("password=my secretword", "missing = after a name"),
    (
      "postgresql://user:secret@[::1/app",
      "end of string reached when looking for matching ] in IPv6 host address in URI"
    ),
    ("postgresql://user:se@cret@host/app", "an @ in a name or password is written as %40"),
    ("postgresql://user:se@cret:secret@host/app", "an @ in a name or password is written as %40"),
    ("postgres://user:se@cret/secret@host/app", "an @ in a name or password is written as %40"),
    ("postgresql://user:se/cret@host/app", "an @ in a name or password is written as %40"),
    ("postgresql://user:secret", "its port is not a number"),
    ("postgresql://host/app?secret", "missing key/value separator = in URI query parameter"),
    ("postgresql://host/app?a=secret=b", "extra key/value separator = in URI query parameter"),
    ("host=here secret=a", "invalid connection option"),
    ("dbname='host=here password=secret'", "its dbname is a connection string itself"),
    ("dbname=postgresql://user:secret@here", "its dbname is a connection string itself"),
  ])
  func `an error shows no part of an unreadable connection string`(
    _ string: String,
    _ reason: String
  ) throws {
    let location = DatabaseLocation(string)
    let error = try #require(throws: PostgreSQLError.self) { try location.checkArguments() }
    #expect(error.code == .invalidArgument)
    let start = "the connection string can't be read: \(reason)"
    #expect(error.message.hasPrefix(start), "\(error.message)")
    for part in ["secret", "se%zz", "cret"] { #expect(!error.message.contains(part)) }
    #expect(!location.name.contains("cret"))
  }

  @Test(arguments: [
    "postgresql://user:se%40cret@host,other:1,[::1]:5432/app?password=a@b&sslmode=require",
    "host=@abstract dbname=app password=a@b", "postgresql:///app", "host=a,b port=1,2 dbname=a@b",
  ])
  func `connection strings with special characters can be read`(_ string: String) {
    #expect(throws: Never.self) { try ConnectionString(string) }
  }

  @Test(arguments: ["", "dbname=", "postgresql://", "host='' dbname='' port="])
  func `empty parameters of the connection string do not appear in the name of the database`(
    _ string: String
  ) {
    #expect(DatabaseLocation(string).name == "the user's own database on this machine")
  }

  @Test(arguments: [
    "invalid port number: \"secret\"\n", "invalid sslmode value: \"secret\"\n",
    "invalid connection option \"secret\"\n", "invalid port number: „secret“\n",
  ])
  func `an error from an attempt to connect shows no part of the connection string`(
    _ text: String
  ) {
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    let error = DatabaseLocation("dbname=app").connectError(for: failure)
    #expect(!error.message.contains("secret"))
  }

  @Test func `a message of libpq with several lines becomes one line`() {
    let text = "no such file\n\tIs the server running?\n"
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    let message = DatabaseLocation("dbname=app host=here").connectError(for: failure).message
    #expect(
      message
        == "the database app on here can't be reached: no such file; Is the server running?"
    )
  }

  @Test(arguments: [
    "connection to server at \"db\", port 5432 failed: FATAL:  too many connections for role \"lim\"",
    "FATAL:  too many connections for database \"app\"", "FATAL:  sorry, too many clients already",
  ])
  func `a server without free connections is a transient error`(_ text: String) {
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    let error = DatabaseLocation("dbname=app").connectError(for: failure)
    #expect(error.code == .unreachable)
    #expect(error.isTransient)
  }

  @Test(arguments: [
    "FATAL:  role \"lim\" does not exist", "FATAL:  role \"lim\" is not permitted to log in",
  ])
  func `a role that can't log in is a permanent error`(_ text: String) {
    let failure = PostgreSQLFailure(state: "", text: text, isConnectionLost: true)
    #expect(DatabaseLocation("dbname=app").connectError(for: failure).code == .notAllowed)
  }
}
#endif
