/// Measures the retry toolkit: `swift run -c release bench`, in this folder.
@main enum Bench {
  static func main() async { await measureAll() }

  // Off the main actor, on whose executor each call of another actor costs microseconds.
  @concurrent private static func measureAll() async {
    await report("first attempt succeeds", successBenchmarks)
    await report("the same, of an actor", actorBenchmarks)
    await report("fails three times, then succeeds", failureBenchmarks)
    await report("one delay", delayBenchmarks)
    await report("time limit", timeoutBenchmarks)
  }
}
