#if PostgreSQL
import SteadfastDatabases

/// The tables, and the migration of older versions.
///
/// The article "Writing a store" describes the columns. `position` sorts tasks with the same
/// priority and available date: a task that must go behind all others gets the next number. The
/// generated columns are the conditions by which statements find tasks in an index. There are no
/// foreign keys, because with them, the server would search four tables for each removed task.
/// Instead, `Tables.delete(_:)` removes a task's rows from the other tables.
///
/// Strings are compared by their bytes. PostgreSQL stores a long payload outside of the row, so a
/// change of the task does not rewrite the payload.
struct Schema {
  /// The migration steps, each from one version of the tables to the next.
  ///
  /// A released step never changes.
  var steps = [
    Schema.first, Schema.second, Schema.third, Schema.fourth, Schema.fifth, Schema.sixth,
    Schema.seventh,
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

  /// Gives each transaction of a session a separate row, so that a search does not read deleted
  /// rows.
  private static let third = """
    alter table steadfast_request drop constraint steadfast_request_pkey,
      add primary key (session, number), set (fillfactor = 100);
    """

  /// The table that stores the version of the other tables.
  ///
  /// All versions use the same name for this table.
  private static let versionTable = """
    create table steadfast_schema (maker text primary key, version bigint not null);
    insert into steadfast_schema values ('Steadfast', 0);
    """

  /// Returns the statements that migrate the tables from a version; from version 0, they create the
  /// tables.
  func script(from version: Int) -> String {
    ((version == 0 ? [Self.versionTable] : []) + steps.dropFirst(version) + [
      "update steadfast_schema set version = \(self.version) where maker = 'Steadfast';"
    ]).joined(separator: "\n")
  }
}

extension Schema {
  /// The reason why the tables of a database can't be used.
  enum Refusal: Error, Equatable {
    case newerVersion(Int)
    /// Another program made a table with a name that this library uses.
    case foreignTable(String)
    /// The tables have this older version, and the store may not migrate them.
    case olderVersion(Int)
  }

  /// Returns the version of the tables; `nil` if there are no tables.
  func version(in database: Connection, prefix: String) throws -> Int? {
    let names = (Self.tables + ["schema"]).map { "\(prefix)_\($0)" }
    let found = try database.allRows(
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

  /// Returns the stored version; `nil` if another program made the table.
  private func versionIfOurs(in database: Connection) throws -> Int? {
    do {
      return try database.first(
        "select version::bigint from steadfast_schema where maker::text = 'Steadfast'"
      ) { $0.integer(0) }
    } catch let failure as PostgreSQLFailure where failure.isMissingTableOrColumn {
      return nil
    }
  }

  /// Creates the tables, or migrates them to the current version, in one transaction.
  ///
  /// A lock prevents other processes from migrating the tables at the same time. With `mayChange`
  /// false, this only checks that the tables have the current version.
  func migrate(_ database: Connection, prefix: String, mayChange: Bool) throws {
    // Check first: if there is nothing to do, no lock is needed.
    guard try version(in: database, prefix: prefix) != version else { return }
    try database.send("begin")
    do {
      try database.send("select pg_advisory_xact_lock(hashtextextended($1, 0))", .text(prefix))
      let found = try version(in: database, prefix: prefix)
      if found != version {
        guard mayChange else { throw Refusal.olderVersion(found ?? 0) }
        try database.execute(script(from: found ?? 0))
      }
      try database.send("commit")
      try database.flush()
    } catch {
      try? database.execute("rollback")
      throw error
    }
  }

  /// Removes the tables within a transaction, if this library made them.
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

/// The SQL function that inserts a task within a transaction of another program.
///
/// The function makes the same changes as `TaskTables.insert(_:onDuplicate:payload:)`, and acquires
/// the locks of a `LockPlan`. A test compares the rows that both insert.
extension Schema {
  /// The version of the function's parameters, which is also the first argument of each call.
  ///
  /// A later version of the tables either supports such a call or refuses it.
  static let insertionVersion = 2

  /// The types of the values of `TaskRecord.definitionValues(payload:role:link:)` in a statement,
  /// of the date from which the available date was counted, and of the metadata.
  static let insertionTypes = [
    "uuid", "text", "text", "bytea", "text", "bigint", "bigint", "bigint", "bigint", "bigint",
    "bigint", "text", "text", "bigint", "bigint", "text", "bigint", "text[]", "text", "uuid[]",
    "text[]", "bigint", "bigint", "bigint", "jsonb",
  ]

  /// The parameters in version 1, which never change.
  private static let parameters = """
    form bigint, new_id uuid, new_name text, new_queue text, new_payload bytea, new_format text,
    new_version bigint, new_priority bigint, created bigint, available bigint, retries bigint,
    backoff bigint, new_key text, policy text, recent_until bigint, latest bigint,
    new_order text, holds bigint, new_conditions text[], new_rule text, named uuid[],
    new_tags text[], new_limit bigint, expiry bigint
    """

  // A migration step never changes, so this step uses no declarations that may change.
  static let second = """
    create function steadfast_date(microseconds bigint) returns timestamptz
    language sql immutable strict as $$
      select (timestamp '2000-01-01' + (microseconds / 86400000000)::integer * interval '1 day'
        + (microseconds % 86400000000) * interval '1 microsecond') at time zone 'UTC'
    $$;

    create function steadfast_insert\(insertion)
    """

  /// The parameters and the body of the function.
  private static let insertion = """
    (
      \(parameters)
    ) returns boolean language plpgsql
    set search_path from current set enable_seqscan = off as $$
    declare
      place constant text := current_schema() || '.' || left('steadfast_', -1);
      created_at constant timestamptz := steadfast_date(created);
      available_at constant timestamptz := steadfast_date(available);
      latest_at constant timestamptz := steadfast_date(latest);
      holder record;
      successor uuid;
      role text;
      is_same boolean;
      unmet uuid;
    begin
      if form is distinct from 1 or new_id is null or new_payload is null or named is null
        or created is null or available is null
        or policy is null or policy not in ('keep', 'join', 'replace', 'reject')
      then
        raise exception 'the statement that adds a task was made by another version of Steadfast \
    than the tables of the queue; use one version for both';
      end if;

      if new_key is not null then
        perform pg_advisory_xact_lock(
          hashtext('keys ' || place), hashtext(new_name || ' ' || new_key) & 1023);
      end if;
      perform pg_advisory_xact_lock(hashtext('orders ' || place), locks.number) from (
        select distinct hashtext(keys.key) & 4095 as number from (
          select new_order as key
          union all
          select order_key from steadfast_task where id = any (named)
        ) as keys where keys.key is not null order by number
      ) as locks;
      perform 1 from steadfast_task where id = any (named) order by id for update;

      -- It was added before.
      if new_key is not null or cardinality(named) > 0 then
        select name = new_name and queue = new_queue and payload = new_payload
          and format = new_format and schema_version = new_version
          and created_date = created_at and unique_key is not distinct from new_key
          and order_key is not distinct from new_order
        into is_same from steadfast_task where id = new_id;
        if found then
          if is_same then return true; end if;
          raise exception 'the queue has another task with the ID of the new one';
        end if;
      end if;

      if new_key is not null then
        perform 1 from steadfast_task
        where name = new_name and unique_key = new_key and key_role is not null
        order by key_role for update;
        select id, state, coalesce(unique_until > created_at, false) as is_recent, memory_size
        into holder from steadfast_task
        where name = new_name and unique_key = new_key and key_role = 'holder';
        if not found then
          if policy = 'replace' or not exists (
            select 1 from steadfast_task
            where name = new_name and unique_key = new_key and state = 'succeeded'
              and unique_until > created_at)
          then
            role := 'holder';
          end if;
        elsif policy = 'keep' or policy = 'replace' then
          select id into successor from steadfast_task
          where name = new_name and unique_key = new_key and key_role = 'successor';
          if successor is null and (
            (holder.state = 'running' and (policy = 'replace' or not holder.is_recent))
            or (policy = 'replace' and holder.memory_size > 0))
          then
            role := 'successor';
          end if;
        end if;
        if role is null then
          if policy = 'reject' then
            raise exception 'a task with the unique key of the new one is there already'
              using errcode = 'unique_violation';
          end if;
          if policy <> 'replace' then return false; end if;
          update steadfast_task set payload = new_payload, format = new_format,
            schema_version = new_version, priority = new_priority, max_retries = retries,
            uses_backoff = backoff <> 0, tags = new_tags, time_limit = new_limit,
            expiry_date = steadfast_date(expiry), conditions = new_conditions,
            unique_until = steadfast_date(recent_until),
            latest_date = coalesce(latest_date, latest_at),
            state = case when state in ('parked', 'suspended') then 'waiting' else state end,
            available_date = case
              when put_off then greatest(available_date, available_at)
              when available_at <= created_at then least(available_at,
                case when state = 'suspended' then created_date else available_date end)
              else least(available_at, coalesce(latest_date, latest_at, available_at)) end,
            position = case
              when state in ('parked', 'suspended') or priority <> new_priority
                then nextval('steadfast_place')
              when put_off and available_date >= available_at then position
              when not put_off and available_at <= created_at and available_date <= available_at
                then position
              when not put_off and available_at > created_at
                and available_date
                  = least(available_at, coalesce(latest_date, latest_at, available_at))
                then position
              else nextval('steadfast_place') end
          where id = coalesce(successor, holder.id);
          perform pg_notify('steadfast_hint', '');
          return false;
        end if;
      end if;

      insert into steadfast_task (
        id, name, queue, payload, format, schema_version, priority, created_date,
        available_date, max_retries, uses_backoff, unique_key, key_role, unique_until,
        latest_date, order_key, order_number, holds_order, conditions, dependency_rule, tags,
        time_limit, expiry_date, state, retry_count, interruption_count, put_off, name_count)
      values (
        new_id, new_name, new_queue, new_payload, new_format, new_version, new_priority,
        created_at, available_at, retries, backoff <> 0, new_key, role,
        steadfast_date(recent_until), latest_at, new_order,
        case when new_order is not null then nextval('steadfast_place') end,
        holds <> 0, new_conditions, new_rule, new_tags, new_limit, steadfast_date(expiry),
        'waiting', 0, 0, false, cardinality(named))
      on conflict (id) do nothing;
      if not found then
        select name = new_name and queue = new_queue and payload = new_payload
          and format = new_format and schema_version = new_version
          and created_date = created_at and unique_key is not distinct from new_key
          and order_key is not distinct from new_order
        into is_same from steadfast_task where id = new_id;
        if is_same then return true; end if;
        raise exception 'the queue has another task with the ID of the new one';
      end if;

      if cardinality(named) > 0 then
        insert into steadfast_dependency (dependency, dependent, is_named, failed)
        select listed.id, new_id, true, (
          select state from steadfast_task
          where id = listed.id and state in ('abandoned', 'cancelled'))
        from unnest(named) as listed (id);
        select dependency.dependency into unmet from steadfast_dependency as dependency
        where dependency.dependent = new_id and dependency.is_named
          and ((dependency.failed is not null and new_rule = 'allSucceeded') or not exists (
            select 1 from steadfast_task where id = dependency.dependency offset 0))
        order by dependency.dependency limit 1;
        if found then
          raise exception 'the new task would wait without end for a task that is not in the \
    queue, or has ended without success';
        end if;
        update steadfast_task set open_count = (
          select count(*) from steadfast_dependency as dependency
          where dependency.dependent = new_id and dependency.is_named and exists (
            select 1 from steadfast_task
            where id = dependency.dependency and not has_ended offset 0))
        where id = new_id;
      end if;

      if new_order is not null then
        update steadfast_task set has_turn = false
        where order_key = new_order and has_turn and state <> 'running'
          and id is distinct from (
            select first.id from steadfast_task as first
            where first.order_key = new_order and first.in_order
            order by first.order_number limit 1);
        update steadfast_task set has_turn = true
        where id = (
            select first.id from steadfast_task as first
            where first.order_key = new_order and first.in_order
            order by first.order_number limit 1)
          and not exists (
            select 1 from steadfast_task as other
            where other.order_key = new_order and other.has_turn);
      end if;
      perform pg_notify('steadfast_hint', '');
      return true;
    end
    $$;
    """

  /// Makes the function refuse transactions that read an old snapshot of the tables.
  ///
  /// Such a transaction does not see that another task with the same key has just ended.
  static let fourth = """
    alter function steadfast_insert rename to steadfast_insert_task;
    create function steadfast_insert(
      \(parameters)
    ) returns boolean language plpgsql set search_path from current as $$
    begin
      if (new_key is not null or new_order is not null)
        and current_setting('transaction_isolation') in ('repeatable read', 'serializable')
      then
        raise exception 'a task with a unique key or an order key is added in a transaction of the \
    isolation level read committed, and this one is %', current_setting('transaction_isolation');
      end if;
      return steadfast_insert_task(
        form, new_id, new_name, new_queue, new_payload, new_format, new_version, new_priority,
        created, available, retries, backoff, new_key, policy, recent_until, latest, new_order,
        holds, new_conditions, new_rule, named, new_tags, new_limit, expiry);
    end
    $$;
    """

  /// The function, changed so that an expired task never makes a new task a duplicate.
  private static let expiringInsertion = insertion.replacingEach([
    (
      "    select id, state, coalesce(",
      """
          select id into successor from steadfast_task
          where name = new_name and unique_key = new_key and key_role = 'successor'
            and (state = 'running' or coalesce(expiry_date > created_at, true));
          select id, state, coalesce(
      """
    ),
    (
      "key_role = 'holder';\n    if not found then",
      """
      key_role = 'holder'
            and (state = 'running' or coalesce(expiry_date > created_at, true));
          if not found and successor is null then
      """
    ),
    (
      """
            select id into successor from steadfast_task
            where name = new_name and unique_key = new_key and key_role = 'successor';

      """, ""
    ),
    (
      "      return false;\n    end if;\n",
      """
            return false;
          end if;
          update steadfast_task set key_role = null
          where name = new_name and unique_key = new_key and key_role is not null
            and state <> 'running' and expiry_date <= created_at;

      """
    ),
  ])

  /// Lets a new task take the unique key of an expired task, and adds the column `counted_from`.
  ///
  /// The column has the date from which the available date of a task was counted. It is null if
  /// that date is the creation date, or if the caller chose the available date. For a statement of
  /// an earlier version, the store assumes that the caller chose the available date.
  static let fifth = """
    alter table steadfast_task add column counted_from timestamptz;
    update steadfast_task set
      counted_from = case when available_date < created_date then created_date else failed_date end
    where not has_ended and state <> 'suspended' and available_date <> created_date
      and (available_date < created_date or failed_date is not null);
    drop function steadfast_insert;
    drop function steadfast_insert_task;

    """
    + "create function steadfast_insert_task"
    + countingInsertion
    + "\n\n"
    + checkingInsertion

  /// The function, changed to store the date from which a task's available date was counted.
  private static let countingInsertion = expiringInsertion.replacingEach([
    (parameters, "\(parameters), counted bigint"),
    (
      "  holder record;\n",
      "  counted_at constant timestamptz := steadfast_date(counted);\n  holder record;\n"
    ),
    ("created_date = created_at", "created_date <= created_at"),
    (
      "        position = case\n",
      """
              counted_from = case
                when put_off then case when available_date < available_at
                  then counted_at else counted_from end
                when available_at > created_at then
                  case when coalesce(latest_date, latest_at, available_at) < available_at
                    then created_date else counted_at end
                when available_at
                    < case when state = 'suspended' then created_date else available_date end
                  then counted_at
                when state <> 'suspended' then counted_from end,
              position = case

      """
    ),
    ("put_off, name_count)\n", "put_off, name_count, counted_from)\n"),
    (
      "'waiting', 0, 0, false, cardinality(named))",
      """
      'waiting', 0, 0, false, cardinality(named),
          case when available_at <> created_at then counted_at end)
      """
    ),
  ])

  /// The function that checks the isolation level, changed to pass that date on.
  private static let checkingInsertion = fourth.replacingEach([
    ("alter function steadfast_insert rename to steadfast_insert_task;\n", ""),
    (parameters, "\(parameters), counted bigint default null"),
    ("new_limit, expiry);", "new_limit, expiry, counted);"),
  ])

  /// Separates the tasks that are due from the tasks that are delayed until their available dates.
  ///
  /// When the date of a delayed task has passed, a claim stores that date in the column `due_date`.
  /// If the available date changes later, the task is delayed again.
  static let sixth = """
    alter table steadfast_task add column due_date timestamptz;
    drop index steadfast_ready;
    create index steadfast_due on steadfast_task (queue, (~priority), available_date, position)
      where is_ready and available_date = coalesce(due_date, created_date) and position > 0;
    create index steadfast_due_name on steadfast_task
      (queue, name, (~priority), available_date, position)
      where is_ready and available_date = coalesce(due_date, created_date);
    create index steadfast_delayed on steadfast_task (queue, available_date)
      where is_ready and available_date <> coalesce(due_date, created_date);
    """

  // MARK: The seventh step

  /// The parameters of the function before the seventh step.
  private static let countedParameters = "\(parameters), counted bigint"

  /// Adds the columns of the seventh step, lets a census read only indexes, and makes the function
  /// accept metadata in the form 2.
  ///
  /// A call in the form 1, which an earlier version made, gives the task no metadata. With a parked
  /// task, the greatest payload version is stored that the program knew that parked it; the
  /// smallest integer if this is not known.
  static let seventh = """
    alter table steadfast_task add column metadata jsonb;
    alter table steadfast_task
      add column parked_version bigint not null default (-9223372036854775807 - 1);
    alter table steadfast_task add column claim_holder text;
    alter table steadfast_task add column claim_date timestamptz;
    alter table steadfast_task add column command text;
    alter table steadfast_task add column failed_attempt text;
    create index steadfast_command on steadfast_task (id) where command is not null;
    drop index steadfast_parked;
    create index steadfast_parked on steadfast_task (queue, name, parked_version)
      where state = 'parked';
    drop index steadfast_due_name;
    create index steadfast_due_name on steadfast_task
      (queue, name, (~priority), available_date, position) include (state, put_off)
      where is_ready and available_date = coalesce(due_date, created_date);
    drop index steadfast_delayed;
    create index steadfast_delayed on steadfast_task (queue, available_date)
      include (name, state, put_off)
      where is_ready and available_date <> coalesce(due_date, created_date);
    create index steadfast_apart on steadfast_task (queue, name, state)
      include (available_date, put_off) where state <> 'running' and not is_ready;
    drop function steadfast_insert;
    drop function steadfast_insert_task;

    """
    + "create function steadfast_insert_task"
    + countingInsertion.replacingEach([
      (countedParameters, "\(countedParameters), new_metadata jsonb"),
      ("form is distinct from 1", "form is null or form not in (1, 2)"),
      ("tags = new_tags,", "tags = new_tags, metadata = new_metadata, command = null,"),
      ("put_off, name_count, counted_from)\n", "put_off, name_count, counted_from, metadata)\n"),
      (
        "case when available_at <> created_at then counted_at end)",
        "case when available_at <> created_at then counted_at end, new_metadata)"
      ),
    ])
    + "\n\n"
    + checkingInsertion.replacingEach([
      (
        "\(countedParameters) default null",
        "\(countedParameters) default null, new_metadata jsonb default null"
      ),
      ("new_limit, expiry, counted);", "new_limit, expiry, counted, new_metadata);"),
    ])
}
#endif
