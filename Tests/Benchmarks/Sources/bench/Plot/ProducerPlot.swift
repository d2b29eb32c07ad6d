import SteadfastQueue
import Synchronization

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A queue that enqueues tasks durably.
private protocol DurableQueue: Sendable {
  func add(_ number: Int) async throws
  func close() async throws
}

private struct FileQueue: DurableQueue {
  let store: JSONFileStore
  let queue: TaskQueue

  init(_ url: URL, _ options: JSONFileStore.Options = JSONFileStore.Options()) {
    store = JSONFileStore(at: url, options: options)
    queue = TaskQueue(persistence: store)
  }

  func add(_ number: Int) async throws { try await queue.enqueue(Increment(number: number)) }
  func close() async throws { try await store.close() }
}

#if SQLite
/// A table in SQLite with one caller at a time.
private actor TableQueue: DurableQueue {
  private let database: SQLite

  init(_ url: URL) throws { database = try SQLite(path: url.path) }

  func add(_ number: Int) throws {
    try database.enqueue(number..<number + 1, now: Date().timeIntervalSince1970)
  }
  func close() {}
}
#endif

/// An append and a flush, by one caller at a time.
private actor BareFile: DurableQueue {
  private let file: AppendedFile

  init(_ url: URL) throws { file = try AppendedFile(url) }

  func add(_ number: Int) throws { try file.appendLine() }
  func close() {}
}

/// One line of the plot, and the function that creates its queue.
private struct Contender {
  let name: String
  let color: String
  let make: @Sendable (URL) throws -> any DurableQueue
}

private let contenders =
  [
    Contender(name: "JSONFileStore", color: "#d9480f") { FileQueue($0) },
    Contender(name: "JSONFileStore that reserves 1 MiB", color: "#f59f00") {
      FileQueue($0, JSONFileStore.Options(reservedSpace: 1 << 20))
    },
  ] + tables + [
    Contender(name: "bare append of 200 bytes and flush", color: "#868e96") { try BareFile($0) }
  ]

private var tables: [Contender] {
  #if SQLite
  [
    Contender(name: "a table in SQLite, WAL, FULL, a transaction each", color: "#1971c2") {
      try TableQueue($0)
    }
  ]
  #else
  []
  #endif
}

/// Measures durable enqueues with 1 to 512 producers, and writes a plot of the measurements.
///
/// The contenders take turns, and each point is the median of three rounds.
func plotProducers(to path: String) async throws {
  let numbers = (0...9).map { 1 << $0 }
  var rates: [[Double]] = []
  var delays: [[Double]] = []
  for producers in numbers {
    var samples = [[Load]](repeating: [], count: contenders.count)
    for _ in 0..<3 {
      for (index, contender) in contenders.enumerated() {
        try await withScratchFile { url in
          samples[index].append(try await Load(of: contender.make(url), producers))
        }
      }
    }
    rates.append(samples.map { median($0.map(\.rate)) })
    delays.append(samples.map { median($0.map(\.slow)) })
    let figures = rates[rates.count - 1].map { decimal($0, digits: 0).leftPadded(to: 9) }
    printRow("\(producers) producers, a second", figures.joined())
  }
  func lines(for values: [[Double]]) -> [SVGPlot.Line] {
    contenders.enumerated().map { index, contender in
      SVGPlot.Line(name: contender.name, color: contender.color, values: values.map { $0[index] })
    }
  }
  let image = SVGPlot.image(of: [
    SVGPlot(
      title: "Durable tasks a second",
      unit: "producers",
      numbers: numbers,
      lines: lines(for: rates)
    ),
    SVGPlot(
      title: "99 of 100 are durable within … ms",
      unit: "producers",
      numbers: numbers,
      lines: lines(for: delays)
    ),
  ])
  try image.write(to: URL(filePath: path), atomically: true, encoding: .utf8)
}

/// The performance of a queue, as its producers observe it.
private struct Load {
  /// The number of enqueues per second.
  let rate: Double
  /// The 99th percentile of the durations, in milliseconds.
  let slow: Double

  init(of queue: any DurableQueue, _ producers: Int) async throws {
    let count = max(600, min(20_000, 400 * producers))
    let start = ContinuousClock.now
    let times = try await withThrowingTaskGroup(of: [Double].self) { group in
      for producer in 0..<producers {
        group.addTask {
          var times: [Double] = []
          for number in stride(from: producer, to: count, by: producers) {
            let start = ContinuousClock.now
            try await queue.add(number)
            times.append(start.duration(to: .now) / .milliseconds(1))
          }
          return times
        }
      }
      return try await group.reduce(into: []) { $0 += $1 }
    }
    rate = Double(count) / (start.duration(to: .now) / .seconds(1))
    slow = percentile(99, of: times)
    try await queue.close()
  }
}
