#if PostgreSQL
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import SteadfastPostgreSQL

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A proxy between stores and the server, which can break a connection at a commit.
final class Proxy: Sendable {
  /// The way in which a connection breaks.
  enum Cut: Sendable {
    /// The server never gets the commit.
    case before
    /// The server commits, but the client gets no response.
    case after
    /// The server never gets the commit, and does not notice that the client has disconnected.
    case hold
    /// The server never gets the commit or script, and the client waits for a response.
    case silence
  }

  private struct State {
    var cuts: [Cut?] = []
    var count: [Cut: Int] = [:]
    var links: [ObjectIdentifier: Link] = [:]
    var statements: Set<String> = []
    var silentScript: String?
    var isEnded = false
    var version: String?
  }

  private let folder: URL
  private let target: String
  private let listener: Int32
  private let state = Mutex(State())

  /// Listens in a folder, for a server whose socket is at `target`.
  init(in folder: URL, to target: String) throws {
    self.folder = folder
    self.target = target
    let path = folder.appending(path: ".s.PGSQL.5432").path
    listener = unsafe try UnixSocket.make(at: path) { descriptor, address in
      guard unsafe bind(descriptor, address, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0 else {
        return false
      }
      return listen(descriptor, 64) == 0
    }
    Thread.detachNewThread { self.accept() }
  }

  /// Plans how the connection breaks at each of the next commits; with `nil`, it does not break.
  func planCuts(_ cuts: [Cut?]) { state.withLock { $0.cuts += cuts } }

  /// Withholds the next script with this SQL from the server, so that the client waits for a
  /// response.
  func withholdScript(_ script: String) { state.withLock { $0.silentScript = script } }

  /// Makes the server report another version, which must have two digits.
  func reportVersion(_ version: String) { state.withLock { $0.version = version } }

  /// Returns the number of times that a connection broke in this way.
  func count(of cut: Cut) -> Int { state.withLock { $0.count[cut] ?? 0 } }

  /// The SQL of all statements that were prepared.
  var statements: Set<String> { state.withLock { $0.statements } }

  func end() {
    let links = state.withLock { state in
      state.isEnded = true
      return state.links.values
    }
    for link in links { link.end() }
    _ = shutdown(listener, Int32(SHUT_RDWR))
  }

  // MARK: Sockets

  private func accept() {
    defer { _ = close(listener) }
    while true {
      let client = UnixSocket.nextClient(of: listener)
      guard client >= 0 else { return }
      let server = unsafe try? UnixSocket.make(at: target) { descriptor, address in
        unsafe connect(descriptor, address, socklen_t(MemoryLayout<sockaddr_un>.size)) == 0
      }
      guard let server else {
        _ = close(client)
        continue
      }
      let link = Link(client: client, server: server)
      state.withLock { state in
        state.links[ObjectIdentifier(link)] = link
        if state.isEnded { link.end() }
      }
      Thread.detachNewThread {
        self.forwardRequests(of: link)
        self.recordEnd(of: link)
      }
      Thread.detachNewThread {
        self.forwardResponses(of: link)
        self.recordEnd(of: link)
      }
    }
  }

  private func recordEnd(of link: Link) {
    guard link.recordEndOfThread() == 0 else { return }
    _ = state.withLock { $0.links.removeValue(forKey: ObjectIdentifier(link)) }
  }

  /// The sockets to the client and to the server, and whether the client still gets responses.
  ///
  /// The sockets stay open until both threads that read from them have ended. If a descriptor were
  /// closed earlier, it could already refer to another file when a thread reads from it.
  private final class Link: Sendable {
    let client: Int32
    let server: Int32
    let isCut = Mutex(false)
    private let threads = Mutex(2)

    init(client: Int32, server: Int32) {
      self.client = client
      self.server = server
    }

    deinit { for descriptor in [client, server] { _ = close(descriptor) } }

    /// Records the end of a thread.
    ///
    /// - Returns: The number of threads that still read.
    func recordEndOfThread() -> Int {
      threads.withLock { count in
        count -= 1
        return count
      }
    }

    func end() {
      for descriptor in [client, server] { _ = shutdown(descriptor, Int32(SHUT_RDWR)) }
    }
  }

  private func forwardResponses(of link: Link) {
    var bytes = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = unsafe recv(link.server, &bytes, bytes.count, 0)
      guard count > 0 else { return link.end() }
      if link.isCut.withLock({ $0 }) {
        // The server is ready for another statement, so it has committed if it was to commit.
        let ready: [UInt8] = [UInt8(ascii: "Z"), 0, 0, 0, 5]
        if bytes[..<count].suffix(6).starts(with: ready) { return link.end() }
        continue
      }
      if let version = state.withLock({ $0.version }),
        let name = bytes[..<count].firstRange(of: Array("server_version\0".utf8))
      {
        bytes.replaceSubrange(name.upperBound..<name.upperBound + 2, with: Array(version.utf8))
      }
      UnixSocket.write(bytes, count: count, to: link.client)
    }
  }

  private func forwardRequests(of link: Link) {
    var reader = CallReader()
    var bytes = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = unsafe recv(link.client, &bytes, bytes.count, 0)
      guard count > 0 else { return link.end() }
      let cut = reader.read(bytes[..<count]) ? nextCut() : nil
      let statements = reader.takeStatements()
      if !statements.isEmpty { state.withLock { $0.statements.formUnion(statements) } }
      if cut == .before { return link.end() }
      if cut == .hold {
        _ = shutdown(link.client, Int32(SHUT_RDWR))
        return
      }
      if cut == .silence || isWithheld(reader.takeScripts()) { continue }
      if cut == .after { link.isCut.withLock { $0 = true } }
      UnixSocket.write(bytes, count: count, to: link.server)
    }
  }

  private func isWithheld(_ scripts: [String]) -> Bool {
    state.withLock { state in
      guard let script = state.silentScript, scripts.contains(script) else { return false }
      state.silentScript = nil
      state.count[.silence, default: 0] += 1
      return true
    }
  }

  private func nextCut() -> Cut? {
    state.withLock { state in
      guard !state.cuts.isEmpty, let cut = state.cuts.removeFirst() else { return nil }
      state.count[cut, default: 0] += 1
      return cut
    }
  }
}

/// Calls `body` with a proxy in front of the server, and with tables behind the proxy.
func withProxy(_ body: (Proxy, TestTables) async throws -> Void) async throws {
  let direct = try #require(Server.connection)
  let host = try #require(
    try ConnectionString(direct).parameters.first { $0.name == "host" && $0.value.hasPrefix("/") }
  ).value
  try await withTables { tables in
    try await withTemporaryFolder { folder in
      let proxy = try Proxy(in: folder, to: "\(host)/.s.PGSQL.5432")
      defer { proxy.end() }
      let through = TestTables(
        connection: "\(direct) host=\(folder.path)",
        prefix: tables.prefix
      )
      try await body(proxy, through)
    }
  }
}

/// Finds commits, and the SQL of statements, in the messages of a client.
struct CallReader {
  private var pending: [UInt8] = []
  private var hasStarted = false
  /// The names of the prepared statements that only a transaction with changes has, each with its
  /// terminating zero.
  private var names: Set<[UInt8]> = []
  /// Whether such a statement was sent since the last message after which the server commits.
  private var willCommit = false
  private var statements: [String] = []
  private var scripts: [String] = []

  /// Returns the statements that were prepared since the last call of this method.
  mutating func takeStatements() -> [String] {
    defer { statements = [] }
    return statements
  }

  /// Returns the scripts that were sent since the last call of this method.
  mutating func takeScripts() -> [String] {
    defer { scripts = [] }
    return scripts
  }

  /// Returns whether these bytes contain or complete a message after which the server commits.
  ///
  /// That is the message "Sync", if the statements before it include a commit, or one of the
  /// statements that a transaction in one round trip has in its place.
  mutating func read(_ bytes: ArraySlice<UInt8>) -> Bool {
    pending += bytes
    var isFound = false
    while let message = nextMessage() {
      guard let kind = message.first else { continue }
      let body = message.dropFirst(5)
      if kind == UInt8(ascii: "Q") {
        scripts.append(String(decoding: body.prefix { $0 != 0 }, as: UTF8.self))
      }
      // A message "Parse" has the name and the SQL of a statement; a message "Bind" has the name of a
      // portal, and then the name of the statement.
      if kind == UInt8(ascii: "P"), let end = body.firstIndex(of: 0) {
        let text = String(decoding: body[(end + 1)...].prefix { $0 != 0 }, as: UTF8.self)
        if text != "commit" { statements.append(text) }
        if text == "commit" || text.contains("_request\n") || text.contains("synchronous_commit'") {
          names.insert(Array(body[...end]))
        }
      }
      if kind == UInt8(ascii: "B"), let end = body.firstIndex(of: 0) {
        let rest = body[(end + 1)...]
        if names.contains(Array(rest.prefix { $0 != 0 } + [0])) { willCommit = true }
      }
      if kind == UInt8(ascii: "S") {
        isFound = isFound || willCommit
        willCommit = false
      }
    }
    return isFound
  }

  private mutating func nextMessage() -> [UInt8]? {
    // The first message of a connection has no kind.
    let start = hasStarted ? 1 : 0
    guard pending.count >= start + 4 else { return nil }
    let length = pending[start..<(start + 4)].reduce(0) { $0 << 8 | Int($1) }
    guard pending.count >= start + length else { return nil }
    defer {
      pending.removeFirst(start + length)
      hasStarted = true
    }
    return hasStarted ? Array(pending[..<(start + length)]) : []
  }
}
#endif
