#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The text of an entry, from its kind to the closing brace.
///
/// It is made before the entry's place in the file is known.
struct JournalBody: Sendable {
  private(set) var bytes: [UInt8] = []

  /// The greatest number of bytes that the line takes in the file.
  var byteCount: Int { bytes.count + JournalLine.maxEnvelopeLength }

  /// The body that says that tasks were interrupted.
  static let interruption = JournalBody(bare: "interruption")
  /// The body that says that the file was closed.
  static let seal = JournalBody(bare: "seal")

  private init(bare kind: StaticString) {
    begin(kind)
    bytes.append(UInt8(ascii: "}"))
  }

  /// Makes the body of a line that was read.
  init(_ bytes: ArraySlice<UInt8>) { self.bytes = Array(bytes) }

  init(beginningOf id: TaskID) {
    begin("begin", id)
    bytes.append(UInt8(ascii: "}"))
  }

  /// - Throws: The error that encoding a payload throws.
  init(_ entry: JournalEntry) throws {
    switch entry {
    case .header(let version, let generation):
      begin("header")
      add("format", JournalEntry.formatName)
      add("version", version)
      add("generation", generation)
    case .task(let task):
      // Programs that don't know what the task has refuse the kind.
      try add(task.record, task.record.isPlain ? "task" : "kept")
      if task.record.keyRole == .successor { add(.addition(.successor)) }
      if task.record.orderKey != nil { add("orderNumber", raw: String(task.orderNumber).utf8) }
      add("place", raw: String(task.position).utf8)
      addIfTrue("keyless", task.hasLostKey)
    case .compacted(let date, let bytesBefore):
      begin("compacted")
      add("at", date)
      add("before", bytesBefore)
    case .change(let change): try add(change)
    case .addition(let record, let addition):
      try add(record, "add")
      add(.addition(addition))
    case .supersession(let change):
      try add(change)
      add(.supersession)
    case .begin(let id): begin("begin", id)
    case .interruption: begin("interruption")
    case .seal: begin("seal")
    }
    bytes.append(UInt8(ascii: "}"))
  }

  // MARK: Changes

  private mutating func add(_ change: TaskChange) throws {
    switch change {
    case .insert(let record, _):
      // Programs that don't know what the task has refuse the kind.
      try add(record, record.isPlain ? "insert" : "add")
    case .succeed(let lease, let date, let retains):
      begin("succeed", lease.id)
      add("at", date)
      addIfTrue("keep", retains)
    case .retry(let lease, let date, let retryCount, let failure):
      begin("retry", lease.id)
      add("available", date)
      add("retries", retryCount)
      if let failure { add(failure) }
    case .abandon(let lease, let failure, let retains):
      begin("abandon", lease.id)
      add(failure)
      addIfTrue("keep", retains)
    case .release(let lease): begin("release", lease.id)
    case .park(let lease, let failure):
      begin("park", lease.id)
      add(failure)
    case .cancel(let target, let date, let retains):
      begin("cancel", target.id)
      add("at", date)
      addIfTrue("keep", retains)
    case .pause(let target): begin("pause", target.id)
    case .resume(let id): begin("resume", id)
    case .restart(let target, let date):
      begin("restart", target.id)
      add("available", date)
    case .reschedule(let target, let date):
      begin("reschedule", target.id)
      add("available", date)
    case .update(let id, let update): try add(update, of: id)
    case .remove(let id): begin("remove", id)
    case .extend(let lease, let date):
      begin("extend", lease.id)
      add("until", date)
    case .unpark(let name):
      begin("unpark")
      add("name", name)
    case .prune(let state, let date, let count, let now):
      begin("prune")
      add("state", state.rawValue)
      if now != .distantPast { add("at", now) }
      if let date { add("before", date) }
      if let count { add("latest", count) }
    case .rebase(let date):
      begin("rebase")
      add("at", date)
    }
  }

  private mutating func add(_ record: TaskRecord, _ kind: StaticString) throws {
    let payload = try record.payload.bytes()
    bytes.reserveCapacity(payload.count + 256)
    begin(kind, record.id)
    add("name", record.name)
    add("priority", record.priority.rawValue)
    let created = Self.text(of: record.createdDate)
    add("created", raw: created.utf8)
    // Most tasks are available at once, so the text of the date is made only once.
    let isAtOnce = record.availableDate == record.createdDate
    add("available", raw: (isAtOnce ? created : Self.text(of: record.availableDate)).utf8)
    add("maxRetries", record.maxRetries)
    if !record.usesBackoff { add("backoff", raw: "false".utf8) }
    if let key = record.uniqueKey { add("key", key) }
    if let date = record.uniqueUntil { add("uniqueUntil", date) }
    if let date = record.latestDate { add("latestDate", date) }
    if let key = record.orderKey { add("order", key) }
    addIfTrue("holds", record.holdsOrder)
    if !record.conditions.isEmpty { add("requires", record.conditions.map(\.rawValue).sorted()) }
    if !record.tags.isEmpty { add("tags", record.tags.sorted()) }
    if let limit = record.timeLimit { add("limit", limit) }
    if let date = record.expiryDate { add("expires", date) }
    if record.payload.version != 1 { add("schema", record.payload.version) }
    if record.state != .waiting { add("state", record.state.rawValue) }
    if record.retryCount != 0 { add("retries", record.retryCount) }
    if record.interruptionCount != 0 { add("interruptions", record.interruptionCount) }
    if let error = record.lastError { add("error", error) }
    if let date = record.failedDate { add("failed", date) }
    if !record.earlierFailures.isEmpty { add("earlier", record.earlierFailures) }
    if record.isPostponed != (record.retryCount > 0) {
      add("putOff", raw: (record.isPostponed ? "true" : "false").utf8)
    }
    if let date = record.finishedDate { add("ended", date) }
    add(payload, record.payload.format)
  }

  private mutating func add(_ decision: Decision) {
    switch decision {
    case .addition(.holder): break
    case .addition(.successor): add("role", UniqueKeyRole.successor.rawValue)
    case .addition(.takenOver(let id)): add("into", id)
    case .supersession: addIfTrue("superseded", true)
    }
  }

  /// Returns the line of a change, with what a store has decided about it.
  ///
  /// The line is made before that is known, because it takes long, and the table is locked when the
  /// table decides.
  func adding(_ decision: Decision) -> JournalBody {
    var line = self
    line.bytes.removeLast()
    line.add(decision)
    line.bytes.append(UInt8(ascii: "}"))
    return line
  }

  private mutating func add(_ update: TaskUpdate, of id: TaskID) throws {
    begin("update", id)
    if let priority = update.priority { add("priority", priority.rawValue) }
    if let limit = update.maxRetries { add("maxRetries", limit) }
    if let usesBackoff = update.usesBackoff {
      add("backoff", raw: (usesBackoff ? "true" : "false").utf8)
    }
    if let tags = update.tags { add("tags", tags.sorted()) }
    if let limit = update.timeLimit { add("limit", limit) }
    if let date = update.expiryDate { add("expires", date) }
    guard let payload = update.payload else { return }
    if payload.version != 1 { add("schema", payload.version) }
    add(try payload.bytes(), payload.format)
  }

  private mutating func add(_ key: StaticString, _ limit: RetryLimit) {
    switch limit {
    case .atMost(let count): add(key, count)
    case .alwaysRetry: add(key, "always")
    }
  }

  private mutating func add(_ payload: [UInt8], _ format: StoredPayload.Format) {
    switch format {
    case .json where Self.canBeReadBack(payload): add("payload", raw: payload)
    case .json, .binary: add("data", Data(payload).base64EncodedString())
    case .sealedJSON: add("sealed", Data(payload).base64EncodedString())
    case .sealedBinary: add("sealedData", Data(payload).base64EncodedString())
    }
  }

  /// Returns whether a reader finds the end of a payload that is written into the line unchanged.
  private static func canBeReadBack(_ payload: [UInt8]) -> Bool {
    var scanner = JSONScanner(payload, payload.indices)
    return !payload.contains(0x0A) && scanner.value() == payload.indices
  }

  private mutating func add(_ failure: TaskFailure) {
    add("error", failure.reason)
    add("failed", failure.date)
  }

  // MARK: Fields

  private mutating func begin(_ kind: StaticString) {
    bytes.reserveCapacity(128)
    add(ascii: "\"k\":\"")
    add(ascii: kind)
    bytes.append(UInt8(ascii: "\""))
  }

  private mutating func begin(_ kind: StaticString, _ id: TaskID) {
    begin(kind)
    add("id", id)
  }

  private mutating func add(_ key: StaticString, _ value: Int) {
    addKey(key)
    // Most numbers have one digit, for which there is a shorter way.
    if 0...9 ~= value {
      bytes.append(UInt8(ascii: "0") + UInt8(value))
    } else {
      bytes.append(contentsOf: String(value).utf8)
    }
  }

  private mutating func add(_ key: StaticString, _ value: Date) {
    add(key, raw: Self.text(of: value).utf8)
  }

  private static func text(of date: Date) -> String { date.timeIntervalSince1970.description }

  private mutating func addIfTrue(_ key: StaticString, _ value: Bool) {
    if value { add(key, raw: "true".utf8) }
  }

  private mutating func add(_ key: StaticString, _ id: TaskID) {
    addKey(key)
    bytes.append(UInt8(ascii: "\""))
    unsafe id.withText { unsafe bytes.append(contentsOf: $0) }
    bytes.append(UInt8(ascii: "\""))
  }

  private mutating func add(_ key: StaticString, _ text: String) {
    addKey(key)
    add(text)
  }

  private mutating func add(_ text: String) {
    bytes.append(UInt8(ascii: "\""))
    // Most texts need no escapes, so their bytes are copied at once.
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

  private mutating func add(_ key: StaticString, _ texts: [String]) {
    addKey(key)
    bytes.append(UInt8(ascii: "["))
    for (index, text) in texts.enumerated() {
      if index > 0 { bytes.append(UInt8(ascii: ",")) }
      add(text)
    }
    bytes.append(UInt8(ascii: "]"))
  }

  private mutating func add(_ key: StaticString, _ failures: [TaskFailure]) {
    addKey(key)
    var separator = UInt8(ascii: "[")
    for failure in failures {
      bytes.append(separator)
      bytes.append(UInt8(ascii: "["))
      add(failure.reason)
      bytes.append(UInt8(ascii: ","))
      bytes.append(contentsOf: Self.text(of: failure.date).utf8)
      bytes.append(UInt8(ascii: "]"))
      separator = UInt8(ascii: ",")
    }
    bytes.append(UInt8(ascii: "]"))
  }

  /// Adds whole seconds and attoseconds, so that every duration can be read back.
  private mutating func add(_ key: StaticString, _ duration: Duration) {
    let (seconds, attoseconds) = duration.components
    add(key, raw: "[\(seconds),\(attoseconds)]".utf8)
  }

  private mutating func add(_ key: StaticString, raw value: some Sequence<UInt8>) {
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
    // The text is a literal, so its bytes are never freed.
    text.withUTF8Buffer { unsafe bytes.append(contentsOf: $0) }
  }
}

extension TaskRecord {
  /// Whether programs treat the task as it must be treated that know no roles, no order and no
  /// conditions.
  var isPlain: Bool {
    uniqueKey == nil && (!hasPrerequisites || orderKey == nil && conditions.isEmpty)
  }
}
