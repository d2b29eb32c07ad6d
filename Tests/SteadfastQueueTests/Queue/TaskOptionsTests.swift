import Foundation
import SteadfastQueue
import SteadfastTesting
import Testing

/// Tests which options of a new task take precedence.
@Suite struct TaskOptionsTests {
  private let clock = VirtualClock()

  /// A payload whose type sets all options.
  private struct FullyConfigured: TaskPayload {
    static let expiryDate = Date(timeIntervalSince1970: 4_000_000_000)

    var key: String?

    var options: TaskOptions {
      TaskOptions(
        delay: .seconds(60),
        expiryDate: Self.expiryDate,
        maxRetries: 1,
        usesBackoff: false,
        timeLimit: .seconds(1),
        priority: .high,
        onDuplicate: .reject,
        tags: ["type"],
        metadata: ["source": "type", "type": "1"]
      )
    }

    var uniqueKey: String? { key }
  }

  private static let allOptions = TaskOptions(
    availableDate: Date(timeIntervalSince1970: 3_000_000_000),
    expiryDate: Date(timeIntervalSince1970: 5_000_000_000),
    maxRetries: 2,
    usesBackoff: true,
    timeLimit: .seconds(2),
    priority: .low,
    onDuplicate: .keep,
    tags: ["call"],
    metadata: ["source": "call", "call": "1"]
  )

  private func makeQueue(taskDefaults defaults: TaskOptions = TaskOptions()) -> TaskQueue {
    TaskQueue(configuration: TaskQueueConfiguration(taskDefaults: defaults), clock: clock)
  }

  private func record(of task: EnqueuedTask, in queue: TaskQueue) async throws -> TaskRecord {
    try #require(try await queue.tasks().first { $0.id == task.id })
  }

  @Test func `a task without options has the documented defaults`() async throws {
    let queue = makeQueue()
    let task = try await record(of: try await queue.enqueue(Note("a")), in: queue)
    #expect(task.availableDate == task.createdDate)
    #expect(task.maxRetries == 10)
    #expect(task.usesBackoff)
    #expect(task.priority == .normal)
    #expect(task.timeLimit == nil)
    #expect(task.expiryDate == nil)
    #expect(task.tags.isEmpty && task.metadata.isEmpty)
    #expect(task.uniqueKey == nil)
  }

  @Test func `the queue's defaults apply to options that aren't set elsewhere`() async throws {
    let queue = makeQueue(taskDefaults: Self.allOptions)
    let task = try await record(of: try await queue.enqueue(Note("a")), in: queue)
    #expect(task.availableDate == Self.allOptions.availableDate)
    #expect(task.maxRetries == 2)
    #expect(task.priority == .low)
    #expect(task.timeLimit == .seconds(2))
    #expect(task.expiryDate == Self.allOptions.expiryDate)
    #expect(task.tags == ["call"])
    #expect(task.metadata == ["source": "call", "call": "1"])
  }

  @Test func `the payload's type takes precedence over the queue`() async throws {
    let queue = makeQueue(taskDefaults: Self.allOptions)
    let task = try await record(of: try await queue.enqueue(FullyConfigured()), in: queue)
    #expect(task.availableDate == task.createdDate + 60)
    #expect(task.maxRetries == 1)
    #expect(!task.usesBackoff)
    #expect(task.priority == .high)
    #expect(task.timeLimit == .seconds(1))
    #expect(task.expiryDate == FullyConfigured.expiryDate)
    #expect(task.tags == ["type", "call"])
    #expect(task.metadata == ["source": "type", "type": "1", "call": "1"])
  }

  @Test func `the options of the call take precedence over the payload's type`() async throws {
    let queue = makeQueue()
    let single = try await queue.enqueue(FullyConfigured(), options: Self.allOptions)
    let several = try await queue.enqueue(contentsOf: [FullyConfigured()], options: Self.allOptions)
    for task in [single] + several {
      let task = try await record(of: task, in: queue)
      #expect(task.availableDate == Self.allOptions.availableDate)
      #expect(task.maxRetries == 2)
      #expect(task.usesBackoff)
      #expect(task.priority == .low)
      #expect(task.timeLimit == .seconds(2))
      #expect(task.expiryDate == Self.allOptions.expiryDate)
      #expect(task.tags == ["type", "call"])
      #expect(task.metadata == ["source": "call", "type": "1", "call": "1"])
    }
  }

  @Test func `a labelled argument takes precedence over the options of the call`() async throws {
    let queue = makeQueue()
    let task = try await queue.enqueue(
      FullyConfigured(),
      delay: .seconds(5),
      maxRetries: .alwaysRetry,
      usesBackoff: false,
      priority: 7,
      options: Self.allOptions
    )
    let found = try await record(of: task, in: queue)
    #expect(found.availableDate == found.createdDate + 5)
    #expect(found.maxRetries == .alwaysRetry)
    #expect(!found.usesBackoff)
    #expect(found.priority == 7)
    #expect(found.timeLimit == .seconds(2))
  }

  @Test
  func `the payloads of a call each have their own options, but share one duplicate policy`()
    async throws
  {
    struct Letter: TaskPayload {
      var isUrgent = false
      var policy: String?
      var options: TaskOptions {
        TaskOptions(
          priority: isUrgent ? .high : nil,
          onDuplicate: policy.map { $0 == "join" ? .join : .replace }
        )
      }
    }
    let queue = makeQueue(taskDefaults: TaskOptions(priority: .low))
    let tasks = try await queue.enqueue(contentsOf: [Letter(), Letter(isUrgent: true)])
    var priorities: [TaskQueue.Priority] = []
    for task in tasks { priorities.append(try await record(of: task, in: queue).priority) }
    #expect(priorities == [.low, .high])
    let mixed = [Letter(policy: "join"), Letter(policy: "replace")]
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(contentsOf: mixed)
    }
    #expect(error?.message.contains("different values of onDuplicate") == true)
    #expect(try await queue.count == 2)
    try await queue.enqueue(contentsOf: mixed, options: TaskOptions(onDuplicate: .keep))
    #expect(try await queue.count == 4)
  }

  @Test func `untyped tasks accept options, and have the queue's defaults`() async throws {
    let queue = makeQueue(taskDefaults: TaskOptions(priority: .high, tags: ["queue"]))
    let task = try await queue.enqueue(name: "any", 1, options: TaskOptions(maxRetries: 3))
    let found = try await record(of: task, in: queue)
    #expect(found.maxRetries == 3)
    #expect(found.priority == .high)
    #expect(found.tags == ["queue"])
  }

  @Test func `a date of the call overrides the type's delay`() async throws {
    let queue = makeQueue()
    let task = try await queue.enqueue(FullyConfigured(), availableDate: clock.date + 1)
    let found = try await record(of: task, in: queue)
    #expect(found.availableDate == found.createdDate + 1)
  }

  @Test(.virtualTime) func `a delay starts when the task is enqueued`() async throws {
    let time = try #require(VirtualTime.current)
    let queue = TaskQueue(clock: time.clock)
    await queue.register(Note.self) { _, _ in }
    try await time.clock.sleep(for: .seconds(30))
    try await queue.enqueue(Note("in a minute"), delay: .seconds(60))
    let early = try await queue.runAvailable()
    try await time.clock.sleep(for: .seconds(59.9))
    let stillEarly = try await queue.runAvailable()
    try await time.clock.sleep(for: .seconds(0.1))
    let due = try await queue.runAvailable()
    let attempts = [early, stillEarly, due]
    #expect(attempts == [0, 0, 1])
  }

  @Test func `giving both a delay and a date throws an error that names both`() async throws {
    let queue = makeQueue()
    let both = TaskOptions(availableDate: clock.date, delay: .seconds(1))
    let calls: [() async throws -> Void] = [
      { [clock] in
        try await queue.enqueue(Note("a"), availableDate: clock.date, delay: .seconds(1))
      },
      { try await queue.enqueue(Note("a"), options: both) },
      { try await queue.enqueue(contentsOf: [Note("a")], options: both) },
      { try await queue.enqueue(name: "a", options: both) },
    ]
    for call in calls {
      let error = await #expect(throws: TaskQueueError.self) { try await call() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains("delay and availableDate are both given") == true)
    }
    let error = await #expect(throws: TaskQueueError.self) {
      try await makeQueue(taskDefaults: both).open()
    }
    #expect(error?.message.contains("taskDefaults.delay and taskDefaults.availableDate") == true)
    #expect(try await queue.count == 0)
  }

  @Test func `a negative delay is rejected`() async throws {
    let queue = makeQueue()
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note("a"), delay: .seconds(-1))
    }
    #expect(error?.message.contains("delay is -1") == true)
    #expect(try await queue.count == 0)
  }

  @Test func `a unique key and a policy that the payload provides apply to duplicates`()
    async throws
  {
    let queue = makeQueue()
    try await queue.enqueue(FullyConfigured(key: "k"))
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(FullyConfigured(key: "k"))
    }
    #expect(error?.code == .duplicate)
    let kept = try await queue.enqueue(FullyConfigured(key: "k"), onDuplicate: .keep)
    #expect(!kept.isNew)
    let other = try await queue.enqueue(FullyConfigured(key: "k"), uniqueKey: "another")
    #expect(other.isNew)
    #expect(try await queue.tasks().map(\.uniqueKey) == ["k", "another"])
  }

  @Test func `each payload of a call has its own unique key, unless the call provides another key`()
    async throws
  {
    let queue = makeQueue()
    try await queue.enqueue(contentsOf: [FullyConfigured(key: "a"), FullyConfigured(key: nil)])
    try await queue.enqueue(contentsOf: [FullyConfigured(key: "c")]) { _ in "d" }
    #expect(try await queue.tasks().map(\.uniqueKey) == ["a", nil, "d"])
  }

  @Test func `an empty name, key or tag is rejected, and adds nothing`() async throws {
    let queue = makeQueue()
    let emptyTag = TaskOptions(tags: ["a", ""])
    let calls: [(String, () async throws -> Void)] = [
      ("name of a task is empty", { try await queue.enqueue(name: "") }),
      ("uniqueKey is empty", { try await queue.enqueue(Note("a"), uniqueKey: "") }),
      ("uniqueKey is empty", { try await queue.enqueue(FullyConfigured(key: "")) }),
      ("uniqueKey is empty", { try await queue.enqueue(name: "a", uniqueKey: "") }),
      ("uniqueKey is empty", { try await queue.enqueue(contentsOf: [Note("a")]) { _ in "" } }),
      (
        "tags contains an empty string",
        { try await queue.enqueue(Note("a"), options: TaskOptions(tags: [""])) }
      ),
      ("taskDefaults.tags", { try await makeQueue(taskDefaults: emptyTag).open() }),
      ("queue's name is empty", { try await TaskQueue(name: "").open() }),
    ]
    for (words, call) in calls {
      let error = await #expect(throws: TaskQueueError.self) { try await call() }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.contains(words) == true)
    }
    #expect(try await queue.count == 0)
  }

  private static func metadata(keys count: Int) -> [String: String] {
    Dictionary(uniqueKeysWithValues: (0..<count).map { ("key \($0)", "") })
  }

  @Test func `metadata beyond the limits is rejected, and adds nothing`() async throws {
    let queue = makeQueue()
    let keyOfTwoBytes = "é"
    let calls: [([String: String], String)] = [
      (Self.metadata(keys: 65), "metadata has 65 keys; give at most 64"),
      (["": "a"], "metadata has an empty key"),
      (
        [keyOfTwoBytes: String(repeating: "x", count: 4_095)],
        "the keys and values of metadata have 4097 bytes of UTF-8; give at most 4096"
      ),
    ]
    for (metadata, words) in calls {
      let options = TaskOptions(metadata: metadata)
      let error = await #expect(throws: TaskQueueError.self) {
        try await queue.enqueue(Note("a"), options: options)
      }
      #expect(error?.code == .invalidArgument)
      #expect(error?.message.hasPrefix(words) == true, "\(error?.message ?? "")")
      let other = await #expect(throws: TaskQueueError.self) {
        try await makeQueue(taskDefaults: options).open()
      }
      #expect(other?.message.contains("taskDefaults.metadata") == true)
    }
    #expect(try await queue.count == 0)
  }

  @Test func `metadata within the limits is accepted`() async throws {
    let queue = makeQueue()
    let longest = ["é": String(repeating: "x", count: 4_094)]
    for metadata in [Self.metadata(keys: 64), longest] {
      let task = try await queue.enqueue(Note("a"), options: TaskOptions(metadata: metadata))
      #expect(try await record(of: task, in: queue).metadata == metadata)
    }
  }

  @Test func `metadata of several sources must be within the limits together`() async throws {
    let queue = makeQueue(taskDefaults: TaskOptions(metadata: Self.metadata(keys: 64)))
    try await queue.enqueue(Note("a"), options: TaskOptions(metadata: ["key 7": "own"]))
    let error = await #expect(throws: TaskQueueError.self) {
      try await queue.enqueue(Note("a"), options: TaskOptions(metadata: ["another": ""]))
    }
    #expect(error?.message.hasPrefix("metadata has 65 keys") == true)
    let found = try #require(try await queue.tasks().first)
    #expect(found.metadata["key 7"] == "own" && found.metadata.count == 64)
  }
}
