#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// What the thread that claims does with its session.
///
/// A claim need only survive the process, so it waits for no flush, and none waits for it.
final class Claimer {
  private let place: StorePlace
  private let session: Session
  /// How long claims that have run out may wait until they are ended; `nil` if they have no end.
  private let interval: DispatchTimeInterval?
  private var nextLook = DispatchTime.now()

  init(_ place: StorePlace, leaseDuration: Duration?) {
    self.place = place
    session = Session(place) { _, _ in }
    interval = leaseDuration.map { duration in
      .nanoseconds(Int(min(duration, .seconds(3_600)) / .nanoseconds(3)))
    }
  }

  func perform(_ job: StoreJob) {
    guard case .claim(let request) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result {
      try endOverdueClaims()
      return try session.transaction(isDurable: false) { try $0.claim(request) }
    }
    job.continuation.resume(with: result.map { .claim($0) }.mapError(place.error))
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
