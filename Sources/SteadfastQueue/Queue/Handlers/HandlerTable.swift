import Synchronization

/// The handlers of a queue, by the names of the tasks that they perform.
final class HandlerTable: Sendable {
  /// The time zones of the queue's schedules.
  let zones = TimeZones()

  /// Returns the names of the tasks with a payload type: the current name and the former ones.
  static func names<Payload: TaskPayload>(of type: Payload.Type) -> [String] {
    [type.taskName] + type.formerTaskNames
  }

  private struct State {
    var handlers: [String: AnyHandler] = [:] { didSet { recent = nil } }
    /// The greatest payload version that the handler for each name can decode.
    var payloadVersions: [String: Int] = [:]
    /// The most recently looked-up name, with its handler.
    private var recent: (name: ComparedText, handler: AnyHandler?)?
    /// The handler for all names that have no handler of their own.
    var fallback: AnyHandler?
    /// For each registered name, the maximum number of its tasks that may be performed at a time.
    var limits: [String: Int] = [:]
    /// The names that are paused in memory, with a handler or without.
    var pausedNames: Set<String> = []
    /// The names that are paused in the store.
    var storedPausedNames: Set<String> = []
    /// Like `limits`, but 0 for each paused name.
    var capacities: [String: Int] = [:]
    /// The number of changes to `capacities` so far.
    var version = 0
    /// Whether the table is closed: it accepts no handlers, and no more tasks are performed.
    var isClosed = false
    var firstRefusal: TaskQueueError?

    /// Throws if the name differs in its bytes from a name that Swift's `==` considers equal.
    ///
    /// The other name may be registered, or among `names`. A dictionary can't have both as keys,
    /// and a ``ClaimRequest`` contains a dictionary of names.
    func checkSpelling(of name: String, among names: [String]) throws(TaskQueueError) {
      let isRegistered = handlers[name] != nil && handlers[exactly: name] == nil
      guard isRegistered || names.contains(where: { $0 == name && !$0.isExactly(name) }) else {
        return
      }
      throw TaskQueueError(
        .nameTaken,
        "the name '\(name)' is already registered with different bytes of UTF-8, such as a composed "
          + "and a decomposed é; write the name with the same bytes everywhere"
      )
    }

    /// Returns the handler that is registered for a name, and caches it for the next call.
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
  private let isRefusalRecorded = Atomic(false)

  /// The tasks that the handlers can perform.
  struct Capacities: Sendable {
    /// For each registered or paused name, the maximum number of its tasks that may be performed at
    /// a time.
    let names: [String: Int]
    /// The number of changes to `names` so far.
    let version: Int
    /// The maximum for each name that is not in `names`.
    let others: Int
    /// For each registered name, the greatest payload version that its handler can decode.
    let payloadVersions: [String: Int]
  }

  var capacities: Capacities {
    state.withLock { state in
      Capacities(
        names: state.capacities,
        version: state.version,
        others: state.fallback == nil ? 0 : .max,
        payloadVersions: state.payloadVersions
      )
    }
  }

  var names: [String] { state.withLock { Array($0.limits.keys) } }

  subscript(name: String) -> AnyHandler? {
    state.withLock { $0.handler(named: name) ?? $0.fallback }
  }

  /// Returns whether a handler performs the tasks with a name; `true` if the table is closed.
  func canPerform(_ name: String) -> Bool {
    state.withLock { $0.isClosed || $0.fallback != nil || $0.handler(named: name) != nil }
  }

  /// Returns why no handler performs a task: none is registered for its name, or a newer version of
  /// the program has stored its payload.
  ///
  /// - Returns: `nil` if a handler performs the task, or if the table is closed.
  func reasonForNoHandler(of record: TaskRecord) -> String? {
    let (isClosed, handler) = state.withLock { state in
      (state.isClosed, state.handler(named: record.name) ?? state.fallback)
    }
    if isClosed { return nil }
    guard let handler else { return reasonForMissingHandler(named: record.name) }
    guard record.payload.version > handler.payloadVersion else { return nil }
    return record.reasonForNewerVersion(than: handler.payloadVersion)
  }

  /// Registers a handler for some names, and replaces handlers for the same payload type.
  ///
  /// - Throws: an error if the handler is refused for a name. It is then registered for no name.
  func register(_ handler: AnyHandler, names: [String], limit: Int?) throws(TaskQueueError) {
    if let limit, limit < 1 {
      throw TaskQueueError(
        .invalidArgument,
        "the handler of '\(names[0])' was registered with a maxConcurrentTasks of \(limit); use 1 "
          + "or more, or nil for no limit other than the queue's"
      )
    }
    // Keep the replaced handlers until the lock is released: their deinitializers may call the
    // table.
    let replaced = try state.withLock { state throws(TaskQueueError) -> [AnyHandler?] in
      guard !state.isClosed else { return [] }
      for name in names {
        try handler.checkCanPerformTasks(named: name, replacing: state.handlers[name])
        try state.checkSpelling(of: name, among: names)
      }
      return names.map { name in
        state.limits[name] = limit ?? .max
        state.payloadVersions[name] = handler.payloadVersion
        state.updateCapacity(of: name)
        return state.handlers.updateValue(handler, forKey: name)
      }
    }
    withExtendedLifetime(replaced) {}
  }

  /// Returns an explanation, for a message, of why no handler performs the tasks with a name.
  func reasonForMissingHandler(named name: String) -> String {
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
  /// - Returns: The names that were not paused before, and the names that are no longer paused.
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
  func recordRefusal(_ error: TaskQueueError) {
    state.withLock { $0.firstRefusal = $0.firstRefusal ?? error }
    isRefusalRecorded.store(true, ordering: .releasing)
  }

  /// Whether a handler was refused.
  var hasRefusal: Bool { isRefusalRecorded.load(ordering: .acquiring) }
  /// The error for the first handler that was refused; `nil` if no handler was.
  var firstRefusal: TaskQueueError? { state.withLock { $0.firstRefusal } }

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
      state.payloadVersions = [:]
      state.capacities = [:]
      state.version += 1
      state.isClosed = true
      return handlers
    }
    withExtendedLifetime(handlers) {}
  }
}

extension AnyHandler {
  /// Throws if the handler can't be registered for a name, in place of the current handler.
  fileprivate func checkCanPerformTasks(
    named name: String,
    replacing current: AnyHandler?
  ) throws(TaskQueueError) {
    guard !name.isEmpty else {
      let owner = payloadType.map { "a task name of \($0.name)" } ?? "the name of a handler"
      throw TaskQueueError(.invalidArgument, "\(owner) is empty; give at least one character")
    }
    try TaskQueueError.check(string: name, "the name '\(name.withoutNUL)' of a handler")
    guard let payloadType, let other = current?.payloadType,
      payloadType.identifier != other.identifier
    else { return }
    throw TaskQueueError(
      .nameTaken,
      "the name '\(name)' is registered for payloads of the type \(other.name), and can't also be "
        + "registered for \(payloadType.name): give one of the two types a taskName of its own"
    )
  }
}
