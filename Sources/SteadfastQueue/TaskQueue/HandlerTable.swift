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
    /// The names, as a claim wants them.
    var room: [String: Int] = [:]
    /// How often it has changed.
    var version = 0
    /// Nothing is performed any more.
    var isClosed = false
  }

  private let state = Mutex(State())

  /// The names, each with the number of tasks of it that may be performed at a time, how often that
  /// has changed, and the number for all other names.
  var room: (names: [String: Int], version: Int, others: Int) {
    state.withLock { ($0.room, $0.version, $0.fallback == nil ? 0 : .max) }
  }

  var names: [String] { state.withLock { Array($0.room.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handlers[name] ?? $0.fallback }
  }

  func register(_ handler: AnyHandler, names: [String], limit: Int?) {
    // What a handler holds that is replaced goes outside of the lock: its end may call the table.
    let replaced = state.withLock { state -> [AnyHandler?] in
      guard !state.isClosed else { return [] }
      state.version += 1
      return names.map { name in
        state.room[name] = limit ?? .max
        return state.handlers.updateValue(handler, forKey: name)
      }
    }
    withExtendedLifetime(replaced) {}
  }

  func registerFallback(_ handler: AnyHandler) {
    let replaced = state.withLock { state -> AnyHandler? in
      guard !state.isClosed else { return nil }
      defer { state.fallback = handler }
      return state.fallback
    }
    withExtendedLifetime(replaced) {}
  }

  /// Whether nothing is performed any more, by whatever name.
  var isClosed: Bool { state.withLock { $0.isClosed } }

  /// Lets go all handlers, and takes no more.
  func close() {
    let handlers = state.withLock { state in
      defer { state = State(version: state.version + 1, isClosed: true) }
      return state
    }
    withExtendedLifetime(handlers) {}
  }
}
