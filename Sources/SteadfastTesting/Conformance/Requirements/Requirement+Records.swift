import SteadfastQueue
import SystemFoundation

/// Requirements that look-ups and claims return tasks as they were enqueued.
extension PersistenceConformance.Requirement {
  static let records: [Self] = [
    Self(
      "record.fields",
      "Look-ups and claims return a task with every field unchanged.",
      check: checkFieldsOfRecords
    ),
    Self(
      "record.extremes",
      "Extreme priorities, limits, durations and dates come back unchanged.",
      check: checkExtremeFields
    ),
    Self(
      "record.payload",
      "A payload comes back with its bytes, format and version unchanged.",
      check: checkPayloads
    ),
    Self(
      "record.texts",
      "Names, unique keys and tags are the same only if their bytes are equal, even if they look "
        + "alike.",
      check: checkTextsAreComparedByBytes
    ),
    Self("record.large", "A payload of a megabyte comes back whole.", check: checkLargePayload),
  ]

  private static func checkFieldsOfRecords(in store: StoreProbe) async throws {
    try await store.insert(.withAllFields(1), .withAllFields(2))
    for number in 1...2 {
      let expected = TaskRecord.withAllFields(number)
      try await store.expect(number, is: expected)
      let claim = try await store.claim(
        names: [expected.name: 1],
        at: 1,
        holding: expected.conditions
      )
      try store.expect(claim, [number])
      try store.expect(claim.tasks[0].record, is: expected.with { $0.state = .running })
    }
  }

  /// Makes a task whose expiry date and available date are `date`, with extreme durations.
  static func extremeTask(
    _ number: Int,
    priority: Int,
    maxRetries: RetryLimit,
    date: Date
  ) -> TaskRecord {
    TaskRecord(
      id: .numbered(number),
      name: "A",
      payload: StoredPayload([], format: .binary),
      priority: TaskQueue.Priority(rawValue: priority),
      createdDate: Date(timeIntervalSince1970: -1e9 - 0.5),
      maxRetries: maxRetries,
      timeLimit: number % 2 == 0 ? .microseconds(1) : .seconds(100_000_000_000),
      expiryDate: date,
      availableDate: date
    )
  }

  private static func checkExtremeFields(in store: StoreProbe) async throws {
    let extremes = [
      extremeTask(1, priority: .max, maxRetries: .alwaysRetry, date: .distantPast),
      extremeTask(2, priority: .min, maxRetries: .atMost(0), date: .distantFuture),
      extremeTask(
        3,
        priority: .max - 1,
        maxRetries: .atMost(.max),
        date: Date(timeIntervalSince1970: 0)
      ),
      extremeTask(
        4,
        priority: .min + 1,
        maxRetries: 1,
        date: Date(timeIntervalSince1970: -0.000_001)
      ),
      extremeTask(5, priority: 0, maxRetries: 1, date: TaskRecord.lastDate),
    ]
    for record in extremes { try await store.insert(record) }
    for record in extremes { try await store.expect(record.id.number, is: record) }
    let claim = try await store.claim()
    try store.expect(claim, [1, 3, 4])
    try store.expectNextDate(claim, by: Date.distantFuture.second, at: 0)
  }

  private static func checkPayloads(in store: StoreProbe) async throws {
    let text = Array(#"{"text":"\"\\\/\u0000 naïve 任務 🎈","n":[1e300,-0.1,null,true]}"#.utf8)
    var payloads = [
      StoredPayload([], format: .binary),
      StoredPayload(Array(0...255), format: .binary, version: 2),
      StoredPayload(text, format: .json, version: 1_000_000),
    ]
    // A store stores the name of a format without interpreting it.
    payloads += ["json", "binary", "sealed"].compactMap(StoredPayload.Format.init(rawValue:))
      .map { StoredPayload(Array("[]".utf8), format: $0, version: 3) }
    for (number, payload) in payloads.enumerated() {
      let record = TaskRecord(
        id: .numbered(number),
        name: "A",
        payload: payload,
        createdDate: .second(0),
        availableDate: .second(0)
      )
      try await store.insert(record)
      try await store.expect(number, is: record)
      let claim = try await store.claim()
      try store.expect(claim, [number])
      try store.expect(claim.tasks[0].record, is: record.with { $0.state = .running })
    }
  }

  private static func checkTextsAreComparedByBytes(in store: StoreProbe) async throws {
    // Two encodings of é, which Swift treats as equal.
    let (one, two) = ("\u{e9}", "e\u{301}")
    let records = [
      TaskRecord.numbered(1, name: one, key: one, tags: [one]),
      .numbered(2, name: one, key: two, tags: [two]),
      .numbered(3, name: two, key: one, tags: [one, "plain"]),
    ]
    for record in records { try await store.apply(.insert(record, onDuplicate: .reject)) }
    for record in records { try await store.expect(record.id.number, is: record) }
    let twin = TaskRecord.numbered(4, name: two, key: one)
    try await store.apply(.insert(twin, onDuplicate: .keep), .duplicate(of: .numbered(3)))
    try await store.expectTasks([1, 2], TaskFilter(names: [one]))
    try await store.expectTasks([3], TaskFilter(names: [two]))
    try await store.expectTasks([3], TaskFilter(excludedNames: [one]))
    try await store.expectTasks([1, 2], TaskFilter(excludedNames: [two]))
    try await store.expectTasks([1, 3], TaskFilter(uniqueKeys: [one]))
    try await store.expectTasks([2], TaskFilter(uniqueKeys: [two]))
    try await store.expectTasks([1, 3], TaskFilter(tags: [one]))
    try await store.expectTasks([2, 3], TaskFilter(tags: [two, "plain"]))
    let claim = try await store.claim(names: [two: 9])
    try store.expect(claim, [3])
    try await store.apply(.park(claim.tasks[0].lease, failure: .at(1)))
    try await store.apply(.unpark(name: one))
    try store.expect(try await store.claim(names: [two: 9]), [])
    try store.expect(try await store.claim(names: [one: 1]), [1])
    try store.expect(try await store.claim(names: [two: 0], otherNames: 9), [2])
    try await store.apply(.unpark(name: two))
    try store.expect(try await store.claim(names: [one: 9]), [])
    try store.expect(try await store.claim(names: [two: 9]), [3])
  }

  /// Makes a task with a payload of at least a megabyte.
  static func taskWithLargePayload(_ number: Int) -> TaskRecord {
    // The block size is not a power of two, so that a store that mixes up its pages fails.
    let block = (0..<4099).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    var bytes: [UInt8] = []
    while bytes.count < 1 << 20 { bytes += block }
    return TaskRecord(
      id: .numbered(number),
      name: "A",
      payload: StoredPayload(bytes, format: .binary),
      createdDate: .second(0),
      availableDate: .second(0)
    )
  }

  private static func checkLargePayload(in store: StoreProbe) async throws {
    let record = taskWithLargePayload(1)
    try await store.insert(record)
    try await store.expect(1, is: record)
  }
}

extension TaskRecord {
  /// The last second of the year 9999: the latest date that a store must accept.
  static var lastDate: Date { Date(timeIntervalSince1970: 253_402_300_799) }
}
