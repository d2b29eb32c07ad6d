#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// Tasks of a group that were taken for plain, and are not.
struct NotPlain: Error {
  let tasks: Set<TaskID>
}

/// Changes of many callers at once.
extension Tables {
  /// Makes the changes of a group.
  ///
  /// - Throws: ``MoreToLock`` or ``NotPlain`` if it has to begin again with what they tell; a
  ///   ``BatchRefusal`` if one batch is refused, after which all must be undone.
  func apply(_ group: BatchGroup) throws -> [[ChangeOutcome]] {
    var parts = group.parts()
    if !group.isCareful, parts.haveAll {
      try lock(LockPlan(), plain: parts.leased)
      for (statement, values) in Self.together(parts) {
        try database.send(Self.exactly(statement), values, isWanted: false)
      }
      return group.batches.map { $0.map { _ in .done } }
    }
    let leased = parts.leased
    if !leased.isEmpty {
      let plain = Set(try database.ids(Self.plain, .ids(leased)))
      parts.leave(Set(leased).subtracting(plain))
    }
    let rest = zip(group.batches, parts.offsets).map { batch, offsets in
      offsets.map { batch[$0] }
    }
    try lock(LockPlan(rest), others: group.others, plain: parts.leased)
    var outcomes = group.batches.map { $0.map { _ in ChangeOutcome.done } }
    for (number, changes) in rest.enumerated() where !changes.isEmpty {
      for (offset, outcome) in zip(parts.offsets[number], try apply(changes)) {
        outcomes[number][offset] = outcome
      }
    }
    try makeTogether(parts)
    return outcomes
  }

  /// Of claimed tasks, those that have no key, belong to no other, and have no other rows.
  private static let plain = """
    select id from steadfast_task as task where id = any ($1) and \(isPlain)
    """

  /// Whether a task is running.
  ///
  /// With `=`, a plan could read all of the index of claims, which has an entry of each task that
  /// was claimed since the table was vacuumed.
  private static let isRunning = "task.state is not distinct from 'running'"

  private static let isPlain = """
    \(isRunning) and key_role is null and order_key is null and memory_size = 0
      and name_count = 0 and batch_total is null and follower is null
      and not exists (select 1 from steadfast_dependency where dependency = task.id offset 0)
      and not exists (
        select 1 from steadfast_task as other where other.cause = task.id offset 0)
    """

  /// The statement that fails, with ``Tables/mismatch``, if it does not change a row for each ID.
  ///
  /// So the commit can go out along with it, since its rows need not be counted here.
  private static func exactly(_ statement: String) -> String {
    """
    with changed as (\(statement))
    select 1 / (count(*) = cardinality($1::uuid[]))::integer from changed
    """
  }

  /// The state of a statement that has not changed as many rows as it should: a division by zero.
  static let mismatch = "22012"

  /// Makes the plain changes, whose tasks are locked.
  private func makeTogether(_ parts: BatchGroup.Parts) throws {
    let statements = Self.together(parts)
    for (statement, values) in statements { try database.send(statement, values, isWanted: true) }
    guard !statements.isEmpty else { return }
    let wanted = [
      parts.insertions.map(\.record.id), parts.removals.map(\.lease.id),
      parts.releases.map(\.lease.id), parts.extensions.map(\.lease.id),
    ].filter { !$0.isEmpty }
    // If a row is missing, its change is made by itself, which tells why.
    let made = try database.flush()
    for (ids, rows) in zip(wanted, made) where rows.changedCount < ids.count {
      let found = rows.map { $0.id(0) }.compactMap(\.self)
      let missing = Set(ids).subtracting(found)
      throw NotPlain(tasks: missing.isEmpty ? Set(ids) : missing)
    }
  }

  /// One statement for the plain changes of each kind; the IDs are its first value.
  private static func together(
    _ parts: BatchGroup.Parts
  ) -> [(statement: String, values: [SQLValue])] {
    var statements: [(statement: String, values: [SQLValue])] = []
    if !parts.insertions.isEmpty {
      statements.append((insertions, values(of: parts.insertions)))
    }
    if !parts.removals.isEmpty {
      statements.append((removals, values(of: parts.removals.map(\.lease))))
    }
    if !parts.releases.isEmpty {
      statements.append((releases, values(of: parts.releases.map(\.lease))))
    }
    if !parts.extensions.isEmpty {
      let durations = SQLValue.array(parts.extensions.map { .duration($0.duration) }, of: .integer)
      statements.append((extensions, values(of: parts.extensions.map(\.lease)) + [durations]))
    }
    return statements
  }

  /// Extends those of the claims whose tasks no other session has locked.
  ///
  /// - Returns: For each claim that is there, whether it was extended.
  func extendFree(_ leases: [Lease], for duration: Duration) throws -> [Lease: Bool] {
    let values = Self.values(of: leases) + [.duration(duration)]
    let found = try database.rows(Self.freeExtensions, values).map { row in
      row.id(0).map { (Lease(id: $0, token: UInt64(bitPattern: row.int64(1))), row.flag(2)) }
    }
    return Dictionary(uniqueKeysWithValues: found.compactMap(\.self))
  }

  private static func values(of leases: [Lease]) -> [SQLValue] {
    [.ids(leases.map(\.id)), .array(leases.map { .token($0.token) }, of: .integer)]
  }

  private static let insertions = """
    insert into steadfast_task (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, holds_order,
      dependency_rule, state, retry_count, interruption_count, put_off, counted_from)
    select id, name, queue, payload, format, schema_version, priority, created_date,
      available_date, max_retries, uses_backoff, conditions::text[], tags::text[], time_limit,
      expiry_date, false, dependency_rule, 'waiting', 0, 0, false, counted_from
    from unnest(
      $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[],
      $8::timestamptz[], $9::timestamptz[], $10::bigint[], $11::boolean[], $12::text[],
      $13::text[], $14::bigint[], $15::timestamptz[], $16::text[],
      $17::timestamptz[]
    ) as new (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, dependency_rule,
      counted_from)
    on conflict (id) do nothing returning id
    """

  private static func values(
    of insertions: [(place: BatchGroup.Place, record: TaskRecord, payload: [UInt8])]
  ) -> [SQLValue] {
    func column(_ type: SQLValue.ElementType, _ value: (TaskRecord) -> SQLValue) -> SQLValue {
      .array(insertions.map { value($0.record) }, of: type)
    }
    return [
      column(.id) { .id($0.id) },
      column(.text) { .text($0.name) },
      column(.text) { .text($0.queue) },
      .array(insertions.map { .bytes($0.payload) }, of: .bytes),
      column(.text) { .text($0.payload.format.rawValue) },
      column(.integer) { .integer($0.payload.version) },
      column(.integer) { .integer($0.priority.rawValue) },
      column(.date) { .date($0.createdDate) },
      column(.date) { .date($0.availableDate) },
      column(.integer) { .limit($0.maxRetries) },
      column(.flag) { .flag($0.usesBackoff) },
      column(.text) { .text(literal($0.conditions.map(\.rawValue))) },
      column(.text) { .text(literal($0.tags)) },
      column(.integer) { .duration($0.timeLimit) },
      column(.date) { .date($0.expiryDate) },
      column(.text) { .text($0.dependencies.rule.rawValue) },
      column(.date) { .date($0.explicitOrigin) },
    ]
  }

  /// An array of texts as PostgreSQL writes it, since arrays of arrays have one length.
  static func literal(_ texts: some Collection<String>) -> String {
    let quoted = texts.map { text in
      "\"" + text.marking(["\\", "\""], with: "\\") + "\""
    }
    return "{" + quoted.joined(separator: ",") + "}"
  }

  /// Whether a task has one of the leases `$1` and `$2`.
  ///
  /// The subquery is kept apart by `is true`, so that its rows are found by a hash: with a join, a
  /// plan that was made for few tasks compared each of a thousand with each lease.
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
#endif
