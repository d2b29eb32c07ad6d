"""Checks of the statements about the metadata of tasks."""

import json

from engines import SQLite, identity, number
from store import add, begin, expect, retry, row

UNUSUAL = {
    "\"quoted\" \\": "line\nfeed", "it's": "'", "\u00e9": "e\u0301", "empty": "", "null": "null",
    "a.b[0]": "$.x", "emoji": "\U0001f388",
}


def metadata(session, task):
    text = session.text(f"select metadata from task where id = '{identity(task)}'")[0][0]
    return json.loads(text)


def found(engine, session, wanted):
    """The tasks that a look-up by metadata finds."""
    title = "find by metadata" + (" on SQLite" if isinstance(engine, SQLite) else "")
    return [number(id) for id, in session.run(title, json.dumps(wanted))]


def stored(engine):
    """A new task has its metadata, and a task that is replaced gets that of the new one."""
    session = engine.reset()
    expect(add(session, 1, metadata=UNUSUAL), ("done", "holder"))
    expect(metadata(session, 1), UNUSUAL)
    expect(add(session, 2, metadata={"kept": "2"}), ("duplicate", 1))
    for new in ({"new": "1"}, {}, UNUSUAL):
        expect(add(session, 2, "replace", metadata=new), ("replaced", 1))
        expect(metadata(session, 1), new)
    begin(session, 1)
    expect(add(session, 3, metadata={"own": "3"}), ("done", "successor"))
    expect(retry(session, 1, 30), 3)
    expect(metadata(session, 3), {"own": "3"})


def updated(engine):
    """An update replaces all metadata, and leaves it if it names none."""
    session = engine.reset()
    session.run("insert", *row(session, 1, metadata={"tenant": "eins", "region": "eu"}))
    for new in (None, {"tenant": "zwei"}, None, {}, UNUSUAL):
        before = metadata(session, 1)
        values = [None, None, None, 5, False, None, None, None, None, None]
        update = [*values, None if new is None else json.dumps(new)]
        expect(len(session.run("update", identity(1), *update)), 1)
        expect(metadata(session, 1), before if new is None else new)


def looked_up(engine):
    """A look-up finds the tasks that have all keys, with the same bytes."""
    session = engine.reset()
    all_metadata = [
        {"tenant": "eins", "region": "eu"}, {"tenant": "eins"}, {"tenant": "zwei", "region": "eu"},
        {}, UNUSUAL, {"e\u0301": "e\u0301"}, {"x": "\u00e9"}, {"x": "e\u0301"},
    ]
    for task, values in enumerate(all_metadata, start=1):
        session.run("insert", *row(session, task, metadata=values))
    for wanted, tasks in [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]), ({"tenant": "eins"}, [1, 2]), ({"region": "eu"}, [1, 3]),
        ({"tenant": "eins", "region": "eu"}, [1]), ({"tenant": "eins", "region": "us"}, []),
        ({"eins": "tenant"}, []), ({"Tenant": "eins"}, []), ({"empty": ""}, [5]), (UNUSUAL, [5]),
        ({"\u00e9": "e\u0301"}, [5]), ({"e\u0301": "e\u0301"}, [6]), ({"x": "\u00e9"}, [7]),
        ({"x": "e\u0301"}, [8]),
    ]:
        expect(found(engine, session, wanted), tasks)
    for task, values in enumerate(all_metadata, start=1):
        expect(metadata(session, task), values)


CHECKS = [stored, updated, looked_up]
ONLY_IN_POSTGRESQL = []
