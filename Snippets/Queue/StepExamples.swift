//! Short calls: what a handler does so that what was done is not done again.

import SteadfastQueue

struct Order: TaskPayload { var amount: Int }
struct Place: Codable, Sendable { var offset: Int }

/// A service that does all that it is asked.
struct Service: Sendable {
  func charge(_ amount: Int, idempotencyKey: String) async throws -> Int { amount }
  func remind(_ order: Order) async throws {}
  func write(_ chunk: [UInt8]) async throws {}
  func chunks(from offset: Int) -> AsyncStream<[UInt8]> { AsyncStream { $0.finish() } }
}

/// A transfer that the system makes.
final class Transfer {
  var taskDescription = ""

  func resume() {}
}

func ask(_ service: Service, _ token: TaskToken) async throws {}

func charge(_ order: Order, _ bank: Service, _ context: TaskContext) async throws {
  // snippet.step
  let charge = try await context.step("charge") { step in
    try await bank.charge(order.amount, idempotencyKey: step.key)
  }
  // snippet.end
  print(charge)
}

func copy(_ file: Service, to sink: Service, _ context: TaskContext) async throws {
  // snippet.checkpoint
  var place = try await context.checkpoint(Place.self) ?? Place(offset: 0)
  for try await chunk in file.chunks(from: place.offset) {
    try await sink.write(chunk)
    place.offset += chunk.count
    try await context.save(place)
  }
  // snippet.end
}

func upload(_ transfer: Transfer, _ context: TaskContext) async throws {
  // snippet.completion
  let etag: String = try await context.completion(
    "upload",
    within: .seconds(86_400)
  ) { token in
    transfer.taskDescription = token.description
    transfer.resume()
  }
  // snippet.end
  print(etag)
}

func approve(_ theBank: Service, _ theStock: Service, _ context: TaskContext) async throws {
  // snippet.two-completions
  let bank = try await context.openCompletion("bank", of: Int.self) { token in
    try await ask(theBank, token)
  }
  let stock = try await context.openCompletion("stock", of: Int.self) {
    token in
    try await ask(theStock, token)
  }
  let approvals = try await (bank.value, stock.value)
  // snippet.end
  print(approvals)
}

func remind(of order: Order, _ mail: Service, _ context: TaskContext) async throws {
  // snippet.sleep
  try await context.sleep("before the reminder", for: .seconds(3 * 86_400))
  try await mail.remind(order)
  // snippet.end
}

let queue = TaskQueue()
let service = Service()
await queue.register(Order.self) { order, context in
  try await charge(order, service, context)
  try await copy(service, to: service, context)
}
try await queue.enqueue(Order(amount: 20))
try await queue.runAvailable()
