import SteadfastTesting

/// Examples of tasks that are lost, added or ended: the promises H1, H2 and H3.
extension HistoryExample {
  static let lost: [HistoryExample] = [
    .legal(.nothingIsLost, "each task ended or is still stored") {
      $0.insertTask(1)
      $0.insertTask(2)
      $0.perform(by: "p2", task: 1, lease: 1)
      $0.recordRemainingTasks([2: "waiting"])
    },
    .legal(.nothingIsLost, "an unanswered end may have removed the task") {
      $0.insertTask(1)
      $0.claim(by: "p2", task: 1, lease: 1)
      $0.succeed(by: "p2", task: 1, lease: 1, answer: .none)
      $0.recordRemainingTasks()
    },
    .legal(.nothingIsLost, "an unanswered insertion may not have been applied") {
      $0.insertTask(1, answer: .unanswered)
      $0.recordRemainingTasks()
    },
    .legal(.nothingIsLost, "a task with a cascaded cancellation is missing") {
      $0.insertTask(1)
      $0.insertTask(2, after: [1])
      $0.change(by: "p1", .cancel, task: 1, lease: nil, along: [2])
      $0.recordRemainingTasks()
    },
    .legal(.nothingIsLost, "an unanswered abandonment may have cancelled another task") {
      $0.insertTask(1)
      $0.insertTask(2, after: [1])
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .abandon, task: 1, lease: 1, answer: .unanswered)
      $0.recordRemainingTasks()
    },
    .legal(.nothingIsLost, "a task was added after the final look-up") {
      $0.recordRemainingTasks()
      $0.insertTask(1)
    },
    .illegal(.nothingIsLost, "an acknowledged task is missing") {
      $0.insertTask(1)
      $0.recordRemainingTasks()
    },
    .illegal(.nothingIsLost, "a task whose end was stale is missing") {
      $0.insertTask(1)
      $0.claim(by: "p2", task: 1, lease: 1)
      $0.succeed(by: "p2", task: 1, lease: 1, answer: .stale)
      $0.recordRemainingTasks()
    },
  ]

  static let added: [HistoryExample] = [
    .legal(.nothingIsAdded, "an unanswered insertion was applied") {
      $0.insertTask(1, answer: .unanswered)
      $0.perform(by: "p2", task: 1, lease: 1)
      $0.recordRemainingTasks()
    },
    .legal(.nothingIsAdded, "an insertion was repeated, and the task ended once") {
      $0.insertTask(1, answer: .unanswered)
      $0.insertTask(1)
      $0.perform(by: "p2", task: 1, lease: 1)
      $0.recordRemainingTasks()
    },
    .illegal(.nothingIsAdded, "a task that no process enqueued was claimed") {
      $0.perform(by: "p2", task: 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task whose insertion was rejected was claimed") {
      $0.insertTask(1, answer: .refused)
      $0.perform(by: "p2", task: 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task that no process enqueued remains") {
      $0.recordRemainingTasks([1: "waiting"])
    },
    .illegal(.nothingIsAdded, "an insertion repeated after the end added the task again") {
      $0.insertTask(1, answer: .unanswered)
      $0.perform(by: "p2", task: 1, lease: 1)
      $0.insertTask(1)
      $0.perform(by: "p2", task: 1, lease: 2)
    },
    .illegal(.nothingIsAdded, "an insertion was repeated after the end, and the task remains") {
      $0.insertTask(1, answer: .unanswered)
      $0.perform(by: "p2", task: 1, lease: 1)
      $0.insertTask(1)
      $0.recordRemainingTasks([1: "waiting"])
    },
  ]

  static let ends: [HistoryExample] = [
    .legal(.oneEnd, "a stale end is rejected") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      $0.succeed(by: "p1", task: 1, lease: 1, answer: .stale)
      $0.succeed(by: "p2", task: 1, lease: 2)
      $0.recordRemainingTasks()
    },
    .legal(.oneEnd, "an end is repeated because the first response was lost") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.succeed(by: "p1", task: 1, lease: 1, answer: .unanswered)
      $0.succeed(by: "p1", task: 1, lease: 1)
      $0.recordRemainingTasks()
    },
    .legal(.oneEnd, "a restarted task ends again") {
      $0.insertTask(1)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .restart, task: 1, lease: nil)
      $0.perform(by: "p2", task: 1, lease: 2)
      $0.recordRemainingTasks([1: "succeeded"])
    },
    .illegal(.oneEnd, "a stale end is accepted") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      $0.succeed(by: "p1", task: 1, lease: 1)
      $0.succeed(by: "p2", task: 1, lease: 2, answer: .stale)
    },
    .illegal(.oneEnd, "a stale retry is accepted") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.advanceDate(by: 30)
      $0.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
    },
    .illegal(.oneEnd, "both claimants end the task") { script in
      script.insertTask(1)
      script.claim(by: "p1", task: 1, lease: 1)
      script.advanceDate(by: 30)
      script.claim(by: "p2", task: 1, lease: 2, interruptions: 1)
      let calls = ["p1", "p2"].enumerated().map { number, process in
        script.request(
          [HistoryChange(.succeed, task: HistoryScript.id(1), lease: UInt64(number + 1))],
          by: process
        )
      }
      script.answer(call: calls[0], of: "p1")
      script.answer(call: calls[1], of: "p2")
    },
    .illegal(.oneEnd, "an end with a forged lease is accepted") {
      $0.insertTask(1)
      $0.succeed(by: "p1", task: 1, lease: 7)
    },
    .illegal(.oneEnd, "a claim is ended twice") {
      $0.insertTask(1)
      $0.claim(by: "p1", task: 1, lease: 1)
      $0.change(by: "p1", .release, task: 1, lease: 1)
      $0.change(by: "p1", .retry, task: 1, lease: 1, retryCount: 1)
    },
    .illegal(.oneEnd, "an accepted end is lost") {
      $0.insertTask(1)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.recordRemainingTasks([1: "waiting"])
    },
    .illegal(.oneEnd, "a task is claimed after its end") {
      $0.insertTask(1)
      $0.perform(by: "p1", task: 1, lease: 1)
      $0.claim(by: "p2", task: 1, lease: 2)
    },
  ]
}
