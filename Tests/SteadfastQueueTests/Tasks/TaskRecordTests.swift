import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct TaskRecordTests {
  private func record(
    maxRetries: RetryLimit = 10,
    tags: Set<String> = [],
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
      timeLimit: timeLimit,
      expiryDate: expiryDate,
      availableDate: .seconds(0)
    )
  }

  @Test func `a task takes 64 bytes in a table, beside what never changes about it`() {
    #expect(MemoryLayout<TaskRecord>.stride <= 40)
    #expect(MemoryLayout<TaskTable.Entry>.stride <= 64)
  }

  @Test(arguments: [RetryLimit.atMost(0), .atMost(10), .atMost(.max), .alwaysRetry])
  func `a record tells the limit of retries that it was made with`(limit: RetryLimit) {
    #expect(record(maxRetries: limit).maxRetries == limit)
  }

  @Test func `each of the things that few tasks have is kept without the others`() {
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
  }

  @Test func `each of the things that go wrong is kept without the others, and in this copy`() {
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
}
