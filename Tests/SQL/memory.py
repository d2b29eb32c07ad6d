"""What the statements about what tasks remember promise, with sessions at once."""

import random
import re
import threading
import threading

from engines import NO_DATE, PostgreSQL, SQLite, date, filled, identity, number
from keys import run_behind
from store import add, claim, expect, give_turns, orders_of, row, tasks
from waiting import cancel, insert, perform

ENDLESS = "timestamptz '4001-01-01 00:00:00+00'"


def array(session, task):
    return session.array([identity(task)])


def put(session, task, **values):
    expect(len(session.run("insert", *row(session, task, **values))), 1)


def take(session, task, token=1):
    """Makes a task run with a lease, as a claim would."""
    session.text(
        f"update task set state = 'running', lease_token = {token}, lease_end = {date(50)}"
        f" where id = '{identity(task)}'")


def lock(session, task):
    session.text("begin")
    session.run("lock the tasks that remember", array(session, task))


def remember(session, task, name, value, token=1, is_begun=False):
    if not is_begun:
        lock(session, task)
    is_held = bool(session.run("hold the lease", identity(task), token))
    if is_held:
        session.run("remember", identity(task), name, value)
        session.run("measure", identity(task))
    session.text("commit")
    return is_held


def suspend(session, task, second=None, names=(), token=1, is_begun=False, counted=NO_DATE):
    """Suspends a task; returns its state afterwards, or `None` if the change is stale."""
    if not is_begun:
        lock(session, task)
    until = ENDLESS if second is None else date(second)
    rows = session.run("suspend", identity(task), token, until, session.array(names), counted)
    give_turns(session, orders_of(session, [task]))
    session.text("commit")
    return state(session, task) if rows else None


def complete(session, task, name, value, is_begun=False):
    if not is_begun:
        lock(session, task)
    is_done = bool(session.run("complete", identity(task), name, value))
    if is_done:
        session.run("measure", identity(task))
        session.run("wake", identity(task))
        give_turns(session, orders_of(session, [task]))
    session.text("commit")
    return is_done


def forget(session, task):
    session.run("forget", array(session, task))
    session.run("forget the size", array(session, task))


def memory(session, task):
    return {
        name: bytes.fromhex((value or "\\x")[2:])
        for name, value in session.run("memory", identity(task))
    }


def field(session, task, column):
    rows = session.text(f"select {column} from task where id = '{identity(task)}'")
    return rows[0][0] if rows else None


def state(session, task):
    return field(session, task, "state")


def size(session, task):
    return int(field(session, task, "memory_size"))


# One session


def remembered(engine):
    """Bytes under names, only with the lease; they leave with their task."""
    session = engine.reset()
    every = bytes(range(256))
    for task in (1, 2):
        put(session, task)
        take(session, task)
    session.text(f"update task set interruption_count = 3 where id = '{identity(1)}'")
    expect(memory(session, 1), {})
    expect(remember(session, 1, "step", every, token=2), False)
    expect((memory(session, 1), field(session, 1, "interruption_count")), ({}, "3"))
    expect(remember(session, 1, "step", every), True)
    expect(field(session, 1, "interruption_count"), "0")
    for name in ("\u00e9", "e\u0301", "A", "a ", "it's", "n" * 1024):
        expect(remember(session, 1, name, name.encode()), True)
    expect(remember(session, 1, "step", b""), True)
    expect(remember(session, 2, "step", b"2"), True)
    found = memory(session, 1)
    expect((len(found), found["step"], found["e\u0301"]), (7, b"", "e\u0301".encode()))
    expect(size(session, 1), 4 + 2 * (2 + 3 + 1 + 2 + 4 + 1024))
    expect(size(session, 2), 5)
    remembering = session.text("select id from task where (memory_size > 0) = true order by id")
    expect([number(task) for (task,) in remembering], [1, 2])
    forget(session, 1)
    expect((memory(session, 1), size(session, 1), memory(session, 2)), ({}, 0, {"step": b"2"}))
    session.text(f"delete from task where id = '{identity(2)}'")
    put(session, 2)
    expect((memory(session, 2), size(session, 2)), ({}, 0))
    expect(remember(session, 2, "step", b"2"), False)


def suspended(engine):
    """A suspended task is handed out on its date, in its place, and never without one."""
    session = engine.reset()
    for task in (1, 2, 3, 4):
        put(session, task, at=2)
        take(session, task)
    session.text("update task set interruption_count = 2, put_off = true, retry_count = 3")
    expect(suspend(session, 1, 20, token=9), None)
    expect(suspend(session, 2, 20), "suspended")
    expect(suspend(session, 1, 20), "suspended")
    expect(suspend(session, 3), "suspended")
    expect(suspend(session, 4, 25), "suspended")
    put(session, 5, at=20)
    false = "f" if isinstance(engine, PostgreSQL) else "0"
    found = field(session, 1, "interruption_count || '' || retry_count || coalesce(lease_token, 0)")
    expect((found, field(session, 1, "put_off")), ("030", false))
    expect(claim(session, 19), [])
    expect(session.run("next date", date(19))[0][0][17:19], "20")
    expect(claim(session, 20, limit=2), [1, 2])
    expect(claim(session, 20), [5])
    # The last ones by their dates: no date is that of the third.
    expect(session.run("next date", date(24))[0][0][17:19], "25")
    expect(claim(session, 25), [4])
    session.text("delete from task where state = 'running'")
    expect((claim(session, 59), session.run("next date", date(59))), ([], [(None,)]))
    expect(suspend(session, 3, 30), None)
    pause = session.run("move", identity(3), "paused", True, None, None, False, None, False)
    expect((len(pause), state(session, 3), field(session, 3, "available_date")[17:19]), (1, "paused", "00"))


def completed(engine):
    """The first completion counts, wakes a suspended task, and changes no other one."""
    session = engine.reset()
    put(session, 1, created=1, at=3)
    take(session, 1)
    remember(session, 1, "open", b"")
    remember(session, 1, "step", b"1")
    for name in ("step", "other", "Open"):
        expect(complete(session, 1, name, b"9"), False)
    expect(complete(session, 2, "open", b"9"), False)
    expect(suspend(session, 1, names=["open"]), "suspended")
    put(session, 2, at=1)
    expect(complete(session, 1, "open", b"22"), True)
    expect(complete(session, 1, "open", b"3"), False)
    expect((memory(session, 1), size(session, 1)), ({"open": b"22", "step": b"1"}, 11))
    expect(field(session, 1, "available_date")[17:19], "01")
    expect(claim(session, 5, limit=1), [2])
    expect(claim(session, 5), [1])
    # What has come before the suspension wakes the task at once.
    for names, wakes in [
        (["open"], True), (["x", "open"], True), (["step", "x"], True), (["x"], False), ([], False),
    ]:
        take(session, 1)
        expect(suspend(session, 1, names=names), "waiting" if wakes else "suspended")
    for other in ("waiting", "parked", "paused", "running"):
        take(session, 1)
        remember(session, 1, "open", b"")
        session.text(
            f"update task set state = '{other}', available_date = {date(40)}"
            f" where id = '{identity(1)}'")
        expect(complete(session, 1, "open", b"1"), True)
        expect((state(session, 1), field(session, 1, "available_date")[17:19]), (other, "40"))
    for other in ("succeeded", "abandoned", "cancelled"):
        take(session, 1)
        remember(session, 1, "open", b"")
        session.text(f"update task set state = '{other}' where id = '{identity(1)}'")
        expect(complete(session, 1, "open", b"1"), False)


def keys_and_order(engine):
    """A suspended task keeps its unique key and its turn, and waits for others again."""
    session = engine.reset()
    put(session, 1, key="k", role="holder")
    take(session, 1)
    expect(suspend(session, 1, 30), "suspended")
    expect(add(session, 2), ("duplicate", 1))
    expect(add(session, 2, "replace", created=3), ("replaced", 1))
    expect((state(session, 1), field(session, 1, "available_date")[17:19]), ("waiting", "00"))
    take(session, 1)
    remember(session, 1, "step", b"1")
    expect(suspend(session, 1, 30), "suspended")
    twin = session.run("twins", "A", "k")[0]
    expect((number(twin[0]), twin[4]), (1, "5"))
    perform(session, insert(11, order="o"), insert(12, order="o"))
    expect(claim(session, 1), [11])
    session.text(f"update task set lease_token = 1 where id = '{identity(11)}'")
    remember(session, 11, "open", b"")
    expect(suspend(session, 11, names=["open"]), "suspended")
    expect(claim(session, 29), [])
    expect(complete(session, 11, "open", b"1"), True)
    expect(claim(session, 29), [11])
    # It is cancelled along.
    perform(session, insert(21), insert(22, [21]))
    session.text(f"update task set state = 'suspended' where id = '{identity(22)}'")
    expect(claim(session, 29), [21])
    session.text(f"update task set state = 'waiting' where id = '{identity(21)}'")
    expect(perform(session, cancel(21)), [("done", [22])])
    expect(state(session, 22), "cancelled")


# Sessions at once


def beside(engine, first_change, second_change):
    """Makes a change in a session and, before it commits, another one in a second session."""
    session = engine.reset()
    put(session, 1)
    take(session, 1)
    remember(session, 1, "open", b"")
    first, second = engine.session(), engine.session()
    lock(first, 1)
    # The change without its commit.
    first_outcome = first_change(Uncommitted(first))
    text = filled("lock the tasks that remember", [array(second, 1)])
    run_behind(engine, session, first, second, text)
    return session, first_outcome, second_change(second)


class Uncommitted:
    """A session whose commits are left out."""

    def __init__(self, session):
        self.session = session

    def text(self, sql):
        return [] if sql == "commit" else self.session.text(sql)

    def __getattr__(self, name):
        return getattr(self.session, name)


def completion_beside_suspension(engine):
    """A completion comes while the task is being suspended, before and after: it is not missed."""
    def suspends(session):
        return suspend(session, 1, names=["open"], is_begun=True)

    def completes(session):
        return complete(session, 1, "open", b"1", is_begun=True)

    for changes, expected in [
        ((suspends, completes), ["suspended", True]), ((completes, suspends), [True, "waiting"]),
    ]:
        session, *outcomes = beside(engine, *changes)
        expect(outcomes, expected)
        expect((state(session, 1), memory(session, 1)), ("waiting", {"open": b"1"}))


def two_completions(engine):
    """Of two completions at once, the first counts."""
    session, *outcomes = beside(
        engine,
        lambda session: complete(session, 1, "open", b"1", is_begun=True),
        lambda session: complete(session, 1, "open", b"2", is_begun=True))
    expect((outcomes, memory(session, 1)), ([True, False], {"open": b"1"}))


def step_beside_end(engine):
    """A lease that has ended in another session remembers nothing more."""
    def ends(session):
        session.text(
            "update task set state = 'waiting', lease_token = null"
            f" where id = '{identity(1)}'")

    session, _, is_done = beside(
        engine, ends, lambda session: remember(session, 1, "step", b"1", is_begun=True))
    expect((is_done, memory(session, 1), size(session, 1)), (False, {"open": b""}, 4))


def many_sessions(engine):
    """Sessions suspend and complete a task at random: it never waits for what has come."""
    session = engine.reset()
    seed = random.randrange(1_000_000)
    rounds, problems = 60, []
    for task in range(rounds):
        put(session, task)
        take(session, task)
        remember(session, task, "open", b"")
    done = []
    barrier = threading.Barrier(4)

    def work(index, session):
        draw = random.Random(f"{seed} {index}")
        for task in range(rounds):
            barrier.wait()
            for _ in range(draw.randrange(3)):
                session.text("select 1")
            if index == 0:
                expect(suspend(session, task, names=["open"]) in ("suspended", "waiting"), True)
            elif complete(session, task, "open", bytes([index])):
                done.append((task, index))

    def checked(index, session):
        try:
            work(index, session)
        except Exception as problem:
            problems.append(problem)
            barrier.abort()

    threads = [
        threading.Thread(target=checked, args=(index, engine.session())) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, f"seed {seed}: {problems[0]!r}"
    expect(sorted(task for task, _ in done), list(range(rounds)))
    for task, index in done:
        found = state(session, task), memory(session, task), size(session, task)
        expect(found, ("waiting", {"open": bytes([index])}, 5))


# Costs


def costs(engine):
    """What a step and a claim read does not depend on what other tasks remember."""
    session = engine.reset()
    if isinstance(engine, SQLite):
        for name, values in [
            ("remember", [identity(1), "a", b"1"]), ("measure", [identity(1)]),
            ("suspend", [identity(1), 1, date(1), "[]", NO_DATE]), ("memory", [identity(1)]),
            ("complete", [identity(1), "a", b"1"]), ("forget", [array(session, 1)]),
        ]:
            steps = [step for *_, step in session.text(f"explain query plan {filled(name, values)}")]
            wrong = [step for step in steps if re.match(r"SCAN (task|memory)\b", step)]
            assert not wrong, f"{name}: {steps}"
        return
    count = 20_000
    session.text(
        "insert into task (id, name, payload, format, schema_version, priority, position,"
        " created_date, available_date, uses_backoff, order_number, holds_order, state,"
        " memory_size, lease_token)"
        " select ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'A', 'p', 'json', 1,"
        f" 0, nextval('place'), {date(0)}, {ENDLESS}, true, nextval('place'), false,"
        f" case when n = 1 then 'running' else 'suspended' end, 4, 1"
        f" from generate_series(1, {count}) as n")
    session.text("insert into memory select id, 'open', '' from task")
    session.text("vacuum analyze task; vacuum analyze memory")
    session.text("begin")
    for name, values in [
        ("hold the lease", [identity(1), 1]), ("remember", [identity(1), "step", b"1"]),
        ("measure", [identity(1)]), ("memory", [identity(1)]),
        ("suspend", [identity(1), 1, date(1), "{open}", NO_DATE]), ("complete", [identity(2), "open", b"1"]),
        ("wake", [identity(2)]), ("forget", [array(session, 2)]),
    ]:
        plan = session.text(f"explain (analyze, buffers) {filled(name, values)}")
        text = "\n".join(line for (line, *_) in plan)
        found = re.search(r"Buffers: shared hit=(\d+)", text)
        assert found and int(found[1]) < 60 and "Seq Scan" not in text, f"{name}: {text}"
    session.text("rollback")
    for name, values in [
        ("claim", ["{A}", "{10}", 0, 10, date(30), session.lease(10), "{}", "", "{A}", "{1}", "me"]), ("next date", [date(1)]),
    ]:
        plan = session.text(f"explain (analyze, buffers) {filled(name, values)}")
        text = "\n".join(line for (line, *_) in plan)
        found = re.search(r"Buffers: shared hit=(\d+)", text)
        assert found and int(found[1]) < 30, f"{name}: {text}"


CHECKS = [
    remembered, suspended, completed, keys_and_order, completion_beside_suspension,
    two_completions, step_beside_end, many_sessions, costs,
]
# In SQLite, only one session writes at a time.
ONLY_IN_POSTGRESQL = [many_sessions]
