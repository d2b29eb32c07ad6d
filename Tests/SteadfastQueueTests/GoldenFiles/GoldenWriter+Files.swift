import Foundation

@testable import SteadfastQueue

extension GoldenWriter {
  /// Writes every field of a task, and every format of payload.
  mutating func writeFields() throws {
    let escapes = "\"quoted\" \\ /\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f} é \u{2028} 👩‍👩‍👧 e\u{301}"
    let payloads = [
      StoredPayload(
        Array(#"{"b":[1,-2.5e+3,true,null],"a":{"ü/":"\u00e9\n"}}"#.utf8),
        format: .json
      ),
      StoredPayload([], format: .binary),
      StoredPayload(Array(0...255), format: .binary, version: 7),
      StoredPayload([0x7B, 0x0A, 0x7D], format: .json, version: -1),
      StoredPayload([1, 2], format: .sealedJSON, version: 2),
      StoredPayload([3, 4, 5], format: .sealedBinary),
    ]
    for (index, payload) in payloads.enumerated() {
      let isFull = index == 0
      let record = TaskRecord(
        id: TaskID(high: .max - UInt64(index), low: 0x0123_4567_89AB_CDEF),
        name: isFull ? escapes : "",
        payload: payload,
        priority: TaskQueue.Priority(rawValue: [.max, .min, 0, -1, 1, 50][index]),
        createdDate: [
          .distantPast, .seconds(0), date(0.123_456_7), date(0.1), .seconds(-0.5), date(1),
        ][
          index
        ],
        maxRetries: [.alwaysRetry, .atMost(0), .atMost(.max), 10, 3, 1][index],
        usesBackoff: !isFull,
        uniqueKey: [escapes, "", nil, nil, nil, nil][index],
        tags: [[escapes, "b", "a", ""], ["only"], [], [], [], []][index],
        timeLimit: [
          .seconds(1 << 60), Duration(attoseconds: 1), .milliseconds(1500), nil, nil, nil,
        ][index],
        expiryDate: [.distantFuture, date(60), nil, nil, nil, nil][index],
        state: [.waiting, .parked, .paused, .succeeded, .abandoned, .cancelled][index],
        availableDate: [
          date(0), .distantFuture, .distantPast, date(0.5), date(1e-6), .seconds(1e15),
        ][
          index
        ],
        retryCount: [.max, 1, 0, 0, 3, 0][index],
        interruptionCount: [.max, 2, 0, 0, 0, 0][index],
        lastError: [escapes, "", nil, nil, "gave up", nil][index],
        failedDate: [date(3), nil, nil, nil, date(4), nil][index],
        finishedDate: [nil, nil, nil, date(5), date(6), nil][index]
      )
      try change(.insert(record, onDuplicate: .keep))
    }
  }

  /// Writes every change, with and without its optional fields.
  mutating func writeChanges() throws {
    for number in 1...24 { try insert(task(number, name: number < 20 ? "Note" : "Other")) }
    try begin(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21)
    try change(
      .succeed(lease(1), at: date(10), retains: true),
      .succeed(lease(2), at: date(11), retains: false),
      .abandon(lease(3), failure: failure(3), retains: true),
      .abandon(lease(4), failure: failure(4), retains: false),
      .cancel(.claimed(lease(5)), at: date(12), retains: true),
      .cancel(.unclaimed(.numbered(14)), at: date(13), retains: false),
      .cancel(.unclaimed(.numbered(15)), at: date(14), retains: true),
      .retry(lease(6), availableDate: date(200), retryCount: 2, failure: failure(6)),
      .retry(lease(7), availableDate: date(0.75), retryCount: 0, failure: nil),
      .release(lease(8)),
      .park(lease(9), failure: failure(9)),
      .park(lease(20), failure: failure(20)),
      .park(lease(21), failure: failure(21)),
      .pause(.claimed(lease(10))),
      .pause(.unclaimed(.numbered(16))),
      .pause(.unclaimed(.numbered(21))),
      .resume(.numbered(16)),
      .restart(.claimed(lease(11)), availableDate: date(15)),
      .restart(.unclaimed(.numbered(3)), availableDate: date(16)),
      .restart(.unclaimed(.numbered(17)), availableDate: date(17)),
      .extend(lease(12), for: .seconds(18)),
      .cancel(.unclaimed(.numbered(18)), at: date(19), retains: true),
      .remove(.numbered(18)),
      .unpark(name: "Other"),
      .unpark(name: "None of this name")
    )
    try begin(12, 12)
  }

  /// Writes batches, and tasks that are pruned.
  mutating func writeOrder() throws {
    try append(
      .change(.insert(task(1, priority: 1), onDuplicate: .keep)),
      .change(.insert(task(2, priority: 1), onDuplicate: .keep)),
      .change(.insert(task(3, available: -1), onDuplicate: .keep))
    )
    try append(.begin(.numbered(1)), .begin(.numbered(2)), .begin(.numbered(3)), isRelaxed: true)
    try append(
      .change(.release(lease(2))),
      .change(.retry(lease(1), availableDate: date(0), retryCount: 1, failure: nil)),
      isRelaxed: true
    )
    for number in 4...12 { try insert(task(number)) }
    for (place, number) in [12, 4, 11, 5, 10].enumerated() {
      try begin(number)
      try change(.succeed(lease(number), at: date(Double(50 - place)), retains: true))
    }
    try change(
      .prune(.succeeded, endedBefore: nil, keepingLatest: 4, now: .distantPast),
      .prune(.succeeded, endedBefore: date(48.5), keepingLatest: nil, now: .distantPast)
    )
    for number in [6, 7, 8] {
      try change(.cancel(.unclaimed(.numbered(number)), at: date(Double(number)), retains: true))
    }
    try change(
      .prune(.cancelled, endedBefore: date(7), keepingLatest: 9, now: .distantPast),
      .prune(.abandoned, endedBefore: date(99), keepingLatest: 0, now: .distantPast)
    )
  }

  /// Writes changes during which the clock goes back.
  mutating func writeClock() throws {
    try insert(task(1), task(2, available: 500), task(3), task(4), task(5, available: 1.5), task(6))
    var delayed = task(7, available: 60, key: "k", uniqueUntil: 300, latest: 90.5)
    delayed.countedFrom = date(0)
    try insert(delayed)
    for number in 8...11 { try insert(task(number)) }
    try begin(3, 4, 6, 8, 9, 10)
    try change(
      .retry(lease(3), availableDate: date(163), retryCount: 1, failure: failure(3)),
      .retry(
        lease(8),
        availableDate: date(100),
        retryCount: 0,
        failure: nil,
        countedFrom: date(40.5)
      ),
      .suspend(lease(9), until: date(100), awaiting: [], countedFrom: date(41)),
      .suspend(lease(10), until: date(100), awaiting: []),
      .reschedule(.unclaimed(.numbered(11)), availableDate: date(42), countedFrom: date(42)),
      .rebase(date(-10.5)),
      .park(lease(4), failure: failure(4)),
      .rebase(date(-20))
    )
  }

  /// Writes tasks that are rescheduled, and restarts that affect an expiry date.
  mutating func writeDates() throws {
    for number in 1...6 { try insert(task(number, available: 100, expires: 50)) }
    try begin(1, 2, 3)
    try change(
      .retry(lease(1), availableDate: date(300), retryCount: 4, failure: failure(1)),
      .park(lease(2), failure: failure(2)),
      .pause(.unclaimed(.numbered(4))),
      .reschedule(.unclaimed(.numbered(1)), availableDate: date(1)),
      .reschedule(.unclaimed(.numbered(2)), availableDate: date(2), countedFrom: date(2)),
      .reschedule(.claimed(lease(3)), availableDate: date(3.5)),
      .reschedule(.unclaimed(.numbered(4)), availableDate: date(400)),
      .restart(.unclaimed(.numbered(5)), availableDate: date(50)),
      .restart(.unclaimed(.numbered(6)), availableDate: date(49.5))
    )
  }

  /// Writes tasks with more failures than a record keeps, before and after a compaction.
  mutating func writeFailures() throws {
    let long = String(repeating: "é", count: 499) + "👩‍👩‍👧" + "e\u{301}\"\u{1}"
    try insert(task(1), task(2), task(3), task(4))
    func fail(_ number: Int, _ count: Int) throws {
      try begin(number)
      let failure = TaskFailure(
        reason: count % 3 == 0 ? long : "failure \(count)",
        date: date(Double(count) + 0.5)
      )
      try change(
        .retry(
          lease(number),
          availableDate: date(Double(count)),
          retryCount: count,
          failure: failure
        )
      )
    }
    for count in 1...7 { try fail(1, count) }
    for count in 1...3 { try fail(2, count) }
    try fail(3, 1)
    try begin(3)
    try change(.retry(lease(3), availableDate: date(9), retryCount: 1, failure: nil))
    try begin(4)
    try change(.park(lease(4), failure: failure(4)))
    try change(.unpark(name: "Note"))
    try begin(4)
    try change(.abandon(lease(4), failure: failure(5), retains: true))
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    journal = try compaction.finish(journal, at: date(20))
    try fail(1, 8)
    try fail(3, 2)
    try change(.restart(.unclaimed(.numbered(2)), availableDate: date(30)))
    try fail(2, 1)
    try change(.rebase(date(4)))
  }

  /// Writes tasks whose last attempt postponed them, and others.
  mutating func writePostponed() throws {
    var (snoozed, chosen, retried) = (
      task(1, available: 50), task(2, available: 60), task(3, available: 70)
    )
    snoozed.isPostponed = true
    chosen.retryCount = 2
    retried.retryCount = 1
    retried.isPostponed = true
    try insert(snoozed, chosen, retried, task(4), task(5), task(6))
    func snooze(_ number: Int) throws {
      try begin(number)
      try change(.retry(lease(number), availableDate: date(80), retryCount: 0, failure: nil))
    }
    try snooze(4)
    try begin(5)
    try change(.retry(lease(5), availableDate: date(90), retryCount: 1, failure: failure(5)))
    try change(.reschedule(.unclaimed(.numbered(3)), availableDate: date(95)))
    try snooze(6)
    try change(.restart(.unclaimed(.numbered(6)), availableDate: date(99)))
  }

  /// Writes updates of tasks that wait, are parked or are paused.
  mutating func writeUpdates() throws {
    for number in 1...6 { try insert(task(number, key: "\(number)")) }
    try begin(2)
    let full = TaskUpdate(
      payload: StoredPayload(Array(#"{"to":"é\""}"#.utf8), format: .json, version: 2),
      priority: 5,
      maxRetries: .alwaysRetry,
      usesBackoff: false,
      timeLimit: .milliseconds(1500),
      expiryDate: date(99.5),
      tags: ["b", "a\""]
    )
    try change(
      .update(.numbered(1), full),
      .park(lease(2), failure: failure(2)),
      .update(.numbered(2), TaskUpdate(payload: StoredPayload([0, 255], format: .binary))),
      .pause(.unclaimed(.numbered(3))),
      .update(.numbered(3), TaskUpdate(priority: -1)),
      .update(.numbered(4), TaskUpdate(priority: 0, maxRetries: .atMost(0))),
      .update(.numbered(5), full),
      .update(.numbered(5), TaskUpdate(usesBackoff: true, tags: [])),
      .update(
        .numbered(5),
        TaskUpdate(payload: StoredPayload([1], format: .sealedJSON, version: 3))
      ),
      .update(.numbered(6), TaskUpdate())
    )
  }

  /// Writes tasks with metadata, and changes that replace, remove and leave it.
  mutating func writeMetadata() throws {
    let unusual = [
      "\"quoted\" \\": "line\nfeed \u{1f}\u{7f}", "é": "e\u{301} 👩‍👩‍👧",
      "empty": "", "Z": "z", "a": "b",
    ]
    try insert(task(1, metadata: ["tenant": "eins"]), task(2, key: "k", metadata: unusual))
    try insert(task(3), task(4, key: "l", metadata: ["old": "4"]))
    try insert(task(5, key: "m", order: "o", queue: "q", metadata: ["old": "5"]), task(6, key: "n"))
    try begin(2)
    try append(.addition(task(7, key: "k", metadata: ["own": "7"]), .successor))
    // With and without metadata, a new task replaces the contents of an earlier one.
    try append(
      .addition(task(8, key: "l", metadata: ["new": "8"]), .takenOver(by: .numbered(4)))
    )
    try append(.addition(task(9, key: "m", queue: "q"), .takenOver(by: .numbered(5))))
    try append(
      .addition(task(10, key: "n", metadata: ["new": "10"]), .takenOver(by: .numbered(6)))
    )
    try change(
      .update(.numbered(1), TaskUpdate(priority: 1)),
      .update(.numbered(3), TaskUpdate(tags: ["t"], metadata: unusual)),
      .update(.numbered(6), TaskUpdate(metadata: [:]))
    )
    try append(
      .supersession(
        .retry(lease(2), availableDate: date(9), retryCount: 1, failure: failure(2))
      )
    )
    try begin(1)
    try change(.abandon(lease(1), failure: failure(1), retains: true))
  }

  /// Compacts a file with metadata, and writes changes during and after the compaction.
  mutating func writeCompactedMetadata() throws {
    try writeMetadata()
    var compaction = try Compaction(of: journal, snapshot: table.snapshot, in: storage)
    try insert(task(11, metadata: ["during": "11"]))
    journal = try compaction.finish(journal, at: date(20))
    try change(
      .update(.numbered(11), TaskUpdate(metadata: ["after": "11"])),
      .restart(.unclaimed(.numbered(1)), availableDate: date(21))
    )
  }

  /// Compacts a file, and writes changes during and after the compaction.
  mutating func writeCompacted() throws {
    try insert(task(1, key: "a"), task(2, priority: 3), task(3), task(4), task(5))
    try begin(1, 3, 4)
    try append(.addition(task(6, key: "a", uniqueUntil: 70, latest: 80), .successor))
    try change(
      .park(lease(3), failure: failure(3)),
      .succeed(lease(4), at: date(5), retains: true)
    )
    var compaction = try Compaction(
      of: journal,
      snapshot: table.snapshot,
      in: storage
    )
    try change(.pause(.unclaimed(.numbered(5))))
    journal = try compaction.finish(journal, at: date(6))
    try change(.retry(lease(1), availableDate: date(9), retryCount: 1, failure: failure(1)))
    try insert(task(7))
  }

  /// Closes and opens a file twice, with a process that ended in between.
  mutating func writeSealed() throws {
    try insert(task(1), task(2), task(3))
    try begin(2, 3)
    try reopen()
    try begin(3)
    try reopen(closing: true)
    try insert(task(4))
    try begin(3)
    try reopen(closing: true)
    try change(.cancel(.unclaimed(.numbered(2)), at: date(1), retains: true))
    try journal.close()
  }

  /// Writes an incomplete line, and a later line that reached the disk first.
  mutating func writeTorn() throws {
    try insert(task(1), task(2))
    try append(.begin(.numbered(1)), isRelaxed: true)
    let good = storage.bytes.count
    try append(
      .change(.insert(task(3), onDuplicate: .keep)),
      .change(.insert(task(4), onDuplicate: .keep)),
      isRelaxed: true
    )
    try append(.begin(.numbered(2)), isRelaxed: true)
    storage.damage(good + 40..<good + 90)
  }
}
