import SystemFoundation

extension Persistence {
  /// Returns a store that encrypts payloads before it stores them in this store.
  ///
  /// Payloads are *sealed* (encrypted) when they are stored, and *opened* (decrypted) when they are
  /// used. Schedules, which contain payloads, are sealed, and so are the values in a task's memory,
  /// but not their names. Everything else is stored as it is: a task's name, unique key, tags,
  /// metadata, dates and error texts, and values (``TaskQueue/setValue(_:named:durability:)``).
  ///
  /// A task whose payload can't be opened is parked, with an error that says so. It blocks no other
  /// task except the successor of its unique key. The task waits again when a handler is registered
  /// for its name again, or when the queue runs again. Look-ups find the task, too, but
  /// ``StoredPayload/bytes()`` throws.
  ///
  /// Between `enqueue` and the attempt, no copy of the payload exists that is not sealed.
  ///
  /// - Parameters:
  ///   - seal: The functions that seal and open payloads.
  ///   - acceptsPlain: Whether to perform tasks whose payloads are not sealed. By default, such
  ///     tasks are parked, so that a program without the key can't add tasks to the store. Pass
  ///     `true` as long as the store contains tasks that were added before the store had a seal.
  ///     Values in a task's memory, and schedules, are then used as they are if they are JSON and
  ///     can't be opened.
  /// - Returns: The store to give the queue, instead of this store.
  public func sealingPayloads(
    with seal: PayloadSeal,
    acceptsPlain: Bool = false
  ) -> some Persistence {
    SealedStore(base: self, seal: seal, acceptsPlain: acceptsPlain)
  }
}

/// A store that seals payloads before it passes them to another store.
struct SealedStore: StoreWrapper {
  let base: any Persistence
  let seal: PayloadSeal
  let acceptsPlain: Bool

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    var changes: [TaskChange] = []
    changes.reserveCapacity(batch.count)
    for change in batch { changes.append(try await sealed(change)) }
    let outcomes = try await base.apply(changes, durability: durability)
    guard outcomes.contains(.identityTaken), try await restoreSeals(in: &changes, of: batch) else {
      return outcomes
    }
    return try await base.apply(changes, durability: durability)
  }

  /// Changes repeated insertions: each gets the sealed payload that is already stored.
  ///
  /// A payload is sealed to different bytes each time. So the base store would not recognise that
  /// the insertion is repeated.
  ///
  /// - Returns: Whether the batch contains a repeated insertion.
  private func restoreSeals(
    in changes: inout [TaskChange],
    of batch: [TaskChange]
  ) async throws -> Bool {
    var storedRecords: [TaskID: TaskRecord] = [:]
    for page in batch.compactMap(\.newTaskID).lookUpPages {
      let filter = TaskFilter(ids: Set(page), queue: nil)
      for record in try await base.tasks(matching: filter, after: nil, limit: page.count) {
        storedRecords[record.id] = record
      }
    }
    var isRestored = false
    for (index, change) in batch.enumerated() {
      guard case .insert(let record, let policy) = change, let stored = storedRecords[record.id],
        record.isStored(as: opened(stored))
      else { continue }
      changes[index] = .insert(record.replacing(payload: stored.payload), onDuplicate: policy)
      isRestored = true
    }
    return isRestored
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    var claim = try await base.claim(request)
    for index in claim.tasks.indices {
      claim.tasks[index].record = opened(claim.tasks[index].record)
    }
    return claim
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit, newestFirst: newestFirst).map(
      opened
    )
  }

  func value(named name: String) async throws -> [UInt8]? {
    let value = try await base.value(named: name)
    guard Self.sealsValue(named: name) else { return value }
    return try value.map { try openedValue($0, named: name) }
  }

  /// Returns the values whose names begin with a prefix.
  ///
  /// A value that can't be opened has the bytes ``unopenedValue``.
  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    try await base.values(prefix: prefix).map { name, bytes in
      guard Self.sealsValue(named: name) else { return (name, bytes) }
      return (name, (try? openedValue(bytes, named: name)) ?? Self.unopenedValue)
    }
  }

  func memory(of id: TaskID) async throws -> TaskMemory {
    let stored = try await base.memory(of: id)
    var memory = TaskMemory()
    try stored.forEach { name, value in
      memory[name] = try opened(value, rememberedUnder: name, by: id)
    }
    return memory
  }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: sealed(record), onDuplicate: policy)
  }

  // MARK: Payloads

  private func sealed(_ change: TaskChange) async throws -> TaskChange {
    switch change {
    case .insert(let record, let policy):
      return .insert(try sealed(record), onDuplicate: policy)
    case .update(let id, let update):
      guard let payload = update.payload else { return change }
      // The context of a payload contains the task's name, but the change does not. Look it up.
      let filter = TaskFilter(ids: [id], queue: nil)
      guard let record = try await base.tasks(matching: filter, after: nil, limit: 1).first else {
        // The task does not exist. The base store refuses the change, and stores no payload.
        return .update(id, update.replacing(payload: StoredPayload([], format: .sealedBinary)))
      }
      return .update(
        id,
        update.replacing(payload: try sealed(record.replacing(payload: payload)).payload)
      )
    case .memory(.remember(let lease, let name, let value)):
      let sealed = try sealed(value, rememberedUnder: name, by: lease.id)
      return .remember(lease, named: name, value: sealed)
    case .memory(.complete(let id, let name, let value)):
      return .complete(id, named: name, value: try sealed(value, rememberedUnder: name, by: id))
    case .move, .end, .remove, .extend, .command, .memory(.suspend), .broad: return change
    case .setValue(let name, let old, let new):
      guard Self.sealsValue(named: name) else { return change }
      return try await sealedChange(ofValueNamed: name, from: old, to: new)
    }
  }

  private func sealed(_ record: TaskRecord) throws -> TaskRecord {
    let format: StoredPayload.Format
    switch record.payload.format {
    case .json: format = .sealedJSON
    case .binary: format = .sealedBinary
    // The record comes from another store that seals payloads.
    case .sealedJSON, .sealedBinary: return record
    }
    let context = PayloadSeal.Context(record, format: record.payload.format)
    let bytes = Array(try seal.seal(Data(record.payload.bytes()), context))
    return record.replacing(
      payload: StoredPayload(bytes, format: format, version: record.payload.version)
    )
  }

  /// Returns the task with a payload that is opened each time its bytes are read.
  ///
  /// So payloads are opened by the workers, in parallel, and not by the claim: there is only one
  /// claim at a time.
  private func opened(_ record: TaskRecord) -> TaskRecord {
    let format: StoredPayload.Format
    switch record.payload.format {
    case .sealedJSON: format = .json
    case .sealedBinary: format = .binary
    case .json, .binary: return acceptsPlain ? record : refusingPayload(of: record)
    }
    let sealed = record.payload
    let context = PayloadSeal.Context(record, format: format)
    return record.replacing(
      payload: StoredPayload(format: format, version: sealed.version) { [seal] in
        let bytes = Data(try sealed.bytes())
        do {
          return Array(try openPayload(bytes, in: context, of: record, with: seal))
        } catch {
          throw record.unopenedPayloadError(
            "can't be opened: \(error). The payload stays in the store; use a seal that can open it",
            underlying: error
          )
        }
      }
    )
  }

  private func openPayload(
    _ bytes: Data,
    in context: PayloadSeal.Context,
    of record: TaskRecord,
    with seal: PayloadSeal
  ) throws -> Data {
    do {
      return try seal.open(bytes, context)
    } catch {
      // For a task with a unique key, earlier versions used a context with the ID instead of the
      // key.
      guard context.uniqueKey != nil,
        let old = try? seal.open(bytes, context.identified(by: record.id))
      else { throw error }
      return old
    }
  }

  private func refusingPayload(of record: TaskRecord) -> TaskRecord {
    let payload = record.payload
    return record.replacing(
      payload: StoredPayload(format: payload.format, version: payload.version) {
        throw record.unopenedPayloadError(
          "is not sealed, and the store refuses plain payloads: the payload was stored before the "
            + "store had a seal, or by another program; pass acceptsPlain: true to perform the task"
        )
      }
    )
  }
}

extension PayloadSeal.Context {
  fileprivate init(_ record: TaskRecord, format: StoredPayload.Format) {
    self.init(
      id: record.uniqueKey == nil ? record.id : TaskID(high: 0, low: 0),
      uniqueKey: record.uniqueKey,
      name: record.name,
      format: format,
      version: record.payload.version
    )
  }

  /// Returns the same context with this ID instead of the unique key.
  fileprivate func identified(by id: TaskID) -> PayloadSeal.Context {
    PayloadSeal.Context(id: id, name: name, format: format, version: version)
  }
}

extension TaskRecord {
  fileprivate func unopenedPayloadError(
    _ problem: String,
    underlying: (any Error)? = nil
  ) -> TaskQueueError {
    TaskQueueError(
      .unopenedPayload,
      "the payload of the task \(id) ('\(name)') \(problem)",
      underlying: underlying
    )
  }
}

/// Seals and opens the values in a task's memory.
extension SealedStore {
  /// Returns the bytes to store for a value in a task's memory.
  ///
  /// An empty value stays empty, because the base store must see that the value awaits a
  /// completion.
  func sealed(_ value: [UInt8], rememberedUnder name: String, by id: TaskID) throws -> [UInt8] {
    guard !value.isEmpty else { return [] }
    return Array(try seal.seal(Data(value), .init(memory: name, of: id)))
  }

  func opened(_ value: [UInt8], rememberedUnder name: String, by id: TaskID) throws -> [UInt8] {
    guard !value.isEmpty else { return [] }
    do {
      return Array(try seal.open(Data(value), .init(memory: name, of: id)))
    } catch {
      // The value may have been stored before there was a seal.
      if acceptsPlain, Self.isPlain(value) { return value }
      throw TaskQueueError(
        .unopenedPayload,
        "the value '\(name)' in the memory of the task \(id) can't be opened: \(error). The value "
          + "stays in the store; use a seal that can open it",
        underlying: error
      )
    }
  }

  /// Returns whether a value in a task's memory, or the value of a schedule, is not sealed.
  ///
  /// Such values are JSON, and sealed bytes are not.
  static func isPlain(_ value: [UInt8]) -> Bool {
    String(validating: value, as: UTF8.self) != nil
      && (try? JSONDecoder().decode(AnyJSON.self, from: Data(value))) != nil
  }
}

/// Any JSON value; used only to find out whether bytes are JSON.
private struct AnyJSON: Decodable {
  init(from decoder: any Decoder) throws {}
}

extension PayloadSeal.Context {
  /// Makes the context of a value in a task's memory; no payload has its version, 0.
  fileprivate init(memory name: String, of id: TaskID) {
    self.init(id: id, name: name, format: .binary, version: 0)
  }
}

/// Seals and opens the values of schedules, which contain payloads.
extension SealedStore {
  /// Returns whether a value with this name is sealed: only the values of schedules are.
  static func sealsValue(named name: String) -> Bool {
    name.utf8.starts(with: "steadfast.schedule.".utf8)
  }

  /// The bytes that replace a value that can't be opened when values are compared.
  ///
  /// The value of a schedule is never empty.
  static var unopenedValue: [UInt8] { [] }

  /// Returns the change with which the base store compares and sets the sealed bytes.
  ///
  /// The same bytes are sealed to different bytes each time. So the base store can't compare its
  /// value with newly sealed bytes. Instead, this function opens the base store's current value,
  /// and compares it with `old`. If the two are equal, the change expects the current sealed bytes.
  func sealedChange(
    ofValueNamed name: String,
    from old: [UInt8]?,
    to new: [UInt8]?
  ) async throws -> TaskChange {
    var expected = old
    if let old, let current = try await base.value(named: name) {
      // If `old` is a value that could not be opened, the current value must not open either.
      let plain =
        old == Self.unopenedValue
        ? try? openedValue(current, named: name) : try openedValue(current, named: name)
      if plain ?? Self.unopenedValue == old { expected = current }
    }
    let context = PayloadSeal.Context(value: name)
    let sealed = try new.map { Array(try seal.seal(Data($0), context)) }
    return .setValue(named: name, from: expected, to: sealed)
  }

  func openedValue(_ value: [UInt8], named name: String) throws -> [UInt8] {
    do {
      return Array(try seal.open(Data(value), PayloadSeal.Context(value: name)))
    } catch {
      // The value may have been stored before there was a seal.
      if acceptsPlain, Self.isPlain(value) { return value }
      throw TaskQueueError(
        .unopenedPayload,
        "the value '\(name)' of a schedule can't be opened: \(error). The value stays in the store; "
          + "use a seal that can open it",
        underlying: error
      )
    }
  }
}

extension PayloadSeal.Context {
  /// Makes the context of a schedule's value; no payload has its version, 0.
  fileprivate init(value name: String) {
    self.init(
      id: TaskID(high: 0, low: 0),
      uniqueKey: name,
      name: "steadfast.schedule",
      format: .binary,
      version: 0
    )
  }
}
