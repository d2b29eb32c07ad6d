#if PostgreSQL
import SteadfastDatabases
import SteadfastQueue

/// The tables as a thread sees them, within a transaction.
final class Tables {
  let database: Connection
  /// Whether several queues use the tables, so that claims run out.
  let isShared: Bool
  /// The first numbers of the advisory locks of these tables.
  struct Locks {
    /// Those of order keys.
    var orders: Int64 = 1
    /// Those of values.
    var values: Int64 = 2
    /// Those of unique keys.
    var keys: Int64 = 3
  }

  let locks: Locks
  /// Whether the transaction has changed something.
  var hasChanged = false
  /// The order keys whose turns the batch may have changed.
  var changedOrders: [String] = []

  init(_ database: Connection, isShared: Bool, locks: Locks = Locks()) {
    self.database = database
    self.isShared = isShared
    self.locks = locks
  }

  static let nextPlace = "nextval('steadfast_place')"

  // MARK: Batches

  /// Makes all changes of a batch, or none if a value differs or an insertion refuses the batch.
  ///
  /// - Throws: After any error, the caller must undo what the batch has changed. After a
  ///   ``BatchRefusal``, the batch has the outcomes in it.
  func apply(_ batch: [PreparedChange]) throws -> [ChangeOutcome] {
    guard try batch.allSatisfy(meetsItsValue) else { return batch.map { _ in .valueDiffers } }
    let outcomes = try batch.map(apply)
    if zip(batch, outcomes).contains(where: { $0.refusesBatch($1) }) {
      throw BatchRefusal(outcomes: outcomes.map(\.ofRefusedBatch))
    }
    try addMembers(batch, outcomes)
    try giveTurns()
    return outcomes
  }

  private func apply(_ prepared: PreparedChange) throws -> ChangeOutcome {
    switch prepared.change {
    case .insert(let record, let policy): return try insert(record, policy, prepared.payload)
    case .succeed(let lease, let date, let retains):
      return try end(.claimed(lease), as: .succeeded, at: date, retains: retains)
    case .retry(let lease, let date, let retryCount, let failure):
      return try retry(lease, at: date, retryCount, failure)
    case .abandon(let lease, let failure, let retains):
      return try end(
        .claimed(lease),
        as: .abandoned,
        at: failure.date,
        retains: retains,
        failure: failure
      )
    case .release(let lease): return try release(lease)
    case .park(let lease, let failure): return try park(lease, failure)
    case .unpark(let name, let queue): return try unpark(name, in: queue)
    case .cancel(let target, let date, let retains):
      return try end(target, as: .cancelled, at: date, retains: retains)
    case .pause(let target): return try pause(target)
    case .resume(let id): return try resume(id)
    case .restart(let target, let date, let forgets):
      return try restart(target, at: date, forgets: forgets)
    case .reschedule(let target, let date): return try reschedule(target, to: date)
    case .update(let id, let update): return try self.update(id, update, prepared.payload)
    case .remove(let id): return try remove(id)
    case .extend(let lease, let duration): return try extend(lease, for: duration)
    case .prune(let state, let date, let count, let now, let queue):
      return try prune(state, in: queue, endedBefore: date, keepingLatest: count, now: now)
    case .rebase(let date): return try rebase(to: date)
    case .remember(let lease, let name, let value): return try remember(lease, name, value)
    case .suspend(let lease, let date, let names):
      return try suspend(lease, until: date, awaiting: names)
    case .complete(let id, let name, let value): return try complete(id, name, value)
    case .setValue(let name, _, let new): return try set(new, named: name)
    @unknown default:
      throw UnknownChange()
    }
  }

  // MARK: Order keys

  /// Gives the turn of each order key that was touched to the task that it belongs to.
  func giveTurns() throws {
    for key in Set(changedOrders.map(ExactText.init)).map(\.text) {
      try database.send(
        """
        update steadfast_task set has_turn = false
        where order_key = $1 and has_turn and state <> 'running'
          and id is distinct from (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
        """,
        .text(key)
      )
      try database.send(
        """
        update steadfast_task set has_turn = true
        where id = (
            select first.id from steadfast_task as first
            where first.order_key = $1 and first.in_order
            order by first.order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other where other.order_key = $1 and other.has_turn)
        """,
        .text(key)
      )
    }
    changedOrders = []
  }
}
#endif
