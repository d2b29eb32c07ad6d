import Foundation
import Testing

@testable import SteadfastQueue

@Suite struct HistorySizeTests {
  private let limit = TaskQueueError.maxValueSize

  @Test func `if not all durations fit, the history keeps the latest durations of each task`()
    throws
  {
    let names = Set((0..<50).map { "task \($0)" })
    var history = BackgroundHistory()
    for run in 1...100 {
      for name in names { history.recordRun(of: name, lasting: .seconds(run) / 3, averaging: 100) }
    }
    let date = Date(timeIntervalSince1970: 1)
    history.recordStart(of: Array(names), registered: names, at: date, isPass: true)
    let bytes = try history.bytes(keeping: names)
    #expect(bytes.count <= limit)
    let read = BackgroundHistory(bytes)
    for name in names {
      let durations = try #require(read.tasks[name]).durations
      let all = try #require(history.tasks[name]).durations
      #expect(durations.count >= 25 && durations == all.suffix(durations.count))
      #expect(read.lastRun(of: name) == date)
    }
  }

  @Test func `a history that fits is stored in full`() throws {
    var history = BackgroundHistory()
    for run in 1...100 { history.recordRun(of: "a", lasting: .seconds(run), averaging: 100) }
    let bytes = try history.bytes(keeping: ["a"])
    #expect(try history.bytes(keeping: ["a"], limit: bytes.count) == bytes)
    #expect(BackgroundHistory(bytes) == history)
    #expect(try history.bytes(keeping: ["a"], limit: bytes.count - 1).count < bytes.count)
  }

  @Test func `if not all names fit, the history keeps the tasks that ran last`() throws {
    let names = (0..<300).map { "\($0) " + String(repeating: "n", count: 500) }
    var history = BackgroundHistory()
    for (index, name) in names.enumerated() {
      let date = Date(timeIntervalSince1970: Double(index))
      history.recordStart(of: [name], registered: Set(names), at: date, isPass: true)
    }
    let bytes = try history.bytes(keeping: Set(names))
    #expect(bytes.count <= limit)
    let read = BackgroundHistory(bytes)
    #expect(read.tasks.count > 100)
    #expect(Set(read.tasks.keys) == Set(names.suffix(read.tasks.count)))
  }

  @Test(arguments: ["a\0", String(repeating: "a", count: 513), ""])
  func `a name that can't be stored is rejected`(name: String) async throws {
    let scheduler = BackgroundScheduler()
    await scheduler.register(name, expectedDuration: .zero) { .noData }
    let error = await queueError { try await scheduler.run(within: .seconds(1)) }
    #expect(error?.code == .invalidArgument)
    let other = await queueError {
      try await BackgroundScheduler(name: name).run(within: .seconds(1))
    }
    #expect(other?.code == .invalidArgument)
  }

  @Test func `a name of 512 bytes is accepted`() async throws {
    let name = String(repeating: "a", count: 512)
    let scheduler = BackgroundScheduler(name: name)
    await scheduler.register(name, expectedDuration: .zero) { .newData }
    #expect(try await scheduler.run(within: .seconds(1)) == .newData)
  }
}
