/// Measures benchmarks, and prints a table of their costs.
///
/// Each round measures all benchmarks, so that a slow phase of the machine affects all equally.
/// The table shows the median of all rounds, and the median of the ratios to the baseline within
/// each round.
func report(
  _ title: String,
  _ benchmarks: [Benchmark],
  rounds: Int = 31,
  comparing comparison: Comparison = .cost,
  server: ServerProcesses? = nil
) async throws {
  let benchmarks = benchmarks.filter { isRowSelected($0.name) }
  guard !benchmarks.isEmpty else { return }
  var samples: [String: [Sample]] = [:]
  for benchmark in benchmarks { _ = try await benchmark.sample(of: server) }
  for _ in 0..<rounds {
    for benchmark in benchmarks {
      samples[benchmark.name, default: []].append(try await benchmark.sample(of: server))
    }
  }
  let columns = "        ns    CPU ns    a second  allocations  switches  "
  let serverColumn = server == nil ? "" : "server CPU  "
  let ratioColumn = comparison == .cost ? "ratio" : "as fast as"
  print("\n" + title.padded(to: 44) + columns + serverColumn + ratioColumn)
  for benchmark in benchmarks {
    let own = samples[benchmark.name, default: []]
    let nanoseconds = median(own.map(\.nanoseconds))
    let allocations = decimal(median(own.map(\.allocations)), digits: 2)
    var line = benchmark.name.padded(to: 44)
    line += decimal(nanoseconds, digits: 1).leftPadded(to: 10)
    line += decimal(median(own.map(\.processorNanoseconds)), digits: 1).leftPadded(to: 10)
    line += decimal(1e9 / nanoseconds, digits: 0).leftPadded(to: 12)
    line += allocations.leftPadded(to: 13)
    line += decimal(median(own.map(\.contextSwitches)), digits: 2).leftPadded(to: 10)
    if server != nil {
      line += decimal(median(own.map(\.serverNanoseconds)), digits: 1).leftPadded(to: 12)
    }
    if let baseline = benchmark.baseline, let others = samples[baseline] {
      let ratio = median(
        zip(own, others).map { own, other in
          comparison == .cost
            ? own.nanoseconds / other.nanoseconds : other.nanoseconds / own.nanoseconds
        }
      )
      line += "  \(decimal(ratio, digits: 2)) × \(baseline)"
      if comparison == .rate {
        let processorTime = median(
          zip(own, others).map { $0.processorNanoseconds / $1.processorNanoseconds }
        )
        line += ", with \(decimal(processorTime, digits: 2)) × its processor time"
        if server != nil {
          let whole = median(zip(own, others).map { $0.wholeNanoseconds / $1.wholeNanoseconds })
          line += ", \(decimal(whole, digits: 2)) × with the server's"
        }
      }
    }
    print(line)
  }
}

/// The prefix of an argument that selects rows; the rest of the argument is a part of their names.
let rowArgument = "name="
private let rowNames = CommandLine.arguments.filter { $0.hasPrefix(rowArgument) }
  .map { $0.dropFirst(rowArgument.count) }

/// Returns the numbers in the arguments of this name, such as `name=10`.
func numbers(after name: String) -> [Int] {
  CommandLine.arguments.compactMap { argument in
    argument.hasPrefix(name) ? Int(argument.dropFirst(name.count)) : nil
  }
}

/// Returns whether the row with this name is selected.
func isRowSelected(_ name: String) -> Bool {
  rowNames.isEmpty || rowNames.contains { name.contains($0) }
}

/// The quantity that a ratio compares.
enum Comparison {
  /// The time of each piece of work: less is better.
  case cost
  /// The pieces of work per second: more is better.
  case rate
}

/// Prints a row of a table that has no comparison.
func printRow(_ name: String, _ figures: String) { print(name.padded(to: 44) + figures) }

func median(_ values: [Double]) -> Double { percentile(50, of: values) }

func percentile(_ percent: Int, of values: [Double]) -> Double {
  values.isEmpty ? 0 : values.sorted()[values.count * percent / 100]
}

/// Formats a nonnegative number, such as `12.30`, without Foundation.
func decimal(_ value: Double, digits: Int) -> String {
  let scale = (0..<digits).reduce(1) { scale, _ in scale * 10 }
  let scaled = Int((value * Double(scale)).rounded())
  guard digits > 0 else { return String(scaled) }
  let fraction = String(scaled % scale)
  return "\(scaled / scale)." + String(repeating: "0", count: digits - fraction.count) + fraction
}

extension String {
  fileprivate func padded(to width: Int) -> String {
    self + String(repeating: " ", count: max(width - count, 0))
  }

  func leftPadded(to width: Int) -> String {
    String(repeating: " ", count: max(width - count, 0)) + self
  }
}
