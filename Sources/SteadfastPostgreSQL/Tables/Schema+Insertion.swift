#if PostgreSQL
import SteadfastDatabases

/// The function with which a statement of another connection inserts a task.
///
/// It does what `Tables.insert(_:_:_:)` does, with the locks of a `LockPlan`. A test compares the
/// two.
extension Schema {
  /// The form of the parameters, which a statement names.
  ///
  /// A later version of the tables keeps it, or refuses statements of this form.
  static let insertionForm = 1

  /// Those of the form, which never change.
  private static let parameters = """
    form bigint, new_id uuid, new_name text, new_queue text, new_payload bytea, new_format text,
    new_version bigint, new_priority bigint, created bigint, available bigint, retries bigint,
    backoff bigint, new_key text, policy text, recent_until bigint, latest bigint,
    new_order text, holds bigint, new_conditions text[], new_rule text, named uuid[],
    new_tags text[], new_limit bigint, expiry bigint
    """

  // A step never changes, so it takes nothing from other places that may.
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

  /// A transaction that sees the tables as they were does not see that a turn has become free, nor
  /// that a task with the key has just ended.
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

  /// The function's text, in which a task that has expired stands for no new one.
  private static let expiringInsertion = insertion.editing([
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

  /// A task that has expired stands for no new one, and loses its role to it.
  ///
  /// The tables know from which dates those of tasks were counted.
  /// A statement of an earlier version does not say whether a date was chosen, which counts as so.
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
    + expiringInsertion.editing([
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
    + "\n\n"
    + fourth.editing([
      ("alter function steadfast_insert rename to steadfast_insert_task;\n", ""),
      (parameters, "\(parameters), counted bigint default null"),
      ("new_limit, expiry);", "new_limit, expiry, counted);"),
    ])
}
#endif
