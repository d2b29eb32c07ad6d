@testable import SteadfastRetry

/// The distribution of a backoff's random delays after an attempt, in seconds.
struct Spread {
  private(set) var least = Double.infinity
  private(set) var most = -Double.infinity
  private var count = 0.0
  private var sum = 0.0
  private var sumOfSquares = 0.0
  private var boxes = [Double](repeating: 0, count: 10)

  /// Samples `count` delays, and counts them in ten boxes between the bounds.
  init(
    of backoff: Backoff,
    after attempt: RetryAttempt,
    count: Int,
    between lower: Double,
    and upper: Double
  ) {
    var generator = SplitMix64(seed: 3)
    for _ in 0..<count {
      let delay = backoff.delay(after: attempt, using: &generator) / .seconds(1)
      add(delay, box: Int((delay - lower) / (upper - lower) * 10))
    }
  }

  private mutating func add(_ delay: Double, box: Int) {
    least = min(least, delay)
    most = max(most, delay)
    count += 1
    sum += delay
    sumOfSquares += delay * delay
    boxes[min(max(box, 0), 9)] += 1
  }

  var mean: Double { sum / count }

  var variance: Double { sumOfSquares / count - mean * mean }

  /// Pearson's statistic for an even distribution over the boxes.
  ///
  /// The statistic of an even distribution exceeds 27.9 only once in a thousand times.
  var unevenness: Double {
    boxes.reduce(0) { $0 + ($1 - count / 10) * ($1 - count / 10) / (count / 10) }
  }
}
