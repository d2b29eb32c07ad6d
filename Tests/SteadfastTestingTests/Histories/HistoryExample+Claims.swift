import SteadfastTesting

/// Examples of claims, counts and order keys: the promises H4, H5 and H7.
extension HistoryExample {
  static let holders: [HistoryExample] = [
    .legal(.oneHolder, "the lease has expired, and the first attempt continues") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      let first = $0.beginAttempt(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      let second = $0.beginAttempt(by: "p2", task: 1, lease: 2)
      $0.endAttempt(by: "p1", first)
      $0.endAttempt(by: "p2", second)
    },
    .legal(.oneHolder, "a stopped process starts with an expired lease") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      let second = $0.beginAttempt(by: "p2", task: 1, lease: 2)
      let first = $0.beginAttempt(by: "p1", task: 1, lease: 1)
      $0.endAttempt(by: "p1", first)
      $0.endAttempt(by: "p2", second)
    },
    .legal(.oneHolder, "the first process has released the task") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .release, task: 1, lease: 1)
      $0.claim(by: "p2", task: 1, lease: 2)
    },
    .legal(.oneHolder, "an unanswered release may have been applied") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .release, task: 1, lease: 1, answer: .unanswered)
      $0.claim(by: "p2", task: 1, lease: 2)
    },
    .legal(.oneHolder, "an extension shorter than the lease has expired") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .extend, task: 1, lease: 1, seconds: 2)
      $0.advanceDate(by: 1)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "a store of a single queue was opened again") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1, seconds: nil)
      $0.add(.opening, by: "p2")
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .legal(
      .oneHolder,
      "the store's clock runs slightly fast",
      History.Expectations(clockTolerance: .seconds(5))
    ) {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 25)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    },
    .legal(.oneHolder, "the first claim's response is late, and tokens are not in order") {
      $0.insertTask(1)
      let call = $0.requestTasks(by: "p1")
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 4, interruptions: 1)
      $0.grantTask(1, to: "p1", call: call, lease: 7)
      $0.succeed(by: "p2", task: 1, lease: 4)
    },
    .illegal(.oneHolder, "overlapping claims return the same task") {
      $0.insertTask(1)
      let calls = [$0.requestTasks(by: "p1"), $0.requestTasks(by: "p2")]
      $0.advanceDate(by: 1)
      $0.grantTask(1, to: "p1", call: calls[0], lease: 1)
      $0.grantTask(1, to: "p2", call: calls[1], lease: 2)
    },
    .illegal(.oneHolder, "the lease has not expired") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 25)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "the lease was extended") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 20)
      $0.change(by: "p1", .extend, task: 1, lease: 1, seconds: 30)
      $0.advanceDate(by: 20)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    },
    .illegal(.oneHolder, "two claims return the same lease") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.claim(by: "p2", task: 1, lease: 1)
    },
    .illegal(.oneHolder, "a store of a single queue returns a task twice") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1, seconds: nil)
      $0.advanceDate(by: 3600)
      $0.claim(by: "p1", task: 1, lease: 2, interruptions: 1, seconds: nil)
    },
    .illegal(.oneHolder, "a process starts a task that it has released") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .release, task: 1, lease: 1)
      $0.claim(by: "p2", task: 1, lease: 2)
      let second = $0.beginAttempt(by: "p2", task: 1, lease: 2)
      let first = $0.beginAttempt(by: "p1", task: 1, lease: 1)
      $0.endAttempt(by: "p1", first)
      $0.endAttempt(by: "p2", second)
    },
    .illegal(.oneHolder, "an attempt starts beside another one") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      let first = $0.beginAttempt(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 1)
      let second = $0.beginAttempt(by: "p1", task: 1, lease: 1)
      $0.endAttempt(by: "p1", first)
      $0.endAttempt(by: "p1", second)
    },
  ]

  /// Writes three claims of a task.
  ///
  /// The response to the first comes after the second has ended in a retry. The third claim reports
  /// this number of retries.
  private static func writeLateAnswer(in script: inout HistoryScript, retries: Int) {
    script.insertTask(1)
    let call = script.requestTasks(by: "p1")
    script.advanceDate(by: 30)
    script.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    script.change(by: "p2", .retry, task: 1, lease: 2, retryCount: 1)
    script.grantTask(1, to: "p1", call: call, lease: 1)
    script.claim(by: "p3", task: 1, lease: 3, retries: retries)
  }

  static let counts: [HistoryExample] = [
    .legal(.exactCounts, "a claim's response comes after another claim has ended in a retry") {
      writeLateAnswer(in: &$0, retries: 1)
    },
    .illegal(.exactCounts, "no order of two claims explains the count") {
      writeLateAnswer(in: &$0, retries: 2)
    },
    .legal(.exactCounts, "a retry, an interruption, and another one") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
      $0.claim(by: "p1", task: 1, lease: 2, retries: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 3, retries: 1, interruptions: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p1", task: 1, lease: 4, retries: 1, interruptions: 2)
    },
    .legal(.exactCounts, "an unanswered retry may have been applied") {
      for number: UInt64 in 1...2 {
        let interruptions = number == 1 ? 0 : 1
        $0.insertTask(number)
        $0.claim(by: "p1", task: number, lease: 1)
        $0.change(by: "p1", .retry, task: number, lease: 1, answer: .unanswered, retryCount: 1)
        $0.advanceDate(by: 30)
        $0.claim(
          by: "p2",
          task: number,
          lease: 2,
          retries: 1 - interruptions,
          interruptions: interruptions
        )
      }
    },
    .legal(.exactCounts, "remembering a step resets the interruptions") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      $0.change(by: "p2", .remember, task: 1, lease: 2)
      $0.advanceDate(by: 30)
      $0.claim(by: "p1", task: 1, lease: 3, interruptions: 1)
    },
    .legal(.exactCounts, "the lease of an unanswered claim has expired too") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      _ = $0.requestTasks(by: "p2")
      $0.advanceDate(by: 30)
      $0.claim(by: "p1", task: 1, lease: 3, interruptions: 2)
    },
    .illegal(.exactCounts, "the lease of an unanswered claim can't have expired yet") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      _ = $0.requestTasks(by: "p2")
      $0.claim(by: "p1", task: 1, lease: 3, interruptions: 2)
    },
    .illegal(.exactCounts, "an interruption is not counted") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2)
    },
    .illegal(.exactCounts, "an interruption is counted twice") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 2)
    },
    .illegal(.exactCounts, "a release counts as an interruption") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .release, task: 1, lease: 1)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
    },
    .illegal(.exactCounts, "a retry is not counted") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
      $0.claim(by: "p2", task: 1, lease: 2)
    },
    .illegal(.exactCounts, "a new task has a retry") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1, retries: 1)
    },
  ]

  static let runners: [HistoryExample] = [
    .legal(.oneRunnerForKey, "one after another") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "a")
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.perform(by: "p2", task: 2, lease: 2)
    },
    .legal(.oneRunnerForKey, "two keys at the same time") {
      $0.insertTask(1, orderKey: "a")
      $0.insertTask(2, orderKey: "b")
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.claim(by: "p2", task: 2, lease: 2)
    },
    .illegal(.oneRunnerForKey, "tasks of two overlapping insertions are both claimed") { script in
      let calls = (1...2).map { number in
        script.request(
          [HistoryScript.insertion(of: UInt64(number), orderKey: "a")],
          by: "p\(number)"
        )
      }
      script.answer(call: calls[0], of: "p1")
      script.answer(call: calls[1], of: "p2")
      script.claim(by: "p1", task: 1, lease: 1)
      script.claim(by: "p2", task: 2, lease: 2)
    },
  ]
}
