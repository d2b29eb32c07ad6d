#if PostgreSQL
/// The tables, and how an older version of them becomes the present one.
///
/// The columns are those of the article "Writing a store". `position` is the place in line: a task
/// that goes behind its equals gets the next number. The generated columns say what a claim, an
/// order key and a look-up ask. There are no foreign keys, which look into four tables for each
/// task that is removed; `Tables.delete(_:)` removes what belongs to a task. Texts are compared by
/// their bytes. A long payload stands where PostgreSQL puts long values, so that a change of its
/// task does not write it again.
struct Schema {
  /// What makes each version of the tables out of the one before it.
  ///
  /// A step is never changed once it was released.
  var steps = [
    Schema.first, Schema.second, Schema.third, Schema.fourth, Schema.fifth,
  ]

  var version: Int { steps.count }

  static let tables = ["task", "dependency", "memory", "value", "request"]

  private static let first = """
    create sequence steadfast_place;
    create table steadfast_task (
      id uuid primary key,
      position bigint not null default nextval('steadfast_place'),
      name text collate "C" not null, queue text collate "C" not null,
      payload bytea not null, format text collate "C" not null, schema_version bigint not null,
      priority bigint not null,
      created_date timestamptz not null, available_date timestamptz not null,
      max_retries bigint, uses_backoff boolean not null,
      unique_key text collate "C",
      key_role text collate "C" check (key_role in ('holder', 'successor')),
      unique_until timestamptz, latest_date timestamptz,
      order_key text collate "C", order_number bigint,
      holds_order boolean not null, has_turn boolean not null default false,
      conditions text[] collate "C" not null default '{}',
      dependency_rule text collate "C" not null, follower uuid,
      cause uuid,
      name_count bigint not null default 0,
      open_count bigint not null default 0,
      batch_total bigint, batch_succeeded bigint, batch_failed bigint,
      tags text[] collate "C" not null default '{}',
      time_limit bigint, expiry_date timestamptz,
      state text collate "C" not null,
      retry_count bigint not null, interruption_count bigint not null,
      last_error text, failed_date timestamptz, earlier_failures text,
      put_off boolean not null,
      memory_size bigint not null default 0,
      finished_date timestamptz,
      lease_token bigint, lease_end timestamptz,
      has_ended boolean not null generated always as (
        state = 'succeeded' or state = 'abandoned' or state = 'cancelled') stored,
      in_order boolean not null generated always as (
        order_key is not null and state <> 'succeeded'
        and (holds_order or (state <> 'abandoned' and state <> 'cancelled'))) stored,
      is_ready boolean not null generated always as (
        (state = 'waiting' or (state = 'suspended'
          and available_date < timestamptz '4001-01-01 00:00:00+00'))
        and key_role is distinct from 'successor' and (order_key is null or has_turn)
        and open_count <= 0
        and not coalesce(batch_total > batch_succeeded + batch_failed, false)) stored
    ) with (
      fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
    create index steadfast_ready on steadfast_task
      (queue, name, (~priority), available_date, position) where is_ready;
    create index steadfast_unfinished on steadfast_task (id) where not has_ended;
    create index steadfast_ended on steadfast_task (queue, state, finished_date, id)
      where has_ended;
    create index steadfast_parked on steadfast_task (queue, name) where state = 'parked';
    create index steadfast_lease on steadfast_task (lease_end) where state = 'running';
    create index steadfast_cause on steadfast_task (cause) where cause is not null;
    create index steadfast_key on steadfast_task (unique_key, name)
      where unique_key is not null;
    create unique index steadfast_key_role on steadfast_task (name, unique_key, key_role)
      where key_role is not null;
    create unique index steadfast_turn on steadfast_task (order_key) where has_turn;
    create index steadfast_order on steadfast_task (order_key, order_number) where in_order;

    create table steadfast_dependency (
      dependency uuid not null,
      dependent uuid not null,
      is_named boolean not null,
      failed text collate "C" check (failed in ('abandoned', 'cancelled')),
      primary key (dependency, dependent, is_named)
    );
    create index steadfast_dependent on steadfast_dependency (dependent);
    create table steadfast_memory (
      task_id uuid not null,
      name text collate "C" not null, value bytea not null,
      primary key (task_id, name)
    );
    create table steadfast_value (name text collate "C" primary key, bytes bytea not null);
    create table steadfast_request (
      session bigint primary key,
      number bigint not null,
      date timestamptz not null
    ) with (fillfactor = 10);
    """

  /// Each transaction of a session has a row of its own, so that it is found beside those that are
  /// gone.
  private static let third = """
    alter table steadfast_request drop constraint steadfast_request_pkey,
      add primary key (session, number), set (fillfactor = 100);
    """

  /// The table that says which version the others have.
  ///
  /// Its name is the only one that all versions share.
  private static let versionTable = """
    create table steadfast_schema (maker text primary key, version bigint not null);
    insert into steadfast_schema values ('Steadfast', 0);
    """

  /// The statements that bring the tables from a version to the present one; from 0, all of them.
  func script(from version: Int) -> String {
    ((version == 0 ? [Self.versionTable] : []) + steps.dropFirst(version) + [
      "update steadfast_schema set version = \(self.version) where maker = 'Steadfast';"
    ]).joined(separator: "\n")
  }
}

extension Schema {
  /// What is wrong with the tables of a database.
  enum Refusal: Error, Equatable {
    case newerVersion(Int)
    /// A table has a name of ours, and was made by another program.
    case foreignTable(String)
    /// The tables have this version, which is too old, and may not be changed.
    case olderVersion(Int)
  }

  /// Returns which version the tables have; `nil` if there are none.
  func version(in database: Connection, prefix: String) throws -> Int? {
    let names = (Self.tables + ["schema"]).map { "\(prefix)_\($0)" }
    let found = try database.all(
      """
      select relname from pg_catalog.pg_class
      where relnamespace = quote_ident(current_schema())::regnamespace
        and relname = any ($1::text[])
      order by relname <> $2::text, relname
      """,
      .texts(names),
      .text("\(prefix)_schema")
    ) { $0.text(0) }
    guard let first = found.first else { return nil }
    guard first == "\(prefix)_schema", let version = try versionIfOurs(in: database) else {
      throw Refusal.foreignTable(first)
    }
    guard version <= self.version else { throw Refusal.newerVersion(version) }
    return version
  }

  /// Returns the version; `nil` if this library has not made the table that says it.
  private func versionIfOurs(in database: Connection) throws -> Int? {
    do {
      return try database.first(
        "select version::bigint from steadfast_schema where maker::text = 'Steadfast'"
      ) { $0.integer(0) }
    } catch let failure as PostgreSQLFailure where failure.namesWhatIsMissing {
      return nil
    }
  }

  /// Makes the tables, or brings them to the present version, in one transaction.
  ///
  /// A lock keeps other processes from doing the same.
  func migrate(_ database: Connection, prefix: String, changes: Bool) throws {
    // Look first: who may not make tables needs no lock.
    guard try version(in: database, prefix: prefix) != version else { return }
    try database.send("begin")
    do {
      try database.send("select pg_advisory_xact_lock(hashtextextended($1, 0))", .text(prefix))
      let found = try version(in: database, prefix: prefix)
      if found != version {
        guard changes else { throw Refusal.olderVersion(found ?? 0) }
        try database.execute(script(from: found ?? 0))
      }
      try database.send("commit")
      try database.flush()
    } catch {
      try? database.execute("rollback")
      throw error
    }
  }

  /// Removes the tables, if they are this library's, within a transaction.
  func drop(from database: Connection, prefix: String) throws {
    guard try version(in: database, prefix: prefix) != nil else { return }
    let names = (Self.tables + ["schema"]).map { "steadfast_\($0)" }
    try database.execute(
      """
      drop table if exists \(names.joined(separator: ", "));
      drop sequence if exists steadfast_place;
      drop function if exists steadfast_insert, steadfast_insert_task, steadfast_date;
      """
    )
  }
}
#endif
