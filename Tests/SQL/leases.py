"""Checks of the statements about claims that run out, by the store's clock."""

from engines import identity
from store import claim, expect, put, tasks


def token(session, task):
    return int(session.text(f"select lease_token from task where id = '{identity(task)}'")[0][0])


def extend(session, task, lease, seconds):
    return len(session.run("extend", identity(task), lease, session.lease(seconds)))


def time_left(session):
    """The seconds until the first claim runs out."""
    text = session.run("next end")[0][0]
    return None if text is None else float(text.split(":")[-1])


def clocks(engine):
    """Queues whose clocks differ take nothing from each other before a claim has run out."""
    session = engine.reset()
    put(session, 1, None)
    expect(claim(session, 50, clock=0), [1])
    lease = token(session, 1)
    for second in (0, 25, 59):
        expect(claim(session, second, clock=19), [])
    expect(time_left(session), 1)
    expect(claim(session, 0, clock=20), [1])
    expect(tasks(session, "interruption_count"), [(1, "1")])
    expect(extend(session, 1, lease, 20), 0)


def extensions(engine):
    """A claim lasts for its duration from the extension on."""
    session = engine.reset()
    put(session, 1, None)
    expect(claim(session, 50, clock=0), [1])
    lease = token(session, 1)
    session.set_clock(15)
    expect(extend(session, 1, lease, 30), 1)
    expect(extend(session, 1, lease + 1, 30), 0)
    expect(time_left(session), 30)
    expect(claim(session, 59, clock=44), [])
    expect(claim(session, 1, clock=45), [1])
    session.text(f"delete from task where id = '{identity(1)}'")
    expect(extend(session, 1, lease, 30), 0)
    expect(time_left(session), None)


CHECKS = [clocks, extensions]
ONLY_IN_POSTGRESQL = []
