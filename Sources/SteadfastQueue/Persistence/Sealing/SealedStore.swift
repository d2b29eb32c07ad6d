#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension Persistence {
  /// This store, with payloads that are sealed before it is given them, and opened when a handler
  /// wants them.
  ///
  /// All else that is known of a task stays as it is: its name, unique key, tags, dates, and the
  /// texts of its errors. A task whose payload can't be opened is put aside with an error that says
  /// so, stops no other, and comes back when a handler is registered for it anew or the queue runs
  /// again. Look-ups show it too; ``StoredPayload/bytes()`` throws.
  ///
  /// Payloads are opened when they are used, and no plain copy is kept between `enqueue` and the
  /// attempt.
  ///
  /// - Parameters:
  ///   - seal: seals and opens.
  ///   - acceptsPlain: whether tasks that were stored without a seal, before there was one, are
  ///     performed. Say `false` when there are none left: whoever can write to the store can't add
  ///     tasks to it then without the key. They are put aside like those that can't be opened.
  /// - Returns: the store to give the queue, instead of this one.
  public func sealingPayloads(
    with seal: PayloadSeal,
    acceptsPlain: Bool = true
  ) -> some Persistence {
    SealedStore(base: self, seal: seal, acceptsPlain: acceptsPlain)
  }
}

/// A store that hands payloads to another one sealed.
struct SealedStore: UnsharedStore, CustomStringConvertible {
  let base: any Persistence
  let seal: PayloadSeal
  let acceptsPlain: Bool

  var description: String { "\(base)" }
  var appliesAtOnce: Bool { base.appliesAtOnce }
  var sharing: StoreSharing? { base.sharing }
  var use: StoreUse? { base.useIfKnown }

  func open() async throws { try await base.open() }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    var changes: [TaskChange] = []
    changes.reserveCapacity(batch.count)
    for change in batch { changes.append(try await sealed(change)) }
    return try await base.apply(changes, durability: durability)
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
    limit: Int
  ) async throws -> [TaskRecord] {
    try await base.tasks(matching: filter, after: id, limit: limit).map(opened)
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: filter)
  }

  func close() async throws { try await base.close() }
  func destroy() async throws { try await base.destroy() }

  // MARK: Payloads

  private func sealed(_ change: TaskChange) async throws -> TaskChange {
    switch change {
    case .insert(let record, let policy):
      return .insert(try sealed(record), onDuplicate: policy)
    case .update(let id, let update):
      guard let payload = update.payload else { return change }
      // A payload is sealed for a task and its name, which the change does not tell.
      let filter = TaskFilter(ids: [id])
      guard let record = try await base.tasks(matching: filter, after: nil, limit: 1).first else {
        // The task is gone, and so the store keeps nothing of this.
        return .update(id, update.replacing(payload: StoredPayload([], format: .sealedBinary)))
      }
      return .update(
        id,
        update.replacing(payload: try sealed(record.replacing(payload: payload)).payload)
      )
    case .succeed, .retry, .abandon, .release, .park, .unpark, .cancel, .pause, .resume, .restart,
      .reschedule, .remove, .extend, .prune, .rebase:
      return change
    }
  }

  private func sealed(_ record: TaskRecord) throws -> TaskRecord {
    let format: StoredPayload.Format
    switch record.payload.format {
    case .json: format = .sealedJSON
    case .binary: format = .sealedBinary
    // Copied from a store as it stood there.
    case .sealedJSON, .sealedBinary: return record
    }
    let context = PayloadSeal.Context(record, format: record.payload.format)
    let bytes = Array(try seal.seal(Data(record.payload.bytes()), context))
    return record.replacing(
      payload: StoredPayload(bytes, format: format, version: record.payload.version)
    )
  }

  /// The task with a payload that is opened each time it is asked for.
  ///
  /// That is in the workers, side by side, and not in the claim, of which there is one at a time.
  private func opened(_ record: TaskRecord) -> TaskRecord {
    let format: StoredPayload.Format
    switch record.payload.format {
    case .sealedJSON: format = .json
    case .sealedBinary: format = .binary
    case .json, .binary: return acceptsPlain ? record : refused(record)
    }
    let sealed = record.payload
    let context = PayloadSeal.Context(record, format: format)
    return record.replacing(
      payload: StoredPayload(format: format, version: sealed.version) { [seal] in
        let bytes = Data(try sealed.bytes())
        do {
          return Array(try seal.open(bytes, context))
        } catch {
          throw context.unopened(
            "can't be opened: \(error). It is kept as it is, for when it can be",
            underlying: error
          )
        }
      }
    )
  }

  private func refused(_ record: TaskRecord) -> TaskRecord {
    let context = PayloadSeal.Context(record, format: record.payload.format)
    return record.replacing(
      payload: StoredPayload(format: context.format, version: context.version) {
        throw context.unopened(
          "is not sealed, and its store accepts no plain ones: it was stored before there was a "
            + "seal, or by somebody else"
        )
      }
    )
  }
}

extension PayloadSeal.Context {
  fileprivate init(_ record: TaskRecord, format: StoredPayload.Format) {
    self.init(id: record.id, name: record.name, format: format, version: record.payload.version)
  }

  fileprivate func unopened(
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
