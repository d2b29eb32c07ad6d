import SteadfastQueue

/// Uses a queue file as commands on standard input request, and prints each fact to standard output
/// as soon as it is true.
///
/// The process can be killed at any moment, and every printed fact must hold.
///
/// Each line is one command: a word, and arguments without spaces. The response is a number of
/// facts, and finally `done COMMAND` or `error COMMAND CODE MESSAGE`.
@main
struct CrashWorker {
  private var session: Session?

  static func main() async {
    var worker = CrashWorker()
    while let line = readLine() {
      let words = line.split(separator: " ").map(String.init)
      guard let command = words.first else { continue }
      do {
        try await worker.carryOut(command, Array(words.dropFirst()))
        say("done \(command)")
      } catch {
        say("error \(command) \(Fact.code(of: error)) \(error)")
      }
    }
  }

  private mutating func carryOut(_ command: String, _ arguments: [String]) async throws {
    switch (command, arguments.count) {
    case ("open", 1...2):
      // The previous store must be released first.
      session = nil
      session = Session(path: arguments[0], isFlushed: arguments.last != "unflushed")
      try await opened().open()
    case ("work", 2):
      try await opened().work(arguments[0], count: try number(arguments[1]))
    case ("enqueue", 2):
      try await opened().enqueue(
        Job(title: arguments[0], plan: .succeed, size: try number(arguments[1]))
      )
    case ("fill", 3):
      try await opened().fill(
        arguments[0],
        count: try number(arguments[1]),
        size: try number(arguments[2])
      )
    case ("perform", 0): try await opened().perform()
    case ("list", 0): try await opened().list()
    case ("close", 0): try await opened().close()
    case ("destroy", 0): try await opened().destroy()
    case ("fork", 0): try Fork.check(try opened())
    case ("fork", 1): try Fork.leaveChild()
    default: throw Misuse("there is no command '\(command)' with \(arguments.count) arguments")
    }
  }

  private func opened() throws -> Session {
    guard let session else { throw Misuse("no file is open") }
    return session
  }

  private func number(_ text: String) throws -> Int {
    guard let number = Int(text) else { throw Misuse("'\(text)' is not a number") }
    return number
  }
}

/// An invalid command.
struct Misuse: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
