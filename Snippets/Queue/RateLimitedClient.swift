//! A client of an API with limits: ten calls in 100 milliseconds, and two exports of each account
//! in 300 milliseconds.

import Foundation
import SteadfastQueue

// snippet.payloads
struct SendMail: TaskPayload { var address: String }
struct Export: TaskPayload { var account: Int }
// snippet.end

/// What the API answers.
struct API {
  struct TooManyRequests: Error { var retryAfter: Duration }
  func send(_ mail: SendMail) async throws {}
  func export(_ export: Export) async throws {}
}
let api = API()

// snippet.limits
let queue = TaskQueue(
  configuration: TaskQueueConfiguration(
    maxConcurrentTasks: 4,
    rateLimits: [
      .atMost(10, per: .milliseconds(100)),
      .atMost(100, per: .seconds(60), of: SendMail.self),
      .atMost(2, per: .milliseconds(300), of: Export.self, key: \.account),
    ]
  )
)
// snippet.end

// snippet.handlers
await queue.register(SendMail.self) { mail, _ in
  do {
    try await api.send(mail)
  } catch let error as API.TooManyRequests {
    throw TaskSnoozed(for: error.retryAfter, scope: .rateLimit)
  }
}
await queue.register(Export.self) { export, _ in
  try await api.export(export)
  print("exported account \(export.account)")
}
// snippet.end

for number in 1...20 {
  try await queue.enqueue(SendMail(address: "\(number)@example.com"))
}
let exports = try await queue.enqueue(
  contentsOf: [1, 1, 1, 2].map { Export(account: $0) }
)

// snippet.watch
let events = queue.events
let watching = Task {
  for await event in events {
    guard case .rateLimited(let limit, let date) = event else { continue }
    print("\(limit): used up until \(date)")
  }
}
// snippet.end

let start = ContinuousClock.now
let running = Task { try await queue.run() }
for export in exports { _ = try await export.outcome() }
// The third export of the first account waited for its limit.
precondition(ContinuousClock.now - start >= .milliseconds(250))
try await queue.waitUntilIdle()
await queue.shutDown()
try await running.value
await watching.value

// snippet.use
for limit in try await queue.rateLimits() where !limit.hasKeys {
  let name = limit.names?.first ?? "all tasks"
  print("\(name): \(limit.startCount ?? 0) of \(limit.count) starts")
  if let date = limit.nextStart { print("the next start is at \(date)") }
}
// snippet.end

// snippet.statistics
print(try await queue.statistics.rateLimited, "times used up")
// snippet.end
