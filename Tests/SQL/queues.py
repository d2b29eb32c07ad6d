"""Checks of the statements about several queues in one table."""

from engines import PostgreSQL, identity
from store import begin, claim, end, expect, in_order, key_in, prune, row, tasks


def add(session, task, queue, **values):
    expect(len(session.run("insert", *row(session, task, queue=queue, **values))), 1)


def park(session, task, version=None):
    session.text(f"update task set state = 'parked' where id = '{identity(task)}'")
    expect(len(session.run("park", identity(task), version)), 1)


def queues(engine):
    """Claims, unparking and pruning are of one queue."""
    session = engine.reset()
    for task, queue in enumerate(["", "q", "r", "q"], start=1):
        add(session, task, queue)
    expect(claim(session, queue="s"), [])
    expect(claim(session, queue="q", limit=1), [2])
    expect(claim(session, queue="q"), [4])
    if isinstance(engine, PostgreSQL):
        expect(claim(session, queue="r", names=["X"], others=9), [3])
    expect(claim(session), [1])
    for task in (1, 2):
        park(session, task)
    session.run("unpark", "A", "q", None)
    expect([state for _, state in tasks(session, "state")][:2], ["parked", "waiting"])
    for task in (1, 2, 4):
        begin(session, task)
        end(session, task, retains=True)
    prune(session, "succeeded", 50, 0, "r")
    expect(len(tasks(session)), 4)
    prune(session, "succeeded", 50, 0, "q")
    expect([task for task, *_ in tasks(session)], [1, 3])


def versions(engine):
    """A claim and an unparking concern the tasks that a program's handlers can decode."""
    session = engine.reset()
    for task, version in enumerate([3, 1, 2, 1], start=1):
        add(session, task, "", version=version)
    expect(claim(session, versions={"A": 0}), [])
    expect(claim(session, versions={"A": 2, "B": 1}), [2, 3, 4])
    expect(claim(session, versions={"B": 1}), [1])
    for task, known in enumerate([None, 1, 2, 3], start=1):
        park(session, task, known)
    session.run("unpark", "A", "", 2)
    states = ["waiting", "waiting", "parked", "parked"]
    expect([state for _, state in tasks(session, "state")], states)
    session.run("unpark", "A", "", None)
    expect([state for _, state in tasks(session, "state")], ["waiting"] * 4)


def keys_of_queues(engine):
    """A unique key and an order key are those of one queue."""
    session = engine.reset()
    for task, queue in enumerate(["", "q"], start=1):
        add(session, task, queue, key="k", role="holder")
        key = key_in(queue, "k")
        twins = session.run("twins", "A", key)
        expect([twin[0] for twin in twins], [identity(task)])
    # A key that looks like another queue's is not that one.
    add(session, 7, "", key="q\x01k", role="holder")
    for queue, key, task in [("", "q\x01k", 7), ("q", "k", 2)]:
        twins = session.run("twins", "A", key_in(queue, key))
        expect([twin[0] for twin in twins], [identity(task)])
    session.text(f"delete from task where id = '{identity(7)}'")
    repeated = row(session, 3, queue="q", key="k", role="holder")
    expect(session.run("insert", *repeated), [])
    for task, queue in enumerate(["", "q", "q"], start=4):
        def change(session, task=task, queue=queue):
            add(session, task, queue, order="o")
        key = key_in(queue, "o")
        in_order(session, change, keys=[key])
    expect(claim(session), [1, 4])
    expect(claim(session, queue="q"), [2, 5])


CHECKS = [queues, versions, keys_of_queues]
ONLY_IN_POSTGRESQL = []
