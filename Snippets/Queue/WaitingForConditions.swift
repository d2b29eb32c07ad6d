//! Performs tasks only while there is a network, while the machine is charged, or while an app is
//! active.

import Foundation
import SteadfastTesting

struct Upload: TaskPayload { var photo: String }

struct Index: TaskPayload {
  var options: TaskOptions { TaskOptions(conditions: ["charging"]) }
}

// snippet.monitor
/// Tells whether a battery is being charged.
struct ChargerMonitor: ConditionMonitor {
  let battery: Battery

  func values() -> AsyncStream<Bool> { battery.isCharging() }
}
// snippet.end

/// A battery that tells everybody who asks.
actor Battery {
  private var isOn = false
  private var observers: [AsyncStream<Bool>.Continuation] = []

  nonisolated func isCharging() -> AsyncStream<Bool> {
    let (stream, continuation) = AsyncStream<Bool>.makeStream()
    continuation.yield(false)
    // The queue asks without waiting, so the observer is added a moment later.
    Task { await add(continuation) }
    return stream
  }

  private func add(_ observer: AsyncStream<Bool>.Continuation) {
    observer.yield(isOn)
    observers.append(observer)
  }

  func setCharging(_ isOn: Bool) {
    self.isOn = isOn
    for observer in observers { observer.yield(isOn) }
  }
}

func configure(_ queue: TaskQueue) async throws {
  // snippet.network
  await queue.register(NetworkMonitor(), for: .network)
  try await queue.enqueue(
    Upload(photo: "cat.jpg"),
    options: TaskOptions(conditions: [.network])
  )
  // snippet.end
}

let uploads = TaskQueue(name: "uploads")
await uploads.register(Upload.self) { _, _ in }
try await configure(uploads)
let condition: TaskCondition = .network
print("waits for the \(condition):", try await uploads.count)

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  await queue.register(Index.self) { _, _ in print("indexed") }
  try await queue.enqueue(Index())
  async let run: Void = queue.run()
  await time.advance(by: .seconds(3600))
  print("waiting: \(try await queue.tasks(matching: TaskFilter(unmetBy: [])).count)")
  // snippet.told
  // The program tells the queue what it knows.
  await queue.setCondition("charging", holds: true)
  // snippet.end
  try await queue.waitUntilIdle()
  queue.beginShutDown()
  try await run
}

let battery = Battery()
let indexer = TaskQueue(name: "indexer")
await indexer.register(Index.self) { _, context in
  print("indexed once it was charged, in \(context.retryCount + 1) attempt")
}
// snippet.interrupting
await indexer.register(
  ChargerMonitor(battery: battery),
  for: "charging",
  interruptsTasks: true
)
// snippet.end
let task = try await indexer.enqueue(Index())
async let running: Void = indexer.run()
await battery.setCharging(true)
_ = try await task.outcome()
indexer.beginShutDown()
try await running
