//! A checkout in steps: what was done is not done again, whatever happens in between.
//!
//! `swift run Checkout` performs three orders, with services that print what they are asked.

import SteadfastQueue

// snippet.payload
struct Order: TaskPayload {
  var number: Int
  var items: [String]

  var uniqueKey: String? { "order \(number)" }
}
// snippet.end

/// The services that a checkout asks.
protocol Services: Sendable {
  func perform(_ action: String, key: String) async throws -> String
  func receipt(key: String) async throws -> String?
  func askForApproval(token: TaskToken) async throws
}

// snippet.handler
func checkOut(
  _ order: Order,
  _ context: TaskContext,
  with services: some Services
) async throws {
  // The service knows the key, which is the same at each attempt.
  let charge = try await context.step("charge") { step in
    try await services.perform("charge", key: step.key)
  }
  // A transfer must not be repeated: after a crash, ask whether it is done.
  try await context.step("wire", repeats: .never) { step in
    _ = try await services.perform("wire \(charge)", key: step.key)
  } ifInterrupted: { step in
    let receipt = try await services.receipt(key: step.key)
    if receipt != nil { return }
    _ = try await services.perform("wire \(charge)", key: step.key)
  }
  // Steps side by side are known by their names.
  async let label = context.step("label") { step in
    try await services.perform("label", key: step.key)
  }
  async let mail = context.step("mail") { step in
    try await services.perform("mail", key: step.key)
  }
  _ = try await (label, mail)
  for item in order.items {
    try await context.step("pick", for: item) { step in
      _ = try await services.perform("pick", key: step.key)
    }
  }
  // The task leaves its worker until it is approved, or the time is up.
  do {
    let approver = try await context.completion(
      "approval",
      of: String.self,
      within: .seconds(86_400)
    ) { token in
      try await services.askForApproval(token: token)
    }
    try await context.step("ship") { step in
      _ = try await services.perform("ship for \(approver)", key: step.key)
    }
  } catch let error as CompletionFailed {
    try await context.step("refund") { step in
      _ = try await services.perform("refund: \(error)", key: step.key)
    }
  }
  // It holds no worker, no lease, and no memory of the process.
  try await context.sleep("before the reminder", for: .milliseconds(50))
  try await context.step("remind") { step in
    _ = try await services.perform("remind", key: step.key)
  }
}
// snippet.end

/// Services that print what they are asked, and approve at once.
actor PrintingServices: Services {
  private var performed: [String: String] = [:]
  private var approve: (@Sendable (TaskToken) async throws -> Void)?

  func approve(by approve: @escaping @Sendable (TaskToken) async throws -> Void) {
    self.approve = approve
  }

  func perform(_ action: String, key: String) -> String {
    if let receipt = performed[key] { return receipt }
    let receipt = "receipt \(performed.count + 1)"
    performed[key] = receipt
    print(action)
    return receipt
  }

  func receipt(key: String) -> String? { performed[key] }

  func askForApproval(token: TaskToken) async throws { try await approve?(token) }
}

func performInMemory() async throws {
  let services = PrintingServices()
  let queue = TaskQueue(
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 2)
  )
  await queue.register(Order.self) { order, context in
    try await checkOut(order, context, with: services)
  }
  // snippet.complete
  // In a web hook, a delegate's call, or another process:
  await services.approve { token in
    let text = token.description
    guard let token = TaskToken(text) else { return }
    let isFirst = try await queue.complete(token, with: "Ada")
    print("approved:", isFirst)
  }
  // snippet.end
  let running = Task { try await queue.run() }
  for number in 1...3 {
    let order = Order(number: number, items: ["book", "pen"])
    let task = try await queue.enqueue(order)
    print("order \(number):", try await task.outcome())
  }
  await queue.shutDown()
  try await running.value
}

try await performInMemory()
