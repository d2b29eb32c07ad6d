/// Measures the package: `swift run -c release bench [retry] [clock] [queue] [file] [sqlite]`.
///
/// Run it in this folder. Without arguments, it measures everything but PostgreSQL, which needs a
/// server and the package's trait:
///
///     python3 ../EndToEnd/postgresql_server.py --durable \
///       swift run -c release --traits PostgreSQL bench postgresql
///
/// `pending=` with a number also measures claims among that number of tasks. `through=10000000`
/// passes that number of tasks through PostgreSQL; with `snapshot=600`, another session holds a
/// snapshot for 600 seconds of the run. A path that ends with `.svg` draws the documentation's plot
/// to that path. `name=` with a text measures only the rows whose names contain the text. You can
/// give this argument several times.
@main enum Bench {
  static func main() async throws {
    let groups = CommandLine.arguments.dropFirst().filter { !$0.contains("=") }
    try await measureGroups(Set(groups))
  }

  // Not on the main actor: each call from the main actor to another actor costs microseconds.
  @concurrent private static func measureGroups(_ groups: Set<String>) async throws {
    if groups.isEmpty || groups.contains("retry") { try await measureRetries() }
    if groups.isEmpty || groups.contains("clock") { try await measureClocks() }
    if groups.isEmpty || groups.contains("queue") { try await measureQueue() }
    if groups.isEmpty || groups.contains("file") { try await measureFile() }
    #if SQLite
    if groups.isEmpty || groups.contains("sqlite") { try await measureDatabase(SQLiteDatabase()) }
    #endif
    #if PostgreSQL
    if groups.contains("postgresql") { try await measurePostgreSQL() }
    #endif
    // An argument that ends with .svg is the path of an image.
    for path in groups where path.hasSuffix(".svg") { try await plotProducers(to: path) }
  }

  private static func measureRetries() async throws {
    try await report("first attempt succeeds", successBenchmarks)
    try await report("the same, of an actor", actorBenchmarks)
    try await report("fails three times, then succeeds", failureBenchmarks)
    try await report("one delay", delayBenchmarks)
    try await report("time limit", timeoutBenchmarks)
    if isRowSelected("limits of an hour") { try await reportLimits() }
  }

  private static func measureQueue() async throws {
    try await report("in memory, end to end", endToEndBenchmarks, rounds: 7)
    try await report("one after the other", phaseBenchmarks, rounds: 7)
    try await report("unique keys", keyBenchmarks, rounds: 7)
    try await report("tasks that wait for others", dependencyBenchmarks, rounds: 7)
    try await report("occurrences of schedules", occurrenceBenchmarks, rounds: 7)
    try await report("among pending tasks", pendingBenchmarks(), rounds: 7)
    try await reportScale()
    try await reportLatencies()
    try await reportMemory()
    try await reportSuspended()
    try await reportSchedules()
  }

  private static func measureFile() async throws {
    try await report("in a file, durable", fileBenchmarks, rounds: 5, comparing: .rate)
    try await report("unique keys, durable", fileKeyBenchmarks, rounds: 5)
    try await report("steps", stepBenchmarks, rounds: 5)
    if isRowSelected("opening a file") { try await reportReopening() }
    if isRowSelected("beside a compaction") { try await reportCompaction() }
  }

  private static func measureDatabase(
    _ database: some Database,
    server: ServerProcesses? = nil
  ) async throws {
    try await report(
      "\(database.name), durable",
      database.benchmarks(),
      rounds: 5,
      comparing: .rate,
      server: server
    )
    try await reportClaims(database)
    try await database.withStore { store, _ in
      try await reportCensus(database.name, of: store, atMost: 500)
    }
    try await reportPayloads(database)
  }

  #if PostgreSQL
  private static func measurePostgreSQL() async throws {
    let database = try PostgreSQLDatabase()
    let server = try database.server()
    try await measureDatabase(database, server: server)
    try await report(
      "statements of other queues",
      otherQueueBenchmarks(database.connection),
      rounds: 5,
      comparing: .rate,
      server: server
    )
    try await reportLongRun(database)
  }
  #endif

  private static func measureClocks() async throws {
    try await report("virtual sleeps, one after another", sleepBenchmarks, rounds: 11)
    try await report("virtual sleeps, a thousand at once", crowdBenchmarks, rounds: 11)
    try await report("moving the time", advanceBenchmarks, rounds: 11)
    try await report("a virtual year", yearBenchmarks, rounds: 3)
  }
}
