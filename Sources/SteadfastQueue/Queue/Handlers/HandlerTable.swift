import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Who performs the tasks of which name.
final class HandlerTable: Sendable {
  private struct State {
    var handlers: [String: AnyHandler] = [:]
    /// For the names that no other handler has.
    var fallback: AnyHandler?
    /// How many tasks of each of these names may be performed at a time.
    var limits: [String: Int] = [:]
    /// Names of which no attempt begins, whether they have a handler or not.
    var pausedNames: Set<String> = []
    /// The names, as a claim wants them.
    var room: [String: Int] = [:]
    /// How often it has changed.
    var version = 0
    /// Nothing is performed any more.
    var isClosed = false
    /// Why the first handler that could not be taken was not.
    var refusal: TaskQueueError?

    mutating func updateRoom(of name: String) {
      version += 1
      room[name] = pausedNames.contains(name) ? 0 : limits[name]
    }
  }

  private let state = Mutex(State())
  private let hasRefused = Atomic(false)

  /// The names, each with the number of tasks of it that may be performed at a time, how often that
  /// has changed, and the number for all other names.
  var room: (names: [String: Int], version: Int, others: Int) {
    state.withLock { ($0.room, $0.version, $0.fallback == nil ? 0 : .max) }
  }

  var names: [String] { state.withLock { Array($0.limits.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handlers[name] ?? $0.fallback }
  }

  /// Whether a handler performs the tasks of a name, or handlers are not asked for any more.
  func canPerform(_ name: String) -> Bool {
    state.withLock { $0.isClosed || $0.fallback != nil || $0.handlers[name] != nil }
  }

  /// Takes a handler for some names; one for the same type of payload is replaced.
  ///
  /// - Throws: why it is not taken, for none of the names.
  func register(_ handler: AnyHandler, names: [String], limit: Int?) throws(TaskQueueError) {
    if let limit, limit < 1 {
      throw TaskQueueError(
        .invalidArgument,
        "the handler of '\(names[0])' was registered with a maxConcurrentTasks of \(limit); give 1 or "
          + "more, or nil for as many as the queue performs"
      )
    }
    // What a handler holds that is replaced goes outside of the lock: its end may call the table.
    let replaced = try state.withLock { state throws(TaskQueueError) -> [AnyHandler?] in
      guard !state.isClosed else { return [] }
      for name in names { try handler.checkCanTake(name, from: state.handlers[name]) }
      return names.map { name in
        state.limits[name] = limit ?? .max
        state.updateRoom(of: name)
        return state.handlers.updateValue(handler, forKey: name)
      }
    }
    withExtendedLifetime(replaced) {}
  }

  /// The text that says why no handler performs the tasks of a name.
  func reasonForNone(named name: String) -> String {
    let reason = "no handler is registered for the name '\(name)'"
    guard let type = names.sorted().first(where: { $0.hasSuffix(".\(name)") }) else {
      return reason
    }
    return
      "\(reason); if it is a former name of \(type), give that type's formerTaskNames \"\(name)\""
  }

  var pausedNames: Set<String> { state.withLock { $0.pausedNames } }

  func pause(_ name: String) {
    state.withLock { state in
      state.pausedNames.insert(name)
      state.updateRoom(of: name)
    }
  }

  func resume(_ name: String) {
    state.withLock { state in
      state.pausedNames.remove(name)
      state.updateRoom(of: name)
    }
  }

  /// Notes why a handler was not taken, to be thrown by all that the queue is asked for from now on.
  func refuse(_ error: TaskQueueError) {
    state.withLock { $0.refusal = $0.refusal ?? error }
    hasRefused.store(true, ordering: .releasing)
  }

  /// Whether a handler was not taken.
  var hasRefusal: Bool { hasRefused.load(ordering: .acquiring) }
  /// Why a handler was not taken, if one was not.
  var refusal: TaskQueueError? { state.withLock { $0.refusal } }

  func registerFallback(_ handler: AnyHandler) {
    let replaced = state.withLock { state -> AnyHandler? in
      guard !state.isClosed else { return nil }
      defer { state.fallback = handler }
      return state.fallback
    }
    withExtendedLifetime(replaced) {}
  }

  /// Lets go all handlers, and takes no more.
  func close() {
    let handlers = state.withLock { state in
      let handlers = (state.handlers, state.fallback)
      state.handlers = [:]
      state.fallback = nil
      state.limits = [:]
      state.room = [:]
      state.version += 1
      state.isClosed = true
      return handlers
    }
    withExtendedLifetime(handlers) {}
  }
}

extension AnyHandler {
  /// - Throws: why the handler can't have this name.
  fileprivate func checkCanTake(
    _ name: String,
    from holder: AnyHandler?
  ) throws(TaskQueueError) {
    guard !name.isEmpty else {
      let owner = payloadType.map { "a task name of \($0.name)" } ?? "the name of a handler"
      throw TaskQueueError(.invalidArgument, "\(owner) is empty; give it a name")
    }
    guard let payloadType, let held = holder?.payloadType,
      payloadType.identifier != held.identifier
    else { return }
    throw TaskQueueError(
      .nameTaken,
      "the name '\(name)' is registered for the payloads of \(held.name), and cannot be for those of "
        + "\(payloadType.name) too: give one of the two types a taskName of its own"
    )
  }
}
