import Foundation
import SteadfastQueue

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// An order, whose checkout has ten steps, a sleep and a completion.
struct Order: TaskPayload {
  var number: Int

  var uniqueKey: String? { "order \(number)" }
  /// Whether the server can report whether it has made the order's transfer.
  var isAsked: Bool { !number.isMultiple(of: 10) }
}

/// Performs orders until all have ended, however often the process is killed.
///
/// `StepWorker FILE URL COUNT`: the queue's file, the server that records effects, and the number
/// of orders. The file `FILE.steps` gets a line for each step that has returned, before anything
/// else is done.
@main struct StepWorker {
  let server: Server
  let log: StepLog
  let queue: TaskQueue

  static func main() async throws {
    let arguments = CommandLine.arguments
    guard arguments.count == 4, let url = URL(string: arguments[2]), let count = Int(arguments[3])
    else {
      FileHandle.standardError.write(Data("usage: StepWorker FILE URL COUNT\n".utf8))
      exit(2)
    }
    let file = URL(filePath: arguments[1])
    let worker = StepWorker(
      server: Server(url: url),
      log: StepLog(path: file.path + ".steps"),
      queue: TaskQueue(
        persistence: JSONFileStore(at: file),
        configuration: TaskQueueConfiguration(
          maxConcurrentTasks: 16,
          backoff: .constant(.milliseconds(50)),
          taskDefaults: TaskOptions(maxRetries: .alwaysRetry),
          maxInterruptions: .alwaysRetry,
          abandonedRetention: .forever
        )
      )
    )
    try await worker.run(count)
  }

  private func run(_ count: Int) async throws {
    await queue.register(Order.self) { order, context in try await checkOut(order, context) }
    try await queue.open()
    if try await queue.value(named: "enqueued") == nil {
      // Orders that a killed process enqueued are not added again, thanks to their unique keys.
      for number in 0..<count {
        guard !log.hasBegun(number) else { continue }
        try await queue.enqueue(Order(number: number))
      }
      try await queue.setValue([1], named: "enqueued")
    }
    async let running: Void = queue.run()
    while try await queue.count(matching: .unfinished) > 0 {
      // On a busy machine, URLSession occasionally loses a connection or a body.
      let tokens = try await withRetry { try await server.approvals() }
      for token in tokens {
        try await queue.complete(token, with: "Ada")
        let fields = ["token": token.description]
        _ = try await withRetry { try await server.post("approved", fields) }
      }
    }
    await queue.shutDown()
    do {
      try await running
    } catch let error as TaskQueueError where error.code == .shutDown {
      // All orders had ended before the run started.
    }
    for letter in try await queue.tasks(matching: .deadLetters) {
      print("dead letter \(letter.id): \(letter.lastError ?? "")")
    }
    print("done")
  }

  private func checkOut(_ order: Order, _ context: TaskContext) async throws {
    try log.add("begun \(order.number) \(context.id)")
    let receipt = try await step("charge", context)
    try await wire(order, receipt, context)
    async let label = step("label", context)
    async let mail = step("mail", context)
    _ = try await (label, mail)
    for item in 1...3 { _ = try await step("pick", for: item, context) }
    let approver = try await context.completion("approval", of: String.self) { token in
      _ = try await server.post("approve", ["token": token.description])
    }
    guard approver == "Ada" else { throw TaskAbandoned("'\(approver)' has approved it") }
    _ = try await step("ship", context)
    try await context.sleep("before the reminder", for: .milliseconds(200))
    _ = try await step("remind", context)
    _ = try await step("close", context)
    try log.add("ended \(order.number)")
  }

  /// Performs a step at the server, and logs that it has returned.
  private func step(
    _ name: String,
    for item: Int? = nil,
    _ context: TaskContext
  ) async throws -> String {
    let receipt = try await context.step(name, for: item) { step in
      try await server.post("perform", ["key": step.key])
    }
    try log.add("returned \(context.id)/\(item.map { "\(name)[\($0)]" } ?? name)")
    return receipt
  }

  private func wire(_ order: Order, _ receipt: String, _ context: TaskContext) async throws {
    if order.isAsked {
      try await context.step("wire", repeats: .never) { step in
        _ = try await server.post("perform", ["key": step.key])
      } ifInterrupted: { step in
        try log.add("asked \(step.key)")
        guard try await server.post("performed", ["key": step.key]).isEmpty else { return }
        _ = try await server.post("perform", ["key": step.key])
      }
    } else {
      try await context.step("wire", repeats: .never) { step in
        _ = try await server.post("perform", ["key": step.key])
      }
    }
    try log.add("returned \(context.id)/wire")
  }
}

/// A server that records all requests.
struct Server: Sendable {
  let url: URL

  func post(_ path: String, _ fields: [String: String]) async throws -> String {
    var request = URLRequest(url: url.appending(path: path), timeoutInterval: 10)
    request.httpMethod = "POST"
    request.httpBody = try JSONEncoder().encode(fields)
    let (data, response) = try await URLSession.shared.data(for: request)
    guard (response as? HTTPURLResponse)?.statusCode == 200 else {
      throw URLError(.badServerResponse)
    }
    return String(decoding: data, as: UTF8.self)
  }

  /// Returns the tokens that wait for completion.
  ///
  /// The server responds when there are some, or after a while.
  func approvals() async throws -> [TaskToken] {
    try await post("approvals", [:]).split(separator: "\n").compactMap { TaskToken(String($0)) }
  }
}

/// A file with a line for each event, which outlasts the process.
struct StepLog: Sendable {
  let path: String

  /// Appends a line to the file in one write.
  func add(_ line: String) throws {
    let descriptor = unsafe open(path, O_WRONLY | O_APPEND | O_CREAT, 0o600)
    guard descriptor >= 0 else { throw CocoaError(.fileWriteUnknown) }
    defer { close(descriptor) }
    let bytes = Array("\(line)\n".utf8)
    guard unsafe write(descriptor, bytes, bytes.count) == bytes.count else {
      throw CocoaError(.fileWriteUnknown)
    }
  }

  /// Returns whether an earlier process has started to perform an order.
  func hasBegun(_ number: Int) -> Bool {
    guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return false }
    return text.contains("begun \(number) ")
  }
}
