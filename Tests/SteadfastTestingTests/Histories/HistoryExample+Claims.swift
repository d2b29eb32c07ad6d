import SteadfastTesting

/// Examples about leases and counts: H4, H5 and H7.
extension HistoryExample {
  static let holders: [HistoryExample] = [
    .legal(.oneHolder, "the lease has expired, and the first attempt continues") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      let first = $0.begin("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      let second = $0.begin("p2", 1, lease: 2)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .legal(.oneHolder, "a stopped process starts with an expired lease") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      let second = $0.begin("p2", 1, lease: 2)
      let first = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .legal(.oneHolder, "the first process has released the task") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
    },
    .legal(.oneHolder, "an unanswered release may have been applied") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1, .unanswered)
      $0.claim("p2", 1, lease: 2)
    },
    .legal(.oneHolder, "an extension shorter than the lease has expired") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .extend, 1, lease: 1, seconds: 2)
      $0.pass(1)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "a store of a single queue was opened again") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1, seconds: nil)
      $0.add("p2", .opening)
      $0.claim("p2", 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .legal(
      .oneHolder,
      "the store's clock runs slightly fast",
      History.Expectations(clockTolerance: .seconds(5))
    ) {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(25)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "the first claim's response is late, and tokens are not in order") {
      $0.insert(1)
      let call = $0.askForTasks("p1")
      $0.pass(30)
      $0.claim("p2", 1, lease: 4, interruptions: 1)
      $0.grant("p1", call, 1, lease: 7)
      $0.succeed("p2", 1, lease: 4)
    },
    .illegal(.oneHolder, "overlapping claims return the same task") {
      $0.insert(1)
      let calls = [$0.askForTasks("p1"), $0.askForTasks("p2")]
      $0.pass(1)
      $0.grant("p1", calls[0], 1, lease: 1)
      $0.grant("p2", calls[1], 1, lease: 2)
    },
    .illegal(.oneHolder, "the lease has not expired") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(25)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "the lease was extended") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(20)
      $0.step("p1", .extend, 1, lease: 1, seconds: 30)
      $0.pass(20)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "two claims return the same lease") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.claim("p2", 1, lease: 1)
    },
    .illegal(.oneHolder, "a store of a single queue returns a task twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1, seconds: nil)
      $0.pass(3600)
      $0.claim("p1", 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .illegal(.oneHolder, "a process starts a task that it has released") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
      let second = $0.begin("p2", 1, lease: 2)
      let first = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .illegal(.oneHolder, "an attempt starts beside another one") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      let first = $0.begin("p1", 1, lease: 1)
      $0.pass(1)
      let second = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p1", second)
    },
  ]

  /// Writes a claim whose response comes after another claim has ended in a retry, and a third
  /// claim that shows `retries`.
  private static func answerLate(_ script: inout HistoryScript, retries: Int) {
    script.insert(1)
    let call = script.askForTasks("p1")
    script.pass(30)
    script.claim("p2", 1, lease: 2, interruptions: 1)
    script.step("p2", .retry, 1, lease: 2, retryCount: 1)
    script.grant("p1", call, 1, lease: 1)
    script.claim("p3", 1, lease: 3, retries: retries)
  }

  static let counts: [HistoryExample] = [
    .legal(.exactCounts, "a claim's response comes after another claim has ended in a retry") {
      answerLate(&$0, retries: 1)
    },
    .illegal(.exactCounts, "no order of two claims explains the count") {
      answerLate(&$0, retries: 2)
    },
    .legal(.exactCounts, "a retry, an interruption, and another one") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.claim("p1", 1, lease: 2, retries: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 3, retries: 1, interruptions: 1)
      $0.pass(30)
      $0.claim("p1", 1, lease: 4, retries: 1, interruptions: 2)
    },
    .legal(.exactCounts, "an unanswered retry may have been applied") {
      for number: UInt64 in 1...2 {
        let interruptions = number == 1 ? 0 : 1
        $0.insert(number)
        $0.claim("p1", number, lease: 1)
        $0.step("p1", .retry, number, lease: 1, .unanswered, retryCount: 1)
        $0.pass(30)
        $0.claim(
          "p2",
          number,
          lease: 2,
          retries: 1 - interruptions,
          interruptions: interruptions
        )
      }
    },
    .legal(.exactCounts, "remembering a step resets the interruptions") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.step("p2", .remember, 1, lease: 2)
      $0.pass(30)
      $0.claim("p1", 1, lease: 3, interruptions: 1)
    },
    .legal(.exactCounts, "the lease of an unanswered claim has expired too") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      _ = $0.askForTasks("p2")
      $0.pass(30)
      $0.claim("p1", 1, lease: 3, interruptions: 2)
    },
    .illegal(.exactCounts, "the lease of an unanswered claim can't have expired yet") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      _ = $0.askForTasks("p2")
      $0.claim("p1", 1, lease: 3, interruptions: 2)
    },
    .illegal(.exactCounts, "an interruption is not counted") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2)
    },
    .illegal(.exactCounts, "an interruption is counted twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 2)
    },
    .illegal(.exactCounts, "a release counts as an interruption") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .illegal(.exactCounts, "a retry is not counted") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
      $0.claim("p2", 1, lease: 2)
    },
    .illegal(.exactCounts, "a new task has a retry") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1, retries: 1)
    },
  ]

  static let runners: [HistoryExample] = [
    .legal(.oneRunnerForKey, "one after another") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "a")
      $0.perform("p1", 1, lease: 1)
      $0.perform("p2", 2, lease: 2)
    },
    .legal(.oneRunnerForKey, "two keys at the same time") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "b")
      $0.claim("p1", 1, lease: 1)
      $0.claim("p2", 2, lease: 2)
    },
    .illegal(.oneRunnerForKey, "tasks of two overlapping insertions are both claimed") { script in
      let calls = (1...2).map { number in
        script.ask("p\(number)", [HistoryScript.insertion(UInt64(number), "a")])
      }
      script.answer("p1", calls[0])
      script.answer("p2", calls[1])
      script.claim("p1", 1, lease: 1)
      script.claim("p2", 2, lease: 2)
    },
  ]
}
