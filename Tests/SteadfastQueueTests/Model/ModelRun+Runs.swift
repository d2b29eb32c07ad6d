import Foundation
import SteadfastTesting
import Synchronization

@testable import SteadfastQueue

extension ModelRun {
  func interrupt(_ act: CancellationTests.Act) {
    switch act {
    case .cancelRun: cancelRun()
    case .shutDown: shutDown(within: nil)
    case .shutDownAtOnce: shutDown(within: .zero)
    case .shutDownSoon: shutDown(within: .seconds(1))
    case .cancelCalls:
      ledger.update { $0.runsWereCut = true }
      let calls = state.withLock { state in
        state.wereCallsCancelled = true
        return state.calls
      }
      for call in calls { call.cancel() }
    }
  }

  func cancelRun() {
    let runs = state.withLock { state in
      state.cancelledRuns.formUnion(state.runs.keys)
      return state.runs.values
    }
    ledger.update { $0.runsWereCut = true }
    for run in runs { run.task.cancel() }
  }

  func shutDown(within limit: Duration?) {
    state.withLock { $0.isShutDown = true }
    ledger.update { $0.beginShutDown() }
    ledger.update { $0.runsWereCut = true }
    for queue in queues { start { await queue.shutDown(within: limit) } }
  }

  func run() { for (name, queue) in state.withLock(\.queues) { run(queue, named: name) } }

  func runAgain() {
    let (queues, running) = state.withLock { ($0.queues, Set($0.runs.values.map(\.queue))) }
    for (name, queue) in queues where !running.contains(name) { run(queue, named: name) }
  }

  private func run(_ queue: TaskQueue, named name: String) {
    state.withLock { state in
      state.runCount += 1
      let number = state.runCount
      let task = Task(executorPreference: time.executor) {
        let result = await Result { try await queue.run() }
        self.check(result, of: "run()", wasCancelled: Task.isCancelled, isPass: false)
        self.state.withLock { $0.runs[number] = nil }
      }
      state.runs[number] = State.Run(queue: name, task: task)
    }
  }

  func runAvailable() {
    for queue in queues {
      start {
        let result = await Result { try await queue.runAvailable() }
        self.check(result.map { _ in }, of: "runAvailable()", wasCancelled: false, isPass: true)
      }
    }
  }

  private func check(
    _ result: Result<Void, any Error>,
    of call: String,
    wasCancelled: Bool,
    isPass: Bool
  ) {
    let isShutDown = state.withLock { $0.isShutDown }
    do {
      try result.get()
      if !isPass, !isShutDown { recordViolation("\(call) returned without a shutdown") }
    } catch is CancellationError {
      let isExpected = wasCancelled || state.withLock(\.wereCallsCancelled)
      if !isExpected {
        recordViolation("\(call) throws a CancellationError without a cancellation")
      }
    } catch let error as TaskQueueError where error.code == .alreadyRunning {
    } catch let error as TaskQueueError where error.code == .shutDown {
      if !isShutDown { recordViolation("\(call) throws \(error)") }
    } catch {
      checkError(of: call, error)
    }
  }
}

extension Result where Failure == any Error {
  fileprivate init(catching body: () async throws -> Success) async {
    do { self = .success(try await body()) } catch { self = .failure(error) }
  }
}

/// Interrupts a run of the model check at one of its suspension points.
///
/// A run has suspension points before and after each call of the store, at the start and the end of
/// each handler, and before each operation.
final class Interruption: Sendable {
  private let act: CancellationTests.Act
  private let pointsLeft: Mutex<Int>

  init(_ act: CancellationTests.Act, at point: Int) {
    self.act = act
    pointsLeft = Mutex(point)
  }

  /// Whether the suspension point was reached.
  var wasMet: Bool { pointsLeft.withLock { $0 <= 0 } }

  /// Counts a suspension point, and interrupts the run if it is the chosen one.
  func countSuspensionPoint(in run: ModelRun) {
    let isMet = pointsLeft.withLock { left in
      left -= 1
      return left == 0
    }
    if isMet { run.interrupt(act) }
  }
}
