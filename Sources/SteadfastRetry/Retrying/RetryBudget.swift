import Synchronization

/// A limited number of retries that many calls share, so that they don't overload a service that is
/// down.
///
/// Each retry consumes a token, and each success adds a fraction of a token. When no token is left,
/// a call that fails throws its error. So while most calls succeed, each call may retry as its
/// policy says. While all calls fail, they make ``capacity`` retries in all; after that, each call
/// makes only one attempt. This follows the retry throttling of gRPC (proposal A6), which also
/// counts in thousandths of a token.
///
/// Share one budget among all calls to one service. The budget is lock-free; a success with a full
/// budget takes one atomic load.
public final class RetryBudget: Sendable {
  /// The number of tokens at the start, which is also the maximum.
  public let capacity: Int
  /// How many tokens a success adds.
  public let retriesPerSuccess: Double
  private let thousandths: Atomic<Int64>
  private let limit: Int64
  private let gain: Int64

  /// Makes a full budget.
  ///
  /// A capacity below 0 counts as 0, and a capacity above a trillion as a trillion.
  /// `retriesPerSuccess` is rounded to thousandths; below 0, or if it is not a number, it counts as
  /// 0.
  public init(capacity: Int, retriesPerSuccess: Double) {
    let counted = min(max(Int64(capacity), 0), 1_000_000_000_000)
    self.capacity = Int(clamping: counted)
    limit = counted * 1000
    let fraction = retriesPerSuccess.isNaN ? 0 : min(max(retriesPerSuccess, 0), Double(counted))
    gain = Int64((fraction * 1000).rounded())
    self.retriesPerSuccess = Double(gain) / 1000
    thousandths = Atomic(limit)
  }

  /// The number of tokens now, between 0 and ``capacity``.
  public var tokens: Double { Double(thousandths.load(ordering: .relaxed)) / 1000 }

  /// Withdraws a token for a retry; returns `false`, and withdraws nothing, if no whole token is
  /// left.
  public func withdraw() -> Bool {
    updateCounter { $0 >= 1000 ? $0 - 1000 : nil }
  }

  /// Adds the ``retriesPerSuccess`` tokens of a success, up to ``capacity``.
  public func recordSuccess() {
    _ = updateCounter { [limit, gain] in $0 < limit ? min($0 + gain, limit) : nil }
  }

  /// Gives back the token of a retry that was not made.
  @usableFromInline func refund() {
    _ = updateCounter { [limit] in $0 < limit ? min($0 + 1000, limit) : nil }
  }

  // The counter guards no other memory, so relaxed ordering is enough.
  private func updateCounter(_ update: (Int64) -> Int64?) -> Bool {
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
