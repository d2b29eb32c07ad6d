import Synchronization

/// Whether a call waits until the store is back, and what must happen when one does.
///
/// A call may wait for another one, which lasts as long as the store is gone. If it is cancelled,
/// it gives up then, and not before: while the store answers, it waits for moments only. So what a
/// cancelled handler asks for in its last lines does not fail because of another call.
final class StoreAbsence: Sendable {
  private let waitingCount = Atomic(0)
  private let listeners = Mutex<[@Sendable () -> Void]>([])

  /// Whether a call waits until the store is back.
  var isGone: Bool { waitingCount.load(ordering: .acquiring) > 0 }

  /// Performs a body, which waits until the store may be back.
  func last(during body: () async -> Void) async {
    waitingCount.add(1, ordering: .acquiringAndReleasing)
    for listener in listeners.withLock({ $0 }) { listener() }
    await body()
    waitingCount.subtract(1, ordering: .acquiringAndReleasing)
  }

  /// Calls a body, from now on, whenever a call begins to wait for the store.
  func listen(_ body: @escaping @Sendable () -> Void) { listeners.withLock { $0.append(body) } }
}

extension Waiters<Void> {
  /// Waits until something is so.
  ///
  /// These waiters are resumed when that may have changed, and when the store is gone
  /// (``StoreAbsence/listen(_:)``).
  ///
  /// - Throws: `CancellationError` when the caller is cancelled, and the store is gone.
  func wait(until isSo: () -> Bool, orGone absence: StoreAbsence) async throws {
    func givesUp() -> Bool { Task.isCancelled && absence.isGone }
    while !isSo() {
      if givesUp() { throw CancellationError() }
      await waitUncancelled {
        isSo() || givesUp() ? () : nil
      } cancelled: {
        absence.isGone ? () : nil
      }
    }
  }
}
