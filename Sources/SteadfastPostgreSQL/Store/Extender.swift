#if PostgreSQL
import Dispatch
import SteadfastDatabases
import SteadfastQueue

/// What extends claims on a session; one thread uses both.
///
/// Claims run out while their extension waits. So it waits neither behind other changes, which wait
/// for locks, nor behind claims, which may take long. A task that another session has locked keeps
/// back its own claim only.
final class Extender {
  /// How long a call waits for tasks that are locked, or a tenth of the lease if that is shorter.
  private static let patience = Duration.seconds(1)
  private static let pause = DispatchTimeInterval.milliseconds(20)

  private let session: Session
  private let pauses = DispatchSemaphore(value: 0)

  init(on session: Session) { self.session = session }

  func perform(_ job: StoreJob) {
    guard case .apply(let batch, let isDurable) = job.call else {
      job.continuation.resume(returning: .nothing)
      return
    }
    let result = Result { try extend(batch.compactMap(\.extension), isDurable: isDurable) }
    job.continuation.resume(with: result.map { .outcomes($0) }.mapError(session.place.error))
  }

  /// Extends claims, at once where no other session has locked the task.
  ///
  /// - Throws: A failure that passes if a task stays locked. The other claims are extended then.
  private func extend(
    _ extensions: [(lease: Lease, duration: Duration)],
    isDurable: Bool
  ) throws -> [ChangeOutcome] {
    // Of several extensions of one claim, the last one counts.
    var left = Dictionary(extensions.map { ($0.lease, $0.duration) }) { $1 }
    var extended: Set<Lease> = []
    let shortest = left.values.min() ?? .zero
    let end = ContinuousClock.now + min(Self.patience, shortest / 10)
    while true {
      for (duration, claims) in Dictionary(grouping: left, by: \.value) {
        let leases = claims.map(\.key)
        let found = try session.transaction(isDurable: isDurable, isRepeatable: true) { tables in
          try tables.extendFree(leases, for: duration)
        }
        for lease in leases where found[lease] != false { left[lease] = nil }
        extended.formUnion(found.filter(\.value).keys)
      }
      if left.isEmpty { return extensions.map { extended.contains($0.lease) ? .done : .stale } }
      guard ContinuousClock.now < end else {
        throw PostgreSQLFailure(
          state: "55P03",
          text: "other sessions have locked \(left.count) of the tasks whose claims are extended"
        )
      }
      _ = pauses.wait(timeout: .now() + Self.pause)
    }
  }
}

extension StoreJob.Call {
  /// Whether all that the call does is to extend claims.
  var onlyExtends: Bool {
    guard case .apply(let batch, _) = self else { return false }
    return !batch.isEmpty && batch.allSatisfy { $0.extension != nil }
  }
}

extension PreparedChange {
  /// The claim that the change extends, if it does so.
  fileprivate var `extension`: (lease: Lease, duration: Duration)? {
    if case .extend(let lease, let duration) = change { (lease, duration) } else { nil }
  }
}
#endif
