#if PostgreSQL
import SystemPostgreSQL

/// The parameters of a connection, as libpq reads them.
struct ConnectionString: Sendable {
  /// The reason why a connection string can't be read.
  ///
  /// The reason never contains a part of the string, which may contain a password.
  struct ParsingError: Error {
    let reason: String
  }

  /// The given parameters, and those that this library adds.
  let parameters: [(name: String, value: String)]

  /// The server and the database for a person to read, without a password.
  let description: String

  /// Whether libpq tries one host after another.
  let hasSeveralHosts: Bool

  /// Default parameters, with which a connection notices that its server is unavailable.
  ///
  /// The application's own parameters take precedence.
  private static let defaults = [
    "connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10",
    "keepalives_count": "3", "tcp_user_timeout": "30000",
    "fallback_application_name": "Steadfast",
  ]

  init(_ text: String) throws(ParsingError) {
    try Self.checkUnescapedSigns(in: text)
    var given = try Self.parsed(text)
    if let name = given["dbname"], name.contains("=") || name.contains("://") {
      // libpq would read this name as a connection string, which may contain a password.
      throw ParsingError(reason: "its dbname is a connection string itself")
    }
    let port = given["port"] ?? ""
    guard port.utf8.allSatisfy({ $0 == UInt8(ascii: ",") || (0x30...0x39).contains($0) }) else {
      throw ParsingError(reason: "its port is not a number")
    }
    let database = given["dbname"].map { "the database \($0)" } ?? "the user's own database"
    let host = given["host"] ?? given["hostaddr"]
    hasSeveralHosts = host?.contains(",") ?? false
    description = "\(database) on \(host ?? "this machine")\(port.isEmpty ? "" : ":" + port)"
    // All strings are sent and received in UTF-8, whatever the environment says.
    given["client_encoding"] = "UTF8"
    given.merge(Self.defaults) { own, _ in own }
    parameters = given.map { ($0.key, $0.value) }.sorted { $0.name < $1.name }
  }

  /// Throws if a URI has an unescaped `@` or `/` in a user's name or password.
  ///
  /// libpq would read the rest of the password as a host, a port or a database.
  private static func checkUnescapedSigns(in text: String) throws(ParsingError) {
    let text = Array(text.utf8)
    let starts = ["postgresql://", "postgres://"].map { Array($0.utf8) }
    guard let start = starts.first(where: { text.starts(with: $0) }) else { return }
    let rest = text.dropFirst(start.count)
    let at = UInt8(ascii: "@")
    let authority = rest.prefix { $0 != UInt8(ascii: "/") }
    let path = rest.dropFirst(authority.count).prefix { $0 != UInt8(ascii: "?") }
    guard authority.count(where: { $0 == at }) <= 1, !path.contains(at) else {
      throw ParsingError(reason: "an @ in a name or password is written as %40, and a / as %2F")
    }
  }

  /// Returns a message of libpq up to its first quotation of the connection string.
  ///
  /// If the string has a mistake, any quotation may contain a part of a password.
  static func withoutQuotations(_ text: String) -> String {
    var words = text.replacing("missing \"=\" after", with: "missing = after a name")
    for sign in ["=", "]"] {
      words = words.replacing("separator \"\(sign)\"", with: "separator \(sign)")
        .replacing("matching \"\(sign)\"", with: "matching \(sign)")
    }
    // Translations of libpq use the quotation marks of their languages.
    let marks: Set<Unicode.Scalar> = ["\"", "'", "`", "«", "»", "„", "“", "”", "「", "\n"]
    let scalars = words.unicodeScalars.prefix { !marks.contains($0) }
    let kept = String(String.UnicodeScalarView(scalars))
    let end = kept.lastIndex { $0 != " " && $0 != ":" && $0 != "(" }
    return end.map { String(kept[...$0]) } ?? "it has a mistake"
  }

  private static func parsed(_ text: String) throws(ParsingError) -> [String: String] {
    guard !text.utf8.contains(0) else { throw ParsingError(reason: "it has a NUL (U+0000)") }
    var message: UnsafeMutablePointer<CChar>?
    guard let options = unsafe PQconninfoParse(text, &message) else {
      let reason = unsafe message.map { unsafe String(cString: $0) } ?? "out of memory"
      if let message = unsafe message { unsafe PQfreemem(message) }
      throw ParsingError(reason: Self.withoutQuotations(reason))
    }
    defer { unsafe PQconninfoFree(options) }
    var found: [String: String] = [:]
    var option = unsafe options
    while let name = unsafe option.pointee.keyword {
      // libpq treats an empty value as missing.
      if let value = unsafe option.pointee.val, unsafe value.pointee != 0 {
        unsafe found[String(cString: name)] = String(cString: value)
      }
      unsafe option += 1
    }
    return found
  }
}
#endif
