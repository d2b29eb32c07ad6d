import Foundation
import SteadfastQueue

#if canImport(FoundationNetworking)
import FoundationNetworking
#endif

/// An order; its checkout has ten steps, a sleep and a completion.
struct Order: TaskPayload {
  var number: Int

  var uniqueKey: String? { "order \(number)" }
  /// Whether the worker can ask the server if the transfer of this order was made.
  var isAsked: Bool { !number.isMultiple(of: 10) }
}

/// Performs orders until all orders have ended, however often the process is killed.
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
    try await worker.performOrders(count: count)
  }

  private func performOrders(count: Int) async throws {
    await queue.register(Order.self) { order, context in try await checkOut(order, in: context) }
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
      let tokens = try await withRetry { try await server.tokensAwaitingApproval() }
      for token in tokens {
        try await queue.complete(token, with: "Ada")
        let fields = ["token": token.description]
        _ = try await withRetry { try await server.post(fields, to: "approved") }
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

  private func checkOut(_ order: Order, in context: TaskContext) async throws {
    try log.append("begun \(order.number) \(context.id)")
    let receipt = try await performStep("charge", in: context)
    try await makeTransfer(for: order, receipt: receipt, in: context)
    async let label = performStep("label", in: context)
    async let mail = performStep("mail", in: context)
    _ = try await (label, mail)
    for item in 1...3 { _ = try await performStep("pick", for: item, in: context) }
    let approver = try await context.completion("approval", of: String.self) { token in
      _ = try await server.post(["token": token.description], to: "approve")
    }
    guard approver == "Ada" else {
      throw TaskAbandoned("'\(approver)' has approved the order, not Ada")
    }
    _ = try await performStep("ship", in: context)
    try await context.sleep("before the reminder", for: .milliseconds(200))
    _ = try await performStep("remind", in: context)
    _ = try await performStep("close", in: context)
    try log.append("ended \(order.number)")
  }

  /// Performs a step on the server, and logs that the step has returned.
  private func performStep(
    _ name: String,
    for item: Int? = nil,
    in context: TaskContext
  ) async throws -> String {
    let receipt = try await context.step(name, for: item) { step in
      try await server.post(["key": step.key], to: "perform")
    }
    try log.append("returned \(context.id)/\(item.map { "\(name)[\($0)]" } ?? name)")
    return receipt
  }

  /// Performs the step that may not be repeated.
  private func makeTransfer(
    for order: Order,
    receipt: String,
    in context: TaskContext
  ) async throws {
    if order.isAsked {
      try await context.step("wire", repeats: .never) { step in
        _ = try await server.post(["key": step.key], to: "perform")
      } ifInterrupted: { step in
        try log.append("asked \(step.key)")
        guard try await server.post(["key": step.key], to: "performed").isEmpty else { return }
        _ = try await server.post(["key": step.key], to: "perform")
      }
    } else {
      try await context.step("wire", repeats: .never) { step in
        _ = try await server.post(["key": step.key], to: "perform")
      }
    }
    try log.append("returned \(context.id)/wire")
  }
}

/// A server that records all requests.
struct Server: Sendable {
  let url: URL

  func post(_ fields: [String: String], to path: String) async throws -> String {
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
  /// The server responds when such tokens exist, or after a while.
  func tokensAwaitingApproval() async throws -> [TaskToken] {
    try await post([:], to: "approvals").split(separator: "\n").compactMap { TaskToken(String($0)) }
  }
}

/// A file with a line for each event; the file outlasts the process.
struct StepLog: Sendable {
  let path: String

  /// Appends a line to the file in one write.
  func append(_ line: String) throws {
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
