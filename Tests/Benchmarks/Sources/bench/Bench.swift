/// Measures the retry toolkit and virtual time: `swift run -c release bench`, in this folder; with
/// `retry` or `clock` behind it, one of them.
@main enum Bench {
  static func main() async {
    let chosen = CommandLine.arguments.dropFirst()
    if chosen.isEmpty || chosen.contains("retry") { await measureRetries() }
    if chosen.isEmpty || chosen.contains("clock") { await measureClocks() }
  }

  // Off the main actor, on whose executor each call of another actor costs microseconds.
  @concurrent private static func measureRetries() async {
    await report("first attempt succeeds", successBenchmarks)
    await report("the same, of an actor", actorBenchmarks)
    await report("fails three times, then succeeds", failureBenchmarks)
    await report("one delay", delayBenchmarks)
    await report("time limit", timeoutBenchmarks)
  }

  @concurrent private static func measureClocks() async {
    await report("virtual sleeps, one after another", sleepBenchmarks, rounds: 11)
    await report("virtual sleeps, a thousand at once", crowdBenchmarks, rounds: 11)
    await report("moving the time", advanceBenchmarks, rounds: 11)
    await report("a virtual year", yearBenchmarks, rounds: 3)
  }
}
