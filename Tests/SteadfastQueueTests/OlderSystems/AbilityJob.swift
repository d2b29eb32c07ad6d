import Foundation
import SteadfastQueue
import TestSupport

/// The example job of iDelayedJob's README, which logs the calls of its methods.
struct AbilityJob: TaskHandler {
  struct Arguments: TaskPayload { var text: String }

  let log: Log<String>
  var nextRun: Date?
  var restarts = 0
  private let restarted = Log<Int>()

  init(log: Log<String>, nextRun: Date? = nil, restarts: Int = 0) {
    self.log = log
    self.nextRun = nextRun
    self.restarts = restarts
  }

  func perform(_ arguments: Arguments, in context: TaskContext) async throws {
    log.add("perform \(arguments.text)")
    if arguments.text == "bad" { throw Refusal("performed in vain") }
  }

  func retryDate(
    of arguments: Arguments,
    after error: any Error,
    proposed date: Date,
    in context: TaskContext
  ) async -> Date { nextRun ?? date }

  func shouldRestart(
    _ arguments: Arguments,
    after error: any Error,
    in context: TaskContext
  ) async -> Bool {
    log.add("should restart \(arguments.text)")
    restarted.add(1)
    return restarted.count <= restarts
  }

  func willEnd(_ arguments: Arguments, outcome: TaskOutcome, in context: TaskContext) async {
    log.add("before delete \(arguments.text): \(outcome)")
  }
}
