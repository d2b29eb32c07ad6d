import SteadfastTesting

/// Examples about order, limits and time bounds: H6, H8, H9 and H10.
extension HistoryExample {
  static let order: [HistoryExample] = [
    .legal(.orderOfKeys, "the earlier task was retried first") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.claim("p1", 1, lease: 2, retries: 1)
      $0.succeed("p1", 1, lease: 2)
      $0.perform("p2", 2, lease: 3)
    },
    .legal(.orderOfKeys, "the earlier task's end is unanswered") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.claim("p1", 1, lease: 1)
      $0.succeed("p1", 1, lease: 1, .none)
      $0.perform("p2", 2, lease: 2)
    },
    .legal(.orderOfKeys, "the insertions overlap") { script in
      let calls = (1...2).map { number in
        script.ask("p\(number)", [HistoryScript.insertion(UInt64(number), "a")])
      }
      script.answer("p1", calls[0])
      script.answer("p2", calls[1])
      script.perform("p1", 2, lease: 1)
      script.perform("p1", 1, lease: 2)
    },
    .illegal(.orderOfKeys, "the later task runs first") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.perform("p1", 2, lease: 1)
      $0.perform("p1", 1, lease: 2)
    },
    .illegal(.orderOfKeys, "the later task runs between two attempts of the earlier one") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.perform("p2", 2, lease: 2)
      $0.claim("p1", 1, lease: 3, retries: 1)
    },
    .illegal(.orderOfKeys, "both are in one batch, and the later task runs first") {
      $0.change("p1", [HistoryScript.insertion(1, "a"), HistoryScript.insertion(2, "a")])
      $0.perform("p1", 2, lease: 1)
    },
  ]

  static let waiting: [HistoryExample] = [
    .legal(.waitingTasksAreLast, "the follower runs last, and ends once") {
      $0.insert(9)
      $0.insert(1, follower: 9)
      $0.insert(2, follower: 9)
      $0.perform("p1", 1, lease: 1)
      $0.perform("p2", 2, lease: 2)
      $0.perform("p2", 9, lease: 3)
    },
    .legal(.waitingTasksAreLast, "another task's cancellation cascaded to a member of the batch") {
      $0.insert(9)
      $0.insert(1)
      $0.insert(2, follower: 9, after: [1])
      $0.step("p1", .cancel, 1, lease: nil, along: [2])
      $0.perform("p2", 9, lease: 3)
    },
    .illegal(.waitingTasksAreLast, "the follower runs before a member of the batch has ended") {
      $0.insert(9)
      $0.insert(1, follower: 9)
      $0.insert(2, follower: 9)
      $0.perform("p1", 1, lease: 1)
      $0.claim("p2", 2, lease: 2)
      $0.perform("p1", 9, lease: 3)
      $0.succeed("p2", 2, lease: 2)
    },
    .illegal(.waitingTasksAreLast, "the follower ends twice") {
      $0.insert(9)
      $0.insert(1, follower: 9)
      $0.perform("p1", 1, lease: 1)
      $0.perform("p1", 9, lease: 2)
      $0.perform("p1", 9, lease: 3)
    },
    .illegal(.waitingTasksAreLast, "a task runs before its dependency") {
      $0.insert(1)
      $0.insert(2, after: [1])
      $0.perform("p1", 2, lease: 1)
    },
  ]

  private static let limits = History.Expectations(
    limits: [History.Expectations.StartLimit(2, per: .seconds(10), names: ["job"])]
  )
  private static let bound = History.Expectations(endsWithin: .seconds(60))

  static let time: [HistoryExample] = [
    .legal(.limitsHold, "two within the interval, and the third later", limits) {
      for number: UInt64 in 1...3 {
        $0.insert(number)
        if number == 3 { $0.pass(8) }
        $0.perform("p1", number, lease: number)
      }
    },
    .legal(.limitsHold, "the third may have been counted earlier", limits) {
      for number: UInt64 in 1...3 { $0.insert(number) }
      let call = $0.askForTasks("p1")
      $0.pass(12)
      for number: UInt64 in 2...3 { $0.perform("p2", number, lease: number) }
      $0.grant("p1", call, 1, lease: 1)
      _ = $0.begin("p1", 1, lease: 1)
    },
    .illegal(.limitsHold, "three within the interval", limits) {
      for number: UInt64 in 1...3 {
        $0.insert(number)
        $0.perform("p1", number, lease: number)
      }
    },
    .legal(.everythingEnds, "within the bound", bound) {
      $0.insert(1)
      $0.endFaults()
      $0.pass(50)
      $0.perform("p1", 1, lease: 1)
      $0.remain()
    },
    .legal(.everythingEnds, "a paused task remains", bound) {
      $0.insert(1)
      $0.endFaults()
      $0.pass(70)
      $0.remain([1: "paused"])
    },
    .illegal(.everythingEnds, "later than the bound", bound) {
      $0.insert(1)
      $0.endFaults()
      $0.pass(61)
      $0.perform("p1", 1, lease: 1)
      $0.remain()
    },
    .illegal(.everythingEnds, "a task remains", bound) {
      $0.insert(1)
      $0.endFaults()
      $0.pass(61)
      $0.remain([1: "waiting"])
    },
  ]
}
