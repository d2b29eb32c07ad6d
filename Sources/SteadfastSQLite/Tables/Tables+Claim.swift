#if SQLite
import SteadfastDatabases
import SteadfastQueue
import SystemFoundation

/// Claims.
///
/// A task is either due or delayed until its available date. An index sorts the tasks that are due
/// in the order of claiming. A claim first makes the delayed tasks due whose dates have passed.
/// Then it reads the index, and skips tasks whose names have no room left, or whose payloads have a
/// newer version. After many skipped tasks, it reads another index instead, which sorts the tasks
/// of each name. So the time of a claim depends on the number of tasks that it claims, not on the
/// number that wait. But tasks with newer payloads are skipped one by one.
extension Tables {
  private struct Candidate {
    let seq: Int
    /// The task; a failure if this version can't read the row.
    let task: Result<TaskRecord, UnreadableRow>

    init(_ row: Statement, in database: Connection) throws {
      seq = row.integer(TaskColumns.count)
      do {
        task = .success(try database.record(row))
      } catch let row as UnreadableRow {
        task = .failure(row)
      }
    }
  }

  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    try makeTasksDue(in: request.queue, at: request.now)
    let candidates = try candidates(for: request)
    // A random number distinguishes this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    var tasks: [ClaimedTask] = []
    var areAllReadable = true
    for candidate in candidates.prefix(max(0, request.limit)) {
      switch candidate.task {
      case .success(var record):
        try setLease(of: candidate, token: token, for: request)
        record.state = .running
        tasks.append(ClaimedTask(record: record, lease: Lease(id: record.id, token: token)))
      case .failure(let row):
        try parkUnreadable(candidate, because: row, at: request.now)
        areAllReadable = false
      }
    }
    // More tasks may be available: beyond the limit, or in place of a task that can't be read.
    if !areAllReadable || !candidates.isEmpty && tasks.count >= request.limit {
      return Claim(tasks: tasks, nextDate: request.now)
    }
    return Claim(tasks: tasks, nextDate: try nextDate(for: request))
  }

  private func setLease(
    of candidate: Candidate,
    token: UInt64,
    for request: ClaimRequest
  ) throws {
    let duration = isShared ? request.leaseDuration.map { $0 / .seconds(1) } : nil
    try database.run(
      """
      update steadfast_task set state = 'running', lease_token = ?2, lease_start = ?3,
        lease_end = ?3 + ?4, claim_date = case when ?4 is not null then ?3 end, claim_holder = ?5
      where seq = ?1
      """,
      .integer(candidate.seq),
      .token(token),
      .real(clock()),
      duration.map { .real($0) } ?? .null,
      .text(isShared ? request.holder : nil)
    )
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
        lease_token = null, lease_end = null, last_error = ?2, failed_date = ?3,
        failed_attempt = 'parked -', parked_version = ?4
      where seq = ?1
      """,
      .integer(candidate.seq),
      .text("its row " + row.reason),
      .date(date),
      StoredVersion.integer(for: .max)
    )
  }

  // MARK: Due tasks

  /// The maximum number of delayed tasks that a claim makes due, those with the earliest dates.
  ///
  /// If the dates of more tasks have passed, the next claims make the rest due.
  private static let mostDelayed = 10_000

  /// The smallest rank: each task that is due has this rank or a greater one.
  private static let leastRank = "-9223372036854775808"

  private static let readyTasks = "steadfast_task indexed by steadfast_ready where is_ready"
  private static let dueTasks = "\(readyTasks) and rank >= \(leastRank)"
  private static let delayedTasks = "\(readyTasks) and rank is null"
  private static let readyTasksByName =
    "steadfast_task indexed by steadfast_ready_name where is_ready"
  private static let dueTasksByName = "\(readyTasksByName) and rank >= \(leastRank)"

  static let passedDelays = """
    select seq from \(delayedTasks) and queue = ?1 and available_date <= ?2
    order by available_date limit \(mostDelayed)
    """

  /// Makes the delayed tasks due whose available dates have passed.
  private func makeTasksDue(in queue: String, at date: Date) throws {
    let found = try database.allRows(Self.passedDelays, .text(queue), .date(date)) {
      $0.integer(0)
    }
    for seq in found {
      try database.run(
        "update steadfast_task set due_date = available_date where seq = ?1",
        .integer(seq)
      )
    }
  }

  // MARK: Candidates

  /// The maximum number of tasks that a claim skips before it reads the tasks of each name.
  private static let mostSkipped = 100

  private static let isAvailable = """
    available_date <= ?2 and (conditions is null or not exists (
      select 1 from json_each(conditions) as needed
      where needed.value not in (select value from json_each(?3))))
    """

  static let candidates = """
    select \(Connection.columns), seq from \(dueTasks) and queue = ?1 and \(isAvailable)
    order by rank, available_date, seq
    """

  /// Returns the first available tasks, in the order of claiming, as many as the claim can use.
  private func candidates(for request: ClaimRequest) throws -> [Candidate] {
    let conditions = StoredStrings.json(of: request.conditions.map(\.rawValue))
    let values: [SQLValue] = [.text(request.queue), .date(request.now), .text(conditions)]
    let limit = max(1, request.limit)
    var candidates: [Candidate] = []
    var counts: [ExactText: Int] = [:]
    var skipped = 0
    try database.forEachRow(of: Self.candidates, values) { row in
      let (name, version) = (row.text(1), row.integer(5))
      if version <= request.version(for: name), takesRoom(for: name, of: request, &counts) {
        candidates.append(try Candidate(row, in: database))
      } else {
        skipped += 1
      }
      return candidates.count < limit && skipped < Self.mostSkipped
    }
    guard skipped == Self.mostSkipped else { return candidates }
    return try candidatesByName(for: request, values)
  }

  /// Counts a task with a name, and returns whether the request has room for the task.
  private func takesRoom(
    for name: String,
    of request: ClaimRequest,
    _ counts: inout [ExactText: Int]
  ) -> Bool {
    let room = request.room(for: name)
    guard room < max(1, request.limit) else { return true }
    let count = counts[ExactText(name), default: 0]
    guard count < room else { return false }
    counts[ExactText(name)] = count + 1
    return true
  }

  static let candidatesWithName = """
    select seq, rank, available_date from \(dueTasksByName)
      and queue = ?1 and name = ?4 and \(isAvailable) and schema_version <= ?6
    order by rank, available_date, seq limit ?5
    """

  /// Returns the same tasks as ``candidates(for:)``, from the first tasks of each name.
  private func candidatesByName(
    for request: ClaimRequest,
    _ values: [SQLValue]
  ) throws -> [Candidate] {
    let limit = max(1, request.limit)
    var found: [(seq: Int, rank: Int, availableDate: Double)] = []
    for name in try names(for: request) {
      found += try database.allRows(
        Self.candidatesWithName,
        values + [
          .text(name), .integer(min(limit, request.room(for: name))),
          .integer(request.version(for: name)),
        ]
      ) { (seq: $0.integer(0), rank: $0.integer(1), availableDate: $0.real(2)) }
    }
    found.sort { ($0.rank, $0.availableDate, $0.seq) < ($1.rank, $1.availableDate, $1.seq) }
    return try found.prefix(limit).compactMap { task in
      try database.first(Self.candidate, .integer(task.seq)) { try Candidate($0, in: database) }
    }
  }

  private static let candidate = """
    select \(Connection.columns), seq from steadfast_task where seq = ?1
    """

  /// Returns a `with` clause whose table `step` has each value of a column once among the tasks of
  /// the queue `?1`, and then null.
  private static func step(through column: String, of tasks: String) -> String {
    """
    with recursive step (\(column)) as (
      select (select \(column) from \(tasks) and queue = ?1 order by \(column) limit 1)
      union all
      select (select \(column) from \(tasks) and queue = ?1 and \(column) > step.\(column)
        order by \(column) limit 1)
      from step where step.\(column) is not null
    )
    """
  }

  static let readyNames = """
    \(step(through: "name", of: readyTasksByName))
    select name from step where name is not null
    """

  /// Returns the names for which a request has room.
  private func names(for request: ClaimRequest) throws -> [String] {
    guard request.otherNames > 0 else { return request.names.filter { $0.value > 0 }.map(\.key) }
    return try database.allRows(Self.readyNames, .text(request.queue)) { $0.text(0) }
      .filter { request.room(for: $0) > 0 }
  }

  static let firstDelay = """
    select available_date from \(delayedTasks) and queue = ?1 order by available_date limit 1
    """

  /// Selects the first date after `?2` among the tasks that are due.
  ///
  /// There are such tasks only if the clock was set back, or if the clock of the process that
  /// inserted them is ahead.
  static let firstLaterDate = """
    \(step(through: "rank", of: dueTasks))
    select min((select available_date from \(readyTasks) and queue = ?1 and rank = step.rank
        and available_date > ?2 order by available_date limit 1))
    from step
    """

  /// Returns the earliest date at which a task becomes available or a claim expires.
  private func nextDate(for request: ClaimRequest) throws -> Date? {
    let queue = SQLValue.text(request.queue)
    let delay = try database.first(Self.firstDelay, queue) { $0.date(0) }
    let later = try database.first(Self.firstLaterDate, queue, .date(request.now)) { row in
      row.unlessNull(0, row.date)
    }
    let end = try database.first(
      """
      select min(lease_end) from steadfast_task indexed by steadfast_lease
      where state = 'running' and lease_end is not null
      """
    ) { row in row.unlessNull(0, row.real) }
    let expiry = end.flatMap(\.self).map { request.now + max(0, $0 - clock()) }
    return [delay, later.flatMap(\.self), expiry].compactMap(\.self).min()
  }
}
#endif
