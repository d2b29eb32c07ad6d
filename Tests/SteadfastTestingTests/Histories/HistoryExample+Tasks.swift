import SteadfastTesting

/// Examples about the fate of tasks: H1, H2 and H3.
extension HistoryExample {
  static let lost: [HistoryExample] = [
    .legal(.nothingIsLost, "each task ended or is still stored") {
      $0.insert(1)
      $0.insert(2)
      $0.perform("p2", 1, lease: 1)
      $0.remain([2: "waiting"])
    },
    .legal(.nothingIsLost, "an unanswered end may have removed the task") {
      $0.insert(1)
      $0.claim("p2", 1, lease: 1)
      $0.succeed("p2", 1, lease: 1, .none)
      $0.remain()
    },
    .legal(.nothingIsLost, "an unanswered insertion may not have been applied") {
      $0.insert(1, .unanswered)
      $0.remain()
    },
    .legal(.nothingIsLost, "a task with a cascaded cancellation is missing") {
      $0.insert(1)
      $0.insert(2, after: [1])
      $0.step("p1", .cancel, 1, lease: nil, along: [2])
      $0.remain()
    },
    .legal(.nothingIsLost, "an unanswered abandonment may have cancelled another task") {
      $0.insert(1)
      $0.insert(2, after: [1])
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .abandon, 1, lease: 1, .unanswered)
      $0.remain()
    },
    .legal(.nothingIsLost, "a task was added after the final look-up") {
      $0.remain()
      $0.insert(1)
    },
    .illegal(.nothingIsLost, "an acknowledged task is missing") {
      $0.insert(1)
      $0.remain()
    },
    .illegal(.nothingIsLost, "a task whose end was stale is missing") {
      $0.insert(1)
      $0.claim("p2", 1, lease: 1)
      $0.succeed("p2", 1, lease: 1, .stale)
      $0.remain()
    },
  ]

  static let added: [HistoryExample] = [
    .legal(.nothingIsAdded, "an unanswered insertion was applied") {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.remain()
    },
    .legal(.nothingIsAdded, "an insertion was repeated, and the task ended once") {
      $0.insert(1, .unanswered)
      $0.insert(1)
      $0.perform("p2", 1, lease: 1)
      $0.remain()
    },
    .illegal(.nothingIsAdded, "a task that no process enqueued was claimed") {
      $0.perform("p2", 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task whose insertion was rejected was claimed") {
      $0.insert(1, .refused)
      $0.perform("p2", 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task that no process enqueued remains") {
      $0.remain([1: "waiting"])
    },
    .illegal(.nothingIsAdded, "an insertion repeated after the end added the task again") {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.insert(1)
      $0.perform("p2", 1, lease: 2)
    },
    .illegal(.nothingIsAdded, "an insertion was repeated after the end, and the task remains") {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.insert(1)
      $0.remain([1: "waiting"])
    },
  ]

  static let ends: [HistoryExample] = [
    .legal(.oneEnd, "a stale end is rejected") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.succeed("p1", 1, lease: 1, .stale)
      $0.succeed("p2", 1, lease: 2)
      $0.remain()
    },
    .legal(.oneEnd, "an end is repeated because the first response was lost") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.succeed("p1", 1, lease: 1, .unanswered)
      $0.succeed("p1", 1, lease: 1)
      $0.remain()
    },
    .legal(.oneEnd, "a restarted task ends again") {
      $0.insert(1)
      $0.perform("p1", 1, lease: 1)
      $0.step("p1", .restart, 1, lease: nil)
      $0.perform("p2", 1, lease: 2)
      $0.remain([1: "succeeded"])
    },
    .illegal(.oneEnd, "a stale end is accepted") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.succeed("p1", 1, lease: 1)
      $0.succeed("p2", 1, lease: 2, .stale)
    },
    .illegal(.oneEnd, "a stale retry is accepted") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
    },
    .illegal(.oneEnd, "both claimants end the task") { script in
      script.insert(1)
      script.claim("p1", 1, lease: 1)
      script.pass(30)
      script.claim("p2", 1, lease: 2, interruptions: 1)
      let calls = ["p1", "p2"].enumerated().map { number, process in
        script.ask(
          process,
          [HistoryChange(.succeed, task: HistoryScript.id(1), lease: UInt64(number + 1))]
        )
      }
      script.answer("p1", calls[0])
      script.answer("p2", calls[1])
    },
    .illegal(.oneEnd, "an end with a forged lease is accepted") {
      $0.insert(1)
      $0.succeed("p1", 1, lease: 7)
    },
    .illegal(.oneEnd, "a claim is ended twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
    },
    .illegal(.oneEnd, "an accepted end is lost") {
      $0.insert(1)
      $0.perform("p1", 1, lease: 1)
      $0.remain([1: "waiting"])
    },
    .illegal(.oneEnd, "a task is claimed after its end") {
      $0.insert(1)
      $0.perform("p1", 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
    },
  ]
}
