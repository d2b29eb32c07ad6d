import SteadfastTesting

/// Who holds a task, and what is counted: H4, H5 and H7.
extension HistoryExample {
  static let holders: [HistoryExample] = [
    .legal(.oneHolder, "the claim has run out, and the first attempt goes on") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      let first = $0.begin("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      let second = $0.begin("p2", 1, lease: 2)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .legal(.oneHolder, "a process that was stopped begins with a claim that has run out") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      let second = $0.begin("p2", 1, lease: 2)
      let first = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .legal(.oneHolder, "the first process has given the task back") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
    },
    .legal(.oneHolder, "a release without an answer may have given the task back") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1, .unanswered)
      $0.claim("p2", 1, lease: 2)
    },
    .legal(.oneHolder, "an extension that is shorter than the claim has run out") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .extend, 1, lease: 1, seconds: 2)
      $0.pass(1)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "a store that one queue uses was opened again") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1, seconds: nil)
      $0.add("p2", .opening)
      $0.claim("p2", 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .legal(
      .oneHolder,
      "the store's clock goes a little faster",
      History.Expectations(clockTolerance: .seconds(5))
    ) {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(25)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "the answer to the first claim is late, and the leases are any numbers") {
      $0.insert(1)
      let call = $0.askForTasks("p1")
      $0.pass(30)
      $0.claim("p2", 1, lease: 4, interruptions: 1)
      $0.grant("p1", call, 1, lease: 7)
      $0.succeed("p2", 1, lease: 4)
    },
    .illegal(.oneHolder, "claims that overlap hand a task out to two") {
      $0.insert(1)
      let calls = [$0.askForTasks("p1"), $0.askForTasks("p2")]
      $0.pass(1)
      $0.grant("p1", calls[0], 1, lease: 1)
      $0.grant("p2", calls[1], 1, lease: 2)
    },
    .illegal(.oneHolder, "the claim has not run out") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(25)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "the claim was extended") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(20)
      $0.step("p1", .extend, 1, lease: 1, seconds: 30)
      $0.pass(20)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "a lease is handed out twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.claim("p2", 1, lease: 1)
    },
    .illegal(.oneHolder, "a store that one queue uses hands a task out twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1, seconds: nil)
      $0.pass(3600)
      $0.claim("p1", 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .illegal(.oneHolder, "a process begins a task that it has given back") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
      let second = $0.begin("p2", 1, lease: 2)
      let first = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p2", second)
    },
    .illegal(.oneHolder, "an attempt begins beside another one") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      let first = $0.begin("p1", 1, lease: 1)
      $0.pass(1)
      let second = $0.begin("p1", 1, lease: 1)
      $0.end("p1", first)
      $0.end("p1", second)
    },
  ]

  /// A claim is answered after another one has ended in a retry, and a third one shows retries.
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
    .legal(.exactCounts, "the answer to a claim comes after another claim has ended in a retry") {
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
    .legal(.exactCounts, "a retry without an answer was carried out, or not") {
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
    .legal(.exactCounts, "a step that is remembered forgets interruptions") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.step("p2", .remember, 1, lease: 2)
      $0.pass(30)
      $0.claim("p1", 1, lease: 3, interruptions: 1)
    },
    .legal(.exactCounts, "a claim without an answer has run out as well") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      _ = $0.askForTasks("p2")
      $0.pass(30)
      $0.claim("p1", 1, lease: 3, interruptions: 2)
    },
    .illegal(.exactCounts, "a claim without an answer had no time to run out") {
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
    .legal(.oneRunnerForKey, "of two keys, at the same time") {
      $0.insert(1, orderKey: "a")
      $0.insert(2, orderKey: "b")
      $0.claim("p1", 1, lease: 1)
      $0.claim("p2", 2, lease: 2)
    },
    .illegal(.oneRunnerForKey, "two insertions that overlap are both handed out") { script in
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
