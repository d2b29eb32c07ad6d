import Foundation
import SteadfastTesting
import Synchronization
import TestSupport

/// A simulated process: a queue with an unreliable connection.
final class SimulatedProcess: Sendable {
  let recorder: HistoryRecorder
  let queue: TaskQueue
  private let connection: FaultInjectingStore
  private let time: VirtualTime
  private let dice: Dice
  private let run = Mutex<Task<Void, any Error>?>(nil)

  init(
    _ name: String,
    over store: any Persistence,
    clockOffset: Double,
    _ configuration: TaskQueueConfiguration,
    _ time: VirtualTime,
    _ dice: Dice,
    wrapping wrap: (any Persistence) -> any Persistence,
    append: @escaping @Sendable (HistoryLine) -> Void
  ) {
    self.time = time
    self.dice = dice
    let connection = FaultInjectingStore(store)
    self.connection = connection
    let sign = LifeSign()
    self.sign = sign
    recorder = HistoryRecorder(wrap(connection), process: name, clock: time.clock) { line in
      if sign.isAlive { append(line) }
    }
    queue = TaskQueue(
      persistence: recorder,
      configuration: configuration,
      clock: SkewedClock(base: time.clock, seconds: clockOffset)
    )
  }

  /// Whether the process is alive, so that its lines are recorded.
  private final class LifeSign: Sendable {
    private let state = Mutex(true)
    var isAlive: Bool { state.withLock { $0 } }
    func markAsDead() { state.withLock { $0 = false } }
  }

  private let sign: LifeSign

  /// Makes random calls slow, or makes them fail before or after their effect.
  func injectFaults() {
    connection.restore()
    let dice = dice
    for moment in [FaultInjectingStore.Moment.beforeEffect, .afterEffect] {
      connection.inject(.delay(.milliseconds(3), on: time.clock), moment, times: nil) { _ in
        dice.happens(1, in: 4)
      }
      connection.inject(.delay(.seconds(20), on: time.clock), moment, times: nil) { _ in
        dice.happens(1, in: 300)
      }
      connection.inject(.transientError, moment, times: nil) { call in
        call.kind != .open && (moment == .beforeEffect || call.kind != .apply)
          && dice.happens(1, in: 25)
      }
    }
  }

  /// Makes all calls succeed at once again.
  func removeFaults() { connection.restore() }

  /// Starts to run the queue.
  func startRun() {
    let queue = queue
    run.withLock { $0 = Task(executorPreference: time.executor) { try await queue.run() } }
  }

  /// Carries out the next ends of attempts, but withholds the answers.
  func withholdAnswers() {
    connection.inject(.hang, .afterEffect, times: nil) { call in
      call.changes.contains { $0.end != nil }
    }
  }

  /// Ends the process: no call returns any longer, and no line is recorded.
  func kill() {
    sign.markAsDead()
    suspendNewCalls()
    run.withLock { $0?.cancel() }
  }

  /// Suspends every new call until `injectFaults()` or `removeFaults()` is called.
  func suspendNewCalls() {
    connection.inject(.hang, .beforeEffect, times: nil) { _ in true }
  }

  /// Ends all calls and the run, so that the virtual time can end.
  func endRemainingWork() async {
    sign.markAsDead()
    connection.restore()
    connection.cutOff(throwing: SimulatedEnd())
    let run = run.withLock { $0 }
    run?.cancel()
    await queue.shutDown(within: .zero)
    connection.letGo()
    _ = await run?.result
  }
}

struct SimulatedEnd: Error {}
