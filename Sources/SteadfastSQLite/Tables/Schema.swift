#if SQLite
import SteadfastDatabases
import SteadfastQueue

/// The tables, and the migration of older versions.
///
/// The article "Writing a store" describes the columns. `seq` sorts tasks with the same priority
/// and available date: a task that must go behind all others gets the next number. The generated
/// columns compare a state with each value separately: for a list of three values, SQLite would
/// make a temporary table each time a row changes. There are no foreign keys, because with them,
/// SQLite would search four tables for each removed task. Instead, `Tables.delete(_:)` removes a
/// task's rows from the other tables.
struct Schema {
  /// The migration steps, each from one version of the tables to the next.
  ///
  /// A released step never changes.
  var steps = [
    Schema.first, Schema.second, Schema.third, Schema.fourth, Schema.fifth, Schema.sixth,
  ]

  var version: Int { steps.count }

  static let tables = ["task", "payload", "dependency", "memory", "value"]
  /// The view into which other programs insert tasks.
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

  /// The table that stores the version of the other tables.
  ///
  /// All versions use the same name for this table.
  private static let versionTable = """
    create table steadfast_schema (maker text primary key, version integer not null) without rowid;
    insert into steadfast_schema values ('Steadfast', 0);
    """
}

extension Schema {
  /// The reason why the tables of a database can't be used.
  enum Refusal: Error, Equatable {
    case newerVersion(Int)
    /// Another program made a table with a name that this library uses.
    case foreignTable(String)
  }

  /// Returns the version of the tables; `nil` if there are no tables.
  func version(in database: Connection, prefix: String) throws -> Int? {
    guard database.isIdle else { return try versionInTransaction(of: database, prefix: prefix) }
    // Another process may make or remove the tables between two statements.
    try database.execute("begin")
    defer { if !database.isIdle { try? database.execute("rollback") } }
    return try versionInTransaction(of: database, prefix: prefix)
  }

  private func versionInTransaction(of database: Connection, prefix: String) throws -> Int? {
    var isThere = false
    for table in Self.tables + [Self.view, "schema"] {
      let name = "\(prefix)_\(table)"
      guard try database.hasRow("select 1 from sqlite_schema where name = ?1", .text(name)) else {
        continue
      }
      if table == "schema" { isThere = true } else { try checkIsOurs(name, in: database) }
    }
    guard isThere else { return nil }
    guard let version = try versionIfOurs(in: database) else {
      throw Refusal.foreignTable("\(prefix)_schema")
    }
    guard version <= self.version else { throw Refusal.newerVersion(version) }
    return version
  }

  /// Throws if another program made the table or view with this name.
  private func checkIsOurs(_ name: String, in database: Connection) throws {
    guard try versionIfOurs(in: database) == nil else { return }
    throw Refusal.foreignTable(name)
  }

  /// Returns the stored version; `nil` if another program made the table.
  private func versionIfOurs(in database: Connection) throws -> Int? {
    do {
      return try database.first(
        "select version from steadfast_schema where maker = 'Steadfast'"
      ) { $0.integer(0) }
    } catch let failure as SQLiteFailure where failure.isMissingTableOrColumn {
      return nil
    }
  }

  /// Creates the tables, or migrates them to the current version, within a transaction.
  ///
  /// The transaction prevents other processes from migrating the tables at the same time.
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

  /// Removes the tables within a transaction, if this library made them.
  func drop(from database: Connection, prefix: String) throws {
    guard try version(in: database, prefix: prefix) != nil else { return }
    try database.execute("drop view if exists steadfast_\(Self.view)")
    for table in Self.tables.reversed() + ["schema"] {
      try database.execute("drop table if exists steadfast_\(table)")
    }
  }
}

/// The view into which other programs insert tasks within their own transactions.
///
/// The trigger of the view makes the same changes as
/// `TaskTables.insert(_:onDuplicate:payload:)`. A test compares the rows that both insert.
extension Schema {
  /// The version of the view's columns, which is also the first value of each insertion into the
  /// view.
  ///
  /// A later version of the tables either supports such an insertion or refuses it.
  static let insertionVersion = 2

  /// The columns of the view, in the order of `TaskRecord.definitionValues(payload:role:link:)`.
  static let insertionColumns = [
    "id", "name", "queue", "payload", "format", "schema_version", "priority", "created_date",
    "available_date", "max_retries", "uses_backoff", "unique_key", "on_duplicate", "unique_until",
    "latest_date", "order_key", "holds_order", "conditions", "dependency_rule", "dependencies",
    "tags", "time_limit", "expiry_date",
  ]

  // A migration step never changes, so this step uses no declarations that may change.
  static let second = firstView + "\n\n" + trigger

  private static let firstView = """
    create view steadfast_insertion (
      form, id, name, queue, payload, format, schema_version, priority, created_date,
      available_date, max_retries, uses_backoff, unique_key, on_duplicate, unique_until,
      latest_date, order_key, holds_order, conditions, dependency_rule, dependencies, tags,
      time_limit, expiry_date)
    as select 1, id, null, null, null, null, null, null, null, null, null, null, null, null, null,
      null, null, null, null, null, null, null, null, null from steadfast_task;
    """

  private static let trigger =
    triggerHead + standing + takingOver + payloads + takenOver + triggerTail

  private static let triggerHead = """
    create trigger steadfast_insert instead of insert on steadfast_insertion
    begin
      select raise(abort, 'the statement that adds a task was made by another version of \
    Steadfast than the tables of the queue; use one version for both')
      where new.form is not 1
        or coalesce(new.on_duplicate not in ('keep', 'join', 'replace', 'reject'), 1)
        or typeof(new.id) <> 'blob' or length(new.id) <> 16 or typeof(new.payload) <> 'blob'
        or typeof(new.dependencies) not in ('blob', 'null')
        or typeof(new.created_date) not in ('real', 'integer')
        or typeof(new.available_date) not in ('real', 'integer');

      -- It was added before.
      select raise(ignore) where exists (
        select 1 from steadfast_task
        where id = new.id and name = new.name and queue = new.queue
          and coalesce(payload, (select bytes from steadfast_payload where task_id = id))
            = new.payload
          and format = new.format and schema_version = new.schema_version
          and created_date = new.created_date
          and unique_key is new.unique_key and order_key is new.order_key);
      select raise(abort, 'the queue has another task with the ID of the new one')
      where exists (select 1 from steadfast_task where id = new.id);


    """

  private static let standing = """
      -- Another task stands for it.
      select case new.on_duplicate when 'reject'
        then raise(abort, 'a task with the unique key of the new one is there already')
        else raise(ignore) end
      where new.unique_key is not null and (
        new.on_duplicate in ('join', 'reject') and exists (
          select 1 from steadfast_task
          where name = new.name and unique_key = new.unique_key and key_role = 'holder')
        or new.on_duplicate = 'keep' and exists (
          select 1 from steadfast_task
          where name = new.name and unique_key = new.unique_key
            and (key_role = 'successor' or key_role = 'holder'
              and (state <> 'running' or coalesce(unique_until > new.created_date, 0))))
        or new.on_duplicate <> 'replace' and not exists (
          select 1 from steadfast_task
          where name = new.name and unique_key = new.unique_key and key_role = 'holder')
        and exists (
          select 1 from steadfast_task
          where name = new.name and unique_key = new.unique_key
            and state = 'succeeded' and unique_until > new.created_date));


    """

  private static let takingOver = """
      -- Another task takes it over.
      update steadfast_task set
        payload = case when length(new.payload) <= 2048 then new.payload end,
        format = new.format, schema_version = new.schema_version,
        priority = new.priority, max_retries = new.max_retries,
        uses_backoff = new.uses_backoff, tags = new.tags, time_limit = new.time_limit,
        expiry_date = new.expiry_date, conditions = new.conditions,
        unique_until = new.unique_until, latest_date = coalesce(latest_date, new.latest_date),
        state = case when state in ('parked', 'suspended') then 'waiting' else state end,
        available_date = case
          when put_off then max(available_date, new.available_date)
          when new.available_date <= new.created_date then min(new.available_date,
            case when state = 'suspended' then created_date else available_date end)
          else min(new.available_date,
            coalesce(latest_date, new.latest_date, new.available_date)) end,
        seq = case
          when state in ('parked', 'suspended') or priority <> new.priority
            then (select coalesce(max(seq), 0) + 1 from steadfast_task)
          when put_off and available_date >= new.available_date then seq
          when not put_off and new.available_date <= new.created_date
            and available_date <= new.available_date then seq
          when not put_off and new.available_date > new.created_date
            and available_date = min(new.available_date,
              coalesce(latest_date, new.latest_date, new.available_date)) then seq
          else (select coalesce(max(seq), 0) + 1 from steadfast_task) end
      where new.on_duplicate = 'replace' and id = (
          select id from steadfast_task
          where name = new.name and unique_key = new.unique_key and key_role is not null
          order by key_role desc limit 1)
        and (key_role = 'successor' or state <> 'running' and memory_size = 0);

    """

  private static let payloads = """
      delete from steadfast_payload
      where new.on_duplicate = 'replace' and task_id = (
        select id from steadfast_task
        where name = new.name and unique_key = new.unique_key and key_role is not null
          and (key_role = 'successor' or state <> 'running' and memory_size = 0)
        order by key_role desc limit 1);
      insert into steadfast_payload
      select id, new.payload from steadfast_task
      where new.on_duplicate = 'replace' and length(new.payload) > 2048
        and name = new.name and unique_key = new.unique_key and key_role is not null
        and (key_role = 'successor' or state <> 'running' and memory_size = 0)
      order by key_role desc limit 1;

    """

  private static let takenOver = """
      select raise(ignore) where new.on_duplicate = 'replace' and exists (
        select 1 from steadfast_task
        where name = new.name and unique_key = new.unique_key and key_role is not null
          and (key_role = 'successor' or state <> 'running' and memory_size = 0));


    """

  private static let triggerTail = """
      -- The tasks that it waits for.
      insert into steadfast_dependency
      with recursive place (start) as (
        select 1 where length(new.dependencies) > 0
        union all
        select start + 16 from place where start + 16 <= length(new.dependencies)
      )
      select substr(new.dependencies, start, 16), new.id, 1,
        case when task.state in ('abandoned', 'cancelled') then task.state end
      from place
      left join steadfast_task as task on task.id = substr(new.dependencies, start, 16);
      select raise(abort, 'the new task would wait without end for a task that is not in the \
    queue, or has ended without success')
      where exists (
        select 1 from steadfast_dependency as named
        left join steadfast_task as task on task.id = named.dependency
        where named.dependent = new.id and named.is_named and (task.id is null
          or new.dependency_rule = 'allSucceeded' and named.failed is not null));

      insert into steadfast_task (
        id, name, queue, payload, format, schema_version, priority, created_date,
        available_date, max_retries, uses_backoff, unique_key, key_role, unique_until,
        latest_date, order_key, order_number, holds_order, conditions, dependency_rule, tags,
        time_limit, expiry_date, state, retry_count, interruption_count, put_off, name_count,
        open_count)
      values (
        new.id, new.name, new.queue,
        case when length(new.payload) <= 2048 then new.payload end,
        new.format, new.schema_version, new.priority, new.created_date, new.available_date,
        new.max_retries, new.uses_backoff, new.unique_key,
        case when new.unique_key is not null then
          case when exists (
            select 1 from steadfast_task
            where name = new.name and unique_key = new.unique_key and key_role = 'holder')
          then 'successor' else 'holder' end end,
        new.unique_until, new.latest_date, new.order_key,
        case when new.order_key is not null
          then (select coalesce(max(seq), 0) + 1 from steadfast_task) end,
        new.holds_order, new.conditions, new.dependency_rule, new.tags, new.time_limit,
        new.expiry_date, 'waiting', 0, 0, 0, coalesce(length(new.dependencies), 0) / 16,
        (select count(*) from steadfast_dependency as named
          join steadfast_task as task on task.id = named.dependency
          where named.dependent = new.id and named.is_named and not task.has_ended));
      insert into steadfast_payload
      select new.id, new.payload where length(new.payload) > 2048;

      -- It is the first with its order key.
      update steadfast_task set has_turn = 1
      where new.order_key is not null and seq = (
          select seq from steadfast_task where order_key = new.order_key and in_order
          order by order_number limit 1)
        and not exists (
          select 1 from steadfast_task as other
          where other.order_key = new.order_key and other.has_turn);
    end;
    """

  /// Adds indexes for claims, keys and batches, and makes the trigger name the indexes that it
  /// uses.
  ///
  /// A program may run `analyze` while the tables are small. From then on, SQLite would read whole
  /// tables wherever reading them seemed as fast as an index.
  static let third = """
    drop index steadfast_lease;
    create index steadfast_lease on steadfast_task (lease_end) where state = 'running';
    create index steadfast_recent on steadfast_task (name, unique_key, unique_until, id)
      where state = 'succeeded' and unique_until is not null;
    create index steadfast_failed on steadfast_dependency (dependent, dependency)
      where failed is not null;
    drop trigger steadfast_insert;

    """ + steadyTrigger

  private static let steadyTrigger = fixingPlan(of: trigger)

  /// Returns a part of the trigger after changes that fix its indexes and the order of its joins.
  ///
  /// Otherwise, SQLite might choose other indexes, or another order.
  private static func fixingPlan(of part: String) -> String {
    [
      ("+ 1 from steadfast_task)", "+ 1 from steadfast_task not indexed)"),
      ("_dependency as named", "_dependency as named indexed by steadfast_dependent"),
      ("  join steadfast_task as task", "  cross join steadfast_task as task"),
      (
        "(key_role = 'successor' or key_role",
        "key_role is not null and (key_role = 'successor' or key_role"
      ),
    ].reduce(part) { text, change in text.replacing(change.0, with: change.1) }
  }

  /// The trigger, changed so that a new task can take the unique key of an expired task.
  private static let expiringTrigger =
    fixingPlan(of: triggerHead)
    + fixingPlan(of: standing + payloads + takingOver).replacingEach([
      ("key_role = 'holder')", "key_role is not null)"),
      (
        "key_role is not null",
        "key_role is not null and (state = 'running' or coalesce(expiry_date > new.created_date, 1))"
      ),
    ]) + """
        select raise(ignore) where new.on_duplicate = 'replace' and changes() > 0;
        update steadfast_task set key_role = null
        where name = new.name and unique_key = new.unique_key and key_role is not null
          and state <> 'running' and expiry_date <= new.created_date;

      """ + fixingPlan(of: triggerTail)

  /// Adds the dates from which the dates of tasks and claims were counted.
  ///
  /// For a task, the column `counted_from` is null if that date is the creation date, or if the
  /// caller chose the available date. For a statement of an earlier version, the store assumes that
  /// the caller chose the available date.
  static let fourth = """
    alter table steadfast_task add column counted_from real;
    alter table steadfast_task add column lease_start real;
    update steadfast_task set
      counted_from = case when available_date < created_date then created_date else failed_date end
    where not has_ended and state <> 'suspended' and available_date <> created_date
      and (available_date < created_date or failed_date is not null);
    drop view steadfast_insertion;

    """
    + firstView.replacingEach([
      ("time_limit, expiry_date)\nas", "time_limit, expiry_date, counted_from)\nas"),
      ("null from steadfast_task", "null, null from steadfast_task"),
    ])
    + "\n\n" + countingTrigger

  /// The trigger, changed to store the date from which a task's available date was counted.
  private static let countingTrigger = expiringTrigger.replacingEach([
    ("created_date = new.created_date\n", "created_date <= new.created_date\n"),
    (
      "    seq = case\n",
      """
          counted_from = case
            when put_off then case when available_date < new.available_date
              then new.counted_from else counted_from end
            when new.available_date > new.created_date then
              case when coalesce(latest_date, new.latest_date, new.available_date)
                < new.available_date then created_date else new.counted_from end
            when new.available_date
                < case when state = 'suspended' then created_date else available_date end
              then new.counted_from
            when state <> 'suspended' then counted_from end,
          seq = case

      """
    ),
    ("    open_count)\n", "    open_count, counted_from)\n"),
    (
      "and not task.has_ended));",
      """
      and not task.has_ended),
            case when new.available_date <> new.created_date then new.counted_from end);
      """
    ),
  ])

  /// Separates the tasks that are due from the tasks that are delayed until their available dates.
  ///
  /// The column `rank` is the inverted priority of a task that is due, and null for a delayed task.
  /// When the date of a delayed task has passed, a claim stores that date in the column `due_date`.
  /// If the available date changes later, the task is delayed again.
  static let fifth = """
    alter table steadfast_task add column due_date real;
    alter table steadfast_task add column rank integer generated always as (
      case when available_date = coalesce(due_date, created_date) then ~priority end) virtual;
    drop index steadfast_ready;
    create index steadfast_ready on steadfast_task (queue, rank, available_date) where is_ready;
    create index steadfast_ready_name on steadfast_task (queue, name, rank, available_date)
      where is_ready;
    """

  // MARK: The sixth step

  /// Adds the columns and the indexes of the sixth step, and makes the view accept metadata in the
  /// form 2.
  ///
  /// The indexes serve a census. A task that waits, is performed and then removed is in neither.
  /// A statement in the form 1, which an earlier version made, gives the task no metadata. With a
  /// parked task, the greatest payload version is stored that the program knew that parked it; the
  /// smallest integer if this is not known.
  static let sixth = """
    alter table steadfast_task add column metadata text;
    alter table steadfast_task
      add column parked_version integer not null default -9223372036854775808;
    alter table steadfast_task add column claim_holder text;
    alter table steadfast_task add column claim_date real;
    alter table steadfast_task add column command text;
    alter table steadfast_task add column failed_attempt text;
    create index steadfast_command on steadfast_task (id) where command is not null;
    drop index steadfast_parked;
    create index steadfast_parked on steadfast_task (queue, name, parked_version)
      where state = 'parked';
    create index steadfast_apart on steadfast_task (queue, name, state, available_date, put_off)
      where state <> 'running' and not is_ready;
    create index steadfast_resumed on steadfast_task (queue, name, state, available_date)
      where (put_off or state = 'suspended') and is_ready;
    drop view steadfast_insertion;

    """
    + firstView.replacingEach([
      ("time_limit, expiry_date)\nas", "time_limit, expiry_date, counted_from, metadata)\nas"),
      ("null from steadfast_task", "null, null, null from steadfast_task"),
    ])
    + "\n\n" + secondFormTrigger

  /// The trigger, changed to store the columns of the form 2.
  private static let secondFormTrigger = countingTrigger.replacingEach([
    ("new.form is not 1\n", "coalesce(new.form not in (1, 2), 1)\n"),
    ("tags = new.tags,", "tags = new.tags, metadata = new.metadata, command = null,"),
    ("    open_count, counted_from)\n", "    open_count, counted_from, metadata)\n"),
    (
      "case when new.available_date <> new.created_date then new.counted_from end);",
      "case when new.available_date <> new.created_date then new.counted_from end, new.metadata);"
    ),
  ])
}

extension InsertStatement {
  /// Creates a statement that inserts a task into the view with a prefix.
  ///
  /// - Throws: The errors of ``TaskChange/checkForm()`` and of the payload's encoding.
  init(_ record: TaskRecord, _ policy: UniquePolicy, prefix: String) throws {
    let bytes = try PreparedChange(.insert(record, onDuplicate: policy)).payload
    let dependencies = record.dependencies.tasks.sorted()
    let columns = Schema.insertionColumns + ["counted_from", "metadata"]
    let marks = Array(repeating: "?", count: columns.count).joined(separator: ", ")
    self.init(
      id: record.id,
      text: "insert into \(prefix)_insertion (form, \(columns.joined(separator: ", "))) "
        + "values (\(Schema.insertionVersion), \(marks))",
      parameters: record.definitionValues(
        payload: .bytes(bytes),
        role: .text(policy.storedName),
        link: dependencies.isEmpty ? .null : .ids(dependencies)
      ).map(SQLParameter.init)
        + [.date(record.countedFrom), StoredMetadata.value(of: record.metadata)]
        .map(SQLParameter.init)
    )
  }
}

extension SQLParameter {
  fileprivate init(_ value: SQLValue) {
    self =
      switch value.stored {
      case .integer(let value): .integer(value)
      case .real(let value): .real(value)
      case .text(let value): .text(value)
      case .bytes(let value): .bytes(value)
      case .null, .flag, .id, .date, .array: .null
      }
  }
}
#endif
