import Synchronization

/// Acts on a run of the model check at one of its suspensions.
///
/// A run suspends before and after each call of the store, at the beginning and the end of a
/// handler, and while the case waits.
final class Interruption: Sendable {
  private let act: CancellationTests.Act
  private let pointsLeft: Mutex<Int>

  init(_ act: CancellationTests.Act, at point: Int) {
    self.act = act
    pointsLeft = Mutex(point)
  }

  /// Whether the suspension was reached.
  var wasMet: Bool { pointsLeft.withLock { $0 <= 0 } }

  /// Something suspends.
  func passed(in run: ModelRun) {
    let isMet = pointsLeft.withLock { left in
      left -= 1
      return left == 0
    }
    if isMet { run.interrupt(act) }
  }
}
