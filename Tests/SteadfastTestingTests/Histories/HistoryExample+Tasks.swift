import SteadfastTesting

/// What becomes of tasks: H1, H2 and H3.
extension HistoryExample {
  static let lost: [HistoryExample] = [
    .legal(.nothingIsLost, "it ended, or is there") {
      $0.insert(1)
      $0.insert(2)
      $0.perform("p2", 1, lease: 1)
      $0.remain([2: "waiting"])
    },
    .legal(.nothingIsLost, "an end without an answer may have removed it") {
      $0.insert(1)
      $0.claim("p2", 1, lease: 1)
      $0.succeed("p2", 1, lease: 1, .none)
      $0.remain()
    },
    .legal(.nothingIsLost, "an insertion without an answer may not have been carried out") {
      $0.insert(1, .unanswered)
      $0.remain()
    },
    .legal(.nothingIsLost, "one that was cancelled along with another is gone") {
      $0.insert(1)
      $0.insert(2, after: [1])
      $0.step("p1", .cancel, 1, lease: nil, along: [2])
      $0.remain()
    },
    .legal(.nothingIsLost, "an abandonment without an answer may have cancelled another one") {
      $0.insert(1)
      $0.insert(2, after: [1])
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .abandon, 1, lease: 1, .unanswered)
      $0.remain()
    },
    .legal(.nothingIsLost, "it was added after the others were looked up") {
      $0.remain()
      $0.insert(1)
    },
    .illegal(.nothingIsLost, "an acknowledged task is gone") {
      $0.insert(1)
      $0.remain()
    },
    .illegal(.nothingIsLost, "a task is gone whose end was stale") {
      $0.insert(1)
      $0.claim("p2", 1, lease: 1)
      $0.succeed("p2", 1, lease: 1, .stale)
      $0.remain()
    },
  ]

  static let added: [HistoryExample] = [
    .legal(.nothingIsAdded, "an insertion without an answer was carried out") {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.remain()
    },
    .legal(.nothingIsAdded, "an insertion was sent again, and the task ended once") {
      $0.insert(1, .unanswered)
      $0.insert(1)
      $0.perform("p2", 1, lease: 1)
      $0.remain()
    },
    .illegal(.nothingIsAdded, "a task was handed out that no process has enqueued") {
      $0.perform("p2", 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task was handed out whose insertion was refused") {
      $0.insert(1, .refused)
      $0.perform("p2", 1, lease: 1)
    },
    .illegal(.nothingIsAdded, "a task is left that no process has enqueued") {
      $0.remain([1: "waiting"])
    },
    .illegal(.nothingIsAdded, "an insertion was sent again after the task had ended, and added it")
    {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.insert(1)
      $0.perform("p2", 1, lease: 2)
    },
    .illegal(.nothingIsAdded, "an insertion was sent again after the end, and the task is there") {
      $0.insert(1, .unanswered)
      $0.perform("p2", 1, lease: 1)
      $0.insert(1)
      $0.remain([1: "waiting"])
    },
  ]

  static let ends: [HistoryExample] = [
    .legal(.oneEnd, "a stale end is refused") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.pass(30)
      $0.claim("p2", 1, lease: 2, interruptions: 1)
      $0.succeed("p1", 1, lease: 1, .stale)
      $0.succeed("p2", 1, lease: 2)
      $0.remain()
    },
    .legal(.oneEnd, "an end is sent again, because the first answer was lost") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.succeed("p1", 1, lease: 1, .unanswered)
      $0.succeed("p1", 1, lease: 1)
      $0.remain()
    },
    .legal(.oneEnd, "a task that is restarted ends again") {
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
    .illegal(.oneEnd, "both holders end the task") { script in
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
    .illegal(.oneEnd, "an end is accepted with a lease that was never handed out") {
      $0.insert(1)
      $0.succeed("p1", 1, lease: 7)
    },
    .illegal(.oneEnd, "a claim is ended twice") {
      $0.insert(1)
      $0.claim("p1", 1, lease: 1)
      $0.step("p1", .release, 1, lease: 1)
      $0.step("p1", .retry, 1, lease: 1, retryCount: 1)
    },
    .illegal(.oneEnd, "an accepted end is forgotten") {
      $0.insert(1)
      $0.perform("p1", 1, lease: 1)
      $0.remain([1: "waiting"])
    },
    .illegal(.oneEnd, "a task is handed out after its end") {
      $0.insert(1)
      $0.perform("p1", 1, lease: 1)
      $0.claim("p2", 1, lease: 2)
    },
  ]
}
