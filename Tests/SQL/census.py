"""Checks of the statement that counts tasks by queue, name and state."""

from engines import date
from store import begin, expect, put, retry, row


def counts(session, second):
    rows = session.run("census", date(second))
    return sorted(
        (queue or "", name, state, *map(int, numbers), None if oldest is None else oldest[17:19])
        for queue, name, state, *numbers, oldest in rows)


def counted(engine):
    """A census counts the tasks of each queue, name and state, the due ones, and the retried ones."""
    session = engine.reset()
    expect(counts(session, 5), [])
    for task, values in enumerate([
            {"at": 3}, {"at": 5}, {"at": 6}, {"name": "B", "at": 2}, {"name": "B", "queue": "q"}], start=1):
        session.run("insert", *row(session, task, **values))
    expect(counts(session, 5), [
        ("", "A", "waiting", 3, 2, 0, "03"), ("", "B", "waiting", 1, 1, 0, "02"),
        ("q", "B", "waiting", 1, 1, 0, "00")])
    expect(counts(session, 1), [
        ("", "A", "waiting", 3, 0, 0, None), ("", "B", "waiting", 1, 0, 0, None),
        ("q", "B", "waiting", 1, 1, 0, "00")])


def retried(engine):
    """A task that waits for a retry is counted as such, before and after its date; one that runs is not due."""
    session = engine.reset()
    for task in (1, 2):
        session.run("insert", *row(session, task, key="k" if task == 1 else None, role="holder" if task == 1 else None))
        begin(session, task)
    expect(counts(session, 5), [("", "A", "running", 2, 0, 0, None)])
    retry(session, 1, 30)
    for second, due, oldest in [(29, 0, None), (30, 1, "30")]:
        expect(counts(session, second), [
            ("", "A", "running", 1, 0, 0, None), ("", "A", "waiting", 1, due, 1, oldest)])


def in_order(engine):
    """A task behind another one with its order key is due, too."""
    session = engine.reset()
    for task in (1, 2):
        put(session, task, "k")
    expect(counts(session, 5), [("", "A", "waiting", 2, 2, 0, "00")])


CHECKS = [counted, retried, in_order]
ONLY_IN_POSTGRESQL = []
