"""Checks of the statements that move a task, and that record its failures."""

from engines import date, identity
from store import begin, expect, fail, insertion, move_of, target

COLUMNS = ("state", "available_date", "retry_count", "interruption_count", "put_off", "position",
           "lease_token")


def read(session, task):
    row = session.text(f"select {', '.join(COLUMNS)} from task where id = '{identity(task)}'")[0]
    found = dict(zip(COLUMNS, row))
    found["available_date"] = int(found["available_date"][17:19])
    found["put_off"] = found["put_off"] in ("t", "1")
    return found


def claimed(engine, *tasks):
    """A session with claimed tasks, each interrupted once, with the token 7."""
    session = engine.reset()
    for task in tasks:
        insertion(task, None, created=3)(session)
        begin(session, task)
    session.text("update task set lease_token = 7, interruption_count = 1")
    return session


def moves(engine):
    """A move sets the state, ends the claim, and changes what it names, and nothing else."""
    session = claimed(engine, 1, 2)
    for values, changes in [
        (("waiting", 50, 2, True), dict(available_date=50, retry_count="2", interruption_count="0",
                                        put_off=True)),
        (("parked", None), dict()),
        (("paused", None), dict()),
        (("waiting", 40, None, False), dict(available_date=40, put_off=False)),
    ]:
        before = read(session, 1)
        move_of(1, *values)(session)
        after = read(session, 1)
        assert int(after["position"]) > int(before["position"]), "the task is not behind the others"
        expect(after, {**before, **changes, "state": values[0], "lease_token": None,
                       "position": after["position"]})
    before = read(session, 2)
    move_of(2, "waiting", None, keeps=True)(session)
    expect(read(session, 2), {**before, "state": "waiting", "lease_token": None})


def wakes(engine):
    """A suspended task that is paused has the date of its creation."""
    session = claimed(engine, 1)
    session.text("update task set put_off = true")
    move_of(1, "suspended", 50, None, True)(session)
    expect(read(session, 1)["available_date"], 50)
    move_of(1, "paused", None, None, False, wakes=True)(session)
    found = read(session, 1)
    expect((found["state"], found["available_date"], found["put_off"]), ("paused", 3, False))
    expect(session.text("select counted_from from task"), [(None,)])


def targets(engine):
    """A lease names a task only while it is the task's; an identity, only if none is."""
    session = claimed(engine, 1)
    expect((target(session, 1, 7), target(session, 1, 8), target(session, 1)), (["running"], [], []))
    move_of(1, "waiting", None)(session)
    expect((target(session, 1, 7), target(session, 1)), ([], ["waiting"]))
    expect(target(session, 2), [])


def restarts(engine):
    """A restart takes a claimed task only with its lease."""
    session = claimed(engine, 1, 2)
    expect([len(session.run("restart", identity(1), date(9), token)) for token in (None, 8, 7)],
           [0, 0, 1])
    found = read(session, 1)
    expect((found["state"], found["available_date"], found["interruption_count"]), ("waiting", 9, "0"))
    expect(read(session, 2)["state"], "running")


def failures(engine):
    """The last failure joins the earlier ones, of which four are kept."""
    session = claimed(engine, 1)
    for reason in ("x" * 600, "b", "c", "d", "e", "f"):
        fail(session, 1, reason)
    expect(session.text("select last_error, failed_attempt from task"), [("f", "failed f")])
    reasons = session.text("select string_agg(left(e->>0, 1), '') from task,"
                           " jsonb_array_elements(earlier_failures) as e")
    expect(reasons, [("bcde",)])
    attempts = session.text("select string_agg(e->>2, ',') from task,"
                            " jsonb_array_elements(earlier_failures) as e")
    expect(attempts, [("failed b,failed c,failed d,failed e",)])


CHECKS = [moves, wakes, targets, restarts, failures]
ONLY_IN_POSTGRESQL = [failures]
