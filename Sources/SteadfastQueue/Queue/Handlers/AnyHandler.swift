import SystemFoundation

/// A type-erased handler, which decodes its tasks' payloads.
///
/// It is a class because the queue gets a handler from a table for each attempt: copying a
/// structure with several closures would retain each of them.
final class AnyHandler: Sendable {
  let perform: @Sendable (TaskRecord, TaskContext) async -> AttemptEnd
  let hooks: Hooks?
  /// The type of the payloads; `nil` if the handler accepts any JSON.
  let payloadType: PayloadType?
  /// The greatest payload version that the handler can decode; `Int.max` if it accepts any JSON.
  let payloadVersion: Int

  private init<Payload, Output: Sendable>(
    of payloadType: PayloadType?,
    version payloadVersion: Int,
    decode: @escaping @Sendable (TaskRecord) throws -> Payload,
    hooks: Hooks? = nil,
    _ body: @escaping @Sendable (Payload, TaskContext) async throws -> Output
  ) {
    self.payloadType = payloadType
    self.payloadVersion = payloadVersion
    self.hooks = hooks
    perform = { record, context in
      let payload: Payload
      do {
        payload = try decode(record)
      } catch {
        return .undecodable(error)
      }
      do {
        return .returned(try await body(payload, context))
      } catch {
        return Task.isCancelled ? .cancelled : .threw(error)
      }
    }
  }

  /// A payload type, and its full name for error messages.
  struct PayloadType: Sendable {
    let identifier: ObjectIdentifier
    let name: String

    init(_ type: Any.Type) {
      identifier = ObjectIdentifier(type)
      name = TypeName.readable(type)
    }
  }

  /// The methods of a ``TaskHandler``, except the one that performs the task.
  struct Hooks: Sendable {
    let retryDate: @Sendable (TaskRecord, TaskContext, any Error, Date) async -> Date
    let shouldRestart: @Sendable (TaskRecord, TaskContext, any Error) async -> Bool
    let willEnd: @Sendable (TaskRecord, TaskContext, TaskOutcome) async -> Void
  }
}

extension AnyHandler {
  /// Makes a handler from a closure.
  convenience init<Payload: TaskPayload, Output: Sendable>(
    _ type: Payload.Type,
    hooks: Hooks? = nil,
    _ body: @escaping @Sendable (Payload, TaskContext) async throws -> Output
  ) {
    self.init(
      of: PayloadType(type),
      version: Payload.schemaVersion,
      decode: { try $0.decodedPayload(as: Payload.self) },
      hooks: hooks,
      body
    )
  }

  /// Makes a handler from a closure that performs tasks with any payload.
  convenience init<Output: Sendable>(
    untyped body: @escaping @Sendable (JSONValue, TaskContext) async throws -> Output
  ) {
    self.init(of: nil, version: .max, decode: { try $0.untypedPayload }, body)
  }

  /// Makes a handler with the hooks of a ``TaskHandler``.
  convenience init<Handler: TaskHandler>(_ handler: Handler) {
    let hooks = Hooks(
      retryDate: { record, context, error, date in
        guard let payload = try? record.decodedPayload(as: Handler.Payload.self) else {
          return date
        }
        return await handler.retryDate(of: payload, after: error, proposed: date, in: context)
      },
      shouldRestart: { record, context, error in
        guard let payload = try? record.decodedPayload(as: Handler.Payload.self) else {
          return false
        }
        return await handler.shouldRestart(payload, after: error, in: context)
      },
      willEnd: { record, context, outcome in
        guard let payload = try? record.decodedPayload(as: Handler.Payload.self) else { return }
        await handler.willEnd(payload, outcome: outcome, in: context)
      }
    )
    self.init(Handler.Payload.self, hooks: hooks) { payload, context in
      try await handler.perform(payload, in: context)
    }
  }
}

extension TaskRecord {
  /// Returns the payload as a value of its type.
  ///
  /// - Throws: an ``UndecodablePayload``; a ``TaskQueueError`` if the payload can't be decrypted.
  func decodedPayload<Payload: TaskPayload>(as type: Payload.Type) throws -> Payload {
    if let value = payload.value(as: type) { return value }
    let version = payload.version
    guard version <= Payload.schemaVersion else {
      throw UndecodablePayload(description: reasonForNewerVersion(than: Payload.schemaVersion))
    }
    let json = try openedPayload
    do {
      return try Payload.decode(from: json, version: version)
    } catch {
      throw UndecodablePayload(name: name, type: TypeNames.shared.name(of: type), error)
    }
  }

  /// Describes why this program can't perform the task: a newer version of it has stored the
  /// payload.
  func reasonForNewerVersion(than known: Int) -> String {
    "the payload of '\(name)' has the schema version \(payload.version), but this version of the "
      + "program knows '\(name)' up to \(known); run the version that stored it, or a later one"
  }

  /// The payload as a JSON value.
  ///
  /// - Throws: an ``UndecodablePayload``; a ``TaskQueueError`` if the payload can't be decrypted.
  var untypedPayload: JSONValue {
    get throws {
      if let value = payload.value(as: JSONValue.self) { return value }
      let json = try openedPayload
      do {
        return try JSONDecoder().decode(JSONValue.self, from: json)
      } catch {
        throw UndecodablePayload(name: name, type: "JSON", error)
      }
    }
  }

  /// The payload's bytes, which are not encrypted.
  ///
  /// - Throws: a ``TaskQueueError`` if the payload is encrypted (``PayloadSeal``), but the store is
  ///   not set up to decrypt it; what ``StoredPayload/bytes()`` throws.
  private var openedPayload: Data {
    get throws {
      guard payload.format.isSealed else { return Data(try payload.bytes()) }
      throw TaskQueueError(
        .unopenedPayload,
        "the payload of the task \(id) ('\(name)') is sealed, and the queue's store has no seal to "
          + "open it: call sealingPayloads(with:) of the store, and use the result for the queue"
      )
    }
  }
}
