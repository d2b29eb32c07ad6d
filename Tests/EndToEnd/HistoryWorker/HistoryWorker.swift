import Foundation
import SteadfastQueue
import SteadfastTesting

/// One of several processes whose histories are checked.
///
///     HistoryWorker work STORE PLACE HISTORY COUNT OFFSET  adds and performs tasks
///     HistoryWorker finish STORE PLACE HISTORY  performs what remains, then records the tasks left
///     HistoryWorker check LIMITS HISTORY …  checks the histories
///
/// STORE is the kind of store, and PLACE its location. The process adds COUNT tasks, by a clock
/// that is OFFSET seconds ahead. If LIMITS is `limits`, the check expects the rate limits to hold.
/// An error is one line on standard error, with the exit code 2; broken promises have the exit
/// code 1.
@main
struct HistoryWorker {
  static let lease = Duration.seconds(1)
  static let limit = 20

  static func main() async {
    do {
      let arguments = Array(CommandLine.arguments.dropFirst())
      switch arguments.first {
      case "work" where arguments.count == 6:
        guard let count = Int(arguments[4]), let offset = Double(arguments[5]) else {
          throw Mistake("COUNT and OFFSET must be numbers")
        }
        let worker = try Worker(
          storeKind: arguments[1],
          place: arguments[2],
          history: arguments[3],
          offset: offset
        )
        try await worker.work(addingTasks: count)
      case "finish" where arguments.count == 4:
        let worker = try Worker(
          storeKind: arguments[1],
          place: arguments[2],
          history: arguments[3],
          offset: 0
        )
        try await worker.performRemainingTasks()
      case "check" where arguments.count > 2:
        let report = try checkHistories(in: arguments[2...], hasLimits: arguments[1] == "limits")
        print(report)
        exit(report.passes ? 0 : 1)
      default: throw Mistake("give work, finish or check, and the arguments of that command")
      }
    } catch {
      FileHandle.standardError.write(Data("\(error)\n".utf8))
      exit(2)
    }
  }

  static func checkHistories(
    in files: ArraySlice<String>,
    hasLimits: Bool
  ) throws -> History.Report {
    let limit = History.Expectations.StartLimit(
      limit,
      per: .seconds(1),
      names: [LimitedJob.taskName]
    )
    let expectations = History.Expectations(
      limits: hasLimits ? [limit] : [],
      endsWithin: .seconds(60),
      // The dates of lines and of claims are rounded.
      clockTolerance: .milliseconds(2)
    )
    return try History(contentsOf: files.map { URL(filePath: $0) }).check(expectations)
  }
}

struct Mistake: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

struct Job: TaskPayload {
  var number: Int
  var milliseconds: Int
  var failures = 0
}

struct LimitedJob: TaskPayload { var number: Int }
