import SystemFoundation

/// The reason that a line with a correct checksum can't be understood.
enum JournalDecodingError: Error, Equatable {
  case unknownKind(String)
  case malformed(String)
}

/// Reads the bodies of lines.
///
/// It accepts only fields in the form in which they are written, so that other JSON readers find
/// the same tasks in the file.
struct JournalDecoder {
  var fields: JournalFields
  /// The name of the last task, which is usually also the name of the next one.
  var lastName: (bytes: Range<Int>, text: String)?

  /// - Parameter bytes: The bytes of the file that contains the lines.
  init(_ bytes: [UInt8]) { fields = JournalFields(bytes) }

  mutating func entry(of line: JournalLine) throws(JournalDecodingError) -> JournalEntry {
    let kind = try fields.read(line.body)
    guard line.body.count <= JournalBody.maxLength(of: kind) else {
      throw .malformed("it exceeds the maximum length of its kind")
    }
    let entry = try entry(of: kind)
    do {
      switch entry {
      // Records are checked when they are made, because an entry with a record is slow to inspect.
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

  private mutating func entry(
    of kind: JournalKind
  ) throws(JournalDecodingError) -> JournalEntry {
    switch kind {
    case .header:
      guard try fields.text(.format) == JournalEntry.formatName else {
        throw .malformed("it names another format")
      }
      let (version, generation) = (try fields.integer(.version), try fields.integer(.generation))
      guard version > 0, generation > 0 else { throw .malformed("it has no version") }
      return .header(version: version, generation: generation)
    case .insert:
      let (record, replaces) = (try record(), try fields.flag(.replace))
      try checkForm(of: record)
      return .change(.insert(record, onDuplicate: replaces ? .replace : .keep))
    case .add: return try addition()
    case .task: return .task(try keptTask(isOld: true))
    case .kept: return .task(try keptTask(isOld: false))
    case .compacted:
      return .compacted(at: try fields.date(.at), bytesBefore: try fields.integer(.before))
    case .begin: return .begin(try fields.id())
    case .succeed:
      return .change(
        .succeed(try lease(), at: try fields.date(.at), retains: try fields.flag(.keep))
      )
    case .retry:
      let change = try retry()
      return try fields.flag(.superseded) ? .supersession(change) : .change(change)
    case .abandon:
      return .change(.abandon(try lease(), failure: try failure(), retains: try fields.flag(.keep)))
    case .release: return .change(.release(try lease()))
    case .park: return .change(.park(try lease(), failure: try failure()))
    case .cancel:
      return .change(
        .cancel(
          .unclaimed(try fields.id()),
          at: try fields.date(.at),
          retains: try fields.flag(.keep)
        )
      )
    case .pause: return .change(.pause(.unclaimed(try fields.id())))
    case .resume: return .change(.resume(try fields.id()))
    case .restart:
      let change = TaskChange.restart(
        .unclaimed(try fields.id()),
        availableDate: try fields.date(.available),
        forgets: try fields.flag(.forgets)
      )
      let excluded = try fields.idsIfAny(.except)
      return excluded.isEmpty ? .change(change) : .restart(change, excluding: excluded)
    case .reschedule:
      return .change(
        .reschedule(
          .unclaimed(try fields.id()),
          availableDate: try fields.date(.available),
          countedFrom: try origin()
        )
      )
    case .update: return .change(.update(try fields.id(), try update()))
    case .remove: return .change(.remove(try fields.id()))
    case .extend:
      // Earlier versions wrote the end of the claim, which has no meaning in a file.
      if fields.has(.until) { _ = try fields.date(.until) }
      return .change(.extend(try lease(), for: .zero))
    case .unpark: return .change(.unpark(name: try fields.text(.name), queue: try queue()))
    case .prune: return .change(try prune())
    case .rebase: return .change(.rebase(try fields.date(.at)))
    case .value: return .value(named: try fields.text(.name), try fields.storedValue())
    case .remember:
      return .change(.remember(try lease(), named: try fields.text(.name), value: try remembered()))
    case .suspend:
      let names = fields.has(.awaits) ? try fields.list(.awaits) : []
      return .change(
        .suspend(
          try lease(),
          until: try fields.date(.until),
          awaiting: names,
          countedFrom: try origin()
        )
      )
    case .complete:
      return .change(
        .complete(try fields.id(), named: try fields.text(.name), value: try remembered())
      )
    case .memory:
      return .memory(try fields.id(), named: try fields.text(.name), try remembered())
    case .interruption: return .interruption
    case .seal: return .seal
    }
  }

  // MARK: Changes

  private mutating func addition() throws(JournalDecodingError) -> JournalEntry {
    let (record, role) = (try record(), try role())
    guard !record.isPlain else {
      throw .malformed(
        "it adds a waiting task without a key, a condition, a dependency or a queue"
      )
    }
    guard role == nil || record.uniqueKey != nil else {
      throw .malformed("it has a role, and no unique key")
    }
    try checkForm(of: record)
    guard fields.has(.into) else {
      return .addition(record, role == .successor ? .successor : .holder)
    }
    guard role == nil else { throw .malformed("it has a role, and was taken over") }
    return .addition(record, .takenOver(by: try fields.id(.into)))
  }

  /// Reads the bytes that a task remembers.
  private func remembered() throws(JournalDecodingError) -> [UInt8] {
    guard let value = try fields.storedValue() else { throw .malformed("it has no value") }
    return value
  }

  func role() throws(JournalDecodingError) -> UniqueKeyRole? {
    guard fields.has(.role) else { return nil }
    guard let role = UniqueKeyRole(rawValue: try fields.text(.role)) else {
      throw .malformed("its role is unknown")
    }
    return role
  }

  private mutating func retry() throws(JournalDecodingError) -> TaskChange {
    let count = try fields.integer(.retries)
    guard count >= 0 else { throw .malformed("its number of retries is negative") }
    return .retry(
      try lease(),
      availableDate: try fields.date(.available),
      retryCount: count,
      failure: fields.has(.error) ? try failure() : nil,
      countedFrom: try origin()
    )
  }

  private mutating func prune() throws(JournalDecodingError) -> TaskChange {
    let count = fields.has(.latest) ? try fields.integer(.latest) : nil
    guard count.map({ $0 >= 0 }) ?? true else { throw .malformed("its count is negative") }
    return .prune(
      try state(),
      endedBefore: fields.has(.before) ? try fields.date(.before) : nil,
      keepingLatest: count,
      now: fields.has(.at) ? try fields.date(.at) : .distantPast,
      queue: try queue()
    )
  }

  func queue() throws(JournalDecodingError) -> String {
    fields.has(.queue) ? try fields.text(.queue) : ""
  }

  private mutating func update() throws(JournalDecodingError) -> TaskUpdate {
    let isToUseBackoff = fields.has(.backoff) ? try fields.boolean(.backoff) : nil
    return TaskUpdate(
      payload: hasPayload ? try payload() : nil,
      priority: fields.has(.priority)
        ? TaskQueue.Priority(rawValue: try fields.integer(.priority)) : nil,
      maxRetries: fields.has(.maxRetries) ? try maxRetries() : nil,
      usesBackoff: isToUseBackoff,
      timeLimit: fields.has(.limit) ? try fields.duration(.limit) : nil,
      expiryDate: fields.has(.expires) ? try fields.date(.expires) : nil,
      tags: fields.has(.tags) ? try fields.textsIfAny(.tags) : nil
    )
  }

  private mutating func keptTask(isOld: Bool) throws(JournalDecodingError) -> KeptTask {
    let position = try place(.place)
    var (record, hasLostKey) = (try record(), try fields.flag(.keyless))
    try checkForm(of: record)
    record.keyRole = isOld ? nil : try role()
    return KeptTask(
      record: record,
      position: position,
      hasLostKey: hasLostKey,
      orderNumber: record.orderKey == nil ? 0 : try place(.orderNumber),
      isOld: isOld
    )
  }

  private func place(_ field: JournalField) throws(JournalDecodingError) -> UInt64 {
    var scanner = JSONScanner(fields.bytes, try fields.range(field))
    guard let position = scanner.sequenceNumber(), scanner.isAtEnd,
      position <= KeptTask.maxPosition
    else { throw .malformed("its \(field.text) can't be read") }
    return position
  }

  private func lease() throws(JournalDecodingError) -> Lease {
    Lease(id: try fields.id(), token: 0)
  }

  private mutating func failure() throws(JournalDecodingError) -> TaskFailure {
    TaskFailure(reason: try fields.text(.error), date: try fields.date(.failed))
  }

  func state() throws(JournalDecodingError) -> TaskState {
    guard let state = TaskState(rawValue: try fields.text(.state)) else {
      throw .malformed("its state is unknown")
    }
    return state
  }
}

/// Reads the tasks in the bodies of lines.
extension JournalDecoder {
  /// Checks a task less strictly than a new one, because an earlier version may have written it.
  func checkForm(of record: TaskRecord) throws(JournalDecodingError) {
    do { try record.check(.readable) } catch { throw .malformed(error.message) }
  }

  mutating func record() throws(JournalDecodingError) -> TaskRecord {
    let state = fields.has(.state) ? try state() : .waiting
    guard state != .running else { throw .malformed("it adds a task that is already running") }
    let retryCount = fields.has(.retries) ? try fields.integer(.retries) : 0
    let interruptionCount = fields.has(.interruptions) ? try fields.integer(.interruptions) : 0
    if min(retryCount, interruptionCount) < 0 { throw .malformed("a count is negative") }
    var record = TaskRecord(
      id: try fields.id(),
      name: try name(),
      payload: try payload(),
      priority: TaskQueue.Priority(rawValue: try fields.integer(.priority)),
      createdDate: try fields.date(.created),
      maxRetries: try maxRetries(),
      usesBackoff: try !fields.flag(.backoff, "false"),
      uniqueKey: fields.has(.key) ? try fields.text(.key) : nil,
      uniqueUntil: fields.has(.uniqueUntil) ? try fields.date(.uniqueUntil) : nil,
      latestDate: fields.has(.latestDate) ? try fields.date(.latestDate) : nil,
      orderKey: fields.has(.order) ? try fields.text(.order) : nil,
      blocksOrderOnFailure: try fields.flag(.holds),
      conditions: fields.has(.requires)
        ? Set(try fields.list(.requires).map(TaskCondition.init(rawValue:))) : [],
      dependencies: try fields.dependencies(),
      queue: try queue(),
      tags: fields.has(.tags) ? try fields.texts(.tags) : [],
      timeLimit: fields.has(.limit) ? try fields.duration(.limit) : nil,
      expiryDate: fields.has(.expires) ? try fields.date(.expires) : nil,
      state: state,
      availableDate: try fields.date(.available),
      retryCount: retryCount,
      interruptionCount: interruptionCount,
      lastError: fields.has(.error) ? try fields.text(.error) : nil,
      failedDate: fields.has(.failed) ? try fields.date(.failed) : nil,
      earlierFailures: fields.has(.earlier) ? try fields.failures(.earlier) : [],
      isPostponed: fields.has(.putOff) ? try fields.truth(.putOff) : nil,
      finishedDate: fields.has(.ended) ? try fields.date(.ended) : nil
    )
    record.setOrigin(try origin())
    return record
  }

  /// Reads the date that another date was counted from; `nil` if the line has none.
  mutating func origin() throws(JournalDecodingError) -> Date? {
    fields.has(.from) ? try fields.date(.from) : nil
  }

  func maxRetries() throws(JournalDecodingError) -> RetryLimit {
    let range = try fields.range(.maxRetries)
    if fields.bytes[range.lowerBound] == UInt8(ascii: "\"") {
      guard try fields.text(.maxRetries) == "always" else {
        throw .malformed("its number of retries can't be read")
      }
      return .alwaysRetry
    }
    let limit = try fields.integer(.maxRetries)
    guard limit >= 0 else { throw .malformed("its number of retries is negative") }
    return .atMost(limit)
  }

  private mutating func name() throws(JournalDecodingError) -> String {
    let range = try fields.range(.name)
    if let last = lastName, fields.bytes[range].elementsEqual(fields.bytes[last.bytes]) {
      return last.text
    }
    let text = try fields.text(.name)
    lastName = (range, text)
    return text
  }

  var hasPayload: Bool {
    fields.has(.schema) || Self.payloadFormats.contains { fields.has($0.field) }
  }

  func payload() throws(JournalDecodingError) -> StoredPayload {
    let version = fields.has(.schema) ? try fields.integer(.schema) : 1
    var found: (field: JournalField, format: StoredPayload.Format)?
    for candidate in Self.payloadFormats where fields.has(candidate.field) {
      guard found == nil else { throw .malformed("it has more than one payload") }
      found = candidate
    }
    guard let (field, format) = found else { throw .malformed("it has no payload") }
    if format == .json {
      return StoredPayload(
        Array(fields.bytes[try fields.range(field)]),
        format: format,
        version: version
      )
    }
    return StoredPayload(try fields.bytes(field), format: format, version: version)
  }

  private static let payloadFormats: [(field: JournalField, format: StoredPayload.Format)] = [
    (.payload, .json), (.data, .binary), (.sealed, .sealedJSON), (.sealedData, .sealedBinary),
  ]
}
