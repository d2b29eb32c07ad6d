import Foundation

@testable import SteadfastQueue

extension WorkMachine.Step {
  /// A short text that describes the step.
  var summary: String {
    switch self {
    case .perform(let task, _, let wakesAnother):
      "perform \(task.lease.id.low)\(wakesAnother ? ", wake another" : "")"
    case .carryOut(let command, let task, let wakesAnother):
      "\(command) \(task.lease.id.low)\(wakesAnother ? ", wake another" : "")"
    case .claim(let limit, let parked):
      "claim \(limit)"
        + (parked.names.isEmpty ? "" : ", unpark \(parked.names.sorted().joined(separator: " "))")
    case .requeue(let tasks):
      "put back " + tasks.map { "\($0.lease.id.low)" }.joined(separator: " ")
    case .wait: "wait"
    case .stop: "stop"
    }
  }
}

extension WorkMachine {
  /// Returns the next step of the first idle worker.
  mutating func next(wasWoken: Bool = false, at time: Duration = .zero) -> Step {
    next(for: attempts.firstIndex { $0 == nil } ?? 0, wasWoken: wasWoken, at: time)
  }

  /// Returns the next step of a worker.
  mutating func next(for worker: Int, wasWoken: Bool = false, at time: Duration) -> Step {
    next(for: worker, wasWoken: wasWoken) { time }
  }

  /// Ends the attempt of the first busy worker, and stores the result.
  mutating func freeWorker() {
    freeWorker(attempts.firstIndex { $0 != nil } ?? 0, countsAsAttempt: true)
  }

  /// Ends the attempt of the first busy worker.
  mutating func freeWorker(with settlement: Settlement) -> Bool {
    freeWorker(attempts.firstIndex { $0 != nil } ?? 0, with: settlement, countsAsAttempt: true)
  }
}

extension WorkMachine {
  /// Makes a machine whose run has started.
  static func running(
    workers: Int = 2,
    _ mode: Mode = .untilStopped,
    maxUnsettled: Int = 1024
  ) -> WorkMachine {
    var machine = WorkMachine(workers: workers, maxUnsettled: maxUnsettled)
    machine.begin(mode, names: [String]())
    return machine
  }
}

extension Claim {
  /// A claim of tasks with these numbers, and with tokens of the same numbers.
  static func numbered(_ numbers: Int..., next: Date? = nil) -> Claim {
    Claim(
      tasks: numbers.map {
        ClaimedTask(record: .make($0), lease: Lease(id: .numbered($0), token: UInt64($0)))
      },
      nextDate: next
    )
  }
}

extension Settlement {
  /// The end of an attempt at a task from ``Claim/numbered(_:next:)``.
  static func numbered(_ number: Int) -> Settlement {
    Settlement(
      change: .release(Lease(id: .numbered(number), token: UInt64(number))),
      record: .make(number)
    )
  }
}
