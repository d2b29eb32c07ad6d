import SteadfastQueue

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Reports how long it takes to insert, claim, retry and end a task with a payload of each size.
func reportPayloads(_ database: some Database) async throws {
  let title = "\(database.name): payloads"
  guard isRowSelected(title) else { return }
  printRow("\n" + title, " insert µs    claim µs    retry µs      end µs")
  for size in [1_000, 100_000, 1_000_000] {
    try await database.withStore { store, _ in
      let figures = try await PayloadTimes(bytes: size, in: store).measure()
      printRow(
        "\(size) bytes",
        figures.map { decimal($0, digits: 0).leftPadded(to: 10) }.joined(separator: "  ")
      )
    }
  }
}

/// The durations of single calls, each the median of several tasks.
private struct PayloadTimes {
  private static let count = 60

  private let payload: StoredPayload
  private let store: any Persistence

  init(bytes count: Int, in store: any Persistence) {
    // Bytes that a database can't compress.
    var generator = Xorshift()
    let bytes = (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) }
    payload = StoredPayload(bytes, format: .binary)
    self.store = store
  }

  func measure() async throws -> [Double] {
    var times = [[Double]](repeating: [], count: 4)
    for _ in 0..<Self.count {
      let date = Date()
      let record = TaskRecord(
        id: TaskID(high: .random(in: 0...UInt64.max), low: .random(in: 0...UInt64.max)),
        name: "Increment",
        payload: payload,
        createdDate: date,
        availableDate: date
      )
      times[0].append(try await apply(.insert(record, onDuplicate: .keep)))
      let (claimed, time) = try await claim()
      times[1].append(time)
      let retry = TaskChange.retry(
        claimed.lease,
        availableDate: claimed.record.availableDate,
        retryCount: 1,
        failure: nil
      )
      times[2].append(try await apply(retry))
      let end = TaskChange.succeed(try await claim().task.lease, at: Date(), retains: false)
      times[3].append(try await apply(end))
    }
    return times.map(median)
  }

  private func claim() async throws -> (task: ClaimedTask, time: Double) {
    let request = ClaimRequest(
      limit: 1,
      names: ["Increment": 1],
      now: Date() + 1,
      leaseDuration: .seconds(60)
    )
    let start = ContinuousClock.now
    let claim = try await store.claim(request)
    let time = start.duration(to: .now) / .microseconds(1)
    guard let task = claim.tasks.first else { throw Failed() }
    return (task, time)
  }

  private func apply(_ change: TaskChange) async throws -> Double {
    let start = ContinuousClock.now
    guard try await store.apply([change], durability: .durable) == [.done] else { throw Failed() }
    return start.duration(to: .now) / .microseconds(1)
  }
}
