import SteadfastTesting

/// Examples of order, rate limits and time limits: the promises H6, H8, H9 and H10.
extension HistoryExample {
  static let order: [HistoryExample] = [
    .legal(.orderOfKeys, "the earlier task was retried first") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "a")
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
      $0.claim(by: "p1", task: 1, lease: 2, retries: 1)
      $0.succeed(by: "p1", task: 1, lease: 2)
      $0.perform(by: "p2", task: 2, lease: 3)
    },
    .legal(.orderOfKeys, "the earlier task's end is unanswered") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "a")
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.succeed(by: "p1", task: 1, lease: 1, answer: .none)
      $0.perform(by: "p2", task: 2, lease: 2)
    },
    .legal(.orderOfKeys, "the insertions overlap") { script in
      let calls = (1...2).map { number in
        script.request(
          [HistoryScript.insertion(of: UInt64(number), orderKey: "a")],
          by: "p\(number)"
        )
      }
      script.answer(call: calls[0], of: "p1")
      script.answer(call: calls[1], of: "p2")
      script.perform(by: "p1", task: 2, lease: 1)
      script.perform(by: "p1", task: 1, lease: 2)
    },
    .illegal(.orderOfKeys, "the later task runs first") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "a")
      $0.perform(by: "p1", task: 2, lease: 1)
      $0.perform(by: "p1", task: 1, lease: 2)
    },
    .illegal(.orderOfKeys, "the later task runs between two attempts of the earlier one") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "a")
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
      $0.perform(by: "p2", task: 2, lease: 2)
      $0.claim(by: "p1", task: 1, lease: 3, retries: 1)
    },
    .illegal(.orderOfKeys, "both are in one batch, and the later task runs first") {
      $0.apply(
        [1, 2].map { HistoryScript.insertion(of: $0, orderKey: "a") },
        by: "p1"
      )
      $0.perform(by: "p1", task: 2, lease: 1)
    },
  ]

  static let waiting: [HistoryExample] = [
    .legal(.waitingTasksAreLast, "the follower runs last, and ends once") {
      $0.insertTask(9)
      $0.insertTask(1, follower: 9)
      $0.insertTask(2, follower: 9)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.perform(by: "p2", task: 2, lease: 2)
      $0.perform(by: "p2", task: 9, lease: 3)
    },
    .legal(.waitingTasksAreLast, "another task's cancellation cascaded to a member of the batch") {
      $0.insertTask(9)
      $0.insertTask(1)
      $0.insertTask(2, follower: 9, after: [1])
      $0.change(by: "p1", .cancel, task: 1, lease: nil, along: [2])
      $0.perform(by: "p2", task: 9, lease: 3)
    },
    .illegal(.waitingTasksAreLast, "the follower runs before a member of the batch has ended") {
      $0.insertTask(9)
      $0.insertTask(1, follower: 9)
      $0.insertTask(2, follower: 9)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.claim(by: "p2", task: 2, lease: 2)
      $0.perform(by: "p1", task: 9, lease: 3)
      $0.succeed(by: "p2", task: 2, lease: 2)
    },
    .illegal(.waitingTasksAreLast, "the follower ends twice") {
      $0.insertTask(9)
      $0.insertTask(1, follower: 9)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.perform(by: "p1", task: 9, lease: 2)
      $0.perform(by: "p1", task: 9, lease: 3)
    },
    .illegal(.waitingTasksAreLast, "a task runs before its dependency") {
      $0.insertTask(1)
      $0.insertTask(2, after: [1])
      $0.perform(by: "p1", task: 2, lease: 1)
    },
  ]

  private static let limits = History.Expectations(
    limits: [History.Expectations.StartLimit(2, per: .seconds(10), names: ["job"])]
  )
  private static let bound = History.Expectations(endsWithin: .seconds(60))

  static let time: [HistoryExample] = [
    .legal(.limitsHold, "two within the interval, and the third later", limits) {
      for number: UInt64 in 1...3 {
        $0.insertTask(number)
        if number == 3 { $0.advanceDate(by: 8) }
        $0.perform(by: "p1", task: number, lease: number)
      }
    },
    .legal(.limitsHold, "the third may have been counted earlier", limits) {
      for number: UInt64 in 1...3 { $0.insertTask(number) }
      let call = $0.requestTasks(by: "p1")
      $0.advanceDate(by: 12)
      for number: UInt64 in 2...3 { $0.perform(by: "p2", task: number, lease: number) }
      $0.grantTask(1, to: "p1", call: call, lease: 1)
      _ = $0.beginAttempt(by: "p1", task: 1, lease: 1)
    },
    .illegal(.limitsHold, "three within the interval", limits) {
      for number: UInt64 in 1...3 {
        $0.insertTask(number)
        $0.perform(by: "p1", task: number, lease: number)
      }
    },
    .legal(.everythingEnds, "within the bound", bound) {
      $0.insertTask(1)
      $0.recordEndOfFaults()
      $0.advanceDate(by: 50)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.recordRemainingTasks()
    },
    .legal(.everythingEnds, "a paused task remains", bound) {
      $0.insertTask(1)
      $0.recordEndOfFaults()
      $0.advanceDate(by: 70)
      $0.recordRemainingTasks([1: "paused"])
    },
    .illegal(.everythingEnds, "later than the bound", bound) {
      $0.insertTask(1)
      $0.recordEndOfFaults()
      $0.advanceDate(by: 61)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.recordRemainingTasks()
    },
    .illegal(.everythingEnds, "a task remains", bound) {
      $0.insertTask(1)
      $0.recordEndOfFaults()
      $0.advanceDate(by: 61)
      $0.recordRemainingTasks([1: "waiting"])
    },
  ]
}
