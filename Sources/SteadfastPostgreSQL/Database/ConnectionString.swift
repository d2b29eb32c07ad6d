#if PostgreSQL
import SystemPostgreSQL

/// The parameters of a connection, as libpq reads them.
struct ConnectionString: Sendable {
  /// What is wrong with a connection string, in libpq's words.
  struct Mistake: Error {
    let text: String
  }

  /// The parameters that were given, with those that this library adds.
  let parameters: [(name: String, value: String)]

  /// What a person calls the server and the database; never a password.
  let description: String

  /// Parameters of a connection that is to notice that its server is gone.
  ///
  /// The application's own come first.
  private static let defaults = [
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10",
    "keepalives_count": "3", "tcp_user_timeout": "30000",
    "fallback_application_name": "Steadfast",
  ]

  init(_ text: String) throws(Mistake) {
    var given = try Self.parsed(text)
    let database = given["dbname"].map { "the database \($0)" } ?? "the user's own database"
    let host = given["host"] ?? given["hostaddr"]
    let port = given["port"].map { ":\($0)" } ?? ""
    description = "\(database) on \(host ?? "this machine")\(port)"
    // All texts that are sent and received are of UTF-8, whatever the environment says.
    given["client_encoding"] = "UTF8"
    given.merge(Self.defaults) { own, _ in own }
    parameters = given.map { ($0.key, $0.value) }.sorted { $0.name < $1.name }
  }

  private static func parsed(_ text: String) throws(Mistake) -> [String: String] {
    guard !text.utf8.contains(0) else { throw Mistake(text: "it has a NUL (U+0000)") }
    var message: UnsafeMutablePointer<CChar>?
    guard let options = unsafe PQconninfoParse(text, &message) else {
      let reason = unsafe message.map { unsafe String(cString: $0) } ?? "out of memory"
      if let message = unsafe message { unsafe PQfreemem(message) }
      // The line ends with a line feed.
      throw Mistake(text: reason.split(separator: "\n").joined(separator: " "))
    }
    defer { unsafe PQconninfoFree(options) }
    var found: [String: String] = [:]
    var option = unsafe options
    while let name = unsafe option.pointee.keyword {
      if let value = unsafe option.pointee.val {
        unsafe found[String(cString: name)] = String(cString: value)
      }
      unsafe option += 1
    }
    return found
  }
}
#endif
