import SteadfastTesting

/// What comes after what, and within what time: H6, H8, H9 and H10.
extension HistoryExample {
  static let order: [HistoryExample] = [
    .legal(.orderOfKeys, "the earlier one was tried again first") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.claim("p1", 1, lease: 2, retries: 1)
      $0.succeed("p1", 1, lease: 2)
      $0.perform("p2", 2, lease: 3)
    },
    .legal(.orderOfKeys, "the end of the earlier one has no answer") {
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
    .illegal(.orderOfKeys, "the later one goes first") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.perform("p1", 2, lease: 1)
      $0.perform("p1", 1, lease: 2)
    },
    .illegal(.orderOfKeys, "the later one goes between two attempts") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.perform("p2", 2, lease: 2)
      $0.claim("p1", 1, lease: 3, retries: 1)
    },
    .illegal(.orderOfKeys, "one batch has both, and the later one goes first") {
      $0.change("p1", [HistoryScript.insertion(1, "a"), HistoryScript.insertion(2, "a")])
      $0.perform("p1", 2, lease: 1)
    },
  ]

  static let waiting: [HistoryExample] = [
    .legal(.waitingTasksAreLast, "the follower is last, and ends once") {
      $0.insert(9)
      $0.insert(1, follower: 9)
      $0.insert(2, follower: 9)
      $0.perform("p1", 1, lease: 1)
      $0.perform("p2", 2, lease: 2)
      $0.perform("p2", 9, lease: 3)
    },
    .legal(.waitingTasksAreLast, "one of the batch was cancelled along with another task") {
      $0.insert(9)
      $0.insert(1)
      $0.insert(2, follower: 9, after: [1])
      $0.step("p1", .cancel, 1, lease: nil, along: [2])
      $0.perform("p2", 9, lease: 3)
    },
    .illegal(.waitingTasksAreLast, "the follower goes before one of the batch has ended") {
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
    .illegal(.waitingTasksAreLast, "a task goes before the one that it names") {
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
    .legal(.limitsHold, "two within the interval, and the third one later", limits) {
      for number: UInt64 in 1...3 {
        $0.insert(number)
        if number == 3 { $0.pass(8) }
        $0.perform("p1", number, lease: number)
      }
    },
    .legal(.limitsHold, "the third one may have been counted before", limits) {
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
    .legal(.everythingEnds, "what was paused stays", bound) {
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
    .illegal(.everythingEnds, "a task is left", bound) {
      $0.insert(1)
      $0.endFaults()
      $0.pass(61)
      $0.remain([1: "waiting"])
    },
  ]
}
