#if PostgreSQL
/// The statements of other queues for PostgreSQL, in the form that their documentation and
/// migrations describe.
///
/// The queues themselves, in Go and Elixir, do not run.
///
/// Each row of another queue has as many clients as the corresponding row of the store has
/// producers or workers.
struct OtherQueue: Sendable {
  let name: String
  /// The statements that create the table, and those that drop it.
  let create: String
  let drop: String
  /// Inserts a job with the arguments `$1`.
  let insert: String
  /// Claims up to `$1` jobs; the first column is the ID.
  let claim: String
  /// Completes the jobs with the IDs in the array `$1`; one job per statement if ``completesEach``.
  let complete: String
  let completesEach: Bool

  /// River, for Go: a batch of ends is one statement, and ended jobs remain for a day.
  static let river = OtherQueue(
    name: "River's statements",
    create: """
      create type river_job_state as enum (
        'available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running',
        'scheduled');
      create table river_job (
        id bigserial primary key, state river_job_state not null default 'available',
        attempt smallint not null default 0, max_attempts smallint not null,
        attempted_at timestamptz, created_at timestamptz not null default now(),
        finalized_at timestamptz, scheduled_at timestamptz not null default now(),
        priority smallint not null default 1, args jsonb, attempted_by text[], errors jsonb[],
        kind text not null, metadata jsonb not null default '{}',
        queue text not null default 'default', tags varchar(255)[] not null default '{}',
        unique_key bytea, unique_states bit(8),
        check ((state in ('cancelled', 'completed', 'discarded')) = (finalized_at is not null)),
        check (max_attempts > 0), check (priority between 1 and 4),
        check (char_length(queue) between 1 and 127), check (char_length(kind) between 1 and 127));
      create index on river_job (kind);
      create index on river_job (state, finalized_at) where finalized_at is not null;
      create index on river_job (state, queue, priority, scheduled_at, id);
      create index on river_job using gin (args);
      create index on river_job using gin (metadata);
      create unique index on river_job (unique_key) where unique_key is not null;
      """,
    drop: "drop table river_job; drop type river_job_state",
    insert: """
      insert into river_job (args, kind, max_attempts, metadata, priority, queue, scheduled_at,
        state, tags)
      values (convert_from($1, 'UTF8')::jsonb, 'increment', 25, '{}', 1, 'default', now(),
        'available', '{}')
      returning *
      """,
    claim: """
      with locked as (
        select id from river_job
        where state = 'available' and queue = 'default' and scheduled_at <= now()
        order by priority, scheduled_at, id limit $1::bigint for update skip locked)
      update river_job as job set state = 'running', attempt = attempt + 1, attempted_at = now(),
        attempted_by = array_append(attempted_by, 'client')
      from locked where job.id = locked.id returning job.*
      """,
    complete: """
      with ended as (
        select id from river_job where id = any ($1::bigint[]) and state = 'running' for update)
      update river_job as job set state = 'completed', finalized_at = now()
      from ended where job.id = ended.id returning job.*
      """,
    completesEach: false
  )

  /// Oban, for Elixir, with its basic engine: each job's end is a statement, and ended jobs remain
  /// until a plugin prunes them.
  static let oban = OtherQueue(
    name: "Oban's statements",
    create: """
      create type oban_job_state as enum (
        'available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
      create table oban_jobs (
        id bigserial primary key, state oban_job_state not null default 'available',
        queue text not null default 'default', worker text not null,
        args jsonb not null default '{}', errors jsonb[] not null default '{}',
        attempt integer not null default 0, max_attempts integer not null default 20,
        inserted_at timestamp not null default timezone('UTC', now()),
        scheduled_at timestamp not null default timezone('UTC', now()),
        attempted_at timestamp, completed_at timestamp, attempted_by text[],
        discarded_at timestamp, priority integer not null default 0,
        tags text[] default '{}', meta jsonb default '{}', cancelled_at timestamp,
        check (attempt between 0 and max_attempts), check (max_attempts > 0),
        check (priority >= 0), check (char_length(queue) between 1 and 127),
        check (char_length(worker) between 1 and 127));
      create index on oban_jobs (state, queue, priority, scheduled_at, id);
      create index on oban_jobs using gin (args);
      create index on oban_jobs using gin (meta);
      """,
    drop: "drop table oban_jobs; drop type oban_job_state",
    insert: """
      insert into oban_jobs (args, worker, queue, state, max_attempts, meta, tags, priority)
      values (convert_from($1, 'UTF8')::jsonb, 'Increment', 'default', 'available', 20, '{}', '{}',
        0)
      returning id
      """,
    claim: """
      with locked as materialized (
        select id from oban_jobs where state = 'available' and queue = 'default'
        order by priority, scheduled_at, id limit $1::bigint for update skip locked)
      update oban_jobs as job set state = 'executing', attempt = attempt + 1,
        attempted_at = timezone('UTC', now()), attempted_by = array['node', 'uuid']
      from locked where job.id = locked.id returning job.*
      """,
    complete: """
      update oban_jobs set state = 'completed', completed_at = timezone('UTC', now())
      where id = any ($1::bigint[])
      """,
    completesEach: true
  )
}

/// The rows of the other queues.
func otherQueueBenchmarks(_ place: String) -> [Benchmark] {
  [OtherQueue.river, .oban].flatMap { queue in
    [
      queue.benchmark("insert, 1 client", 2_000, place) { clients, count in
        try clients.insert(count, by: 1)
      },
      queue.benchmark("insert, 64 clients", 8_000, place) { clients, count in
        try clients.insert(count, by: 64)
      },
      queue.benchmark("8 workers, drain", 8_000, place, prepare: { try $0.insert($1, by: 64) }) {
        try $0.drain($1, by: 8)
      },
    ]
  }
}

extension OtherQueue {
  fileprivate func benchmark(
    _ name: String,
    _ iterations: Int,
    _ place: String,
    prepare: @escaping @Sendable (Clients, Int) throws -> Void = { _, _ in },
    _ body: @escaping @Sendable (Clients, Int) throws -> Void
  ) -> Benchmark {
    Benchmark("\(self.name): \(name)", iterations: iterations) { count, stopwatch in
      let clients = try Clients(self, place)
      try clients.connections[0].execute(create)
      try prepare(clients, count)
      try await stopwatch.measure { try body(clients, count) }
      try clients.connections[0].execute(drop)
    }
  }
}

/// Clients of another queue, each with one running call at a time.
///
/// One thread serves all clients.
private final class Clients {
  let queue: OtherQueue
  let connections: [RawConnection]

  init(_ queue: OtherQueue, _ place: String) throws {
    self.queue = queue
    connections = try (0..<64).map { _ in try RawConnection(place) }
  }

  func insert(_ count: Int, by clients: Int) throws {
    for first in stride(from: 0, to: count, by: clients) {
      let busy = connections[0..<min(clients, count - first)]
      for (offset, connection) in busy.enumerated() {
        try connection.send(queue.insert, Array(#"{"number":\#(first + offset)}"#.utf8))
        try connection.sendBuffered()
      }
      for connection in busy { _ = try connection.readResults() }
    }
  }

  func drain(_ count: Int, by workers: Int) throws {
    for _ in 0..<count / workers {
      try connections[0].send(queue.claim, workers.bytes)
      guard let rows = try connections[0].waitForResults().last, rows.count == workers else {
        throw Failed()
      }
      let ids = (0..<workers).map { rows[$0, 0] }
      guard queue.completesEach else {
        try connections[0].send(queue.complete, binaryArray(of: ids))
        try connections[0].waitForResults()
        continue
      }
      for (id, connection) in zip(ids, connections) {
        try connection.send(queue.complete, binaryArray(of: [id]))
        try connection.sendBuffered()
      }
      for connection in connections[0..<workers] { _ = try connection.readResults() }
    }
  }

  private func binaryArray(of ids: [[UInt8]]) -> [UInt8] {
    RawConnection.binaryArray(of: ids, type: 20)
  }
}
#endif
