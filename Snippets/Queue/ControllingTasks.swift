//! Pauses, changes, cancels and looks up tasks, one by one and all that match a filter.

import Foundation
import SteadfastQueue

struct Mail: TaskPayload {
  var address: String
  var text: String
}

let queue = TaskQueue()
await queue.register(Mail.self) { mail, _ in print("to \(mail.address): \(mail.text)") }

// snippet.one
let task = try await queue.enqueue(Mail(address: "ada", text: "helo"))
let id = task.id

try await queue.pause(id)
try await queue.update(id, with: Mail(address: "ada", text: "hello"))
try await queue.reschedule(id, to: .now + 3600)  // It stays paused.
try await queue.resume(id)
try await queue.performNow(id)  // Now, and not in an hour.
try await queue.retry(id)  // As if it were new.
try await queue.cancel(id)
// snippet.end

let addresses = ["ada", "bob", "cy"]
try await queue.enqueue(
  contentsOf: addresses.map { Mail(address: $0, text: "news") },
  options: TaskOptions(delay: .seconds(3600), tags: ["newsletter"])
)
try await queue.enqueue(Mail(address: "ada", text: "private"), delay: .seconds(60))

// snippet.many
let newsletter = TaskFilter(names: [Mail.taskName], tags: ["newsletter"])
let moved = try await queue.reschedule(
  matching: newsletter,
  to: .now + 7200
)
let cancelled = try await queue.cancel(matching: newsletter)
let removed = try await queue.remove(matching: .deadLetters)
print("\(moved) moved, \(cancelled) cancelled, \(removed) removed")
// snippet.end

// snippet.look-up
print(try await queue.count, "tasks have not ended")
for record in try await queue.tasks() {
  print(record.id, record.name, record.state, record.availableDate)
}

let soon = Date.now..<Date.now + 3600
let waiting = TaskFilter(states: [.waiting], availableDates: soon)
print(try await queue.count(matching: waiting), "are due within an hour")
// snippet.end

// snippet.pages
/// Returns all tasks that match a filter, however many there are.
func all(
  _ filter: TaskFilter,
  in queue: TaskQueue
) async throws -> [TaskRecord] {
  var records: [TaskRecord] = []
  while true {
    let page = try await queue.tasks(
      matching: filter,
      after: records.last?.id,
      limit: 500
    )
    records += page
    guard page.count == 500 else { return records }
  }
}
// snippet.end
print(try await all(TaskFilter(), in: queue).count, "records")

try await queue.performNow(matching: .unfinished)
try await queue.runAvailable()

// snippet.census
for row in try await queue.census().rows {
  print(row.name, row.state, row.count)
  guard let oldest = row.oldestDue else { continue }
  print(row.due, "due, the oldest since", oldest)
}
// snippet.end

// snippet.newest
let failed = try await queue.tasks(
  matching: .deadLetters,
  limit: 50,
  newestFirst: true
)
print(failed.compactMap(\.lastError))
// snippet.end

// snippet.failures
let failures = try await queue.failures(since: .now - 3600)
for group in failures.groups {
  print(group.count, group.shape)
  print("  such as:", group.reason, group.samples)
}
// snippet.end

// snippet.health
let health = queue.health
print(health.isReady ? "ready" : "not ready", health.phase)
print(health.isAlive ? "alive" : "restart this process")
// snippet.end

// snippet.statistics
let statistics = try await queue.statistics
print(statistics.counts[.waiting] ?? 0, "wait")
print(statistics.attempts, "attempts,", statistics.succeeded, "succeeded")
for (name, tasks) in statistics.byName {
  print(name, "took", tasks.runTime.percentile(0.5), "in the middle,")
  print("and", tasks.runTime.longest, "at most")
}
// snippet.end
