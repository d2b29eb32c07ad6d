#if SQLite
import SteadfastDatabases

/// The view into which a statement of another connection inserts a task.
///
/// Its trigger does what `Tables.insert(_:_:_:)` does. A test compares the two.
extension Schema {
  /// The form of the columns, which a statement names.
  ///
  /// A later version of the tables keeps it, or refuses statements of this form.
  static let insertionForm = 1

  /// The columns of the view, in the order of `Tables.definition(of:_:role:link:)`.
  static let insertionColumns = [
    "id", "name", "queue", "payload", "format", "schema_version", "priority", "created_date",
    "available_date", "max_retries", "uses_backoff", "unique_key", "on_duplicate", "unique_until",
    "latest_date", "order_key", "holds_order", "conditions", "dependency_rule", "dependencies",
    "tags", "time_limit", "expiry_date",
  ]

  // A step never changes, so it takes nothing from other places that may.
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

  /// The indexes that claims, keys and batches need, and a trigger that chooses its own.
  ///
  /// A program may let SQLite count the rows of the tables while they are small. From then on,
  /// SQLite would read whole tables where that seemed to be as quick as an index.
  static let third = """
    drop index steadfast_lease;
    create index steadfast_lease on steadfast_task (lease_end) where state = 'running';
    create index steadfast_recent on steadfast_task (name, unique_key, unique_until, id)
      where state = 'succeeded' and unique_until is not null;
    create index steadfast_failed on steadfast_dependency (dependent, dependency)
      where failed is not null;
    drop trigger steadfast_insert;

    """ + steadyTrigger

  private static let steadyTrigger = steady(trigger)

  /// A part of the trigger, with the way to the rows that SQLite would choose another way to.
  private static func steady(_ part: String) -> String {
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

  /// The trigger, in which a task that has expired stands for no new one, and loses its role to it.
  private static let expiringTrigger =
    steady(triggerHead)
    + steady(standing + payloads + takingOver).editing([
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

      """ + steady(triggerTail)

  /// From which dates those of tasks and claims were counted.
  ///
  /// A statement of an earlier version does not say whether a date was chosen, which counts as so.
  static let fourth = """
    alter table steadfast_task add column counted_from real;
    alter table steadfast_task add column lease_start real;
    update steadfast_task set
      counted_from = case when available_date < created_date then created_date else failed_date end
    where not has_ended and state <> 'suspended' and available_date <> created_date
      and (available_date < created_date or failed_date is not null);
    drop view steadfast_insertion;

    """
    + firstView.editing([
      ("time_limit, expiry_date)\nas", "time_limit, expiry_date, counted_from)\nas"),
      ("null from steadfast_task", "null, null from steadfast_task"),
    ])
    + "\n\n" + countingTrigger

  /// The trigger, with the date from which that of a task was counted.
  private static let countingTrigger = expiringTrigger.editing([
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
}
#endif
