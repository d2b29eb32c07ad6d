"""Checks of the statements about claims that run out, by the store's clock."""

from engines import identity
from store import claim, expect, move, put, tasks


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


def commands(engine):
    """A running task gets a command if it has the expected one, and keeps it until it moves."""
    session = engine.reset()
    for task in (1, 2):
        put(session, task, None)

    def command(task, old, new):
        return len(session.run("command", identity(task), old, new))

    def found():
        return [command for _, command in session.run("target", identity(1), token(session, 1))]

    expect(claim(session, 50, limit=1, clock=0), [1])
    expect(found(), [None])
    expect((command(1, "pause", "cancel"), command(1, None, "pause"), command(1, None, "cancel")), (0, 1, 0))
    expect((found(), command(1, "pause", "release"), found()), (["pause"], 1, ["release"]))
    expect((command(2, None, "cancel"), command(9, None, "cancel")), (0, 0))
    expect(claim(session, 50, clock=30), [1, 2])
    expect(found(), ["release"])
    move(session, 1, "waiting")
    expect((tasks(session, "command"), command(1, None, "cancel")), ([(1, None), (2, None)], 0))


CHECKS = [clocks, extensions, commands]
ONLY_IN_POSTGRESQL = []
