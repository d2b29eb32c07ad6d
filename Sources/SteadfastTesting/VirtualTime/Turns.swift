/// The works that take turns: whose turn it is, and who waits for one.
///
/// A work waits twice: to begin, and, when it has ended, for its caller to go on. Each time it is
/// let go on by ``popNext()``, which the driver calls when nothing else can run.
struct Turns<Waiter> {
  private enum Stage {
    case free
    case underWay
    case ended(Waiter)
  }

  private var stage = Stage.free
  private var waiting = FirstInFirstOut<Waiter>()

  /// Whether a work has begun and not ended.
  var isUnderWay: Bool {
    switch stage {
    case .underWay: true
    case .free, .ended: false
    }
  }

  /// Whether ``popNext()`` has someone to let go on.
  var hasNext: Bool {
    switch stage {
    case .free: !waiting.isEmpty
    case .underWay: false
    case .ended: true
    }
  }

  /// Adds a work that wants to begin.
  mutating func append(_ work: Waiter) { waiting.append(work) }

  /// The work whose turn it is has ended, and its caller waits.
  mutating func end(_ caller: Waiter) {
    guard isUnderWay else { preconditionFailure("a work ended whose turn it was not") }
    stage = .ended(caller)
  }

  /// Takes out who goes on: the caller of the work that has ended, else the work that begins.
  mutating func popNext() -> Waiter? {
    switch stage {
    case .underWay: return nil
    case .ended(let caller):
      stage = .free
      return caller
    case .free:
      guard let work = waiting.popFirst() else { return nil }
      stage = .underWay
      return work
    }
  }

  /// Takes out one of all that wait, whosever turn it is.
  mutating func popAny() -> Waiter? {
    if case .ended = stage { return popNext() }
    return waiting.popFirst()
  }
}
