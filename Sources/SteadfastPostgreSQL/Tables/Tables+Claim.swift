#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Claims.
///
/// The tasks with one name and one priority are a lane. Within it, tasks stand in the index in the
/// order in which they are taken, and the lanes of a queue are found by one step in the index each.
/// So a claim reads what it takes, and a little for each lane, however many tasks wait. It locks
/// what it takes and nothing else, and passes over what others have locked.
extension Tables {
  /// The lanes of the queue `$1`, of names with room, in parts of a statement.
  ///
  /// Priorities are inverted so that all columns of the index ascend: a comparison of rows is then
  /// a place in it.
  private static let lanes = """
    with recursive lane (name, rank) as (
      (select name, ~priority from steadfast_task where is_ready and queue = $1
        order by queue, name, ~priority limit 1)
      union all
      select step.name, step.rank from lane cross join lateral (
        select task.name, ~task.priority as rank from steadfast_task as task
        where is_ready and queue = $1 and (task.name, ~task.priority) > (lane.name, lane.rank)
        order by task.queue, task.name, ~task.priority limit 1) as step
    ), room as materialized (
      select lane.name, lane.rank, greatest(0, least(coalesce(listed.room, $4), $5)) as room
      from lane
      left join unnest($2::text[], $3::bigint[]) as listed (name, room)
        on listed.name = lane.name
    )
    """

  private static let isAvailable = """
    is_ready and queue = $1 and name = room.name and ~priority = room.rank
      and available_date <= $6 and conditions <@ $7::text[]
    """

  /// Takes tasks: how many of each lane come first is found without locks, and then as many are
  /// locked that no other session has locked.
  private static let claim = """
    \(lanes), first as materialized (
      select name, rank, count(*) as count from (
        select name, rank from (
          select candidate.*, room.room,
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
      ) as chosen group by name, rank
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

  /// The date from which another claim can find tasks; `$6` if others have locked some.
  private static let next = """
    \(lanes)
    select min(date), (
      select (extract(epoch from min(lease_end) - store_clock()) * 1000000)::bigint
      from steadfast_task where state = 'running' and lease_end is not null
    ) from room cross join lateral (
      (select available_date as date from steadfast_task
        where is_ready and queue = $1 and name = room.name and ~priority = room.rank
          and available_date > $6
        order by available_date limit 1)
      union all
      (select $6 from steadfast_task where room.room > 0 and \(isAvailable)
        order by available_date, position limit 1)
    ) as first
    """

  /// Sends a claim, whose rows `claimedTasks(in:with:)` reads.
  func sendClaim(_ request: ClaimRequest, token: UInt64) throws(PostgreSQLFailure) {
    let end: [SQLValue] = [.token(token), .duration(isShared ? request.leaseDuration : nil)]
    let limit = max(0, request.limit)
    try database.send(Self.claim, Self.values(of: request, limit) + end, isWanted: true)
  }

  private static func values(of request: ClaimRequest, _ limit: Int) -> [SQLValue] {
    [
      .text(request.queue),
      .texts(request.names.keys),
      .array(request.names.values.map { .integer($0) }, of: .integer),
      .integer(request.otherNames),
      .integer(limit),
      .date(request.now),
      .texts(request.conditions.map(\.rawValue)),
    ]
  }

  /// A row of a claimed task that this version can't read.
  struct UnreadableTask {
    let id: TaskID?
    let row: UnreadableRow
  }

  /// Reads the tasks that a claim has taken, in the order in which they are to be performed.
  func claimedTasks(
    in rows: Rows,
    with token: UInt64
  ) throws -> (tasks: [ClaimedTask], unreadable: [UnreadableTask]) {
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
    tasks.sort { Self.comesFirst($0, $1) }
    return (tasks.map(\.task), unreadable)
  }

  private static func comesFirst(
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

  /// Parks a claimed task that this version can't read, as one for which there is no handler.
  ///
  /// Its earlier failures stay as they are, since they may be what can't be read.
  func park(_ task: UnreadableTask, token: UInt64, at date: Date) throws {
    try database.send(
      """
      update steadfast_task set state = 'parked', position = \(Self.nextPlace),
        lease_token = null, lease_end = null, last_error = $3, failed_date = $4
      where id = $1 and state = 'running' and lease_token = $2
      """,
      .id(task.id),
      .token(token),
      .text("its row " + task.row.reason),
      .date(date)
    )
  }

  /// The date of the first task of a lane that is not available yet, or of a claim's end.
  static func nextDate(for request: ClaimRequest, in database: Connection) throws -> Date? {
    let values = values(of: request, max(1, request.limit))
    let found = try database.rows(next, values).map { row in
      (date: row.ifAny(0, row.date), microseconds: row.ifAny(1, row.integer))
    }.first
    guard let found else { return nil }
    // Stored dates are rounded; what is available now is not in the past.
    let date = found.date.map { max($0, request.now) }
    let end = found.microseconds.map { request.now + Double(max(0, $0)) / 1e6 }
    return [date, end].compactMap(\.self).min()
  }
}
#endif
