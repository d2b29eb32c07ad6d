import SystemFoundation

/// The contents of one line of the file.
enum JournalEntry: Sendable {
  /// The first line, with the version of the file's format.
  case header(version: Int, generation: Int)
  /// A task as it was when the file was compacted.
  case task(KeptTask)
  /// The last line of a compaction. Every line before it is durable.
  case compacted(at: Date, bytesBefore: Int)
  /// A change to a task. The token of its lease has no meaning.
  ///
  /// An insertion of a task with a unique key is from an earlier version of this library.
  case change(TaskChange)
  /// A new task that earlier versions of this library can't handle, and the result of adding it.
  case addition(TaskRecord, Addition)
  /// The end of an attempt that would be retried, but the task's successor takes its place.
  case supersession(TaskChange)
  /// The restart of a task, without restarting the excluded tasks.
  ///
  /// The excluded tasks were cancelled because of the restarted task, but other tasks now have
  /// their unique keys.
  case restart(TaskChange, excluding: [TaskID])
  /// The new value with a name; `nil` if the value was removed.
  case value(named: String, [UInt8]?)
  /// A value that the task of the preceding `task` line remembered when the file was compacted.
  case memory(TaskID, named: String, [UInt8])
  /// An attempt has started.
  case begin(TaskID)
  /// The file was opened, and the tasks whose attempt had not ended were made available again.
  ///
  /// The number of interruptions of each such task was increased by 1.
  case interruption
  /// The file was closed. Every line before this line is durable.
  case seal

  /// The name of the format, in the header.
  static var formatName: String { "steadfast-queue" }
  /// The version of the format that is written, and the highest one that can be read.
  static var formatVersion: Int { 1 }
}

extension JournalEntry {
  /// Whether the entry may be among the tasks at the start of a compacted file.
  ///
  /// A `task` entry is valid only there, because it contains the task's position. Later entries add
  /// tasks after the existing ones.
  var isInSnapshot: Bool {
    switch self {
    case .header, .task, .memory, .begin: true
    case .compacted, .change, .addition, .supersession, .restart, .value, .interruption, .seal:
      false
    }
  }
}

/// A task of a compacted file, with properties that its record does not contain.
struct KeptTask: Sendable {
  /// The maximum position; a greater one is neither written nor read.
  static var maxPosition: UInt64 { .max >> 1 - 1 }

  var record: TaskRecord
  /// The task's position among the tasks with the same priority and available date.
  ///
  /// A task with a greater position is later.
  let position: UInt64
  /// Whether another task has taken this task's unique key, although this task has not ended.
  let hasLostKey: Bool
  /// The task's position among the tasks with the same order key; 0 if the task has no order key.
  var orderNumber: UInt64 = 0
  /// Whether an earlier version of this library wrote the task.
  ///
  /// In that version, a task kept its unique key after it had ended.
  var isOld = false
}

/// The JSON of an entry, from its kind to the closing brace.
///
/// A ``JournalLine`` adds the start of the line, which depends on the position in the file.
struct JournalBody: Sendable {
  private var fields = JournalFieldWriter()

  var bytes: [UInt8] { fields.bytes }

  /// The maximum size of the whole line, in bytes.
  var byteCount: Int { bytes.count + JournalLine.maxEnvelopeLength }

  /// The body of an `interruption` entry.
  static let interruption = JournalBody(bare: "interruption")
  /// The body of a `seal` entry.
  static let seal = JournalBody(bare: "seal")

  private init(bare kind: StaticString) {
    fields.begin(kind)
    fields.end()
  }

  /// Makes a body from the bytes of one that was read.
  init(_ bytes: ArraySlice<UInt8>) { fields = JournalFieldWriter(bytes) }

  init(attemptStartOf id: TaskID) {
    fields.begin("begin", id: id)
    fields.end()
  }

  /// - Throws: The error that encoding a payload throws.
  init(_ entry: JournalEntry) throws {
    switch entry {
    case .header(let version, let generation):
      fields.begin("header")
      fields.add("format", JournalEntry.formatName)
      fields.add("version", version)
      fields.add("generation", generation)
    case .task(let task):
      try addRecord(task.record, kind: task.record.storedKind)
      if task.record.keyRole == .successor { addDecision(.addition(.successor)) }
      if task.record.orderKey != nil {
        fields.add("orderNumber", raw: String(task.orderNumber).utf8)
      }
      fields.add("place", raw: String(task.position).utf8)
      fields.addIfTrue("keyless", task.hasLostKey)
    case .compacted(let date, let bytesBefore):
      fields.begin("compacted")
      fields.add("at", date)
      fields.add("before", bytesBefore)
    case .change(let change): try addFields(of: change)
    case .addition(let record, let addition):
      try addRecord(record, kind: record.additionKind)
      addDecision(.addition(addition))
    case .supersession(let change):
      try addFields(of: change)
      addDecision(.supersession)
    case .restart(let change, let excluded):
      try addFields(of: change)
      addDecision(.restart(excluding: excluded))
    case .value(let name, let value):
      fields.begin("value")
      addValue(value, named: name)
    case .memory(let id, let name, let value):
      fields.begin("memory", id: id)
      addValue(value, named: name)
    case .begin(let id): fields.begin("begin", id: id)
    case .interruption: fields.begin("interruption")
    case .seal: fields.begin("seal")
    }
    fields.end()
  }

  // MARK: Changes

  private mutating func addFields(of change: TaskChange) throws {
    switch change {
    case .insert(let record, _):
      try addRecord(record, kind: record.additionKind)
    case .move(let target, let move): addMove(move, of: target.id)
    case .end(let target, let end):
      fields.begin(end.word, id: target.id)
      if let failure = end.failure { addFailure(failure) } else { fields.add("at", end.date) }
      fields.addIfTrue("keep", end.retains)
    case .update(let id, let update): try addUpdate(update, of: id)
    case .remove(let id): fields.begin("remove", id: id)
    case .extend(let lease, _): fields.begin("extend", id: lease.id)
    case .broad(.unpark(let name, let queue, let version)):
      fields.begin("unpark")
      fields.add("name", name)
      if !queue.isEmpty { fields.add("queue", queue) }
      if let version { fields.add("knows", version) }
    case .broad(.prune(let state, let date, let count, let now, let queue)):
      fields.begin("prune")
      if !queue.isEmpty { fields.add("queue", queue) }
      fields.add("state", state.rawValue)
      if now != .distantPast { fields.add("at", now) }
      if let date { fields.add("before", date) }
      if let count { fields.add("latest", count) }
    case .broad(.rebase(let date)):
      fields.begin("rebase")
      fields.add("at", date)
    case .setValue(let name, _, let value):
      fields.begin("value")
      addValue(value, named: name)
    case .memory(.remember(let lease, let name, let value)):
      fields.begin("remember", id: lease.id)
      addValue(value, named: name)
    case .memory(.suspend(let lease, let date, let names, let origin)):
      fields.begin("suspend", id: lease.id)
      fields.add("until", date)
      if let origin { fields.add("from", origin) }
      if !names.isEmpty { fields.add("awaits", names) }
    case .memory(.complete(let id, let name, let value)):
      fields.begin("complete", id: id)
      addValue(value, named: name)
    // The table refuses commands, so this line is not written.
    case .command(let id, _, _): fields.begin("command", id: id)
    }
  }

  private mutating func addMove(_ move: TaskMove, of id: TaskID) {
    fields.begin(move.word, id: id)
    if let date = move.availableDate { fields.add("available", date) }
    if let count = move.retryCount { fields.add("retries", count) }
    fields.addIfTrue("forgets", move.forgetsMemory)
    if let version = move.knownVersion { fields.add("knows", version) }
    if let failure = move.failure {
      addFailure(failure)
    } else if move.availableDate != nil, !move.takesKey {
      addOrigin(move.countedFrom)
    }
  }

  /// Adds a value, as a string if the value is UTF-8 without control characters.
  private mutating func addValue(_ value: [UInt8]?, named name: String) {
    fields.add("name", name)
    guard let value else { return }
    if let text = String(validating: value, as: UTF8.self), !value.contains(where: { $0 < 0x20 }) {
      fields.add("value", text)
    } else {
      fields.add("data", Data(value).base64EncodedString())
    }
  }

  private mutating func addRecord(_ record: TaskRecord, kind: StaticString) throws {
    let payload = try record.payload.bytes()
    fields.reserveCapacity(payload.count + 256)
    fields.begin(kind, id: record.id)
    fields.add("name", record.name)
    fields.add("priority", record.priority.rawValue)
    let created = JournalFieldWriter.string(of: record.createdDate)
    fields.add("created", raw: created.utf8)
    // Most tasks are available when they are created, so the same string is used for both dates.
    let isAtOnce = record.availableDate == record.createdDate
    fields.add(
      "available",
      raw: (isAtOnce ? created : JournalFieldWriter.string(of: record.availableDate)).utf8
    )
    fields.add("maxRetries", record.maxRetries)
    if !record.usesBackoff { fields.add("backoff", raw: "false".utf8) }
    if !record.queue.isEmpty { fields.add("queue", record.queue) }
    if let key = record.uniqueKey { fields.add("key", key) }
    if let date = record.uniqueUntil { fields.add("uniqueUntil", date) }
    if let date = record.latestDate { fields.add("latestDate", date) }
    if let key = record.orderKey { fields.add("order", key) }
    fields.addIfTrue("holds", record.blocksOrderOnFailure)
    if !record.conditions.isEmpty {
      fields.add("requires", record.conditions.map(\.rawValue).sorted())
    }
    if let dependencies = record.presentDependencies { addDependencies(dependencies) }
    if !record.tags.isEmpty { fields.add("tags", record.tags.sorted()) }
    if !record.metadata.isEmpty { fields.add("metadata", record.metadata) }
    if let limit = record.timeLimit { fields.add("limit", limit) }
    if let date = record.expiryDate { fields.add("expires", date) }
    if record.payload.version != 1 { fields.add("schema", record.payload.version) }
    if record.state != .waiting { fields.add("state", record.state.rawValue) }
    if record.retryCount != 0 { fields.add("retries", record.retryCount) }
    if record.interruptionCount != 0 { fields.add("interruptions", record.interruptionCount) }
    if let error = record.lastError { fields.add("error", error) }
    if let date = record.failedDate { fields.add("failed", date) }
    if let attempt = record.failedAttempt { fields.add("attempt", attempt.text) }
    if !record.earlierFailures.isEmpty { addEarlierFailures(record.earlierFailures) }
    if let version = record.parkedVersion { fields.add("knows", version) }
    if record.isPostponed != (record.retryCount > 0) {
      fields.add("putOff", raw: (record.isPostponed ? "true" : "false").utf8)
    }
    if !isAtOnce || record.hasFailureState, record.countedFrom != record.usualOrigin {
      addOrigin(record.countedFrom)
    }
    if let date = record.finishedDate { fields.add("ended", date) }
    addPayload(payload, format: record.payload.format)
  }

  private mutating func addDependencies(_ dependencies: TaskDependencies) {
    fields.addIfAny("after", dependencies.tasks)
    if dependencies.rule != .allSucceeded { fields.add("when", dependencies.rule.rawValue) }
    if let id = dependencies.follower { fields.add("follower", id) }
    let failed = Dictionary(grouping: dependencies.failed.keys) { dependencies.failed[$0] }
    fields.addIfAny("afterAbandoned", failed[.abandoned] ?? [])
    fields.addIfAny("afterCancelled", failed[.cancelled] ?? [])
    if let id = dependencies.cause { fields.add("cause", id) }
    guard let batch = dependencies.batch else { return }
    fields.add("members", batch.total)
    fields.add("membersSucceeded", batch.succeeded)
    fields.add("membersFailed", batch.failed)
  }

  private mutating func addDecision(_ decision: Decision) {
    switch decision {
    case .addition(.holder): break
    case .addition(.successor): fields.add("role", UniqueKeyRole.successor.rawValue)
    case .addition(.takenOver(let id)): fields.add("into", id)
    case .supersession: fields.addIfTrue("superseded", true)
    case .restart(let excluded): fields.addIfAny("except", excluded)
    }
  }

  /// Returns a copy of the body, with the table's decision about the change added.
  ///
  /// The body is encoded before the table decides, because the table is locked while it decides,
  /// and encoding takes long.
  func adding(_ decision: Decision) -> JournalBody {
    var line = self
    line.fields.reopen()
    line.addDecision(decision)
    line.fields.end()
    return line
  }

  private mutating func addUpdate(_ update: TaskUpdate, of id: TaskID) throws {
    fields.begin(update.metadata == nil ? "update" : "edit", id: id)
    if let priority = update.priority { fields.add("priority", priority.rawValue) }
    if let limit = update.maxRetries { fields.add("maxRetries", limit) }
    if let usesBackoff = update.usesBackoff {
      fields.add("backoff", raw: (usesBackoff ? "true" : "false").utf8)
    }
    if let tags = update.tags { fields.add("tags", tags.sorted()) }
    if let metadata = update.metadata { fields.add("metadata", metadata) }
    if let limit = update.timeLimit { fields.add("limit", limit) }
    if let date = update.expiryDate { fields.add("expires", date) }
    guard let payload = update.payload else { return }
    if payload.version != 1 { fields.add("schema", payload.version) }
    addPayload(try payload.bytes(), format: payload.format)
  }

  private mutating func addPayload(_ payload: [UInt8], format: StoredPayload.Format) {
    switch format {
    case .json where Self.canBeReadBack(payload): fields.add("payload", raw: payload)
    case .json, .binary: fields.add("data", Data(payload).base64EncodedString())
    case .sealedJSON: fields.add("sealed", Data(payload).base64EncodedString())
    case .sealedBinary: fields.add("sealedData", Data(payload).base64EncodedString())
    }
  }

  /// Returns whether the payload can be read if it is written unchanged.
  private static func canBeReadBack(_ payload: [UInt8]) -> Bool {
    var scanner = JSONScanner(payload, payload.indices)
    return !payload.contains(0x0A) && scanner.skipValue() == payload.indices
  }

  private mutating func addOrigin(_ origin: Date?) {
    fields.add("from", origin ?? TaskRecord.noOrigin)
  }

  private mutating func addFailure(_ failure: TaskFailure) {
    fields.add("error", failure.reason)
    fields.add("failed", failure.date)
    if let attempt = failure.attempt { fields.add("attempt", attempt.text) }
  }

  /// Adds failures and, in a field that earlier versions ignore, how the attempts failed.
  ///
  /// If that is not known of an attempt, its text is empty.
  private mutating func addEarlierFailures(_ failures: [TaskFailure]) {
    fields.add("earlier", failures)
    guard failures.contains(where: { $0.attempt != nil }) else { return }
    fields.add("attempts", failures.map { $0.attempt?.text ?? "" })
  }
}

extension TaskMove {
  /// The kind of the line in a file.
  fileprivate var word: StaticString {
    switch kind {
    case .retry: "retry"
    case .release: "release"
    case .park: "park"
    case .pause: "pause"
    case .resume: "resume"
    case .restart: "restart"
    case .reschedule: "reschedule"
    }
  }
}

extension TaskEnd {
  /// The kind of the line in a file.
  fileprivate var word: StaticString {
    switch outcome {
    case .succeeded: "succeed"
    case .abandoned: "abandon"
    case .cancelled: "cancel"
    }
  }
}

extension TaskRecord {
  /// Whether all versions of this library can handle the task: it has no unique key, order key,
  /// conditions, dependencies, queue of a group or metadata, and is not suspended.
  var isPlain: Bool {
    uniqueKey == nil && orderKey == nil && conditions.isEmpty && presentDependencies == nil
      && queue.isEmpty && metadata.isEmpty && state != .suspended
  }

  // A version that does not know all of the task's properties refuses lines of the other kinds.

  /// The kind of the line that adds the task.
  fileprivate var additionKind: StaticString {
    isPlain ? "insert" : metadata.isEmpty ? "add" : "create"
  }

  /// The kind of the line that contains the task in a compacted file.
  fileprivate var storedKind: StaticString {
    isPlain ? "task" : metadata.isEmpty ? "kept" : "stored"
  }
}

/// The maximum lengths of the file's lines.
extension JournalBody {
  /// The maximum length of a change's body, in bytes; a longer one is neither written nor read.
  ///
  /// A compaction combines the insertion of a task and its later changes, above all its errors, in
  /// one line. With these limits, that line is not too long to read.
  static func maxLength(of change: TaskChange) -> Int {
    switch change {
    case .insert, .update: maxInsertionLength
    case .setValue: maxValueLength
    case .memory: maxMemoryLength
    case .move, .end, .remove, .extend, .command, .broad: maxOtherLength
    }
  }

  /// The maximum length of the body of a line of a kind, in bytes.
  ///
  /// For changes, it matches `maxLength(of:)` above. For other kinds, only the maximum length of a
  /// line applies.
  static func maxLength(of kind: JournalKind) -> Int {
    switch kind {
    case .insert, .update, .edit: maxInsertionLength
    case .add, .create: maxInsertionLength + maxDecisionLength
    case .retry: maxOtherLength + maxDecisionLength
    case .value: maxValueLength
    case .remember, .complete, .suspend, .memory: maxMemoryLength
    case .succeed, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .reschedule,
      .remove, .extend, .prune, .rebase:
      maxOtherLength
    // A restart lists the tasks that are not restarted along with it.
    case .restart, .header, .task, .kept, .stored, .compacted, .begin, .interruption, .seal:
      JournalLine.maxLength
    }
  }

  private static var maxInsertionLength: Int { JournalLine.maxLength - 64 << 10 }
  /// The maximum length of the table's decision, which is added to the body of a change.
  private static var maxDecisionLength: Int { 64 }
  private static var maxOtherLength: Int { 32 << 10 }
  /// The maximum length of the body that sets a value.
  ///
  /// It is almost twice the length for the longest value if each of its bytes is escaped.
  private static var maxValueLength: Int { 256 << 10 }
  /// The maximum length of the body that sets a remembered value, calculated in the same way.
  private static var maxMemoryLength: Int { 512 << 10 }
}

/// Writes the body of a line, field by field.
struct JournalFieldWriter: Sendable {
  private(set) var bytes: [UInt8]

  init() { bytes = [] }

  /// Makes a writer whose bytes are a complete body that was read.
  init(_ bytes: ArraySlice<UInt8>) { self.bytes = Array(bytes) }

  mutating func reserveCapacity(_ count: Int) { bytes.reserveCapacity(count) }

  mutating func begin(_ kind: StaticString) {
    bytes.reserveCapacity(128)
    add(ascii: "\"k\":\"")
    add(ascii: kind)
    bytes.append(UInt8(ascii: "\""))
  }

  mutating func begin(_ kind: StaticString, id: TaskID) {
    begin(kind)
    add("id", id)
  }

  mutating func add(_ key: StaticString, _ value: Int) {
    addKey(key)
    // Appending a single digit is faster, and most numbers have only one.
    if 0...9 ~= value {
      bytes.append(UInt8(ascii: "0") + UInt8(value))
    } else {
      bytes.append(contentsOf: String(value).utf8)
    }
  }

  mutating func add(_ key: StaticString, _ value: Date) {
    add(key, raw: Self.string(of: value).utf8)
  }

  static func string(of date: Date) -> String { date.timeIntervalSince1970.description }

  mutating func addIfTrue(_ key: StaticString, _ value: Bool) {
    if value { add(key, raw: "true".utf8) }
  }

  mutating func add(_ key: StaticString, _ id: TaskID) {
    addKey(key)
    bytes.append(UInt8(ascii: "\""))
    unsafe id.withText { unsafe bytes.append(contentsOf: $0) }
    bytes.append(UInt8(ascii: "\""))
  }

  mutating func add(_ key: StaticString, _ text: String) {
    addKey(key)
    addString(text)
  }

  private mutating func addString(_ text: String) {
    bytes.append(UInt8(ascii: "\""))
    // Most strings need no escapes, so all their bytes are copied at once.
    if !text.utf8.contains(where: Self.needsEscape) {
      bytes.append(contentsOf: text.utf8)
    } else {
      addEscaped(text)
    }
    bytes.append(UInt8(ascii: "\""))
  }

  private static func needsEscape(_ byte: UInt8) -> Bool {
    byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
  }

  private mutating func addEscaped(_ text: String) {
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        bytes.append(UInt8(ascii: "\\"))
        bytes.append(byte)
      case 0..<0x20:
        add(ascii: "\\u00")
        bytes.append(Hexadecimal.digit(UInt64(byte >> 4)))
        bytes.append(Hexadecimal.digit(UInt64(byte)))
      default:
        bytes.append(byte)
      }
    }
  }

  mutating func add(_ key: StaticString, _ texts: [String]) {
    addKey(key)
    bytes.append(UInt8(ascii: "["))
    for (index, text) in texts.enumerated() {
      if index > 0 { bytes.append(UInt8(ascii: ",")) }
      addString(text)
    }
    bytes.append(UInt8(ascii: "]"))
  }

  /// Adds an object, sorted by its keys.
  mutating func add(_ key: StaticString, _ texts: [String: String]) {
    addKey(key)
    var separator = UInt8(ascii: "{")
    for (key, text) in texts.sorted(by: { $0.key < $1.key }) {
      bytes.append(separator)
      addString(key)
      bytes.append(UInt8(ascii: ":"))
      addString(text)
      separator = UInt8(ascii: ",")
    }
    if texts.isEmpty { bytes.append(separator) }
    bytes.append(UInt8(ascii: "}"))
  }

  /// Adds a list of IDs, sorted; adds nothing if there are none.
  mutating func addIfAny(_ key: StaticString, _ ids: some Sequence<TaskID>) {
    let texts = ids.sorted().map(\.description)
    if !texts.isEmpty { add(key, texts) }
  }

  mutating func add(_ key: StaticString, _ failures: [TaskFailure]) {
    addKey(key)
    var separator = UInt8(ascii: "[")
    for failure in failures {
      bytes.append(separator)
      bytes.append(UInt8(ascii: "["))
      addString(failure.reason)
      bytes.append(UInt8(ascii: ","))
      bytes.append(contentsOf: Self.string(of: failure.date).utf8)
      bytes.append(UInt8(ascii: "]"))
      separator = UInt8(ascii: ",")
    }
    bytes.append(UInt8(ascii: "]"))
  }

  /// Adds a duration as whole seconds and attoseconds, so that exactly the same duration is read.
  mutating func add(_ key: StaticString, _ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    add(key, raw: "[\(seconds),\(attoseconds)]".utf8)
  }

  mutating func add(_ key: StaticString, _ limit: RetryLimit) {
    switch limit {
    case .atMost(let count): add(key, count)
    case .alwaysRetry: add(key, "always")
    }
  }

  mutating func add(_ key: StaticString, raw value: some Sequence<UInt8>) {
    addKey(key)
    bytes.append(contentsOf: value)
  }

  private mutating func addKey(_ key: StaticString) {
    bytes.append(UInt8(ascii: ","))
    bytes.append(UInt8(ascii: "\""))
    add(ascii: key)
    bytes.append(UInt8(ascii: "\""))
    bytes.append(UInt8(ascii: ":"))
  }

  private mutating func add(ascii text: StaticString) {
    // The string is a literal, so its bytes are never freed.
    text.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
  }

  mutating func end() { bytes.append(UInt8(ascii: "}")) }

  /// Removes the closing brace, so that more fields can be added.
  mutating func reopen() { bytes.removeLast() }
}
