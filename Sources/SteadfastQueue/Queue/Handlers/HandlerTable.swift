import Synchronization
import SystemFoundation

/// The handlers of a queue, each under the names of the tasks that it performs.
final class HandlerTable: Sendable {
  /// The time zones that schedules were given with.
  let zones = TimeZones()

  /// The names by which tasks of a type are found: the current one and the former ones.
  static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }

  private struct State {
    var handlers: [String: AnyHandler] = [:] { didSet { recent = nil } }
    /// The name that was looked up last, with its handler.
    private var recent: (name: ComparedText, handler: AnyHandler?)?
    /// The handler of the names that have no other.
    var fallback: AnyHandler?
    /// How many tasks of each of these names may be performed at a time.
    var limits: [String: Int] = [:]
    /// The paused names, whether they have a handler or not.
    var pausedNames: Set<String> = []
    /// The names that the store says are paused.
    var storedPausedNames: Set<String> = []
    /// How many tasks of each name may be performed at a time; 0 for a paused name.
    var room: [String: Int] = [:]
    /// How often `room` has changed.
    var version = 0
    /// Whether the table takes no handlers any more: nothing more is performed.
    var isClosed = false
    /// Why the first handler that was refused was refused.
    var refusal: TaskQueueError?

    /// Refuses a name that Swift takes for another registered one though its bytes differ.
    ///
    /// The names of a ``ClaimRequest`` can't have both.
    func checkSpelling(of name: String, among names: [String]) throws(TaskQueueError) {
      let isRegistered = handlers[name] != nil && handlers[exactly: name] == nil
      guard isRegistered || names.contains(where: { $0 == name && !$0.isExactly(name) }) else {
        return
      }
      throw TaskQueueError(
        .nameTaken,
        "the name '\(name)' is registered already with other bytes of UTF-8, and a queue takes only "
          + "one of them: write both in the same form"
      )
    }

    /// Returns the handler that is registered for a name.
    mutating func handler(named name: String) -> AnyHandler? {
      // Most tasks have the same name as the one before.
      if let recent, recent.name.isExactly(name) { return recent.handler }
      let handler = handlers[exactly: name]
      recent = (ComparedText(name), handler)
      return handler
    }

    func isPaused(_ name: String) -> Bool {
      pausedNames.contains(name) || storedPausedNames.contains(name)
    }

    mutating func updateRoom(of name: String) {
      version += 1
      room[name] = isPaused(name) ? 0 : limits[name]
    }
  }

  private let state = Mutex(State())
  private let hasRefused = Atomic(false)

  /// How many tasks a claim may ask for, by name.
  ///
  /// `names` says how many tasks of each name may be performed at a time, `version` how often that
  /// has changed, and `others` how many tasks of all other names may be performed.
  var room: (names: [String: Int], version: Int, others: Int) {
    state.withLock { ($0.room, $0.version, $0.fallback == nil ? 0 : .max) }
  }

  var names: [String] { state.withLock { Array($0.limits.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handler(named: name) ?? $0.fallback }
  }

  /// Returns whether a handler performs the tasks of a name, or the table is closed.
  func canPerform(_ name: String) -> Bool {
    state.withLock { $0.isClosed || $0.fallback != nil || $0.handler(named: name) != nil }
  }

  /// Registers a handler for some names, in place of one for the same type of payload.
  ///
  /// - Throws: why the handler is refused, for all of the names.
  func register(_ handler: AnyHandler, names: [String], limit: Int?) throws(TaskQueueError) {
    if let limit, limit < 1 {
      throw TaskQueueError(
        .invalidArgument,
        "the handler of '\(names[0])' was registered with a maxConcurrentTasks of \(limit); give 1 or "
          + "more, or nil for as many as the queue performs"
      )
    }
    // Replaced handlers are freed outside of the lock: their deinitializers may call the table.
    let replaced = try state.withLock { state throws(TaskQueueError) -> [AnyHandler?] in
      guard !state.isClosed else { return [] }
      for name in names {
        try handler.checkCanTake(name, from: state.handlers[name])
        try state.checkSpelling(of: name, among: names)
      }
      return names.map { name in
        state.limits[name] = limit ?? .max
        state.updateRoom(of: name)
        return state.handlers.updateValue(handler, forKey: name)
      }
    }
    withExtendedLifetime(replaced) {}
  }

  /// Returns the text that says why no handler performs the tasks of a name.
  func reasonForNone(named name: String) -> String {
    let reason = "no handler is registered for the name '\(name)'"
    guard let type = names.sorted().first(where: { $0.hasSuffix(".\(name)") }) else {
      return reason
    }
    return
      "\(reason); if it is a former name of \(type), give that type's formerTaskNames \"\(name)\""
  }

  var pausedNames: Set<String> {
    state.withLock { $0.pausedNames.union($0.storedPausedNames) }
  }

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

  /// Notes which names the store says are paused.
  ///
  /// - Returns: The names that this pauses, and those that it resumes.
  func setStoredPauses(_ names: Set<String>) -> (paused: Set<String>, resumed: Set<String>) {
    state.withLock { state in
      guard names != state.storedPausedNames else { return ([], []) }
      let changed = names.symmetricDifference(state.storedPausedNames)
      let before = changed.filter(state.isPaused)
      state.storedPausedNames = names
      for name in changed { state.updateRoom(of: name) }
      let after = changed.filter(state.isPaused)
      return (after.subtracting(before), before.subtracting(after))
    }
  }

  /// Notes why a handler was refused.
  ///
  /// From now on, each call of the queue that can throw throws the first of these errors.
  func refuse(_ error: TaskQueueError) {
    state.withLock { $0.refusal = $0.refusal ?? error }
    hasRefused.store(true, ordering: .releasing)
  }

  /// Whether a handler was refused.
  var hasRefusal: Bool { hasRefused.load(ordering: .acquiring) }
  /// Why the first refused handler was refused; `nil` if none was.
  var refusal: TaskQueueError? { state.withLock { $0.refusal } }

  func registerFallback(_ handler: AnyHandler) {
    let replaced = state.withLock { state -> AnyHandler? in
      guard !state.isClosed else { return nil }
      defer { state.fallback = handler }
      return state.fallback
    }
    withExtendedLifetime(replaced) {}
  }

  /// Drops all handlers, and takes no more.
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
  /// Checks that the handler can have this name.
  ///
  /// - Throws: why it can't.
  fileprivate func checkCanTake(
    _ name: String,
    from holder: AnyHandler?
  ) throws(TaskQueueError) {
    guard !name.isEmpty else {
      let owner = payloadType.map { "a task name of \($0.name)" } ?? "the name of a handler"
      throw TaskQueueError(.invalidArgument, "\(owner) is empty; give it a name")
    }
    try TaskQueueError.check(text: name, "the name of a handler")
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
