#if SQLite
/// The tables, and how an older version of them becomes the present one.
///
/// The columns are those of the article "Writing a store". `seq` is the place in line: a task that
/// goes behind its equals gets the next number. The generated columns compare a state with one
/// after another: for a list of three, SQLite makes a table each time a row changes. There are no
/// foreign keys, which look into four tables for each task that is removed; `Tables.delete(_:)`
/// removes what belongs to a task.
struct Schema {
  /// What makes each version of the tables out of the one before it.
  ///
  /// A step is never changed once it was released.
  var steps = [Schema.first, Schema.second, Schema.third, Schema.fourth]

  var version: Int { steps.count }

  static let tables = ["task", "payload", "dependency", "memory", "value"]
  /// The view into which other connections insert tasks.
  static let view = "insertion"

  private static let first = """
    create table steadfast_task (
      seq integer primary key,
      id blob not null unique,
      name text not null, queue text not null,
      payload blob, format text not null, schema_version integer not null,
      priority integer not null,
      created_date real not null, available_date real not null,
      max_retries integer, uses_backoff integer not null,
      unique_key text, key_role text check (key_role in ('holder', 'successor')),
      unique_until real, latest_date real,
      order_key text, order_number integer,
      holds_order integer not null, has_turn integer not null default 0,
      conditions text,
      dependency_rule text not null, follower blob,
      cause blob,
      name_count integer not null default 0,
      open_count integer not null default 0,
      batch_total integer, batch_succeeded integer, batch_failed integer,
      tags text,
      time_limit integer, expiry_date real,
      state text not null,
      retry_count integer not null, interruption_count integer not null,
      last_error text, failed_date real, earlier_failures text,
      put_off integer not null,
      memory_size integer not null default 0,
      finished_date real,
      lease_token integer, lease_end real,
      has_ended integer not null generated always as (
        state = 'succeeded' or state = 'abandoned' or state = 'cancelled') virtual,
      in_order integer not null generated always as (
        order_key is not null and state <> 'succeeded'
        and (holds_order or state not in ('abandoned', 'cancelled'))) virtual,
      waits integer not null generated always as (
        open_count > 0
        or coalesce(batch_total > batch_succeeded + batch_failed, 0)) virtual,
      is_ready integer not null generated always as (
        (state = 'waiting' or (state = 'suspended' and available_date < 64092211200.0))
        and key_role is not 'successor' and (order_key is null or has_turn)
        and open_count <= 0
        and not coalesce(batch_total > batch_succeeded + batch_failed, 0)) virtual
    );
    create index steadfast_ready on steadfast_task
      (queue, name, priority desc, available_date, seq) where is_ready;
    create index steadfast_unfinished on steadfast_task (id) where not has_ended;
    create index steadfast_ended on steadfast_task (queue, state, finished_date, id)
      where has_ended;
    create index steadfast_parked on steadfast_task (queue, name) where state = 'parked';
    create index steadfast_lease on steadfast_task (lease_end) where lease_end is not null;
    create index steadfast_cause on steadfast_task (cause) where cause is not null;
    create index steadfast_key on steadfast_task (unique_key, name)
      where unique_key is not null;
    create unique index steadfast_key_role on steadfast_task (name, unique_key, key_role)
      where key_role is not null;
    create unique index steadfast_turn on steadfast_task (order_key) where has_turn;
    create index steadfast_order on steadfast_task (order_key, order_number) where in_order;

    create table steadfast_payload (
      task_id blob primary key,
      bytes blob not null
    ) without rowid;
    create table steadfast_dependency (
      dependency blob not null,
      dependent blob not null,
      is_named integer not null,
      failed text check (failed in ('abandoned', 'cancelled')),
      primary key (dependency, dependent, is_named)
    ) without rowid;
    create index steadfast_dependent on steadfast_dependency (dependent);
    create table steadfast_memory (
      task_id blob not null,
      name text not null, value blob not null,
      primary key (task_id, name)
    );
    create table steadfast_value (name text primary key, bytes blob not null) without rowid;
    """

  /// The table that says which version the others have.
  ///
  /// Its name is the only one that all versions share.
  private static let versionTable = """
    create table steadfast_schema (maker text primary key, version integer not null) without rowid;
    insert into steadfast_schema values ('Steadfast', 0);
    """
}

extension Schema {
  /// What is wrong with the tables of a database.
  enum Refusal: Error, Equatable {
    case newerVersion(Int)
    /// A table has a name of ours, and was made by another program.
    case foreignTable(String)
  }

  /// Returns which version the tables have; `nil` if there are none.
  func version(in database: Connection, prefix: String) throws -> Int? {
    guard database.isIdle else { return try presentVersion(in: database, prefix: prefix) }
    // Another process may make or remove the tables between two statements.
    try database.execute("begin")
    defer { if !database.isIdle { try? database.execute("rollback") } }
    return try presentVersion(in: database, prefix: prefix)
  }

  private func presentVersion(in database: Connection, prefix: String) throws -> Int? {
    var isThere = false
    for table in Self.tables + [Self.view, "schema"] {
      let name = "\(prefix)_\(table)"
      guard try database.has("select 1 from sqlite_schema where name = ?1", .text(name)) else {
        continue
      }
      if table == "schema" { isThere = true } else { try check(name, database) }
    }
    guard isThere else { return nil }
    guard let version = try versionIfOurs(in: database) else {
      throw Refusal.foreignTable("\(prefix)_schema")
    }
    guard version <= self.version else { throw Refusal.newerVersion(version) }
    return version
  }

  private func check(_ name: String, _ database: Connection) throws {
    guard try versionIfOurs(in: database) == nil else { return }
    throw Refusal.foreignTable(name)
  }

  /// Returns the version; `nil` if this library has not made the table that says it.
  private func versionIfOurs(in database: Connection) throws -> Int? {
    do {
      return try database.first(
        "select version from steadfast_schema where maker = 'Steadfast'"
      ) { $0.integer(0) }
    } catch let failure as SQLiteFailure where failure.namesWhatIsMissing {
      return nil
    }
  }

  /// Makes the tables, or brings them to the present version, within a transaction.
  ///
  /// The transaction keeps other processes from doing the same.
  func migrate(_ database: Connection, prefix: String) throws {
    let version = try version(in: database, prefix: prefix)
    guard version != self.version else { return }
    if version == nil { try database.execute(Self.versionTable) }
    for step in steps.dropFirst(version ?? 0) { try database.execute(step) }
    try database.run(
      "update steadfast_schema set version = ?1 where maker = 'Steadfast'",
      .integer(self.version)
    )
  }

  /// Removes the tables, if they are this library's, within a transaction.
  func drop(from database: Connection, prefix: String) throws {
    guard try version(in: database, prefix: prefix) != nil else { return }
    try database.execute("drop view if exists steadfast_\(Self.view)")
    for table in Self.tables.reversed() + ["schema"] {
      try database.execute("drop table if exists steadfast_\(table)")
    }
  }
}
#endif
