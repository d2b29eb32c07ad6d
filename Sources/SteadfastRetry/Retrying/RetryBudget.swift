import Synchronization

/// A number of retries that many calls share, so that they don't drown a service that is down.
///
/// Each retry takes a token and each success gives a fraction of one back; without a token the
/// call throws its error. So while all is well a call may retry as its policy says, and while all
/// fails there are ``capacity`` retries and then one attempt a call. After the retry throttling of
/// gRPC (proposal A6), which counts in thousandths of a token too.
///
/// Share one for all calls to one service. It is lock-free; a success with a full budget costs one
/// load.
public final class RetryBudget: Sendable {
  /// How many tokens there are at first, and at most.
  public let capacity: Int
  /// How many tokens a success gives back.
  public let retriesPerSuccess: Double
  private let thousandths: Atomic<Int64>
  private let limit: Int64
  private let gain: Int64

  /// Makes a full budget.
  ///
  /// A capacity below 0 counts as 0, and one above a trillion as a trillion. The fraction is
  /// counted in thousandths; below 0, or if not a number, it counts as 0.
  public init(capacity: Int, retriesPerSuccess: Double) {
    let counted = min(max(Int64(capacity), 0), 1_000_000_000_000)
    self.capacity = Int(clamping: counted)
    limit = counted * 1000
    let fraction = retriesPerSuccess.isNaN ? 0 : min(max(retriesPerSuccess, 0), Double(counted))
    self.retriesPerSuccess = fraction
    gain = Int64((fraction * 1000).rounded())
    thousandths = Atomic(limit)
  }

  /// How many tokens there are now, between 0 and ``capacity``.
  public var tokens: Double { Double(thousandths.load(ordering: .relaxed)) / 1000 }

  /// Takes a token for a retry; false, and nothing taken, if there is no whole one.
  public func withdraw() -> Bool {
    change { $0 >= 1000 ? $0 - 1000 : nil }
  }

  /// Gives back what a success earns.
  public func recordSuccess() {
    _ = change { [limit, gain] in $0 < limit ? min($0 + gain, limit) : nil }
  }

  /// Gives back the token of a retry that was not made.
  @usableFromInline func refund() {
    _ = change { [limit] in $0 < limit ? min($0 + 1000, limit) : nil }
  }

  // The counter guards nothing but itself, so that no ordering beyond its own is needed.
  private func change(_ update: (Int64) -> Int64?) -> Bool {
    var current = thousandths.load(ordering: .relaxed)
    while let updated = update(current) {
      let (exchanged, original) = thousandths.weakCompareExchange(
        expected: current,
        desired: updated,
        ordering: .relaxed
      )
      if exchanged { return true }
      current = original
    }
    return false
  }
}
