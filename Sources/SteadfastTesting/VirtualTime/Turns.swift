import SteadfastQueue

/// The real work that takes turns: the piece of work whose turn it is, and those that wait.
///
/// Each piece of work waits twice: to begin, and, after it has ended, for its caller to go on. Both
/// times ``popNext()`` lets it go on. The driver calls that method when nothing else can run.
struct Turns<Waiter> {
  private enum Stage {
    case free
    case underWay
    case ended(Waiter)
  }

  private var stage = Stage.free
  private var waiting = FIFOQueue<Waiter>()

  /// Whether a piece of work has begun and not ended.
  var isUnderWay: Bool {
    switch stage {
    case .underWay: true
    case .free, .ended: false
    }
  }

  /// Whether ``popNext()`` has a waiter to let go on.
  var hasNext: Bool {
    switch stage {
    case .free: !waiting.isEmpty
    case .underWay: false
    case .ended: true
    }
  }

  /// Adds a piece of work that waits to begin.
  mutating func append(_ work: Waiter) { waiting.append(work) }

  /// Notes that the work whose turn it was has ended, and that its caller waits.
  mutating func end(_ caller: Waiter) {
    guard isUnderWay else { preconditionFailure("a work ended whose turn it was not") }
    stage = .ended(caller)
  }

  /// Removes and returns what goes on: the caller of the work that has ended, else the next work.
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

  /// Removes and returns any waiter, even if it is not its turn.
  mutating func popAny() -> Waiter? {
    if case .ended = stage { return popNext() }
    return waiting.popFirst()
  }
}
