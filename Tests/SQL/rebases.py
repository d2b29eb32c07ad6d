"""Checks of what becomes of dates when a clock that was ahead was set back."""

from engines import NO_DATE, date, identity
from memory import suspend
from store import add, claim, expect, row, tasks


def rebase(session, second):
    for name in ["rebase", "rebase what was created later", "rebase what has failed later"]:
        session.run(name, date(second))
    session.run("rebase claims")


def put(session, task, created, at=None, **values):
    """Adds a task and takes its turn; its order is that of the numbers."""
    rows = session.run("insert", *row(session, task, created=created, at=at, **values))
    expect(len(rows), 1)


def seconds(session):
    """The dates of each task: available, counted from, and created."""
    columns = ", ".join(
        f"extract(epoch from {name} - {date(0)})::bigint"
        for name in ("available_date", "counted_from", "created_date"))
    return {
        task: tuple(None if value is None else int(value) for value in values)
        for task, *values in tasks(session, columns)
    }


def durations(engine):
    """What was counted from a later date is counted from the present one, once."""
    session = engine.reset()
    put(session, 1, 30)
    put(session, 2, 30, 40)
    put(session, 3, 30, 40, chosen=True)
    # Added when the clock was right.
    put(session, 4, 5, 40)
    put(session, 5, 30)
    session.text(
        f"update task set failed_date = {date(32)}, counted_from = {date(32)},"
        f" available_date = {date(38)}, put_off = true where id = '{identity(5)}'")
    for _ in range(2):
        rebase(session, 10)
        expect(seconds(session), {
            1: (10, None, 10), 2: (20, 10, 10), 3: (40, None, 10), 4: (40, 5, 5), 5: (16, 10, 10)})
    expect(claim(session, 10), [1])
    expect(claim(session, 20), [2, 5])


def sleeps(engine):
    """A suspended task wakes if its date was counted from a later one."""
    session = engine.reset()
    for task, counted in [(1, date(32)), (2, NO_DATE), (3, date(9))]:
        put(session, task, 30)
        session.text(
            "update task set state = 'running', lease_token = 1"
            f" where id = '{identity(task)}'")
        suspend(session, task, 40, counted=counted)
    rebase(session, 10)
    states = {task: state for task, state in tasks(session, "state")}
    expect(states, {1: "waiting", 2: "suspended", 3: "suspended"})
    expect(seconds(session), {1: (10, None, 10), 2: (40, None, 10), 3: (40, 9, 10)})


def keys(engine):
    """A task that has succeeded stands for its key as long as it was to."""
    session = engine.reset()
    expect(add(session, 1, created=30, until=35), ("done", "holder"))
    session.text("update task set state = 'succeeded', key_role = null")
    rebase(session, 10)
    expect(add(session, 2, created=14), ("duplicate", 1))
    expect(add(session, 3, created=15), ("done", "holder"))


def claims(engine):
    """A claim by a clock that was ahead lasts for its duration, and no longer."""
    session = engine.reset()
    put(session, 1, 0)
    session.set_clock(3_000)
    expect(claim(session, 3_000, clock=3_000), [1])
    session.set_clock(10)
    rebase(session, 10)
    expect(claim(session, 10, clock=29), [])
    expect(claim(session, 10, clock=30), [1])


CHECKS = [durations, sleeps, keys, claims]
# Of one statement each, SQLite has no form.
ONLY_IN_POSTGRESQL = CHECKS
