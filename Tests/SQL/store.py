"""What a store does with the statements about keys, order and conditions."""

import json
import sqlite3

from engines import BASE, NO_DATE, PostgreSQLSession, date, filled, identity, literal, number


def add(session, task, policy="keep", name="A", key="k", created=0, at=None, until=None,
        latest=None, priority=0, expires=None, metadata=None):
    """Does what the article says of an insertion; returns what became of it."""
    at = created if at is None else at
    if was_sent(session, task, name, key, created):
        return "done", "before"
    while True:
        found = {row[1]: row for row in session.run("twins", name, key)}
        twins = {role: twin for role, twin in found.items() if not has_expired(twin, created)}
        holder, successor = twins.get("holder"), twins.get("successor")
        if not twins and policy != "replace":
            if same := session.run("recent", name, key, date(created)):
                return "duplicate", number(same[0][0])
        role = "holder"
        if twins:
            if policy in ("reject", "join"):
                return "duplicate", number((holder or successor)[0])
            stands = holder and holder[3] is not None and holder[3][:19] > f"{BASE}{created:02}"
            if successor or holder[2] != "running" or (policy == "keep" and stands):
                twin = successor or holder
                if policy == "keep":
                    return "duplicate", number(twin[0])
                # The next place, which a sequence gives and a caller passes on.
                place = session.text("select max(position) + 1 from task")[0][0]
                rows = session.run(
                    "take over", twin[0], f"payload {task}", "json", 1, priority, 10, True,
                    session.array([]), None, date(expires), date(until), date(latest), date(at),
                    date(created), int(place), session.array([]), counted(created, at),
                    json.dumps(metadata or {}))
                assert len(rows) == 1
                return "replaced", number(twin[0])
            role = "successor"
        if len(twins) < len(found):
            session.run("displace", name, key, date(created))
        rows = session.run(
            "insert", *row(session, task, name, key, role, priority, created, at, until, latest,
                           expires=expires, metadata=metadata))
        if rows:
            return "done", role
        # Another session has taken the role.


def has_expired(twin, second):
    """Whether a row of *twins* can't be performed any more."""
    return twin[2] != "running" and is_over(twin[5], second)


def is_over(expiry_date, second):
    return expiry_date is not None and expiry_date[:19] <= f"{BASE}{second:02}"


def row(session, task, name="A", key=None, role=None, priority=0, created=0, at=None, until=None,
        latest=None, order=None, holds=False, conditions=(), rule="allSucceeded", follower=None,
        queue="", expires=None, chosen=False, version=1, metadata=None):
    """The parameters of an insertion."""
    key, order = key_in(queue, key), key_in(queue, order)
    return [
        identity(task), name, f"payload {task}", "json", version, priority, date(created),
        date(created if at is None else at), 10, True, key, role, date(until), date(latest),
        session.array([]), None, date(expires), order, holds, session.array(conditions), rule,
        None if follower is None else identity(follower), queue, counted(created, at, chosen),
        json.dumps(metadata or {}),
    ]


def counted(created, at, chosen=False):
    """The date from which that of a task was counted."""
    return NO_DATE if chosen and at not in (None, created) else date(created)


def was_sent(session, task, name="A", key=None, created=0, order=None, queue="", payload=None):
    return bool(session.run(
        "sent before", identity(task), name, queue, payload or f"payload {task}", "json", 1,
        date(created), key_in(queue, key), key_in(queue, order)))


def key_in(queue, key):
    """A key as a store binds it: with its queue in front, unless both can do without."""
    if key is None or not queue and "\x01" not in key:
        return key
    return f"{queue}\x01{key}"


def begin(session, task):
    session.text(f"update task set state = 'running' where id = '{identity(task)}'")


def succeed(session, task, name="A", key="k", retains=False):
    if retains:
        session.text(
            "update task set state = 'succeeded', finished_date = created_date, key_role = null"
            f" where id = '{identity(task)}'")
    else:
        session.text(f"delete from task where id = '{identity(task)}'")
    return [number(row[0]) for row in session.run("promote", name, key)]


def retry(session, task, second, name="A", key="k"):
    """Makes a task wait for a retry; returns the successor that takes its place."""
    session.run("twins", name, key)
    move_of(task, "waiting", second, retries=3, postponed=True)(session)
    fail(session, task, "no")
    twins = {row[1]: row for row in session.run("twins", name, key)}
    if "successor" not in twins or is_over(twins["successor"][5], second):
        return None
    successor = twins["successor"][0]
    session.run("give up the role", identity(task))
    session.run("take the place", identity(task), successor)
    session.run("leave", identity(task))
    return number(successor)


def in_order(session, *changes, keys=(), tasks=()):
    """Makes changes with the locks of their order keys; returns the tasks that get a turn."""
    session.text("begin")
    session.lock(keys, tasks)
    given = with_turns(session, *changes, keys=keys, tasks=tasks)
    session.text("commit")
    return given


def with_turns(session, *changes, keys=(), tasks=()):
    """Makes changes, and gives the turns of their order keys."""
    keys = set(keys) | orders_of(session, tasks)
    for change in changes:
        change(session)
    return give_turns(session, keys)


def orders_of(session, tasks):
    listed = ", ".join(f"'{identity(task)}'" for task in tasks) or "null"
    rows = session.text(
        f"select distinct order_key from task where order_key is not null and id in ({listed})")
    return {key for (key,) in rows}


def give_turns(session, keys):
    given = []
    for key in sorted(keys):
        session.run("take the turn", key)
        given += [number(task) for (task,) in session.run("give the turn", key)]
    return given


def insertion(task, order, **values):
    def change(session):
        expect(len(session.run("insert", *row(session, task, order=order, **values))), 1)
    return change


def put(session, task, order, **values):
    return in_order(session, insertion(task, order, **values), keys=[order])


def end_of(task, state="succeeded", retains=False):
    """The end of a task, as a claimed or an unclaimed one."""
    def change(session):
        if not retains:
            session.text(f"delete from task where id = '{identity(task)}'")
        session.text(
            f"update task set state = '{state}', finished_date = {date(1)}, key_role = null,"
            f" lease_end = null where id = '{identity(task)}'")
    return change


def end(session, task, state="succeeded", retains=False):
    return in_order(session, end_of(task, state, retains), tasks=[task])


def move_of(task, state, second=0, retries=None, postponed=None, keeps=False, wakes=False):
    """A task waits again, or is parked or paused; without a second, its date stays."""
    def change(session):
        session.run(
            "move", identity(task), state, wakes, date(second), date(second), postponed, retries,
            keeps)
    return change


def fail(session, task, reason):
    """Records a failure; SQLite, which has other functions for JSON, only the last one."""
    if isinstance(session, PostgreSQLSession):
        session.run("record the failure", identity(task), reason, date(1), f"failed {reason}")
    else:
        session.text(f"update task set last_error = '{reason}' where id = '{identity(task)}'")


def target(session, task, token=None):
    """The state of a task that a lease or, without one, an identity names."""
    return [state for state, _ in session.run("target", identity(task), token)]


def move(session, task, state, second=0):
    return in_order(session, move_of(task, state, second), tasks=[task])


def restart_of(task, second=0):
    return lambda session: session.run("restart", identity(task), date(second), None)


def restart(session, task):
    return in_order(session, restart_of(task), tasks=[task])


def remove(session, task):
    def change(session):
        session.text(f"delete from task where id = '{identity(task)}'")
    return in_order(session, change, tasks=[task])


def prune(session, state, second, keeping, queue=""):
    rows = session.run("prunable", state, date(second), keeping, date(second), queue)
    session.run("prune", state, session.array(task for (task,) in rows))


def claim(session, second=0, names=("A", "B"), limit=100, conditions=(), queue="", others=0,
          versions=None, clock=None):
    """Ends the claims that have run out by the store's clock, and takes tasks."""
    session.set_clock(second if clock is None else clock)
    session.text("begin")
    overdue = [(number(task), key) for task, key in session.run("overdue")]
    session.lock(tasks=[task for task, _ in overdue])
    for task, _ in overdue:
        session.run("interrupt", identity(task))
    give_turns(session, {key for _, key in overdue if key})
    claimed = session.claim(names, limit, second, conditions, queue, others, versions)
    session.text("commit")
    return claimed


def tasks(session, columns="key_role, state"):
    rows = session.text(f"select id, {columns} from task order by id")
    return [(number(row[0]), *row[1:]) for row in rows]


def second_of(session, task):
    text = session.text(f"select available_date from task where id = '{identity(task)}'")[0][0]
    return int(text[17:19])


def expect(found, expected):
    assert found == expected, f"expected {expected}, but found {found}"


