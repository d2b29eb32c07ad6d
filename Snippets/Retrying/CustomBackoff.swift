//! Gives a queue its own formula for the delays of retries: that of iDelayedJob,
//! (attempts + 5) × 4 s.

import SteadfastTesting

struct Offline: Error {}

struct RegisterPurchase: TaskPayload { var item: String }

try await withVirtualTime { time in
  // snippet.backoff
  let configuration = TaskQueueConfiguration(
    // The number of the retry, from 1, is that of the attempts that failed.
    backoff: .custom { retry in .seconds(4) * (retry.number + 5) },
    // 10 attempts in all.
    taskDefaults: TaskOptions(maxRetries: 9)
  )
  let queue = TaskQueue(configuration: configuration, clock: time.clock)
  // snippet.end
  await queue.register(RegisterPurchase.self) { _, context in
    print("attempt \(context.retryCount + 1) at \(time.clock.now.offset)")
    throw Offline()
  }
  try await queue.enqueue(RegisterPurchase(item: "sword"))
  try await time.drain(queue)
}
