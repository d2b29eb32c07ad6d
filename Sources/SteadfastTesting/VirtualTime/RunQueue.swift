/// The jobs that can run, and the order in which they do.
///
/// Jobs made ready by other jobs of the same world run in order, or in an order drawn from a seed.
/// Those made ready from outside, by a thread whose speed nobody knows, wait until no other is
/// left, and then enter one at a time: how fast the outside is does not change the order.
struct RunQueue<Job> {
  private var ready = FirstInFirstOut<Job>()
  private var outside = FirstInFirstOut<Job>()
  private var generator: SplitMix64?

  init(order: VirtualTime.Order) {
    if case .shuffled(let seed) = order { generator = Randomness.seeded(seed).makeGenerator() }
  }

  var isEmpty: Bool { ready.isEmpty && outside.isEmpty }

  mutating func append(_ job: Job) { ready.append(job) }

  mutating func appendFromOutside(_ job: Job) { outside.append(job) }

  /// Takes out the job to run next; O(1).
  mutating func popNext() -> Job? {
    if ready.isEmpty { return outside.popFirst() }
    if ready.count > 1, let chosen = generator?.next(upperBound: UInt64(ready.count)) {
      ready.bringToFront(Int(chosen))
    }
    return ready.popFirst()
  }
}
