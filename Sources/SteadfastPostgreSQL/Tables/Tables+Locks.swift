#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// What a transaction locks before it changes anything, in one order for all sessions.
///
/// The locks of values come first, then those of unique keys and of order keys, then the tasks by
/// their IDs. So no two
/// sessions wait for each other. "Writing a store" and "Storing dependencies" say why.
struct LockPlan {
  /// The names of values that are compared.
  var values: Set<ExactText> = []
  /// The unique keys of new tasks, with their names.
  ///
  /// An insertion waits for another one of the same key that is not committed.
  var keys: Set<ExactText> = []
  /// The order keys of new tasks.
  var orders: Set<ExactText> = []
  /// The tasks that the changes name.
  var tasks: Set<TaskID> = []
  /// Of these, those that may succeed.
  var succeeding: Set<TaskID> = []
  /// Of these, those that may end otherwise, or be restarted or removed.
  var failing: Set<TaskID> = []

  init() {}

  init(_ batches: [[PreparedChange]]) {
    for batch in batches { for change in batch { add(change.change) } }
  }

  private mutating func add(_ change: TaskChange) {
    switch change {
    case .insert(let record, _):
      if let key = StoredKey.text(of: record.uniqueKey, in: record.queue),
        !record.state.isFinished
      {
        keys.insert(ExactText("\(record.name) \(key)"))
      }
      if let key = StoredKey.text(of: record.orderKey, in: record.queue) {
        orders.insert(ExactText(key))
      }
      tasks.formUnion(record.dependencies.tasks)
      if let follower = record.dependencies.follower { tasks.insert(follower) }
    case .succeed(let lease, _, _): add(succeeding: lease.id)
    case .abandon(let lease, _, _): add(failing: lease.id)
    case .cancel(let target, _, _), .restart(let target, _, _): add(failing: target.id)
    case .remove(let id): add(failing: id)
    case .retry(let lease, _, _, _, _), .release(let lease), .park(let lease, _),
      .remember(let lease, _, _), .suspend(let lease, _, _, _), .extend(let lease, _):
      tasks.insert(lease.id)
    case .pause(let target), .reschedule(let target, _, _): tasks.insert(target.id)
    case .resume(let id), .update(let id, _), .complete(let id, _, _): tasks.insert(id)
    case .setValue(let name, _, _): values.insert(ExactText(name))
    case .unpark, .prune, .rebase: break
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

/// More tasks are concerned than were locked: the transaction has to begin again.
struct MoreToLock: Error {
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

  /// The locks are few, since the server has room for some thousands of all sessions.
  private static let lockKeys = """
    select pg_advisory_xact_lock($2::bigint::integer, number) from (
      select distinct hashtext(key) & 1023 as number from unnest($1::text[]) as keyed (key)
      order by number
    ) as locks
    """

  private static let lockOrders = """
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

  /// Locks the order keys of tasks.
  func lockOrders(of ids: [TaskID]) throws {
    try database.send(Self.lockOrders, .texts([]), .ids(ids), .integer(locks.orders))
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

  /// Takes the locks, with those of `others`, which an earlier transaction has found.
  ///
  /// The `plain` tasks have no order key, and no other task waits for them.
  ///
  /// - Throws: ``MoreToLock`` if the changes concern further tasks.
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
        Self.lockOrders,
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
    guard missing.isEmpty else { throw MoreToLock(tasks: missing.union(others)) }
  }
}
#endif
