// Code around all tasks: one that passes a tenant on, and one that logs.

import SteadfastQueue

// snippet.tenant
enum Tenant {
  @TaskLocal static var current = "none"
}

/// Performs each task for the tenant for whom it was added.
struct TenantMiddleware: TaskMiddleware {
  func enqueue(_ tasks: [TaskDraft], next: EnqueueChain) async throws {
    var tasks = tasks
    for index in tasks.indices {
      tasks[index].metadata["tenant"] = Tenant.current
    }
    try await next(tasks)
  }

  func perform(_ context: TaskContext, next: AttemptChain) async throws {
    let tenant = context.metadata["tenant"] ?? "none"
    try await Tenant.$current.withValue(tenant) { try await next() }
  }
}
// snippet.end

// snippet.logging
/// Logs how long each task has waited and run, or the error.
struct LoggingMiddleware: TaskMiddleware {
  func perform(_ context: TaskContext, next: AttemptChain) async throws {
    let start = ContinuousClock.now
    do {
      try await next()
      let ran = start.duration(to: .now)
      print("\(context.name) waited \(context.waited) and ran \(ran)")
    } catch {
      // Not every error is a failure: TaskSuspended, for one, isn't.
      print("\(context.name) threw: \(error)")
      throw error
    }
  }
}
// snippet.end

struct Invoice: TaskPayload { var number: Int }

// snippet.queue
let queue = TaskQueue(
  configuration: TaskQueueConfiguration(
    middleware: [LoggingMiddleware(), TenantMiddleware()]
  )
)
await queue.register(Invoice.self) { invoice, _ in
  print("invoice \(invoice.number) of \(Tenant.current)")
}
try await Tenant.$current.withValue("acme") {
  try await queue.enqueue(Invoice(number: 7))
}
// snippet.end
let tasks = try await queue.tasks()
precondition(tasks.map(\.metadata) == [["tenant": "acme"]])
try await queue.runAvailable()
let left = try await queue.count
precondition(left == 0)
