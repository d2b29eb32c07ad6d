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
  }

  private let state = Mutex(State())

  /// The names, each with the number of tasks of it that may be performed at a time, and that
  /// number for all other names.
  var room: (names: [String: Int], others: Int) {
    state.withLock { ($0.room, $0.fallback == nil ? 0 : .max) }
  }

  var names: [String] { state.withLock { Array($0.room.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handlers[name] ?? $0.fallback }
  }

  func register(_ handler: AnyHandler, names: [String], limit: Int?) {
    state.withLock { state in
      for name in names {
        state.handlers[name] = handler
        state.room[name] = limit ?? .max
      }
    }
  }

  func registerFallback(_ handler: AnyHandler) {
    state.withLock { $0.fallback = handler }
  }
}
