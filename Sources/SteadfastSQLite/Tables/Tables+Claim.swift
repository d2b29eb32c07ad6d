#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Claims.
///
/// The tasks with one name and one priority form a lane. The index sorts the tasks of a lane in
/// the order of claiming. So a claim reads only the tasks that it claims, and a little more for
/// each lane, however many tasks wait.
extension Tables {
  private struct Lane {
    let name: String
    let priority: Int
  }

  private struct Candidate {
    let seq: Int
    let priority: Int
    let availableDate: Double

    static func areInClaimingOrder(_ left: Candidate, _ right: Candidate) -> Bool {
      if left.priority != right.priority { return left.priority > right.priority }
      if left.availableDate != right.availableDate {
        return left.availableDate < right.availableDate
      }
      return left.seq < right.seq
    }
  }

  private static let candidate = "select \(Connection.columns) from steadfast_task where seq = ?1"

  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    let lanes = try lanes(of: request.queue)
    let candidates = try candidates(in: lanes, for: request)
    let taken = candidates.prefix(max(0, request.limit))
    // A random number distinguishes this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    let duration = isShared ? request.leaseDuration.map { $0 / .seconds(1) } : nil
    var tasks: [ClaimedTask] = []
    var areAllReadable = true
    for candidate in taken {
      // Uses two statements, because SQLite makes a temporary table for the rows of `returning`.
      try database.run(
        """
        update steadfast_task set state = 'running', lease_token = ?2, lease_start = ?3,
          lease_end = ?3 + ?4
        where seq = ?1
        """,
        .integer(candidate.seq),
        .token(token),
        .real(clock()),
        duration.map { .real($0) } ?? .null
      )
      let record: TaskRecord?
      do {
        record = try database.first(Self.candidate, .integer(candidate.seq), read: database.record)
      } catch let row as UnreadableRow {
        try parkUnreadable(candidate, because: row, at: request.now)
        areAllReadable = false
        continue
      }
      guard let record else { continue }
      tasks.append(ClaimedTask(record: record, lease: Lease(id: record.id, token: token)))
    }
    // More tasks may be available: beyond the limit, or in place of a task that can't be read.
    if !areAllReadable || !candidates.isEmpty && tasks.count >= request.limit {
      return Claim(tasks: tasks, nextDate: request.now)
    }
    return Claim(tasks: tasks, nextDate: try nextDate(in: lanes, for: request))
  }

  /// Parks a task that this version can't read, like a task without a handler.
  ///
  /// The task's earlier failures stay unchanged, because they may be the unreadable value.
  private func parkUnreadable(
    _ candidate: Candidate,
    because row: UnreadableRow,
    at date: Date
  ) throws {
    try database.run(
      """
      update steadfast_task set state = 'parked', seq = \(Self.nextPosition),
        lease_token = null, lease_end = null, last_error = ?2, failed_date = ?3
      where seq = ?1
      """,
      .integer(candidate.seq),
      .text("its row " + row.reason),
      .date(date)
    )
  }

  /// Returns the lanes of a queue with tasks that are ready, now or at their available dates.
  private func lanes(of queue: String) throws -> [Lane] {
    var lanes: [Lane] = []
    var last = try firstLane(of: queue, afterName: nil)
    while let lane = last {
      lanes.append(lane)
      last = try laneBelow(lane, in: queue) ?? firstLane(of: queue, afterName: lane.name)
    }
    return lanes
  }

  /// Returns the first lane of the next name in the order of names; with `nil`, of the first name.
  private func firstLane(of queue: String, afterName name: String?) throws -> Lane? {
    func lane(_ row: Statement) -> Lane { Lane(name: row.text(0), priority: row.integer(1)) }
    guard let name else {
      return try database.first(
        """
        select name, priority from steadfast_task where is_ready and queue = ?1
        order by name, priority desc limit 1
        """,
        .text(queue),
        read: lane
      )
    }
    return try database.first(
      """
      select name, priority from steadfast_task where is_ready and queue = ?1 and name > ?2
      order by name, priority desc limit 1
      """,
      .text(queue),
      .text(name),
      read: lane
    )
  }

  /// Returns the lane with the same name and the next lower priority.
  private func laneBelow(_ lane: Lane, in queue: String) throws -> Lane? {
    try database.first(
      """
      select priority from steadfast_task
      where is_ready and queue = ?1 and name = ?2 and priority < ?3
      order by priority desc limit 1
      """,
      .text(queue),
      .text(lane.name),
      .integer(lane.priority)
    ) { Lane(name: lane.name, priority: $0.integer(0)) }
  }

  /// Returns the first available tasks of each lane, in the order of claiming.
  ///
  /// For each name, these are as many tasks as the claim can use.
  private func candidates(in lanes: [Lane], for request: ClaimRequest) throws -> [Candidate] {
    let conditions = StoredStrings.json(of: request.conditions.map(\.rawValue))
    let limit = max(1, request.limit)
    var candidates: [Candidate] = []
    var (name, room): (String?, Int) = (nil, 0)
    for lane in lanes {
      if name?.isExactly(lane.name) != true {
        (name, room) = (lane.name, min(limit, request.room(for: lane.name)))
      }
      guard room > 0 else { continue }
      let found = try database.allRows(
        """
        select seq, available_date from steadfast_task
        where is_ready and queue = ?1 and name = ?2 and priority = ?3 and available_date <= ?4
          and (conditions is null or not exists (
            select 1 from json_each(conditions) as needed
            where needed.value not in (select value from json_each(?5))))
        order by available_date, seq limit ?6
        """,
        .text(request.queue),
        .text(lane.name),
        .integer(lane.priority),
        .date(request.now),
        .text(conditions),
        .integer(room)
      ) { row in
        Candidate(seq: row.integer(0), priority: lane.priority, availableDate: row.real(1))
      }
      room -= found.count
      candidates += found
    }
    candidates.sort(by: Candidate.areInClaimingOrder)
    return candidates
  }

  /// Returns the earliest date at which a task becomes available or a claim expires.
  private func nextDate(in lanes: [Lane], for request: ClaimRequest) throws -> Date? {
    var next: Date?
    for lane in lanes {
      let date = try database.first(
        """
        select available_date from steadfast_task
        where is_ready and queue = ?1 and name = ?2 and priority = ?3 and available_date > ?4
        order by available_date limit 1
        """,
        .text(request.queue),
        .text(lane.name),
        .integer(lane.priority),
        .date(request.now)
      ) { $0.date(0) }
      if let date { next = min(next ?? date, date) }
    }
    let end = try database.first(
      """
      select min(lease_end) from steadfast_task indexed by steadfast_lease
      where state = 'running' and lease_end is not null
      """
    ) { row in row.unlessNull(0, row.real) }
    if let end = end ?? nil {
      let date = request.now + max(0, end - clock())
      next = min(next ?? date, date)
    }
    return next
  }
}
#endif
