import SteadfastQueue

/// The jobs that can run, and the order in which they do.
///
/// Jobs that other jobs of the same virtual time made ready run in order, or in an order drawn from
/// a seed. Jobs from outside, made ready by a thread whose speed is unknown, wait until no other
/// job is left, and then run one at a time. So the speed of such threads doesn't change the order.
struct RunQueue<Job> {
  private var ready = FIFOQueue<Job>()
  private var outside = FIFOQueue<Job>()
  private var generator: SplitMix64?

  init(order: VirtualTime.Order) {
    if case .shuffled(let seed) = order { generator = Randomness.seeded(seed).makeGenerator() }
  }

  var isEmpty: Bool { ready.isEmpty && outside.isEmpty }

  mutating func append(_ job: Job) { ready.append(job) }

  mutating func appendFromOutside(_ job: Job) { outside.append(job) }

  /// Removes and returns the job to run next, in O(1).
  mutating func popNext() -> Job? {
    if ready.isEmpty { return outside.popFirst() }
    if ready.count > 1, let chosen = generator?.next(upperBound: UInt64(ready.count)) {
      ready.bringToFront(Int(chosen))
    }
    return ready.popFirst()
  }
}
