#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// What makes claims on a session; one thread uses both.
///
/// A claim need only survive the process, so it waits for no flush, and none waits for it. It goes
/// out along with its commit, and writes no row of a request: its token tells what it has taken.
final class Claimer {
  private let place: StorePlace
  private let session: Session
  /// How long claims that have run out may wait until they are ended; `nil` if they have no end.
  private let interval: DispatchTimeInterval?
  private var nextLook = DispatchTime.now()
  /// The tokens of claims that no caller was told of, but which may have been stored.
  private var tokensInDoubt: [UInt64] = []

  init(_ place: StorePlace, on session: Session, leaseDuration: Duration?) {
    self.place = place
    self.session = session
    interval = leaseDuration.map { duration in
      .nanoseconds(Int(min(duration, .seconds(3_600)) / .nanoseconds(3)))
    }
  }

  func perform(_ job: StoreJob) {
    guard case .claim(let request) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result { try claim(request) }
    job.continuation.resume(with: result.map { .claim($0) }.mapError(place.error))
  }

  func claim(_ request: ClaimRequest) throws -> Claim {
    try endOverdueClaims()
    // A random number tells this claim from all others, so no counter is stored.
    let token = UInt64.random(in: 1...UInt64(Int64.max))
    let results = try session.transactionAtOnce { tables in
      if !tokensInDoubt.isEmpty { try tables.putBack(claimedWith: tokensInDoubt) }
      if tokensInDoubt.last != token { tokensInDoubt.append(token) }
      try tables.sendClaim(request, token: token)
    }
    let claim = try claim(results, request, token)
    tokensInDoubt = []
    return claim
  }

  private func claim(_ results: [Rows], _ request: ClaimRequest, _ token: UInt64) throws -> Claim {
    guard let rows = results.last, rows.count > 0 else {
      // A claim of nothing looks whether there is something.
      let date = try session.look { try Tables.nextDate(for: request, in: $0) }
      return Claim(tasks: [], nextDate: date)
    }
    let (tasks, unreadable) = try session.openedTables().claimedTasks(in: rows, with: token)
    if !unreadable.isEmpty {
      try session.transaction(isDurable: false, isRepeatable: true) { tables in
        for task in unreadable { try tables.park(task, token: token, at: request.now) }
      }
    }
    return Claim(tasks: tasks, nextDate: request.now)
  }

  /// Makes the tasks available whose claims have run out, three times in a lease.
  ///
  /// The clock of a test does not run: there, each claim looks.
  private func endOverdueClaims() throws {
    guard let interval, DispatchTime.now() >= nextLook || place.clockOffset != nil else { return }
    var plan = LockPlan()
    plan.tasks = try Set(session.transaction(isDurable: false) { try $0.overdueTasks(.ofThePast) })
    if !plan.tasks.isEmpty {
      try session.transaction(isDurable: false) { tables in
        tables.hasChanged = true
        try tables.lock(plan)
        try tables.interrupt(plan.tasks.sorted(), .ofThePast)
      }
    }
    nextLook = .now() + interval
  }
}
#endif
