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

  private static let isPlain = """
    state = 'running' and key_role is null and order_key is null and memory_size = 0
      and name_count = 0 and batch_total is null and follower is null
      and not exists (select 1 from steadfast_dependency where dependency = task.id)
      and not exists (select 1 from steadfast_task as other where other.cause = task.id)
    """

  /// Makes the plain changes, whose tasks are locked.
  private func makeTogether(_ parts: BatchGroup.Parts) throws {
    var wanted: [[TaskID]] = []
    if !parts.insertions.isEmpty {
      wanted.append(parts.insertions.map(\.record.id))
      try database.send(Self.insertions, Self.values(of: parts.insertions), isWanted: true)
    }
    if !parts.removals.isEmpty {
      wanted.append(parts.removals.map(\.lease.id))
      let leases = Self.values(of: parts.removals.map(\.lease))
      try database.send(Self.removals, leases, isWanted: true)
    }
    if !parts.releases.isEmpty {
      wanted.append(parts.releases.map(\.lease.id))
      let leases = Self.values(of: parts.releases.map(\.lease))
      try database.send(Self.releases, leases, isWanted: true)
    }
    if !parts.extensions.isEmpty {
      wanted.append(parts.extensions.map(\.lease.id))
      let leases = Self.values(of: parts.extensions.map(\.lease))
      let durations = SQLValue.array(parts.extensions.map { .duration($0.duration) }, of: .integer)
      try database.send(Self.extensions, leases + [durations], isWanted: true)
    }
    guard !wanted.isEmpty else { return }
    // If a row is missing, its change is made by itself, which tells why.
    let made = try database.flush()
    for (ids, rows) in zip(wanted, made) where rows.changedCount < ids.count {
      let found = rows.map { $0.id(0) }.compactMap(\.self)
      let missing = Set(ids).subtracting(found)
      throw NotPlain(tasks: missing.isEmpty ? Set(ids) : missing)
    }
  }

  private static func values(of leases: [Lease]) -> [SQLValue] {
    [.ids(leases.map(\.id)), .array(leases.map { .token($0.token) }, of: .integer)]
  }

  private static let insertions = """
    insert into steadfast_task (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, holds_order,
      dependency_rule, state, retry_count, interruption_count, put_off)
    select id, name, queue, payload, format, schema_version, priority, created_date,
      available_date, max_retries, uses_backoff, conditions::text[], tags::text[], time_limit,
      expiry_date, false, dependency_rule, 'waiting', 0, 0, false
    from unnest(
      $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::bigint[], $7::bigint[],
      $8::timestamptz[], $9::timestamptz[], $10::bigint[], $11::boolean[], $12::text[],
      $13::text[], $14::bigint[], $15::timestamptz[], $16::text[]
    ) as new (
      id, name, queue, payload, format, schema_version, priority, created_date, available_date,
      max_retries, uses_backoff, conditions, tags, time_limit, expiry_date, dependency_rule)
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
    ]
  }

  /// An array of texts as PostgreSQL writes it, since arrays of arrays have one length.
  static func literal(_ texts: some Collection<String>) -> String {
    let quoted = texts.map { text in
      "\"" + text.marking(["\\", "\""], with: "\\") + "\""
    }
    return "{" + quoted.joined(separator: ",") + "}"
  }

  private static let leases = "unnest($1::uuid[], $2::bigint[]) as lease (id, token)"
  private static let hasLease = """
    task.id = lease.id and task.state = 'running' and task.lease_token = lease.token
    """

  private static let removals = """
    delete from steadfast_task as task using \(leases)
    where \(hasLease) and \(isPlain) returning task.id
    """

  private static let releases = """
    update steadfast_task as task set state = 'waiting', lease_token = null, lease_end = null
    from \(leases) where \(hasLease) and \(isPlain) returning task.id
    """

  private static let extensions = """
    update steadfast_task as task
    set lease_end = store_clock() + lease.duration * interval '1 microsecond'
    from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as lease (id, token, duration)
    where \(hasLease) returning task.id
    """
}
#endif
