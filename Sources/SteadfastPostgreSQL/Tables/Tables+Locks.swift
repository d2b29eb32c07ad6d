#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// The locks that a transaction acquires before its changes, in the same order in all sessions.
///
/// The locks of values come first, then those of unique keys and of order keys, then those of tasks
/// in the order of their IDs. So no two sessions can wait for each other. The articles "Writing a
/// store" and "Storing dependencies" explain the order.
struct LockPlan {
  /// The names of stored values that the changes compare.
  var values: Set<ExactText> = []
  /// The unique keys of new tasks, each with the name of the task.
  ///
  /// An insertion waits for an uncommitted insertion with the same key.
  var keys: Set<ExactText> = []
  /// The order keys of new tasks.
  var orders: Set<ExactText> = []
  /// The tasks that the changes name.
  var tasks: Set<TaskID> = []
  /// The tasks in ``tasks`` that may succeed.
  var succeeding: Set<TaskID> = []
  /// The tasks in ``tasks`` that may end without success, or be restarted or removed.
  var failing: Set<TaskID> = []

  init() {}

  init(_ batches: [[PreparedChange]]) {
    for batch in batches { for change in batch { addLocks(for: change.change) } }
  }

  private mutating func addLocks(for change: TaskChange) {
    switch change {
    case .insert(let record, _):
      if let key = StoredKey.string(for: record.uniqueKey, in: record.queue),
        !record.state.isFinished
      {
        keys.insert(ExactText("\(record.name) \(key)"))
      }
      if let key = StoredKey.string(for: record.orderKey, in: record.queue) {
        orders.insert(ExactText(key))
      }
      tasks.formUnion(record.dependencies.tasks)
      if let follower = record.dependencies.follower { tasks.insert(follower) }
    case .end(let target, let end) where end.state == .succeeded: add(succeeding: target.id)
    case .end(let target, _): add(failing: target.id)
    case .move(let target, let move) where move.takesKey: add(failing: target.id)
    case .remove(let id): add(failing: id)
    case .move, .update, .extend, .command, .memory:
      if let id = change.taskID { tasks.insert(id) }
    case .setValue(let name, _, _): values.insert(ExactText(name))
    case .broad: break
    @unknown default: break
    }
  }

  private mutating func add(succeeding id: TaskID) {
    tasks.insert(id)
    succeeding.insert(id)
  }

  private mutating func add(failing id: TaskID) {
    tasks.insert(id)
    failing.insert(id)
  }
}

/// The error for changes that affect tasks that the transaction has not locked.
///
/// The transaction must start again, and lock these tasks, too.
struct MissingLocksError: Error {
  let tasks: Set<TaskID>
}

extension Tables {
  private static let lockValues = """
    select pg_advisory_xact_lock($2::bigint::integer, number) from (
      select distinct hashtext(name) & 4095 as number
      from unnest($1::text[]) as named (name)
      order by number
    ) as locks
    """

  /// All keys share 1,024 locks, because the server has space for only some thousands of locks in
  /// all sessions.
  private static let lockKeys = """
    select pg_advisory_xact_lock($2::bigint::integer, number) from (
      select distinct hashtext(key) & 1023 as number from unnest($1::text[]) as keyed (key)
      order by number
    ) as locks
    """

  private static let lockOrderKeys = """
    select pg_advisory_xact_lock($3::bigint::integer, number) from (
      select distinct hashtext(order_key) & 4095 as number from (
        select unnest($1::text[]) as order_key
        union all
        select order_key from steadfast_task
        where id = any ($2) and order_key is not null
      ) as keys
      order by number
    ) as locks
    """

  func lockOrderKeys(of ids: [TaskID]) throws {
    try database.send(Self.lockOrderKeys, .texts([]), .ids(ids), .integer(locks.orders))
  }

  private static let concerned = """
    with recursive concerned (id, goes_on) as (
      select id, true from steadfast_task where id = any ($2)
      union
      select other.id, other.goes_on
      from concerned
      cross join lateral (
        select dependent from steadfast_dependency where dependency = concerned.id offset 0
      ) as dependency
      cross join lateral (
        select id, cause is not null or (dependency_rule = 'allSucceeded'
          and state in ('waiting', 'suspended', 'parked', 'paused')) as goes_on
        from steadfast_task where id = dependency.dependent offset 0
      ) as other
      where concerned.goes_on
    )
    select id from concerned
    union
    select dependent from steadfast_dependency where dependency = any ($1)
    """

  /// Acquires the locks of a plan.
  ///
  /// - Parameters:
  ///   - plan: The locks.
  ///   - others: More tasks to lock, which the ``MissingLocksError`` of an earlier transaction
  ///     named.
  ///   - plain: More tasks to lock, which have no order key, and for which no other task waits.
  /// - Throws: ``MissingLocksError`` if the changes affect more tasks.
  func lock(_ plan: LockPlan, others: Set<TaskID> = [], plain: [TaskID] = []) throws {
    if !plan.values.isEmpty {
      try database.send(
        Self.lockValues,
        .texts(plan.values.map(\.text)),
        .integer(locks.values)
      )
    }
    if !plan.keys.isEmpty {
      try database.send(Self.lockKeys, .texts(plan.keys.map(\.text)), .integer(locks.keys))
    }
    let tasks = plan.tasks.union(others)
    if !tasks.isEmpty || !plan.orders.isEmpty {
      try database.send(
        Self.lockOrderKeys,
        .texts(plan.orders.map(\.text)),
        .ids(tasks),
        .integer(locks.orders)
      )
    }
    guard !tasks.isEmpty || !plain.isEmpty else { return }
    try database.send(
      "select from steadfast_task where id = any ($1) order by id for update",
      .ids(tasks.union(plain))
    )
    guard !plan.succeeding.isEmpty || !plan.failing.isEmpty else { return }
    let concerned = try database.ids(
      Self.concerned,
      .ids(plan.succeeding),
      .ids(plan.failing)
    )
    let missing = Set(concerned).subtracting(tasks)
    guard missing.isEmpty else { throw MissingLocksError(tasks: missing.union(others)) }
  }
}

/// The error for tasks that were changed as plain tasks (``BatchGroup``), but are not plain.
struct NotPlainError: Error {
  let tasks: Set<TaskID>
}

/// Changes of several callers in one transaction.
extension Tables {
  /// Sends changes that are all plain.
  ///
  /// If a change can't be made, one of the statements fails (``PostgreSQLFailure/isMismatch``), so
  /// the commit can be sent together with the statements.
  func send(_ plain: BatchGroup.ChangesByKind) throws {
    var plain = plain
    try lock(LockPlan(), plain: plain.leased)
    if plain.insertions.count <= Self.mostSeparateInsertions {
      for (_, record, payload) in plain.insertions {
        try database.send(Self.insertion, Self.values(of: record, payload))
      }
      plain.insertions = []
    }
    for (statement, values) in Self.statements(for: plain) {
      try database.send(Self.checkingRowCount(of: statement), values)
    }
  }

  /// Makes the changes of a group.
  ///
  /// - Throws: ``MissingLocksError`` or ``NotPlainError`` if the group must start again with the
  ///   tasks in the error. A ``BatchRefusal`` if one batch is refused; all batches must then be
  ///   rolled back.
  func apply(_ group: BatchGroup) throws -> [[ChangeOutcome]] {
    var byKind = group.changesByKind()
    let leased = byKind.leased
    if !leased.isEmpty {
      let plain = Set(try database.ids(Self.plain, .ids(leased)))
      byKind.separateChanges(of: Set(leased).subtracting(plain))
    }
    let rest = zip(group.batches, byKind.offsets).map { batch, offsets in
      offsets.map { batch[$0] }
    }
    try lock(LockPlan(rest), others: group.others, plain: byKind.leased)
    var outcomes = group.batches.map { $0.map { _ in ChangeOutcome.done } }
    for (number, changes) in rest.enumerated() where !changes.isEmpty {
      for (offset, outcome) in zip(byKind.offsets[number], try apply(changes)) {
        outcomes[number][offset] = outcome
      }
    }
    try makePlainChanges(byKind)
    return outcomes
  }

  /// Selects the claimed tasks that are plain (``BatchGroup``).
  private static let plain = """
    select id from steadfast_task as task where id = any ($1) and \(isPlain)
    """

  /// The condition that a task is running.
  ///
  /// With `=`, the server might read the whole index of claims, which has an entry for each task
  /// that was claimed since the last vacuum. With `is not distinct from`, the server can't use that
  /// index.
  private static let isRunning = "task.state is not distinct from 'running'"

  private static let isPlain = """
    \(isRunning) and key_role is null and order_key is null and memory_size = 0
      and command is null
      and name_count = 0 and batch_total is null and follower is null
      and not exists (select 1 from steadfast_dependency where dependency = task.id offset 0)
      and not exists (
        select 1 from steadfast_task as other where other.cause = task.id offset 0)
    """

  /// Returns a statement that makes the same changes, but fails unless it changes a row for each
  /// ID.
  ///
  /// The failure is a division by zero.
  private static func checkingRowCount(of statement: String) -> String {
    """
    with changed as (\(statement))
    select 1 / (count(*) = cardinality($1::uuid[]))::integer from changed
    """
  }

  /// Makes the plain changes; their tasks must be locked.
  private func makePlainChanges(_ byKind: BatchGroup.ChangesByKind) throws {
    let statements = Self.statements(for: byKind)
    for (statement, values) in statements { try database.send(statement, values, isWanted: true) }
    guard !statements.isEmpty else { return }
    let wanted = [
      byKind.insertions.map(\.record.id), byKind.removals.map(\.lease.id),
      byKind.releases.map(\.lease.id), byKind.extensions.map(\.lease.id),
    ].filter { !$0.isEmpty }
    // A change that changed no row is made again alone, to find out why.
    let made = try database.flush()
    for (ids, rows) in zip(wanted, made) where rows.changedCount < ids.count {
      let found = rows.map { $0.id(0) }.compactMap(\.self)
      let missing = Set(ids).subtracting(found)
      throw NotPlainError(tasks: missing.isEmpty ? Set(ids) : missing)
    }
  }

  /// Returns one statement for each kind of plain changes.
  ///
  /// The first value of each statement is the list of IDs.
  private static func statements(
    for byKind: BatchGroup.ChangesByKind
  ) -> [(statement: String, values: [SQLValue])] {
    var statements: [(statement: String, values: [SQLValue])] = []
    if !byKind.insertions.isEmpty {
      let rows = byKind.insertions.map { values(of: $0.record, $0.payload) }
      let columns = plainTypes.enumerated().map { number, type in
        SQLValue.array(rows.map { $0[number] }, of: type)
      }
      statements.append((insertions, columns))
    }
    if !byKind.removals.isEmpty {
      statements.append((removals, values(of: byKind.removals.map(\.lease))))
    }
    if !byKind.releases.isEmpty {
      statements.append((releases, values(of: byKind.releases.map(\.lease))))
    }
    if !byKind.extensions.isEmpty {
      let durations = SQLValue.array(byKind.extensions.map { .duration($0.duration) }, of: .integer)
      statements.append((extensions, values(of: byKind.extensions.map(\.lease)) + [durations]))
    }
    return statements
  }

  /// Extends the claims whose tasks no other session has locked.
  ///
  /// - Returns: Whether each claim was extended. A claim that no longer exists has no entry.
  func extendIfUnlocked(_ leases: [Lease], for duration: Duration) throws -> [Lease: Bool] {
    let values = Self.values(of: leases) + [.duration(duration)]
    let found = try database.rows(Self.freeExtensions, values).map { row in
      row.id(0).map { (Lease(id: $0, token: UInt64(bitPattern: row.int64(1))), row.flag(2)) }
    }
    return Dictionary(uniqueKeysWithValues: found.compactMap(\.self))
  }

  private static func values(of leases: [Lease]) -> [SQLValue] {
    [.ids(leases.map(\.id)), .array(leases.map { .token($0.token) }, of: .integer)]
  }

  /// The largest number of plain insertions for which a statement for each costs less time than one
  /// statement for all, which the server must prepare to read arrays.
  static let mostSeparateInsertions = 4

  private static let plainColumns = """
    id, name, queue, payload, format, schema_version, priority, created_date, available_date,
    max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, dependency_rule,
    counted_from, metadata, holds_order, state, retry_count, interruption_count, put_off
    """

  /// Inserts one task, and fails if another task has its ID.
  private static let insertion = """
    insert into steadfast_task (\(plainColumns))
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12::text::text[], $13::text::text[],
      $14, $15, $16, $17, $18::text::jsonb, false, 'waiting', 0, 0, false)
    """

  private static let insertions = """
    insert into steadfast_task (\(plainColumns))
    select id, name, queue, payload, format, schema_version, priority, created_date,
      available_date, max_retries, uses_backoff, conditions::text[], tags::text[], time_limit,
      expiry_date, dependency_rule, counted_from, metadata::jsonb, false, 'waiting', 0, 0, false
    from unnest(
      $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[],
      $8::timestamptz[], $9::timestamptz[], $10::bigint[], $11::boolean[], $12::text[],
      $13::text[], $14::bigint[], $15::timestamptz[], $16::text[],
      $17::timestamptz[], $18::text[]
    ) as new (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, dependency_rule,
      counted_from, metadata)
    on conflict (id) do nothing returning id
    """

  /// The types of the values of a plain insertion.
  private static let plainTypes: [SQLValue.ElementType] = [
    .id, .text, .text, .bytes, .text, .integer, .integer, .date, .date, .integer, .flag, .text,
    .text, .integer, .date, .text, .date, .text,
  ]

  private static func values(of record: TaskRecord, _ payload: [UInt8]) -> [SQLValue] {
    record.firstValues(payload: .bytes(payload)) + [
      .text(arrayLiteral(of: record.conditions.map(\.rawValue))),
      .text(arrayLiteral(of: record.tags)),
      .duration(record.timeLimit),
      .date(record.expiryDate),
      .text(record.dependencies.rule.rawValue),
      .date(record.explicitOrigin),
      StoredMetadata.value(of: record.metadata),
    ]
  }

  /// Returns an array of strings as an array literal of PostgreSQL.
  ///
  /// An array of such arrays is sent as an array of literals, because in an array of arrays, all
  /// inner arrays would need the same length.
  static func arrayLiteral(of texts: some Collection<String>) -> String {
    let quoted = texts.map { text in
      "\"" + text.escaping(["\\", "\""], with: "\\") + "\""
    }
    return "{" + quoted.joined(separator: ",") + "}"
  }

  /// The condition that a task has one of the leases with the IDs `$1` and the tokens `$2`.
  ///
  /// `is true` keeps the server from planning the subquery as a join, which could compare each task
  /// with each lease. Without a join, the server finds the leases in a hash table.
  private static let hasLease = """
    task.id = any ($1) and \(isRunning) and ((task.id, task.lease_token) in (
      select id, token from unnest($1::uuid[], $2::bigint[]) as lease (id, token))) is true
    """

  private static let removals = """
    delete from steadfast_task as task where \(hasLease) and \(isPlain) returning task.id
    """

  private static let releases = """
    update steadfast_task as task set state = 'waiting', lease_token = null, lease_end = null
    where \(hasLease) and \(isPlain) returning task.id
    """

  private static let extensions = """
    update steadfast_task as task set lease_end = store_clock()
      + ($3::bigint[])[array_position($1::uuid[], task.id)] * interval '1 microsecond'
    where \(hasLease) returning task.id
    """

  private static let freeExtensions = """
    with held as materialized (
      select id, lease_token from steadfast_task as task where \(hasLease)
    ), free as materialized (
      select id from steadfast_task as task where \(hasLease) for update skip locked
    ), extended as (
      update steadfast_task as task
      set lease_end = store_clock() + $3::bigint * interval '1 microsecond'
      where task.id = any (array(select id from free)) returning task.id
    )
    select id, lease_token, id in (select id from extended) from held
    """
}

/// Batches of several callers, for one transaction.
///
/// A task is plain if it has no key, no relation to other tasks, and no rows in other tables. Most
/// changes insert plain tasks or end attempts of plain tasks. One statement makes all changes of
/// such a kind. The other changes are made one by one.
struct BatchGroup {
  let batches: [[PreparedChange]]
  /// More tasks to lock, which an earlier transaction for this group found to be affected.
  var others: Set<TaskID> = []
  /// The tasks that an earlier transaction for this group found not to be plain.
  var notPlain: Set<TaskID> = []

  /// The index of a change: the number of its batch, and its offset in the batch.
  struct ChangeIndex {
    let batch: Int
    let offset: Int
  }

  /// The changes that one statement for each kind can make, and the remaining changes.
  struct ChangesByKind {
    var insertions: [(index: ChangeIndex, record: TaskRecord, payload: [UInt8])] = []
    var removals: [(index: ChangeIndex, lease: Lease)] = []
    var releases: [(index: ChangeIndex, lease: Lease)] = []
    var extensions: [(index: ChangeIndex, lease: Lease, duration: Duration)] = []
    /// For each batch, the offsets of the changes that are made one by one.
    var offsets: [[Int]]
  }

  init(_ batches: [[PreparedChange]]) { self.batches = batches }

  /// Returns the changes by kind if all of them may be plain.
  func plainChanges() -> ChangesByKind? {
    let byKind = changesByKind()
    return byKind.offsets.allSatisfy(\.isEmpty) ? byKind : nil
  }

  /// Returns the changes by kind.
  ///
  /// A batch is split only if the order of its changes does not matter, because all of its changes
  /// are plain insertions, or name leases of different tasks.
  func changesByKind() -> ChangesByKind {
    var byKind = ChangesByKind(offsets: batches.map { _ in [] })
    for (number, batch) in batches.enumerated() {
      let isApart = batch.allSatisfy(isPlainInsertion) || batch.allSatisfy(\.namesLease)
      for (offset, change) in batch.enumerated() {
        let index = ChangeIndex(batch: number, offset: offset)
        if !isApart || !byKind.addIfKindMatches(change, at: index, unless: notPlain) {
          byKind.offsets[number].append(offset)
        }
      }
    }
    return byKind
  }

  private func isPlainInsertion(_ change: PreparedChange) -> Bool {
    guard case .insert(let record, _) = change.change else { return false }
    return record.isPlain && !notPlain.contains(record.id)
  }
}

extension BatchGroup {
  /// Whether a change names a lease.
  ///
  /// Only the database knows whether the task of a lease is plain.
  var namesLeases: Bool { batches.contains { $0.contains(where: \.namesLease) } }

  /// Whether another queue may wait for the changes, because they may make a task available or set
  /// a value.
  var concernsOtherQueues: Bool {
    batches.contains { batch in
      batch.contains { change in
        switch change.change {
        case .end(let target, let end) where end.removesSucceeded: notPlain.contains(target.id)
        case .extend: false
        default: true
        }
      }
    }
  }
}

extension BatchGroup.ChangesByKind {
  /// Adds a change if the change belongs to one of the kinds.
  ///
  /// - Returns: Whether the change was added.
  fileprivate mutating func addIfKindMatches(
    _ change: PreparedChange,
    at index: BatchGroup.ChangeIndex,
    unless notPlain: Set<TaskID>
  ) -> Bool {
    switch change.change {
    case .insert(let record, _): insertions.append((index, record, change.payload))
    case .end(.claimed(let lease), let end)
    where end.removesSucceeded && !notPlain.contains(lease.id):
      removals.append((index, lease))
    case .move(.claimed(let lease), let move)
    where move.kind == .release && !notPlain.contains(lease.id):
      releases.append((index, lease))
    case .extend(let lease, let duration) where !notPlain.contains(lease.id):
      extensions.append((index, lease, duration))
    default: return false
    }
    return true
  }

  /// The tasks of the changes that name a lease.
  var leased: [TaskID] {
    removals.map(\.lease.id) + releases.map(\.lease.id) + extensions.map(\.lease.id)
  }

  /// Moves the changes of some tasks to the changes that are made one by one.
  mutating func separateChanges(of ids: Set<TaskID>) {
    let left =
      removals.filter { ids.contains($0.lease.id) }.map(\.index)
      + releases.filter { ids.contains($0.lease.id) }.map(\.index)
    // Extensions stay: a shared statement can extend the claim of any task.
    removals.removeAll { ids.contains($0.lease.id) }
    releases.removeAll { ids.contains($0.lease.id) }
    for index in left { offsets[index.batch].append(index.offset) }
    for batch in Set(left.map(\.batch)) { offsets[batch].sort() }
  }
}

extension TaskRecord {
  /// Whether the task is new, has no key, and waits for no other task.
  fileprivate var isPlain: Bool {
    state == .waiting && uniqueKey == nil && orderKey == nil && retryCount == 0
      && interruptionCount == 0 && lastError == nil && failedDate == nil && failedAttempt == nil
      && earlierFailures.isEmpty && !isPostponed && uniqueUntil == nil
      && latestDate == nil && !blocksOrderOnFailure && dependencies == TaskDependencies()
  }
}

extension PreparedChange {
  fileprivate var namesLease: Bool {
    switch change {
    case .move(.claimed, _), .end(.claimed, _), .extend, .memory(.suspend): true
    default: false
    }
  }
}

extension TaskEnd {
  /// Whether the task has succeeded, and is removed.
  fileprivate var removesSucceeded: Bool { state == .succeeded && !retains }
}
#endif
