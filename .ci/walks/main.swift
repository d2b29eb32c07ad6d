import Foundation
import SteadfastQueue
import SteadfastTesting

// One path through the library: `.ci/walk` builds this with coverage. The counters are zero when the
// path begins, and are written when it has ended. Before it, the same was done once, so that nothing
// happens for the first time.

@_silgen_name("__llvm_profile_reset_counters") func resetCounters()
@_silgen_name("__llvm_profile_write_file") func writeCounters() -> Int32

struct Note: TaskPayload { var text = "plain" }
struct Refusal: Error {}

func fail(_ text: String) -> Never {
  FileHandle.standardError.write(Data("walk: \(text)\n".utf8))
  exit(1)
}

func finish() -> Never {
  if writeCounters() != 0 { fail("the counters can't be written") }
  // Without what else happens at the end of a process.
  _exit(0)
}

func queue(_ store: some Persistence) async -> TaskQueue {
  let configuration = TaskQueueConfiguration(backoff: .constant(.milliseconds(1)))
  let queue = TaskQueue(persistence: store, configuration: configuration)
  await queue.register(Note.self) { note, context in
    switch note.text {
    case "retry": if context.retryCount == 0 { throw Refusal() }
    case "step": _ = try await context.step("a") { _ in 1 }
    default: break
    }
  }
  return queue
}

/// Performs a task while the queue runs, after one like it.
func attempt(_ text: String, _ queue: TaskQueue, before path: () -> Void = {}) async throws {
  async let _ = queue.run()
  _ = try await queue.enqueue(Note(text: text)).outcome()
  try await queue.waitUntilIdle()
  resetCounters()
  path()
  guard try await queue.enqueue(Note(text: text)).outcome() == .succeeded else {
    fail("the task has not succeeded")
  }
  finish()
}

let arguments = CommandLine.arguments
guard arguments.count == 3 else { fail("give a path and a folder") }
let url = URL(filePath: arguments[2]).appending(path: "queue.jsonl")
let file = JSONFileStore(at: url)
switch arguments[1] {
case "enqueue":
  let queue = await queue(file)
  try await queue.enqueue(Note())
  resetCounters()
  try await queue.enqueue(Note())
  finish()
case "attempt", "retry", "step":
  try await attempt(arguments[1], await queue(file))
case "occurrence":
  let queue = await queue(file)
  let rule = try ScheduleRule.every(.seconds(1))
  let events = queue.events
  try await queue.schedule("s", rule, Note())
  async let _ = queue.run()
  var ends = 0
  for await event in events {
    guard case .succeeded = event else { continue }
    ends += 1
    // From the end of one to that of the next.
    if ends == 2 { resetCounters() }
    if ends == 3 { finish() }
  }
case "cancel":
  let queue = await queue(file)
  let tasks = try await queue.enqueue(contentsOf: [Note(), Note()])
  guard try await queue.cancel(tasks[0].id) else { fail("the task is not cancelled") }
  resetCounters()
  guard try await queue.cancel(tasks[1].id) else { fail("the task is not cancelled") }
  finish()
case "outage":
  let store = FaultInjectingStore(file)
  try await attempt("outage", await queue(store)) {
    store.inject(.transientError, .beforeEffect, times: 2) { call in
      call.changes.contains { if case .end = $0 { true } else { false } }
    }
  }
case "reopening":
  let first = await queue(file)
  try await first.enqueue(Note())
  await first.shutDown()
  try await file.close()
  let next = await queue(JSONFileStore(at: url))
  resetCounters()
  try await next.open()
  finish()
default: fail("there is no path '\(arguments[1])'")
}
