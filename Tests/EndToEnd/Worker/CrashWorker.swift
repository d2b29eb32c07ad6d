import SteadfastQueue

/// Uses a queue file as commands on standard input request, and prints each fact to standard output
/// as soon as the fact is true.
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
        try await worker.execute(command, with: Array(words.dropFirst()))
        printLine("done \(command)")
      } catch {
        printLine("error \(command) \(Fact.word(for: error)) \(error)")
      }
    }
  }

  private mutating func execute(_ command: String, with arguments: [String]) async throws {
    switch (command, arguments.count) {
    case ("open", 1...2):
      // The previous store must be released first.
      session = nil
      session = Session(path: arguments[0], isFlushed: arguments.last != "unflushed")
      try await requiredSession().open()
    case ("work", 2):
      try await requiredSession().addAndPerformJobs(
        prefix: arguments[0],
        count: try parseNumber(arguments[1])
      )
    case ("enqueue", 2):
      try await requiredSession().enqueue(
        Job(title: arguments[0], plan: .succeed, size: try parseNumber(arguments[1]))
      )
    case ("fill", 3):
      try await requiredSession().enqueueJobs(
        prefix: arguments[0],
        count: try parseNumber(arguments[1]),
        size: try parseNumber(arguments[2])
      )
    case ("perform", 0): try await requiredSession().performAvailable()
    case ("list", 0): try await requiredSession().printTasks()
    case ("close", 0): try await requiredSession().close()
    case ("destroy", 0): try await requiredSession().destroy()
    case ("fork", 0): try Fork.useInChild(try requiredSession())
    case ("fork", 1): try Fork.startWaitingChild()
    default: throw Misuse("there is no command '\(command)' with \(arguments.count) arguments")
    }
  }

  private func requiredSession() throws -> Session {
    guard let session else { throw Misuse("no file is open; give the command open first") }
    return session
  }

  private func parseNumber(_ text: String) throws -> Int {
    guard let number = Int(text) else { throw Misuse("'\(text)' is not a number") }
    return number
  }
}

/// An invalid command.
struct Misuse: Error, CustomStringConvertible {
  let description: String

  init(_ description: String) { self.description = description }
}
