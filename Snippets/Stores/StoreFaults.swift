//! What an app does when its disk is full, slow or gone: a store that fails on request, in virtual
//! time.

import SteadfastTesting

// snippet.app
struct DiskFull: Error, CustomStringConvertible {
  let description = "the disk is full"
}

struct Upload: TaskPayload { var name: String }
// snippet.end

// snippet.error
try await withVirtualTime { time in
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: time.clock)

  store.inject(.error(DiskFull())) { $0.kind == .apply }
  do {
    try await queue.enqueue(Upload(name: "holiday.mov"))
  } catch {
    print("not enqueued: \(error)")
  }
  try await queue.enqueue(Upload(name: "holiday.mov"))
  print("enqueued: \(try await queue.count)")
}
// snippet.end

// snippet.unknown
try await withVirtualTime { time in
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: time.clock)

  // The connection breaks after the database has stored the task, and
  // before its answer arrives.
  store.inject(.error(DiskFull()), .afterEffect) { $0.kind == .apply }
  _ = try? await queue.enqueue(
    Upload(name: "letter.pdf"),
    uniqueKey: "letter.pdf"
  )
  let task = try await queue.enqueue(
    Upload(name: "letter.pdf"),
    uniqueKey: "letter.pdf"
  )
  let count = try await queue.count
  print("new at the second time: \(task.isNew), in the queue: \(count)")
}
// snippet.end

// snippet.hang
try await withVirtualTime { time in
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: time.clock)

  store.inject(.hang) { $0.kind == .apply }
  async let upload = queue.enqueue(Upload(name: "slow.mov"))
  try await store.waitForHeldCalls()
  print("while it hangs: \(try await queue.count)")
  store.letGo()
  _ = try await upload
  print("when it goes on: \(try await queue.count)")
}
// snippet.end

try await withVirtualTime { time in
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: time.clock)
  // snippet.transient
  store.inject(.transientError, times: 3) { $0.kind == .apply }
  store.cutOff(throwing: TransientFault())
  // snippet.end
  async let task = queue.enqueue(Upload(name: "late.mov"))
  await time.advance(by: .seconds(10))
  store.restore()
  print("after a while: \(try await task.isNew)")
}

// snippet.cut
try await withVirtualTime { time in
  let store = FaultInjectingStore()
  let queue = TaskQueue(persistence: store, clock: time.clock)
  await queue.register(Upload.self) { upload, _ in
    print("uploads \(upload.name)")
  }
  try await queue.enqueue(Upload(name: "a.mov"))

  store.cutOff(throwing: DiskFull())
  do {
    try await queue.runAvailable()
  } catch {
    print("stopped: \(error)")
  }
  store.restore()
  try await queue.runAvailable()
  print("left: \(try await queue.count), calls: \(store.calls.count)")
}
// snippet.end
