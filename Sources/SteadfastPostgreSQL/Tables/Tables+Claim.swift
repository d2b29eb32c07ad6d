#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Claims.
///
/// A task is either due or delayed until its available date. An index sorts the tasks that are due
/// in the order of claiming. A claim first makes the delayed tasks due whose dates have passed.
/// Then it takes the first tasks in the index. For names with room for fewer tasks than the claim
/// may take, it reads another index, which sorts the tasks of each name. So the time of a claim
/// depends on the number of tasks that it claims, not on the number that wait. A claim locks only
/// the tasks that it claims, and skips tasks that other sessions have locked.
///
/// If an index begins with many entries that a claim must skip, claims use cursors
/// (``ClaimCursors``). They then read each lane separately: the tasks with one name and one
/// priority.
extension Tables {
  private static let isDue = "is_ready and available_date = coalesce(due_date, created_date)"
  private static let isDelayed = "is_ready and available_date <> coalesce(due_date, created_date)"

  /// The condition of the index that sorts all tasks that are due.
  ///
  /// Every position is greater than 0. Without that condition, the server might use the index for
  /// the tasks of one name, too, and read all tasks with other names.
  private static let isInLine = "\(isDue) and position > 0"

  // MARK: Delayed tasks

  /// The maximum number of delayed tasks that a claim makes due, those with the earliest dates.
  ///
  /// If the dates of more tasks have passed, the next claims make the rest due.
  static let mostDelayed = 10_000

  /// Makes the delayed tasks of the queue `$1` due whose available dates are from `$3` to `$2`.
  private static let passedDelays = """
    update steadfast_task set due_date = available_date where id = any (array(
      select id from steadfast_task
      where \(isDelayed) and queue = $1 and available_date <= $2 and available_date >= $3
      order by available_date limit \(mostDelayed) for update skip locked))
    returning name, ~priority, available_date
    """

  /// Returns the lanes and dates of the tasks that became due.
  static func dueTasks(in rows: Rows) -> [(lane: ClaimCursors.Lane, date: Date)] {
    rows.map { row in
      (ClaimCursors.Lane(name: ExactText(row.text(0)), rank: row.integer(1)), row.date(2))
    }
  }

  // MARK: Claims in order

  /// How a claim finds the tasks of each name.
  struct ClaimedNames {
    /// The names for which the request has room for fewer tasks than its limit.
    ///
    /// The claim reads the tasks of these names separately.
    var limited: [String: Int]
    /// The names of the other tasks; with `areExcluded`, the names that they do not have.
    var names: [String]
    var areExcluded: Bool

    init(_ request: ClaimRequest) {
      let limit = max(1, request.limit)
      // The server does not store a NUL, so no task has a name with a NUL.
      let listed = request.names.filter { !$0.key.hasNUL }
      limited = listed.filter { 1..<limit ~= $0.value }
      let areExcluded = request.otherNames > 0
      self.areExcluded = areExcluded
      names = listed.filter { ($0.value < limit) == areExcluded }.map(\.key)
    }

    /// The parameters from `$7` on.
    var values: [SQLValue] {
      let unlimited: [SQLValue] = [.texts(names), .flag(areExcluded)]
      guard !limited.isEmpty else { return unlimited }
      let rooms = SQLValue.array(limited.values.map { .integer($0) }, of: .integer)
      return unlimited + [.texts(limited.keys), rooms]
    }
  }

  /// The condition that a task is available, for the parameters of `commonValues(of:limit:)`.
  private static let isAvailable = "\(isDue) and \(matchesRequest)"

  private static let matchesRequest = """
    queue = $1 and available_date <= $2 and conditions <@ $3::text[]
      and \(hasKnownVersion(names: "$5", versions: "$6"))
    """

  /// Returns the condition that a task's payload has a version that the request hands out.
  ///
  /// Most tasks have a version that the handlers of all names know.
  private static func hasKnownVersion(names: String, versions: String) -> String {
    """
    (schema_version <= (select min(known) from unnest(\(versions)::bigint[]) as known)
      or schema_version <= coalesce(
        (select known.version from unnest(\(names)::text[], \(versions)::bigint[])
          as known (known_name, version) where known.known_name = name),
        \(Int.max)))
    """
  }

  private static let inOrder = "order by (~priority), available_date, position"

  /// The available tasks with names that have no limit.
  ///
  /// The condition on the parameters prevents the server from reading all tasks if there are no
  /// such names.
  private static let unlimited = """
    \(isInLine) and \(matchesRequest) and (name = any ($7::text[])) <> $8::boolean
      and ($8 or cardinality($7) > 0)
    """

  /// The available tasks with the name in `limited`.
  private static let withLimitedName = "\(isAvailable) and name = limited.name"

  private static let limitedNames = """
    limited as materialized (
      select name, room from unnest($9::text[], $10::bigint[]) as listed (name, room))
    """

  /// Returns a statement that claims tasks.
  ///
  /// The parameters from `number` on are the token and the duration of the leases, and the holder.
  private static func claimStatement(of ids: String, _ number: Int) -> String {
    """
    update steadfast_task as task set state = 'running', lease_token = $\(number),
      lease_end = store_clock() + $\(number + 1)::bigint * interval '1 microsecond',
      claim_date = case when $\(number + 1)::bigint is not null then store_clock() end,
      claim_holder = $\(number + 2)
    where task.id = any (array(\(ids)))
    returning \(Connection.columns), task.position
    """
  }

  private static let claim = claimStatement(
    of:
      "select id from steadfast_task where \(unlimited) \(inOrder) limit $4 for update skip locked",
    9
  )

  /// The statement for a request with limited names.
  ///
  /// The statement first counts, without locks, how many of the first tasks have each of the
  /// limited names, and how many have other names. Then it locks these numbers of tasks, and skips
  /// tasks that other sessions have locked.
  private static let claimWithLimits = """
    with \(limitedNames), first as materialized (
      select name, count(*) as count from (
        select name from (
          (select null as name, ~priority as rank, available_date, position from steadfast_task
            where \(unlimited) \(inOrder) limit $4)
          union all
          (select limited.name, candidate.* from limited cross join lateral (
            select ~priority, available_date, position from steadfast_task
            where \(withLimitedName) \(inOrder) limit limited.room) as candidate)
        ) as candidate order by rank, available_date, position limit $4
      ) as chosen group by name
    ), taken as materialized (
      (select candidate.id from first cross join lateral (
        select id from steadfast_task where first.name is null and \(unlimited)
        \(inOrder) limit first.count for update skip locked) as candidate)
      union all
      (select candidate.id from first as limited cross join lateral (
        select id from steadfast_task where \(withLimitedName)
        \(inOrder) limit limited.count for update skip locked) as candidate)
    )
    """ + "\n" + claimStatement(of: "select id from taken", 11)

  private static let end = """
    (select (extract(epoch from min(lease_end) - store_clock()) * 1000000)::bigint
      from steadfast_task where state = 'running' and lease_end is not null)
    """

  /// The date of the first delayed task.
  private static let firstDelay = """
    (select available_date as next from steadfast_task where \(isDelayed) and queue = $1
      order by available_date limit 1)
    """
  /// The date of the first delayed task, from `$15` on.
  private static let firstDelayFromStart = firstDelay.replacing(
    "queue = $1",
    with: "queue = $1 and available_date >= $15"
  )

  /// The first date after `$2` among the tasks of each priority that are due.
  ///
  /// There are such tasks only if the clock of the process that made them due, or that inserted
  /// them, is ahead of the claiming process.
  private static let laterDates = """
    with recursive step (rank) as (
      (select ~priority from steadfast_task where \(isInLine) and queue = $1
        order by queue, (~priority) limit 1)
      union all
      select next.rank from step cross join lateral (
        select ~priority as rank from steadfast_task
        where \(isInLine) and queue = $1 and (~priority) > step.rank
        order by queue, (~priority) limit 1) as next
    )
    select later.available_date from step cross join lateral (
      select available_date from steadfast_task
      where \(isInLine) and queue = $1 and (~priority) = step.rank
        and available_date > $2
      order by available_date limit 1) as later
    """

  /// Returns the statement that finds the earliest date at which a task becomes available.
  ///
  /// If available tasks exist, which other sessions have locked, the date is `$2`, the date of the
  /// request. `others` finds such tasks with limited names.
  private static func nextDateStatement(or others: String = "") -> String {
    """
    select min(next), \(end) from (
      \(firstDelay)
      union all
      (\(laterDates))
      union all
      (select $2::timestamptz from steadfast_task where $4::bigint > 0 and \(unlimited) limit 1)
      \(others)
    ) as first
    """
  }

  private static let next = nextDateStatement()

  private static let nextWithLimits = """
    with \(limitedNames)
    \(nextDateStatement(or: """
      union all
      (select $2 from limited cross join lateral (
        select 1 from steadfast_task where \(withLimitedName) limit 1) as candidate limit 1)
      """))
    """

  // MARK: Claims from cursors

  /// Selects the lanes of the queue `$1`, and a cursor at the first task of each.
  ///
  /// Priorities are inverted so that all columns of the index ascend. So the condition that a row
  /// is greater than another row corresponds to a range of the index.
  private static let firstCursors = """
    with recursive lane (name, rank, date, place) as (
      (select name, ~priority, available_date, position from steadfast_task
        where \(isDue) and queue = $1
        order by queue, name, (~priority), available_date, position limit 1)
      union all
      select step.* from lane cross join lateral (
        select task.name, ~task.priority, available_date, position from steadfast_task as task
        where \(isDue) and queue = $1 and (task.name, ~task.priority) > (lane.name, lane.rank)
        order by task.queue, task.name, (~task.priority), available_date, position limit 1) as step
    )
    select * from lane
    """

  /// The lanes, each with a cursor, and the number of tasks that the claim may take in each.
  private static let knownLanes = """
    with room as materialized (
      select lane.*, greatest(0, least(coalesce(listed.room, $9), $4)) as room
      from unnest($10::text[], $11::bigint[], $12::timestamptz[], $13::bigint[])
        as lane (name, rank, date, place)
      left join unnest($7::text[], $8::bigint[]) as listed (name, room)
        on listed.name = lane.name
    )
    """

  /// The tasks of the lane in `room` that are available, at or after the lane's cursor.
  private static let inLane = """
    \(isAvailable) and name = room.name and ~priority = room.rank
      and (available_date, position) >= (room.date, room.place)
    """

  /// The statement that claims tasks from cursors.
  ///
  /// The statement first counts, without locks, how many of the first tasks are in each lane. Then
  /// it locks that number of tasks in each lane, and skips tasks that other sessions have locked.
  private static let claimFromCursors = """
    \(knownLanes), first as materialized (
      select name, rank, date, place, count(*) as count from (
        select name, rank, date, place from (
          select candidate.*, room.room, room.date, room.place, row_number() over (
              partition by candidate.name
              order by candidate.rank, available_date, position) as number
          from room cross join lateral (
            select room.name, room.rank, available_date, position from steadfast_task
            where \(inLane) order by available_date, position limit room.room
          ) as candidate
          where room.room > 0
        ) as numbered
        where number <= room order by rank, available_date, position limit $4
      ) as chosen group by name, rank, date, place
    ), taken as materialized (
      select candidate.id from first as room cross join lateral (
        select id from steadfast_task where \(inLane)
        order by available_date, position limit room.count for update skip locked
      ) as candidate
    )
    """ + "\n" + claimStatement(of: "select id from taken", 14)

  /// With `$14` false, this statement does not look for claims that expire: in the index of their
  /// dates, too, the entries of dead rows come before the others.
  private static let nextFromCursors = """
    \(knownLanes)
    select min(next), case when $14::boolean then \(end) end from (
      \(firstDelayFromStart)
      union all
      (select candidate.next from room cross join lateral (
        (select available_date as next from steadfast_task
          where \(isDue) and queue = $1 and name = room.name and ~priority = room.rank
            and available_date > $2
          order by available_date limit 1)
        union all
        (select $2 from steadfast_task where room.room > 0 and \(inLane)
          order by available_date, position limit 1)
      ) as candidate)
    ) as first
    """

  // MARK: Calls

  /// Sends the statement that makes delayed tasks due; ``dueTasks(in:)`` then reads the rows.
  ///
  /// The statement makes no task due whose date is before `start`.
  func sendDelays(
    for request: ClaimRequest,
    from start: Date
  ) throws(PostgreSQLFailure) {
    let values: [SQLValue] = [.text(request.queue), .date(request.now), .date(start)]
    try database.send(Self.passedDelays, values, isWanted: true)
  }

  /// Sends the statement of a claim, whose rows ``claimedTasks(in:with:)`` then reads.
  ///
  /// With `starts`, the claim reads each lane from its cursor. Without `starts`, the claim reads
  /// the tasks in order; the request must not limit the tasks of each name that it does not list.
  func sendClaim(
    _ request: ClaimRequest,
    from starts: ClaimCursors.Cursors? = nil,
    token: UInt64
  ) throws(PostgreSQLFailure) {
    let (statement, values) = Self.claimStatement(for: request, from: starts)
    let lease: [SQLValue] = [
      .token(token), .duration(isShared ? request.leaseDuration : nil),
      .text(isShared ? request.holder : nil),
    ]
    try database.send(statement, values + lease, isWanted: true)
  }

  private static func claimStatement(
    for request: ClaimRequest,
    from starts: ClaimCursors.Cursors?
  ) -> (statement: String, values: [SQLValue]) {
    let common = commonValues(of: request, limit: max(0, request.limit))
    if let starts { return (claimFromCursors, common + values(of: starts, for: request)) }
    let names = ClaimedNames(request)
    return (names.limited.isEmpty ? claim : claimWithLimits, common + names.values)
  }

  /// Returns the parameters from `$1` to `$6`.
  private static func commonValues(of request: ClaimRequest, limit: Int) -> [SQLValue] {
    [
      .text(request.queue),
      .date(request.now),
      // The server does not store a NUL, so no task has a condition with a NUL.
      .texts(request.conditions.map(\.rawValue).filter { !$0.hasNUL }),
      .integer(limit),
    ] + versionValues(of: request)
  }

  /// Returns the parameters of `hasKnownVersion(names:versions:)`.
  private static func versionValues(of request: ClaimRequest) -> [SQLValue] {
    // The server does not store a NUL, so no task has a name with a NUL.
    let versions = request.versions.filter { !$0.key.hasNUL }
    return [.texts(versions.keys), .array(versions.values.map { .integer($0) }, of: .integer)]
  }

  /// Returns the parameters from `$7` to `$13`.
  private static func values(
    of starts: ClaimCursors.Cursors,
    for request: ClaimRequest
  ) -> [SQLValue] {
    let names = request.names.filter { !$0.key.hasNUL }
    return [
      .texts(names.keys),
      .array(names.values.map { .integer($0) }, of: .integer),
      .integer(request.otherNames),
      .texts(starts.keys.map(\.name.text)),
      .array(starts.keys.map { .integer($0.rank) }, of: .integer),
      .array(starts.values.map { .date($0.date) }, of: .date),
      .array(starts.values.map { .integer($0.position) }, of: .integer),
    ]
  }

  /// A claimed task whose row this version can't read.
  struct UnreadableTask {
    let id: TaskID?
    let row: UnreadableRow
  }

  /// Returns the tasks of a claim in the order of claiming, and the tasks that can't be read.
  func claimedTasks(
    in rows: Rows,
    with token: UInt64
  ) throws -> (tasks: [(task: ClaimedTask, position: Int)], unreadable: [UnreadableTask]) {
    var tasks: [(task: ClaimedTask, position: Int)] = []
    var unreadable: [UnreadableTask] = []
    for row in rows.map(\.self) {
      do {
        let record = try database.record(row)
        let task = ClaimedTask(record: record, lease: Lease(id: record.id, token: token))
        tasks.append((task, row.integer(TaskColumns.count)))
      } catch let failure as UnreadableRow {
        unreadable.append(UnreadableTask(id: row.id(0), row: failure))
      }
    }
    tasks.sort { Self.areInClaimingOrder($0, $1) }
    return (tasks, unreadable)
  }

  private static func areInClaimingOrder(
    _ left: (task: ClaimedTask, position: Int),
    _ right: (task: ClaimedTask, position: Int)
  ) -> Bool {
    let (first, second) = (left.task.record, right.task.record)
    if first.priority != second.priority { return first.priority > second.priority }
    if first.availableDate != second.availableDate {
      return first.availableDate < second.availableDate
    }
    return left.position < right.position
  }

  /// Parks a claimed task that this version can't read, like a task without a handler.
  ///
  /// The task's earlier failures stay unchanged, because they may be the unreadable value.
  func parkUnreadable(_ task: UnreadableTask, token: UInt64, at date: Date) throws {
    try database.send(
      """
      update steadfast_task set state = 'parked', position = \(Self.nextPosition),
        lease_token = null, lease_end = null, last_error = $3, failed_date = $4,
        failed_attempt = 'parked -', parked_version = $5
      where id = $1 and state = 'running' and lease_token = $2
      """,
      .id(task.id),
      .token(token),
      .text("its row " + task.row.reason),
      .date(date),
      StoredVersion.integer(for: .max)
    )
  }

  /// Returns the earliest date at which a task becomes available or a claim expires.
  ///
  /// With `findsExpiry` false, this does not look for claims that expire. With `start`, this does
  /// not look for delayed tasks with earlier dates.
  static func nextDate(
    for request: ClaimRequest,
    from starts: ClaimCursors.Cursors? = nil,
    delaysFrom start: Date? = nil,
    findsExpiry: Bool = true,
    in database: Connection
  ) throws -> Date? {
    let common = commonValues(of: request, limit: max(1, request.limit))
    let rows: Rows
    if let starts {
      let last: [SQLValue] = [.flag(findsExpiry), .date(start ?? ClaimCursors.earliestDate)]
      let values = common + values(of: starts, for: request) + last
      rows = try database.rows(nextFromCursors, values)
    } else {
      let names = ClaimedNames(request)
      let statement = names.limited.isEmpty ? next : nextWithLimits
      rows = try database.rows(statement, common + names.values)
    }
    let found = rows.map { row in
      (date: row.unlessNull(0, row.date), microseconds: row.unlessNull(1, row.integer))
    }.first
    guard let found else { return nil }
    // Stored dates are rounded, so the date of a task that is available now may be in the past.
    let date = found.date.map { max($0, request.now) }
    let end = found.microseconds.map { request.now + Double(max(0, $0)) / 1e6 }
    return [date, end].compactMap(\.self).min()
  }

  // MARK: Cursors

  /// Returns the server's estimate of the number of dead rows, which vacuuming will remove.
  static func deadRowCount(in database: Connection) throws -> Int {
    try database.first(
      "select n_dead_tup from pg_stat_user_tables where relid = 'steadfast_task'::regclass"
    ) { $0.integer(0) } ?? 0
  }

  /// The number of tasks whose names ``skippedCount(by:in:)`` reads.
  private static let mostRead = 1_000

  /// Returns how many of the first tasks a claim must skip because of their names or of the
  /// versions of their payloads.
  static func skippedCount(by request: ClaimRequest, in database: Connection) throws -> Int {
    let names = ClaimedNames(request)
    let values: [SQLValue] = [.text(request.queue), .texts(names.names), .flag(names.areExcluded)]
    return try database.allRows(
      """
      select count(*) from (
        select name, schema_version from steadfast_task where \(isInLine) and queue = $1
        \(inOrder) limit \(mostRead)
      ) as first
      where (name = any ($2::text[])) = $3
        or not \(hasKnownVersion(names: "$4", versions: "$5"))
      """,
      values + versionValues(of: request)
    ) { $0.integer(0) }.first ?? 0
  }

  /// Returns a cursor at the first task of each lane of a queue.
  static func firstCursors(
    ofQueue queue: String,
    in database: Connection
  ) throws -> ClaimCursors.Cursors {
    let found = try database.allRows(
      firstCursors,
      .text(queue)
    ) { row in
      (
        ClaimCursors.Lane(name: ExactText(row.text(0)), rank: row.integer(1)),
        ClaimCursors.Cursor(date: row.date(2), position: row.integer(3))
      )
    }
    return Dictionary(uniqueKeysWithValues: found)
  }
}
#endif
