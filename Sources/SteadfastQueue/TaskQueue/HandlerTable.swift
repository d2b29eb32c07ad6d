import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Who performs the tasks of which name.
final class HandlerTable: Sendable {
  typealias Handler = @Sendable (TaskRecord) async -> AttemptEnd

  private struct State {
    var handlers: [String: Handler] = [:]
    /// The names, as a claim wants them.
    var room: [String: Int] = [:]
  }

  private let state = Mutex(State())

  /// The names, each with the number of tasks of it that may begin.
  var names: [String: Int] { state.withLock { $0.room } }

  subscript(name: String) -> Handler? { state.withLock { $0.handlers[name] } }

  func register<Payload: TaskPayload>(
    _ type: Payload.Type,
    perform: @escaping @Sendable (Payload, TaskContext) async throws -> Void
  ) {
    let handler = Self.handler(perform)
    state.withLock { state in
      for name in [type.taskName] + type.formerTaskNames {
        state.handlers[name] = handler
        state.room[name] = .max
      }
    }
  }

  private static func handler<Payload: TaskPayload>(
    _ perform: @escaping @Sendable (Payload, TaskContext) async throws -> Void
  ) -> Handler {
    let decoder = JSONDecoder()
    return { record in
      let payload: Payload
      do {
        payload =
          try record.payload.value(as: Payload.self)
          ?? decoder.decode(Payload.self, from: Data(record.payload.bytes()))
      } catch {
        return .undecodable(UndecodablePayload(name: record.name, type: "\(Payload.self)", error))
      }
      do {
        try await perform(payload, TaskContext(record))
        return .returned
      } catch {
        return Task.isCancelled ? .cancelled : .threw(error)
      }
    }
  }
}

/// A payload that is not what its handler's type wants.
///
/// It names what is missing, never the payload itself.
struct UndecodablePayload: Error, CustomStringConvertible {
  let description: String

  init(name: String, type: String, _ error: any Error) {
    let problem =
      switch error {
      case DecodingError.keyNotFound(let key, let context):
        "the key '\(Self.path(context.codingPath + [key]))' is missing"
      case DecodingError.typeMismatch(let type, let context):
        "'\(Self.path(context.codingPath))' is not a \(type)"
      case DecodingError.valueNotFound(let type, let context):
        "'\(Self.path(context.codingPath))' is null, not a \(type)"
      case DecodingError.dataCorrupted(let context):
        "'\(Self.path(context.codingPath))' can't be read"
      default:
        "\(Swift.type(of: error)) was thrown"
      }
    description = "the payload of '\(name)' can't be decoded as \(type): \(problem)"
  }

  private static func path(_ keys: [any CodingKey]) -> String {
    keys.isEmpty ? "the payload" : keys.map(\.stringValue).joined(separator: ".")
  }
}
