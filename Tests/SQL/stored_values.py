"""What the statements about values promise, with sessions at once."""

import random
import threading

from engines import PostgreSQL, date
from keys import run_behind
from store import claim, end, expect, insertion, prune, tasks, with_turns


def value(session, name):
    rows = session.run("value", name)
    return bytes.fromhex(rows[0][0][2:]) if rows else None


def set_values(session, values, *changes, keys=(), is_begun=False):
    """Compares and sets values, each a name, what is there and what is to be there, and then makes
    changes with the locks of their order keys; returns whether anything was stored."""
    if not is_begun:
        session.text("begin")
        session.lock_values([name for name, _, _ in values])
    if any(value(session, name) != old for name, old, _ in values):
        session.text("rollback")
        return False
    for name, _, new in values:
        if new is None:
            session.run("remove the value", name)
        else:
            session.run("set the value", name, new)
    session.lock(keys)
    with_turns(session, *changes, keys=keys)
    session.text("commit")
    return True


def values(engine):
    """Bytes under names, compared and set with the rest of their batch."""
    session = engine.reset()
    every = bytes(range(256))
    expect(value(session, "a"), None)
    expect(set_values(session, [("a", b"", every)]), False)
    expect(set_values(session, [("a", None, every)]), True)
    expect(value(session, "a"), every)
    for wrong in (None, b"", every[:-1], every + b"\0", every[1:]):
        expect(set_values(session, [("a", wrong, b"other")]), False)
        expect(set_values(session, [("a", wrong, None)]), False)
    expect(set_values(session, [("a", every, b"")]), True)
    expect(value(session, "a"), b"")
    for name in ("\u00e9", "e\u0301", "A", "a ", "it's", "n" * 1024):
        expect(set_values(session, [(name, None, name.encode())]), True)
        expect(value(session, name), name.encode())
    expect(set_values(session, [("\u00e9", "\u00e9".encode(), None)]), True)
    expect(value(session, "e\u0301"), "e\u0301".encode())
    for name in ("a%b", "a_b", "\uff5e", "\U0001f388", "\U0001f388!"):
        expect(set_values(session, [(name, None, name.encode())]), True)
    # The names that begin with a prefix, in the order of their bytes.
    for prefix, found in (("", ["A", "a", "a ", "a%b", "a_b", "e\u0301", "it's", "n" * 1024, "\uff5e",
                                "\U0001f388", "\U0001f388!"]),
                          ("a", ["a", "a ", "a%b", "a_b"]), ("a_", ["a_b"]), ("a%", ["a%b"]),
                          ("e", ["e\u0301"]), ("\u00e9", []), ("b", []),
                          ("\U0001f388", ["\U0001f388", "\U0001f388!"])):
        rows = session.run("values", prefix, prefix + 256 * "\U0010ffff")
        expect([name for name, _ in rows], found)
        expect(rows[-1][1] if rows else None, "\\x" + found[-1].encode().hex() if found else None)
    # No change is stored of a batch with a value that differs.
    pair = [("a", b"", b"1"), ("b", b"2", b"3")]
    expect(set_values(session, pair, insertion(1, "k"), keys=["k"]), False)
    expect((value(session, "a"), value(session, "b"), tasks(session)), (b"", None, []))
    expect(set_values(session, [pair[0], ("b", None, b"3")], insertion(1, "k"), keys=["k"]), True)
    expect((value(session, "a"), value(session, "b")), (b"1", b"3"))
    expect(claim(session), [1])
    # Changes to many tasks leave values alone.
    end(session, 1, retains=True)
    prune(session, "succeeded", 50, 0)
    if isinstance(engine, PostgreSQL):
        session.run("rebase", date(0))
    session.run("unpark", "a", "", None)
    expect((value(session, "a"), value(session, "b"), tasks(session)), (b"1", b"3", []))


def two_values(engine):
    """Two sessions compare and set one value at once: exactly one does."""
    session = engine.reset()
    first, second = engine.session(), engine.session()
    for old, new in [(None, b"1"), (b"1", b"2"), (b"2", None), (None, None), (None, b"3")]:
        present = value(session, "a")
        first.text("begin")
        first.lock_values(["b", "a"])
        expect(value(first, "a"), old)
        if new is None:
            first.run("remove the value", "a")
        else:
            first.run("set the value", "a", new)
        lock = second.lock_values_text(["a", "c"])
        run_behind(engine, session, first, second, lock)
        is_same = present == new
        expect(set_values(second, [("a", old, old)], is_begun=True), is_same)
        expect(value(session, "a"), new)


def many_values(engine):
    """Sessions add to two numbers at random, with a task for each sum: none is lost."""
    session = engine.reset()
    seed = random.randrange(1_000_000)
    problems = []

    def work(index, session):
        draw = random.Random(f"{seed} {index}")
        done = 0
        while done < 25:
            names = draw.sample(["a", "b", "c"], 2)
            old = [value(session, name) for name in names]
            new = [str(int(bytes or b"0") + 1).encode() for bytes in old]
            task = 1000 * index + done
            change = insertion(task, "k")
            if set_values(session, list(zip(names, old, new)), change, keys=["k"]):
                done += 1

    def checked_work(index, session):
        try:
            work(index, session)
        except Exception as problem:
            problems.append(problem)

    threads = [
        threading.Thread(target=checked_work, args=(index + 1, engine.session()))
        for index in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, f"seed {seed}: {problems[0]!r}"
    expect(sum(int(value(session, name)) for name in "abc"), 200)
    expect(len(tasks(session)), 100)


CHECKS = [values, two_values, many_values]
# In SQLite, the second session can't even look while the first one writes.
ONLY_IN_POSTGRESQL = [many_values]
