#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Claims.
///
/// The tasks with one name and one priority form a lane. The index sorts the tasks of a lane in
/// the order of claiming. Each lane of a queue is found by one search in the index. So a claim
/// reads only the tasks that it claims, and a little more for each lane, however many tasks wait. A
/// claim locks only the tasks that it claims, and skips tasks that other sessions have locked.
extension Tables {
  /// Returns a `with` clause that finds the lanes of the queue `$1`.
  ///
  /// Priorities are inverted so that all columns of the index ascend. So the condition that a row
  /// is greater than another row corresponds to a range of the index.
  private static func lanes(withCursors: Bool = false) -> String {
    let place = withCursors ? ", available_date, position" : ""
    return """
      with recursive lane (name, rank\(withCursors ? ", date, place" : "")) as (
        (select name, ~priority\(place) from steadfast_task where is_ready and queue = $1
          order by queue, name, ~priority\(place) limit 1)
        union all
        select step.* from lane cross join lateral (
          select task.name, ~task.priority\(place) from steadfast_task as task
          where is_ready and queue = $1 and (task.name, ~task.priority) > (lane.name, lane.rank)
          order by task.queue, task.name, ~task.priority\(place) limit 1) as step
      )
      """
  }

  /// Returns a `with` clause with known lanes, each with a cursor.
  ///
  /// The parameters from `number` to `number + 3` are the columns.
  private static func knownLanes(fromParameter number: Int) -> String {
    """
    with lane (name, rank, date, place) as (
      select * from unnest($\(number)::text[], $\(number + 1)::bigint[],
        $\(number + 2)::timestamptz[], $\(number + 3)::bigint[]))
    """
  }

  private static let room = """
    room as materialized (
      select lane.*, greatest(0, least(coalesce(listed.room, $4), $5)) as room
      from lane
      left join unnest($2::text[], $3::bigint[]) as listed (name, room)
        on listed.name = lane.name
    )
    """

  /// Returns the condition that a task of the lane in `room` is available.
  ///
  /// With `fromCursor`, the task must also come at or after the lane's cursor.
  private static func isAvailable(fromCursor: Bool) -> String {
    """
    is_ready and queue = $1 and name = room.name and ~priority = room.rank
      \(fromCursor ? "and (available_date, position) >= (room.date, room.place)" : "")
      and available_date <= $6 and conditions <@ $7::text[]
    """
  }

  /// Returns the statement that claims tasks.
  ///
  /// The statement first counts, without locks, how many of the first tasks are in each lane. Then
  /// it locks that number of tasks in each lane, and skips tasks that other sessions have locked.
  private static func claimStatement(_ lanes: String, fromCursors: Bool) -> String {
    let place = fromCursors ? ", date, place" : ""
    let isAvailable = isAvailable(fromCursor: fromCursors)
    return """
      \(lanes), \(room), first as materialized (
        select name, rank\(place), count(*) as count from (
          select name, rank\(place) from (
            select candidate.*, room.room\(fromCursors ? ", room.date, room.place" : ""),
              row_number() over (
                partition by candidate.name
                order by candidate.rank, available_date, position) as number
            from room cross join lateral (
              select room.name, room.rank, available_date, position from steadfast_task
              where \(isAvailable)
              order by available_date, position limit room.room
            ) as candidate
            where room.room > 0
          ) as numbered
          where number <= room order by rank, available_date, position limit $5
        ) as chosen group by name, rank\(place)
      ), taken as materialized (
        select candidate.id from first as room cross join lateral (
          select id from steadfast_task where \(isAvailable)
          order by available_date, position limit room.count for update skip locked
        ) as candidate
      )
      update steadfast_task as task set state = 'running', lease_token = $8,
        lease_end = store_clock() + $9::bigint * interval '1 microsecond'
      where task.id = any (array(select id from taken))
      returning \(Connection.columns), task.position
      """
  }

  private static let claim = claimStatement(lanes(), fromCursors: false)
  private static let claimFromCursors = claimStatement(
    knownLanes(fromParameter: 10),
    fromCursors: true
  )

  /// Returns the statement that finds the earliest date at which a task becomes available.
  ///
  /// If available tasks exist, which other sessions have locked, the date is `$6`, the date of the
  /// request.
  private static func nextDateStatement(_ lanes: String, end: String, fromCursors: Bool) -> String {
    """
    \(lanes), \(room)
    select min(next), \(end) from room cross join lateral (
      (select available_date from steadfast_task
        where is_ready and queue = $1 and name = room.name and ~priority = room.rank
          and available_date > $6
        order by available_date limit 1)
      union all
      (select $6 from steadfast_task
        where room.room > 0 and \(isAvailable(fromCursor: fromCursors))
        order by available_date, position limit 1)
    ) as first (next)
    """
  }

  private static let next = nextDateStatement(
    lanes(),
    end: """
      (select (extract(epoch from min(lease_end) - store_clock()) * 1000000)::bigint
        from steadfast_task where state = 'running' and lease_end is not null)
      """,
    fromCursors: false
  )
  /// This statement does not look for claims that expire: in the index of their dates, too, the
  /// entries of dead rows come before the others.
  private static let nextFromCursors = nextDateStatement(
    knownLanes(fromParameter: 8),
    end: "null::bigint",
    fromCursors: true
  )

  /// Sends the statement of a claim, whose rows ``claimedTasks(in:with:)`` then reads.
  ///
  /// With `starts`, the claim reads each lane from its cursor. Without `starts`, the claim reads
  /// each lane from its first task.
  func sendClaim(
    _ request: ClaimRequest,
    from starts: ClaimCursors.Cursors? = nil,
    token: UInt64
  ) throws(PostgreSQLFailure) {
    let end: [SQLValue] = [.token(token), .duration(isShared ? request.leaseDuration : nil)]
    let limit = max(0, request.limit)
    let values = Self.values(of: request, limit: limit) + end
    if let starts {
      try database.send(Self.claimFromCursors, values + Self.values(of: starts), isWanted: true)
    } else {
      try database.send(Self.claim, values, isWanted: true)
    }
  }

  private static func values(
    of starts: ClaimCursors.Cursors
  ) -> [SQLValue] {
    [
      .texts(starts.keys.map(\.name.text)),
      .array(starts.keys.map { .integer($0.rank) }, of: .integer),
      .array(starts.values.map { .date($0.date) }, of: .date),
      .array(starts.values.map { .integer($0.position) }, of: .integer),
    ]
  }

  /// Returns the parameters of a request, without the names and conditions that contain a NUL.
  ///
  /// The server does not store a NUL, so no task has such a name or condition.
  private static func values(of request: ClaimRequest, limit: Int) -> [SQLValue] {
    let names = request.names.filter { !$0.key.hasNUL }
    return [
      .text(request.queue),
      .texts(names.keys),
      .array(names.values.map { .integer($0) }, of: .integer),
      .integer(request.otherNames),
      .integer(limit),
      .date(request.now),
      .texts(request.conditions.map(\.rawValue).filter { !$0.hasNUL }),
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
        lease_token = null, lease_end = null, last_error = $3, failed_date = $4
      where id = $1 and state = 'running' and lease_token = $2
      """,
      .id(task.id),
      .token(token),
      .text("its row " + task.row.reason),
      .date(date)
    )
  }

  /// Returns the earliest date at which a task becomes available or a claim expires.
  static func nextDate(
    for request: ClaimRequest,
    from starts: ClaimCursors.Cursors? = nil,
    in database: Connection
  ) throws -> Date? {
    let all = values(of: request, limit: max(1, request.limit))
    let rows = try starts.map { try database.rows(nextFromCursors, all + values(of: $0)) }
    let found = try (rows ?? database.rows(next, all)).map { row in
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

  private static let firstCursors = lanes(withCursors: true) + "\nselect * from lane"

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
