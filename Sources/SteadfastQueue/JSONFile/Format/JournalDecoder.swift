import SystemFoundation

/// The reason that the body of a line with a correct checksum can't be decoded.
enum JournalDecodingError: Error, Equatable {
  case unknownKind(String)
  case malformed(String)
}

/// Decodes the bodies of lines.
///
/// It accepts only the JSON syntax that is written, so that other programs that read the JSON find
/// the same tasks in the file.
struct JournalDecoder {
  var fields: JournalFields
  /// The name of the last task, because the next task often has the same name.
  var lastName: (bytes: Range<Int>, text: String)?

  /// - Parameter bytes: The bytes of the file that contains the lines.
  init(_ bytes: [UInt8]) { fields = JournalFields(bytes) }

  mutating func readEntry(of line: JournalLine) throws(JournalDecodingError) -> JournalEntry {
    let kind = try fields.readFields(in: line.body)
    guard line.body.count <= JournalBody.maxLength(of: kind) else {
      throw .malformed("it exceeds the maximum length of its kind")
    }
    guard fields.has(.metadata) == kind.hasMetadata else {
      throw .malformed(
        kind.hasMetadata ? "it has no metadata" : "it has metadata, as no line of its kind has"
      )
    }
    let entry = try readEntry(ofKind: kind)
    do {
      switch entry {
      // Records were checked when they were read, because extracting a record from an entry is
      // slow.
      case .change(.insert), .addition, .task, .header, .compacted, .begin, .interruption, .seal:
        break
      case .memory(_, let name, let value):
        try TaskQueueError.check(rememberedUnder: name, value)
      case .value(let name, let value): try TaskQueueError.check(valueNamed: name, value)
      case .change(let change), .supersession(let change), .restart(let change, _):
        try change.check(.readable)
      }
    } catch {
      throw .malformed(error.message)
    }
    return entry
  }

  private mutating func readEntry(
    ofKind kind: JournalKind
  ) throws(JournalDecodingError) -> JournalEntry {
    switch kind {
    case .header:
      guard try fields.string(of: .format) == JournalEntry.formatName else {
        throw .malformed("it names another format")
      }
      let version = try fields.integer(of: .version)
      let generation = try fields.integer(of: .generation)
      guard version > 0, generation > 0 else { throw .malformed("it has no version") }
      return .header(version: version, generation: generation)
    case .insert:
      let (record, replaces) = (try readRecord(), try fields.hasFlag(.replace))
      try checkForm(of: record)
      return .change(.insert(record, onDuplicate: replaces ? .replace : .keep))
    case .add, .create: return try readAddition()
    case .task: return .task(try readKeptTask(isOld: true))
    case .kept, .stored: return .task(try readKeptTask(isOld: false))
    case .compacted:
      return .compacted(at: try fields.date(of: .at), bytesBefore: try fields.integer(of: .before))
    case .begin: return .begin(try fields.id())
    case .succeed:
      return .change(
        .succeed(try readLease(), at: try fields.date(of: .at), retains: try fields.hasFlag(.keep))
      )
    case .retry:
      let change = try readRetry()
      return try fields.hasFlag(.superseded) ? .supersession(change) : .change(change)
    case .abandon:
      return .change(
        .abandon(
          try readLease(),
          failure: try readFailure(),
          retains: try fields.hasFlag(.keep)
        )
      )
    case .release: return .change(.release(try readLease()))
    case .park:
      return .change(
        .park(try readLease(), failure: try readFailure(), knownVersion: try readKnownVersion())
      )
    case .cancel:
      return .change(
        .cancel(
          .unclaimed(try fields.id()),
          at: try fields.date(of: .at),
          retains: try fields.hasFlag(.keep)
        )
      )
    case .pause: return .change(.pause(.unclaimed(try fields.id())))
    case .resume: return .change(.resume(try fields.id()))
    case .restart:
      let change = TaskChange.restart(
        .unclaimed(try fields.id()),
        availableDate: try fields.date(of: .available),
        forgets: try fields.hasFlag(.forgets)
      )
      let excluded = try fields.idsIfPresent(of: .except)
      return excluded.isEmpty ? .change(change) : .restart(change, excluding: excluded)
    case .reschedule:
      return .change(
        .reschedule(
          .unclaimed(try fields.id()),
          availableDate: try fields.date(of: .available),
          countedFrom: try readCountedFrom()
        )
      )
    case .update, .edit: return .change(.update(try fields.id(), try readUpdate()))
    case .remove: return .change(.remove(try fields.id()))
    case .extend:
      // Earlier versions wrote the date at which the lease expires, which is ignored.
      if fields.has(.until) { _ = try fields.date(of: .until) }
      return .change(.extend(try readLease(), for: .zero))
    case .unpark:
      return .change(
        .unpark(
          name: try fields.string(of: .name),
          queue: try readQueue(),
          below: try readKnownVersion()
        )
      )
    case .prune: return .change(try readPrune())
    case .rebase: return .change(.rebase(try fields.date(of: .at)))
    case .value: return .value(named: try fields.string(of: .name), try fields.readStoredValue())
    case .remember:
      return .change(
        .remember(
          try readLease(),
          named: try fields.string(of: .name),
          value: try readRememberedValue()
        )
      )
    case .suspend:
      let names = fields.has(.awaits) ? try fields.stringList(of: .awaits) : []
      return .change(
        .suspend(
          try readLease(),
          until: try fields.date(of: .until),
          awaiting: names,
          countedFrom: try readCountedFrom()
        )
      )
    case .complete:
      return .change(
        .complete(
          try fields.id(),
          named: try fields.string(of: .name),
          value: try readRememberedValue()
        )
      )
    case .memory:
      return .memory(
        try fields.id(),
        named: try fields.string(of: .name),
        try readRememberedValue()
      )
    case .interruption: return .interruption
    case .seal: return .seal
    }
  }

  // MARK: Changes

  private mutating func readAddition() throws(JournalDecodingError) -> JournalEntry {
    let (record, role) = (try readRecord(), try readRole())
    guard !record.isPlain else {
      throw .malformed(
        "it adds a task whose properties need no line of this kind"
      )
    }
    guard role == nil || record.uniqueKey != nil else {
      throw .malformed("it has a role but no unique key")
    }
    try checkForm(of: record)
    guard fields.has(.into) else {
      return .addition(record, role == .successor ? .successor : .holder)
    }
    guard role == nil else { throw .malformed("it has both a role and a task that took it over") }
    return .addition(record, .takenOver(by: try fields.id(of: .into)))
  }

  /// Reads a value that a task remembers.
  private func readRememberedValue() throws(JournalDecodingError) -> [UInt8] {
    guard let value = try fields.readStoredValue() else { throw .malformed("it has no value") }
    return value
  }

  func readRole() throws(JournalDecodingError) -> UniqueKeyRole? {
    guard fields.has(.role) else { return nil }
    guard let role = UniqueKeyRole(rawValue: try fields.string(of: .role)) else {
      throw .malformed("its role is unknown")
    }
    return role
  }

  private mutating func readRetry() throws(JournalDecodingError) -> TaskChange {
    let count = try fields.integer(of: .retries)
    guard count >= 0 else { throw .malformed("its number of retries is negative") }
    return .retry(
      try readLease(),
      availableDate: try fields.date(of: .available),
      retryCount: count,
      failure: fields.has(.error) ? try readFailure() : nil,
      countedFrom: try readCountedFrom()
    )
  }

  private mutating func readPrune() throws(JournalDecodingError) -> TaskChange {
    let count = fields.has(.latest) ? try fields.integer(of: .latest) : nil
    guard count.map({ $0 >= 0 }) ?? true else {
      throw .malformed("its number of tasks to keep is negative")
    }
    return .prune(
      try readState(),
      endedBefore: fields.has(.before) ? try fields.date(of: .before) : nil,
      keepingLatest: count,
      now: fields.has(.at) ? try fields.date(of: .at) : .distantPast,
      queue: try readQueue()
    )
  }

  func readQueue() throws(JournalDecodingError) -> String {
    fields.has(.queue) ? try fields.string(of: .queue) : ""
  }

  private mutating func readUpdate() throws(JournalDecodingError) -> TaskUpdate {
    let isToUseBackoff = fields.has(.backoff) ? try fields.boolean(of: .backoff) : nil
    return TaskUpdate(
      payload: hasPayload ? try readPayload() : nil,
      priority: fields.has(.priority)
        ? TaskQueue.Priority(rawValue: try fields.integer(of: .priority)) : nil,
      maxRetries: fields.has(.maxRetries) ? try readMaxRetries() : nil,
      usesBackoff: isToUseBackoff,
      timeLimit: fields.has(.limit) ? try fields.duration(of: .limit) : nil,
      expiryDate: fields.has(.expires) ? try fields.date(of: .expires) : nil,
      tags: fields.has(.tags) ? try fields.possiblyEmptyStrings(of: .tags) : nil,
      metadata: fields.has(.metadata) ? try fields.stringPairs(of: .metadata) : nil
    )
  }

  private mutating func readKeptTask(isOld: Bool) throws(JournalDecodingError) -> KeptTask {
    let position = try readPosition(from: .place)
    var (record, hasLostKey) = (try readRecord(), try fields.hasFlag(.keyless))
    try checkForm(of: record)
    record.keyRole = isOld ? nil : try readRole()
    return KeptTask(
      record: record,
      position: position,
      hasLostKey: hasLostKey,
      orderNumber: record.orderKey == nil ? 0 : try readPosition(from: .orderNumber),
      isOld: isOld
    )
  }

  private func readPosition(from field: JournalField) throws(JournalDecodingError) -> UInt64 {
    var scanner = JSONScanner(fields.bytes, try fields.range(of: field))
    guard let position = scanner.readSequenceNumber(), scanner.isAtEnd,
      position <= KeptTask.maxPosition
    else { throw .malformed("its \(field.jsonName) can't be read") }
    return position
  }

  private func readLease() throws(JournalDecodingError) -> Lease {
    Lease(id: try fields.id(), token: 0)
  }

  private mutating func readFailure() throws(JournalDecodingError) -> TaskFailure {
    TaskFailure(
      reason: try fields.string(of: .error),
      date: try fields.date(of: .failed),
      attempt: try readAttempt()
    )
  }

  func readState() throws(JournalDecodingError) -> TaskState {
    guard let state = TaskState(rawValue: try fields.string(of: .state)) else {
      throw .malformed("its state is unknown")
    }
    return state
  }
}

/// Decoding of tasks.
extension JournalDecoder {
  /// Throws an error if a task is invalid.
  ///
  /// The check is less strict than for a new task, because an earlier version may have written the
  /// task.
  func checkForm(of record: TaskRecord) throws(JournalDecodingError) {
    do { try record.check(.readable) } catch { throw .malformed(error.message) }
  }

  mutating func readRecord() throws(JournalDecodingError) -> TaskRecord {
    let state = fields.has(.state) ? try readState() : .waiting
    guard state != .running else { throw .malformed("it adds a task in the state running") }
    let retryCount = fields.has(.retries) ? try fields.integer(of: .retries) : 0
    let interruptionCount = fields.has(.interruptions) ? try fields.integer(of: .interruptions) : 0
    if min(retryCount, interruptionCount) < 0 {
      throw .malformed("its number of retries or interruptions is negative")
    }
    var record = TaskRecord(
      id: try fields.id(),
      name: try readName(),
      payload: try readPayload(),
      priority: TaskQueue.Priority(rawValue: try fields.integer(of: .priority)),
      createdDate: try fields.date(of: .created),
      maxRetries: try readMaxRetries(),
      usesBackoff: try !fields.hasFlag(.backoff, withValue: "false"),
      uniqueKey: fields.has(.key) ? try fields.string(of: .key) : nil,
      uniqueUntil: fields.has(.uniqueUntil) ? try fields.date(of: .uniqueUntil) : nil,
      latestDate: fields.has(.latestDate) ? try fields.date(of: .latestDate) : nil,
      orderKey: fields.has(.order) ? try fields.string(of: .order) : nil,
      blocksOrderOnFailure: try fields.hasFlag(.holds),
      conditions: fields.has(.requires)
        ? Set(try fields.stringList(of: .requires).map(TaskCondition.init(rawValue:))) : [],
      dependencies: try fields.readDependencies(),
      queue: try readQueue(),
      tags: fields.has(.tags) ? try fields.strings(of: .tags) : [],
      metadata: fields.has(.metadata) ? try readMetadata() : [:],
      timeLimit: fields.has(.limit) ? try fields.duration(of: .limit) : nil,
      expiryDate: fields.has(.expires) ? try fields.date(of: .expires) : nil,
      state: state,
      availableDate: try fields.date(of: .available),
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: fields.has(.error) ? try fields.string(of: .error) : nil,
      failedDate: fields.has(.failed) ? try fields.date(of: .failed) : nil,
      failedAttempt: try readAttempt(),
      earlierFailures: try readEarlierFailures(),
      parkedVersion: try readKnownVersion(),
      isPostponed: fields.has(.putOff) ? try fields.trueOrFalse(of: .putOff) : nil,
      finishedDate: fields.has(.ended) ? try fields.date(of: .ended) : nil
    )
    record.setOrigin(fromStored: try readCountedFrom())
    return record
  }

  private func readAttempt() throws(JournalDecodingError) -> FailedAttempt? {
    fields.has(.attempt) ? FailedAttempt(text: try fields.string(of: .attempt)) : nil
  }

  private func readEarlierFailures() throws(JournalDecodingError) -> [TaskFailure] {
    guard fields.has(.earlier) else { return [] }
    let failures = try fields.failures(of: .earlier)
    guard fields.has(.attempts) else { return failures }
    let attempts = try fields.stringList(of: .attempts)
    guard attempts.count == failures.count else {
      throw .malformed("its attempts are not those of its failures")
    }
    return zip(failures, attempts).map { failure, attempt in
      TaskFailure(
        reason: failure.reason,
        date: failure.date,
        attempt: attempt.isEmpty ? nil : FailedAttempt(text: attempt)
      )
    }
  }

  private func readKnownVersion() throws(JournalDecodingError) -> Int? {
    fields.has(.knows) ? try fields.integer(of: .knows) : nil
  }

  private func readMetadata() throws(JournalDecodingError) -> [String: String] {
    let metadata = try fields.stringPairs(of: .metadata)
    guard !metadata.isEmpty else { throw .malformed("its metadata is empty") }
    return metadata
  }

  /// Reads the date from which another date was calculated; returns `nil` if the line has none.
  mutating func readCountedFrom() throws(JournalDecodingError) -> Date? {
    fields.has(.from) ? try fields.date(of: .from) : nil
  }

  func readMaxRetries() throws(JournalDecodingError) -> RetryLimit {
    let range = try fields.range(of: .maxRetries)
    if fields.bytes[range.lowerBound] == UInt8(ascii: "\"") {
      guard try fields.string(of: .maxRetries) == "always" else {
        throw .malformed("its number of retries can't be read")
      }
      return .alwaysRetry
    }
    let limit = try fields.integer(of: .maxRetries)
    guard limit >= 0 else { throw .malformed("its number of retries is negative") }
    return .atMost(limit)
  }

  private mutating func readName() throws(JournalDecodingError) -> String {
    let range = try fields.range(of: .name)
    if let last = lastName, fields.bytes[range].elementsEqual(fields.bytes[last.bytes]) {
      return last.text
    }
    let text = try fields.string(of: .name)
    lastName = (range, text)
    return text
  }

  var hasPayload: Bool {
    fields.has(.schema) || Self.payloadFormats.contains { fields.has($0.field) }
  }

  func readPayload() throws(JournalDecodingError) -> StoredPayload {
    let version = fields.has(.schema) ? try fields.integer(of: .schema) : 1
    var found: (field: JournalField, format: StoredPayload.Format)?
    for candidate in Self.payloadFormats where fields.has(candidate.field) {
      guard found == nil else { throw .malformed("it has more than one payload") }
      found = candidate
    }
    guard let (field, format) = found else { throw .malformed("it has no payload") }
    if format == .json {
      return StoredPayload(
        Array(fields.bytes[try fields.range(of: field)]),
        format: format,
        version: version
      )
    }
    return StoredPayload(try fields.bytes(of: field), format: format, version: version)
  }

  private static let payloadFormats: [(field: JournalField, format: StoredPayload.Format)] = [
    (.payload, .json), (.data, .binary), (.sealed, .sealedJSON), (.sealedData, .sealedBinary),
  ]
}
