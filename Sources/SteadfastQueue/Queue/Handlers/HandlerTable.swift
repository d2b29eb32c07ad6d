import Synchronization

/// The handlers of a queue, by the names of the tasks that they perform.
final class HandlerTable: Sendable {
  /// The time zones that schedules were created with.
  let zones = TimeZones()

  /// The task names of a payload type: the current one and the former ones.
  static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }

  private struct State {
    var handlers: [String: AnyHandler] = [:] { didSet { recent = nil } }
    /// The most recently looked-up name, with its handler.
    private var recent: (name: ComparedText, handler: AnyHandler?)?
    /// The handler for names that have no handler of their own.
    var fallback: AnyHandler?
    /// The maximum number of tasks of each registered name that may be performed at a time.
    var limits: [String: Int] = [:]
    /// The names that are paused in memory, whether they have a handler or not.
    var pausedNames: Set<String> = []
    /// The names that are paused in the store.
    var storedPausedNames: Set<String> = []
    /// The maximum number of tasks of each name that may be performed at a time; 0 for a paused
    /// name.
    var capacities: [String: Int] = [:]
    /// The number of changes to `capacities` so far.
    var version = 0
    /// Whether the table is closed: it accepts no handlers, and no more tasks are performed.
    var isClosed = false
    /// The error for the first handler that was refused.
    var refusal: TaskQueueError?

    /// Throws if a name is equal to another registered name in Swift although its bytes differ.
    ///
    /// The names of a ``ClaimRequest`` can't contain both.
    func checkSpelling(of name: String, among names: [String]) throws(TaskQueueError) {
      let isRegistered = handlers[name] != nil && handlers[exactly: name] == nil
      guard isRegistered || names.contains(where: { $0 == name && !$0.isExactly(name) }) else {
        return
      }
      throw TaskQueueError(
        .nameTaken,
        "the name '\(name)' is already registered with different bytes of UTF-8, and a queue "
          + "accepts only one of the two forms: use the same form everywhere"
      )
    }

    /// Returns the handler that is registered for a name.
    mutating func handler(named name: String) -> AnyHandler? {
      // Most tasks have the same name as the previous task.
      if let recent, recent.name.isExactly(name) { return recent.handler }
      let handler = handlers[exactly: name]
      recent = (ComparedText(name), handler)
      return handler
    }

    func isPaused(_ name: String) -> Bool {
      pausedNames.contains(name) || storedPausedNames.contains(name)
    }

    mutating func updateCapacity(of name: String) {
      version += 1
      capacities[name] = isPaused(name) ? 0 : limits[name]
    }
  }

  private let state = Mutex(State())
  private let hasRefused = Atomic(false)

  /// The maximum numbers of tasks to claim, by name.
  ///
  /// `names` has the maximum number of tasks of each name that may be performed at a time, and
  /// `version` the number of changes to it so far. `others` is the maximum for all other names.
  var room: (names: [String: Int], version: Int, others: Int) {
    state.withLock { ($0.capacities, $0.version, $0.fallback == nil ? 0 : .max) }
  }

  var names: [String] { state.withLock { Array($0.limits.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handler(named: name) ?? $0.fallback }
  }

  /// Returns whether a handler performs the tasks of a name, or the table is closed.
  func canPerform(_ name: String) -> Bool {
    state.withLock { $0.isClosed || $0.fallback != nil || $0.handler(named: name) != nil }
  }

  /// Registers a handler for some names, and replaces handlers for the same payload type.
  ///
  /// - Throws: the reason why the handler is refused. Then it is registered for none of the names.
  func register(_ handler: AnyHandler, names: [String], limit: Int?) throws(TaskQueueError) {
    if let limit, limit < 1 {
      throw TaskQueueError(
        .invalidArgument,
        "the handler of '\(names[0])' was registered with a maxConcurrentTasks of \(limit); use 1 "
          + "or more, or nil for no limit other than the queue's"
      )
    }
    // Release replaced handlers after unlocking: their deinitializers may call the table.
    let replaced = try state.withLock { state throws(TaskQueueError) -> [AnyHandler?] in
      guard !state.isClosed else { return [] }
      for name in names {
        try handler.checkAccepts(name, from: state.handlers[name])
        try state.checkSpelling(of: name, among: names)
      }
      return names.map { name in
        state.limits[name] = limit ?? .max
        state.updateCapacity(of: name)
        return state.handlers.updateValue(handler, forKey: name)
      }
    }
    withExtendedLifetime(replaced) {}
  }

  /// Returns a text that explains why no handler performs the tasks of a name.
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
      state.updateCapacity(of: name)
    }
  }

  func resume(_ name: String) {
    state.withLock { state in
      state.pausedNames.remove(name)
      state.updateCapacity(of: name)
    }
  }

  /// Sets the names that are paused in the store.
  ///
  /// - Returns: The names that this pauses, and the names that it resumes.
  func setStoredPauses(_ names: Set<String>) -> (paused: Set<String>, resumed: Set<String>) {
    state.withLock { state in
      guard names != state.storedPausedNames else { return ([], []) }
      let changed = names.symmetricDifference(state.storedPausedNames)
      let before = changed.filter(state.isPaused)
      state.storedPausedNames = names
      for name in changed { state.updateCapacity(of: name) }
      let after = changed.filter(state.isPaused)
      return (after.subtracting(before), before.subtracting(after))
    }
  }

  /// Records the error for a refused handler.
  ///
  /// From then on, each call of the queue that can throw throws the first such error.
  func refuse(_ error: TaskQueueError) {
    state.withLock { $0.refusal = $0.refusal ?? error }
    hasRefused.store(true, ordering: .releasing)
  }

  /// Whether a handler was refused.
  var hasRefusal: Bool { hasRefused.load(ordering: .acquiring) }
  /// The error for the first handler that was refused; `nil` if none was.
  var refusal: TaskQueueError? { state.withLock { $0.refusal } }

  func registerFallback(_ handler: AnyHandler) {
    let replaced = state.withLock { state -> AnyHandler? in
      guard !state.isClosed else { return nil }
      defer { state.fallback = handler }
      return state.fallback
    }
    withExtendedLifetime(replaced) {}
  }

  /// Removes all handlers, and accepts no more.
  func close() {
    let handlers = state.withLock { state in
      let handlers = (state.handlers, state.fallback)
      state.handlers = [:]
      state.fallback = nil
      state.limits = [:]
      state.capacities = [:]
      state.version += 1
      state.isClosed = true
      return handlers
    }
    withExtendedLifetime(handlers) {}
  }
}

extension AnyHandler {
  /// Checks that the handler can be registered for a name.
  ///
  /// - Throws: the reason why it can't.
  fileprivate func checkAccepts(
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
      "the name '\(name)' is registered for payloads of the type \(held.name), and can't also be "
        + "registered for \(payloadType.name): give one of the two types a taskName of its own"
    )
  }
}
