import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskRecordTests {
  private func record(
    maxRetries: RetryLimit = 10,
    tags: Set<String> = [],
    metadata: [String: String] = [:],
    timeLimit: Duration? = nil,
    expiryDate: Date? = nil
  ) -> TaskRecord {
    TaskRecord(
      id: .numbered(1),
      name: "Note",
      payload: StoredPayload([1], format: .binary),
      createdDate: .seconds(0),
      maxRetries: maxRetries,
      tags: tags,
      metadata: metadata,
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      availableDate: .seconds(0)
    )
  }

  @Test func `a task uses 64 bytes in a table, apart from its constant properties`() {
    #expect(MemoryLayout<TaskRecord>.stride <= 40)
    #expect(MemoryLayout<TaskTable.Entry>.stride <= 64)
  }

  @Test(arguments: [RetryLimit.atMost(0), .atMost(10), .atMost(.max), .alwaysRetry])
  func `a record stores each retry limit exactly`(limit: RetryLimit) {
    #expect(record(maxRetries: limit).maxRetries == limit)
  }

  @Test func `rarely used properties are independent of each other`() {
    let tagged = record(tags: ["red"])
    #expect(tagged.tags == ["red"])
    #expect(tagged.timeLimit == nil)
    #expect(tagged.expiryDate == nil)
    let limited = record(timeLimit: .zero)
    #expect(limited.timeLimit == .zero)
    #expect(limited.tags.isEmpty)
    let expiring = record(expiryDate: .seconds(0))
    #expect(expiring.expiryDate == .seconds(0))
    #expect(expiring.tags.isEmpty)
    let traced = record(metadata: ["trace": "1"])
    #expect(traced.metadata == ["trace": "1"])
    #expect(traced.tags.isEmpty && traced.hasExtras)
    #expect(expiring.metadata.isEmpty)
  }

  @Test func `properties of failures are independent of each other and of copies`() {
    let clean = record()
    var failed = clean
    failed.failedDate = .seconds(0)
    #expect(failed.failedDate == .seconds(0))
    #expect(failed.lastError == nil)
    var retried = failed
    retried.failedDate = nil
    retried.retryCount = 3
    retried.interruptionCount += 1
    #expect(retried.failedDate == nil)
    #expect(retried.retryCount == 3)
    #expect(retried.interruptionCount == 1)
    var refused = clean
    refused.lastError = ""
    #expect(refused.lastError == "")
    #expect(failed.failedDate == .seconds(0))
    #expect(failed.retryCount == 0)
    #expect(clean.failedDate == nil)
    #expect(clean.lastError == nil)
  }

  @Test
  func `a record created with retries is postponed unless its creator sets isPostponed to false`() {
    func record(_ retryCount: Int, _ isPostponed: Bool?) -> TaskRecord {
      TaskRecord(
        id: .numbered(1),
        name: "Note",
        payload: StoredPayload([], format: .binary),
        createdDate: .seconds(0),
        availableDate: .seconds(0),
        retryCount: retryCount,
        isPostponed: isPostponed
      )
    }
    #expect(!record(0, nil).isPostponed && record(2, nil).isPostponed)
    #expect(record(0, true).isPostponed && !record(2, false).isPostponed)
    var task = record(0, true)
    task.move(by: TaskMove(.restart, availableDate: .seconds(5), countedFrom: .seconds(5)))
    #expect(!task.isPostponed)
  }

  @Test func `a record keeps the last five failures, and shortens all but the latest`() {
    var task = record()
    #expect(task.failures.isEmpty)
    let long = String(repeating: "é", count: 499) + "e\u{301}" + String(repeating: "x", count: 99)
    let failures = (0..<7).map {
      TaskFailure(reason: $0 % 2 == 0 ? long : "failure \($0)", date: .seconds(Double(-$0)))
    }
    for (index, failure) in failures.enumerated() {
      task.note(failure)
      #expect(task.failures.map(\.date) == failures[...index].suffix(5).map(\.date))
      #expect(task.failures.last == failure)
      #expect(task.lastError == failure.reason)
      #expect(task.failedDate == failure.date)
    }
    let cut = String(repeating: "é", count: 499) + "e"
    #expect(task.failures.map(\.reason) == [cut, "failure 3", cut, "failure 5", long])
    #expect(task.earlierFailures == Array(task.failures.dropLast()))
    #expect(
      record(task).failures == task.failures,
      "a record that is restored from its stored failures has the same ones"
    )
  }

  private func record(_ task: TaskRecord) -> TaskRecord {
    TaskRecord(
      id: task.id,
      name: task.name,
      payload: task.payload,
      createdDate: task.createdDate,
      availableDate: task.availableDate,
      lastError: task.lastError,
      failedDate: task.failedDate,
      failedAttempt: task.failedAttempt,
      earlierFailures: task.earlierFailures
    )
  }

  @Test func `a restarted task waits, and its failures are cleared`() {
    var task = record(tags: ["red"])
    task.retryCount = 3
    task.interruptionCount = 2
    for number in 1...3 { task.note(TaskFailure(reason: "\(number)", date: .seconds(1))) }
    task.state = .abandoned
    task.finishedDate = .seconds(2)
    task.move(by: TaskMove(.restart, availableDate: .seconds(9), countedFrom: .seconds(9)))
    #expect(task.state == .waiting)
    #expect(task.availableDate == .seconds(9))
    #expect(task.retryCount == 0 && task.interruptionCount == 0)
    #expect(task.failures.isEmpty && task.lastError == nil && task.failedDate == nil)
    #expect(task.finishedDate == nil)
    #expect(task.tags == ["red"])
  }
}
