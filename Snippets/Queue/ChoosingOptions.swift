//! Chooses how tasks are performed: unique keys, ranks, limits, dates and retries. A day passes in
//! milliseconds.

import Foundation
import SteadfastTesting

// snippet.payload
/// What a comment carries, and what all comments have in common.
struct PostComment: TaskPayload {
  var text: String

  var options: TaskOptions {
    TaskOptions(
      maxRetries: 20,
      timeLimit: .seconds(30),
      tags: ["outgoing"]
    )
  }
}
// snippet.end

struct Sync: TaskPayload {
  var account: String

  var uniqueKey: String? { "sync \(account)" }
}

struct Upload: TaskPayload { var photo: String }

struct Remind: TaskPayload { var text: String }

struct Save: TaskPayload { var text: String }

struct Charge: TaskPayload { var order: Int }

struct SendReceipt: TaskPayload { var order: Int }

struct Edit: TaskPayload {
  var document: Int
  var text: String
}

actor Phone {
  private(set) var isOn = false

  func turnOn() { isOn = true }

  func show(_ text: String) { print("shown: \(text)") }
}

actor Bank {
  struct Closed: Error {}
  struct NoMoney: Error {}

  private var calls = 0

  func charge(_ order: Int, idempotencyKey: String) throws {
    calls += 1
    if order == 2 { throw NoMoney() }
    if calls < 3 { throw Closed() }
    print("order \(order) is paid")
  }
}

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  // snippet.options
  // Once, with what the type chooses.
  try await queue.enqueue(PostComment(text: "hello"))

  // A label is for one task, and counts before what the type chooses.
  try await queue.enqueue(PostComment(text: "urgent"), priority: .high)

  // All tasks of a call, stored in one step: all of them or none.
  try await queue.enqueue(
    contentsOf: ["one", "two"].map(PostComment.init),
    options: TaskOptions(delay: .seconds(60), tags: ["digest"])
  )
  // snippet.end
  for task in try await queue.tasks() {
    print(task.priority.rawValue, task.tags.sorted(), task.maxRetries)
  }
}

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
  // snippet.metadata
  await queue.register(Charge.self) { charge, context in
    let tenant = context.metadata["tenant"] ?? "unknown"
    print("order \(charge.order) of the tenant \(tenant)")
    // The receipt inherits the tenant and the trace.
    try await context.enqueue(SendReceipt(order: charge.order))
  }
  try await queue.enqueue(
    Charge(order: 7),
    options: TaskOptions(metadata: ["tenant": "acme", "trace": trace])
  )

  let ofTenant = TaskFilter(metadata: ["tenant": "acme"])
  print(try await queue.count(matching: ofTenant), "tasks of the tenant")
  // snippet.end
  try await queue.runAvailable()
  for task in try await queue.tasks(matching: ofTenant) {
    print(task.name, task.metadata.keys.sorted())
  }
}

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  // snippet.unique
  let first = try await queue.enqueue(Sync(account: "ada"))
  let second = try await queue.enqueue(Sync(account: "ada"))
  print(second.isNew, second.id == first.id)  // false true

  // The task that waits takes over what the new one carries.
  let third = try await queue.enqueue(
    Sync(account: "ada"),
    onDuplicate: .replace
  )
  print(third.isNew, third.id == first.id)  // false true

  // The call throws.
  do {
    try await queue.enqueue(Sync(account: "ada"), onDuplicate: .reject)
  } catch let error as TaskQueueError where error.code == .duplicate {
    print(error)
  }
  // snippet.end
}

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  await queue.register(Save.self) { save, _ in
    print("saved at \(time.clock.now): \(save.text)")
  }
  // snippet.debounce
  // Saves when nothing was typed for two seconds, and twice a minute.
  func textHasChanged(_ text: String) async throws {
    try await queue.enqueue(
      Save(text: text),
      delay: .seconds(2),
      uniqueKey: "draft 7",
      onDuplicate: .replace,
      options: TaskOptions(maxDelay: .seconds(30))
    )
  }
  // snippet.end
  for text in ["D", "De", "Dear"] {
    try await textHasChanged(text)
    await time.advance(by: .seconds(1))
  }
  try await time.drain(queue)
}

try await withVirtualTime { time in
  let queue = TaskQueue(
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 8),
    clock: time.clock
  )
  await queue.register(Edit.self) { edit, context in
    if edit.text == "one", context.retryCount == 0 { throw Bank.Closed() }
    print("document \(edit.document) says \(edit.text)")
  }
  // snippet.in-order
  // The edits of a document are sent one after another, and documents at
  // the same time. If an edit is abandoned, later ones must not be sent.
  func send(_ edit: Edit) async throws {
    let document = "document \(edit.document)"
    try await queue.enqueue(
      edit,
      options: TaskOptions(orderKey: document, blocksOrderOnFailure: true)
    )
  }
  // snippet.end
  for text in ["one", "two"] {
    try await send(Edit(document: 7, text: text))
    try await send(Edit(document: 8, text: text.uppercased()))
  }
  try await time.drain(queue)
}

try await withVirtualTime { time in
  let queue = TaskQueue(clock: time.clock)
  await queue.register(Remind.self) { reminder, _ in print(reminder.text) }
  // snippet.window
  // However often it is asked for: at most one mail an hour.
  let options = TaskOptions(uniqueFor: .seconds(3600))
  let mail = try await queue.enqueue(
    Remind(text: "Your cart is full"),
    uniqueKey: "cart ada",
    options: options
  )
  // snippet.end
  try await time.drain(queue)
  let again = try await queue.enqueue(
    Remind(text: "Your cart is full"),
    uniqueKey: "cart ada",
    options: options
  )
  print(again.id == mail.id)
}

try await withVirtualTime { time in
  let clock = time.clock
  // snippet.order
  let queue = TaskQueue(
    configuration: TaskQueueConfiguration(maxConcurrentTasks: 8),
    clock: clock
  )
  // Of the eight tasks performed at a time, at most two are uploads.
  await queue.register(Upload.self, maxConcurrentTasks: 2) { upload, _ in
    print("begins: \(upload.photo)")
    try await clock.sleep(for: .seconds(60))
  }
  try await queue.enqueue(Upload(photo: "cat"), priority: .low)
  try await queue.enqueue(Upload(photo: "beach"))
  try await queue.enqueue(Upload(photo: "passport"), priority: .high)
  try await queue.enqueue(Upload(photo: "ticket"), priority: 5)
  // snippet.end
  try await time.drain(queue)
  print("uploaded at \(clock.now)")
}

try await withVirtualTime { time in
  let clock = time.clock
  let phone = Phone()
  let queue = TaskQueue(clock: clock)
  // snippet.dates
  // From tomorrow on.
  let tomorrow = clock.date.addingTimeInterval(86_400)
  try await queue.enqueue(Remind(text: "dentist"), availableDate: tomorrow)

  // In an hour.
  try await queue.enqueue(Remind(text: "tea"), delay: .seconds(3600))

  // In ten minutes, and not at all when the train has left.
  let departure = clock.date.addingTimeInterval(1200)
  try await queue.enqueue(
    Remind(text: "train"),
    delay: .seconds(600),
    options: TaskOptions(expiryDate: departure)
  )
  // snippet.end
  // snippet.snooze
  await queue.register(Remind.self) { reminder, context in
    // Later, and without counting a retry.
    guard await phone.isOn else { throw TaskSnoozed(for: .seconds(1800)) }
    await phone.show(reminder.text)
  }
  // snippet.end
  async let running: Void = queue.run()
  await time.advance(by: .seconds(4000))
  await phone.turnOn()
  await time.advance(by: .seconds(86_400))
  await queue.shutDown()
  try await running
  print("abandoned: \(try await queue.count(matching: .deadLetters))")
}

try await withVirtualTime { time in
  let bank = Bank()
  // snippet.retries
  let queue = TaskQueue(
    configuration: TaskQueueConfiguration(
      backoff: .exponential(from: .seconds(1), multiplier: 2)
        .jittered(.full).capped(at: .seconds(60)),
      taskDefaults: TaskOptions(maxRetries: 5, timeLimit: .seconds(30))
    ),
    clock: time.clock
  )
  await queue.register(Charge.self) { charge, context in
    do {
      let key = context.id.description
      try await bank.charge(charge.order, idempotencyKey: key)
    } catch is Bank.NoMoney {
      // No further attempt can help.
      throw TaskAbandoned("there is no money on the account")
    }
  }
  // snippet.end
  let tasks = try await queue.enqueue(contentsOf: [Charge(order: 1), Charge(order: 2)])
  try await time.drain(queue)
  for task in tasks { print(try await task.outcome()) }
}
