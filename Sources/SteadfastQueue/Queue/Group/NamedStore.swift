/// A store for the queue with one name, which contains only the tasks of that queue.
///
/// It calls its base with the queue's name added to tasks, filters, claims and values.
struct NamedStore: StoreWrapper {
  let base: any Persistence
  /// The queue's name as it is stored in ``TaskRecord/queue``.
  let queue: String

  /// The name of the queue whose tasks are stored without a queue's name.
  private static let unnamedQueue = "default"

  /// Returns the store that contains the tasks of the queue with a name.
  static func of(queue name: String, in store: any Persistence) -> any Persistence {
    let queue = storedName(ofQueue: name)
    return queue.isEmpty ? store : NamedStore(base: store, queue: queue)
  }

  static func storedName(ofQueue name: String) -> String { name == unnamedQueue ? "" : name }
  static func name(ofStoredName name: String) -> String { name.isEmpty ? unnamedQueue : name }

  func apply(_ batch: [TaskChange], durability: Durability) async throws -> [ChangeOutcome] {
    try await base.apply(batch.map(assignedToQueue), durability: durability)
  }

  func claim(_ request: ClaimRequest) async throws -> Claim {
    var request = request
    request.queue = queue
    return try await base.claim(request)
  }

  func tasks(
    matching filter: TaskFilter,
    after id: TaskID?,
    limit: Int,
    newestFirst: Bool
  ) async throws -> [TaskRecord] {
    try await base.tasks(
      matching: limitedToQueue(filter),
      after: id,
      limit: limit,
      newestFirst: newestFirst
    )
  }

  func count(matching filter: TaskFilter) async throws -> Int {
    try await base.count(matching: limitedToQueue(filter))
  }

  func contains(_ filter: TaskFilter) async throws -> Bool {
    try await base.contains(limitedToQueue(filter))
  }

  func value(named name: String) async throws -> [UInt8]? {
    try await base.value(named: valueName(name))
  }

  func values(prefix: String) async throws -> [(name: String, bytes: [UInt8])] {
    let stored = try await base.values(
      prefix: prefix.utf8.contains(UInt8(ascii: "/")) ? valueName(prefix) : prefix
    )
    // The order of the names may differ from that of the stored names.
    return stored.compactMap { stored in
      name(ofValueStoredAs: stored.name).map { (name: $0, bytes: stored.bytes) }
    }
    .sorted { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) }
  }

  func insertStatement(
    for record: TaskRecord,
    onDuplicate policy: UniquePolicy
  ) throws -> InsertStatement? {
    try base.insertStatement(for: assignedToQueue(record), onDuplicate: policy)
  }

  // MARK: Adding the queue's name

  private func assignedToQueue(_ change: TaskChange) -> TaskChange {
    switch change {
    case .insert(let record, let policy):
      .insert(assignedToQueue(record), onDuplicate: policy)
    case .broad(.unpark(let name, _, let version)):
      .unpark(name: name, queue: queue, below: version)
    case .broad(.prune(let state, let date, let count, let now, _)):
      .prune(state, endedBefore: date, keepingLatest: count, now: now, queue: queue)
    case .setValue(let name, let old, let new):
      .setValue(named: valueName(name), from: old, to: new)
    case .move, .end, .update, .remove, .extend, .command, .memory, .broad(.rebase): change
    }
  }

  private func assignedToQueue(_ record: TaskRecord) -> TaskRecord {
    record.queue == queue ? record : record.replacing(queue: queue)
  }

  /// Returns a copy of a filter that matches only tasks of the queue, unless the filter already has
  /// a queue's name or matches the tasks of all queues.
  private func limitedToQueue(_ filter: TaskFilter) -> TaskFilter {
    guard filter.queue == "" else { return filter }
    var filter = filter
    filter.queue = queue
    return filter
  }

  /// Returns the name under which the base has a value.
  ///
  /// All queues share the application's values. Of the package's own values, whose names start with
  /// `steadfast.`, each queue has its own, so the queue's name is added to the value's name.
  private func valueName(_ name: String) -> String {
    guard name.utf8.starts(with: "steadfast.".utf8) else { return name }
    // Only a name with a slash contains a string of the application.
    guard let end = name.utf8.firstIndex(of: UInt8(ascii: "/")) else { return "\(name) \(queue)" }
    // After the slash follows a task name, of tasks with a rate limit, which may contain any
    // characters. So insert the queue's name before the slash, and end it with a character that no
    // queue's name contains. If it came last, the tasks named "Mail q" of the default queue would
    // share a limit with the tasks named "Mail" of the queue "q".
    return "\(name[..<end]) \(queue)\u{1f}\(name[end...])"
  }

  /// Returns the name that this queue uses for a value of the base; `nil` if the value
  /// belongs to another queue.
  private func name(ofValueStoredAs stored: String) -> String? {
    guard stored.utf8.starts(with: "steadfast.".utf8) else { return stored }
    // The package's own names have no space before a slash, so the queue's name follows the space.
    let end = stored.utf8.firstIndex { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "/") }
    guard let end, stored.utf8[end] == UInt8(ascii: " ") else { return nil }
    let (name, rest) = (stored[..<end], stored[end...])
    if String(rest).isExactly(" \(queue)") { return String(name) }
    let marker = " \(queue)\u{1f}"
    guard rest.utf8.starts(with: "\(marker)/".utf8) else { return nil }
    return "\(name)\(rest[rest.utf8.index(rest.startIndex, offsetBy: marker.utf8.count)...])"
  }
}
