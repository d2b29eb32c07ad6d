"""Checks of the statements about tasks that wait for others."""

import random
import re
import sqlite3
import threading

from engines import Collision, PostgreSQL, SQLite, date, filled, identity, number
from store import expect, row, tasks
from waiting import (
    abandon, cancel, claimable, ids, insert, lock, make, perform, prune, remove, restart, rows,
    succeed,
)
from waiting_model import ENDED, Model

# One session


def one(session, change):
    return perform(session, change)[0]


def waits(engine):
    """A task waits for those that it names, and a follower for its batch."""
    session = engine.reset()
    expect(perform(session, insert(1), insert(2), insert(3, [1, 2])), [("done",)] * 3)
    expect(claimable(session), [1, 2])
    expect(one(session, succeed(1, retains=False)), ("done", []))
    expect(claimable(session), [2])
    expect(one(session, succeed(2)), ("done", []))
    expect(claimable(session), [3])
    perform(session, insert(4, follower=9), insert(5, follower=9), insert(9))
    expect(claimable(session), [3, 4, 5])
    expect(one(session, succeed(4)), ("done", [], (2, 1, 0)))
    perform(session, insert(6, follower=9))
    expect(one(session, abandon(5, retains=False)), ("done", [9]))
    expect(rows(session).keys(), {2, 3, 4, 6})


def unmet(engine):
    """A new task is refused with its batch if it would wait in vain."""
    session = engine.reset()
    for task in (1, 2, 3):
        perform(session, insert(task))
    perform(session, cancel(1), succeed(2), abandon(3, retains=False))
    expect(perform(session, insert(5), insert(6, [2, 4, 3])), [("done",), ("unmet", 3)])
    expect(one(session, insert(6, [2, 1])), ("unmet", 1))
    expect(one(session, insert(6, [1, 3], rule="allEnded")), ("unmet", 3))
    expect(rows(session).keys(), {1, 2})
    expect(one(session, insert(6, [2, 1], rule="allEnded")), ("done",))
    expect(rows(session)[6]["failed"], {1: "cancelled"})
    expect(claimable(session), [6])


def restarts(engine):
    """Of several causes, the least counts; a task with a failure left, or without its key, stays."""
    session = engine.reset()
    perform(session, insert(1), insert(2), insert(3, [1]), insert(4, [1]), insert(5, [4, 3]))
    expect(one(session, cancel(1)), ("done", [3, 4, 5]))
    expect(rows(session)[5]["cause"], 3)
    perform(session, insert(6, [2], follower=8), insert(7, follower=8), insert(8))
    expect(one(session, cancel(2)), ("done", [6, 8]))
    expect(one(session, cancel(7)), ("done", [], (2, 0, 2)))
    expect(one(session, restart(2)), ("done", [6]))
    expect((rows(session)[8]["cause"], rows(session)[8]["batch"]), (7, (2, 0, 1)))
    expect(one(session, restart(7)), ("done", [8], (2, 0, 0)))
    perform(session, insert(21), insert(22), insert(23), insert(24, [21, 22, 23]))
    perform(session, cancel(21), cancel(23), cancel(22))
    expect(one(session, restart(21)), ("done", []))
    expect(rows(session)[24]["cause"], 22)
    # Two with a key have the same cause, and one whose key is held.
    perform(session, insert(11), insert(12), insert(13, [11, 12], key="k"))
    perform(session, insert(15, [11], key="l"))
    expect(one(session, cancel(12)), ("done", [13]))
    perform(session, insert(14, [11], key="k"))
    expect(one(session, cancel(11)), ("done", [14, 15]))
    perform(session, insert(16, key="l"))
    expect(one(session, restart(12)), ("done", []))
    expect(rows(session)[13]["cause"], 11)
    expect(one(session, restart(11)), ("done", [13]))
    found = rows(session)
    expect([found[task]["state"] for task in (13, 14, 15)], ["waiting", "cancelled", "cancelled"])
    expect([found[task]["cause"] for task in (13, 14, 15)], [None] * 3)


def ended_members(engine):
    """A task stays cancelled if more tasks of its batch have failed than are noted."""
    session = engine.reset()
    perform(session, insert(1), insert(3, [1]))
    # A member that has ended when it is added.
    new = ids(session, [2])
    session.text("begin")
    session.run("insert", *row(session, 2, follower=3))
    session.text(f"update task set state = 'abandoned' where id = '{identity(2)}'")
    session.run("follow", new)
    session.run("count the new", new)
    session.text("commit")
    expect((rows(session)[3]["batch"], rows(session)[3]["failed"]), ((1, 0, 1), {}))
    expect(one(session, cancel(1)), ("done", [3]))
    expect(one(session, restart(1)), ("done", []))
    expect((rows(session)[3]["state"], rows(session)[3]["cause"]), ("cancelled", None))


def member_again(engine):
    """A member with the ID of one that has left counts once more, and so does its end."""
    session = engine.reset()
    perform(session, insert(9, rule="allEnded"), insert(1, follower=9), insert(2, follower=9))
    expect(one(session, cancel(1, retains=False)), ("done", [], (2, 0, 1)))
    expect(one(session, insert(1, follower=9)), ("done",))
    expect((rows(session)[9]["batch"], rows(session)[9]["failed"]), ((3, 0, 1), {1: "cancelled"}))
    expect(one(session, succeed(1, retains=False)), ("done", [], (3, 1, 1)))
    expect(claimable(session), [2])


def member_gone(engine):
    """A task with the ID of a member that has left is no member."""
    session = engine.reset()
    perform(session, insert(9), insert(8, rule="allEnded"))
    perform(session, insert(1, follower=9), insert(2, follower=8), insert(3, follower=8))
    expect(one(session, succeed(1, retains=False)), ("done", [], (1, 1, 0)))
    expect(one(session, cancel(2, retains=False)), ("done", [], (2, 0, 1)))
    perform(session, insert(1), insert(2, [1]), insert(4, [2]))
    expect(one(session, cancel(1)), ("done", [2, 4]))
    found = rows(session)
    expect((found[9]["state"], found[9]["batch"], found[9]["failed"]), ("waiting", (1, 1, 0), {}))
    expect((found[8]["batch"], found[8]["failed"]), ((2, 0, 1), {2: "cancelled"}))
    expect(one(session, restart(1)), ("done", [2, 4]))
    found = rows(session)
    expect((found[9]["batch"], found[9]["failed"]), ((1, 1, 0), {}))
    expect((found[8]["batch"], found[8]["failed"]), ((2, 0, 1), {2: "cancelled"}))


def orders(engine):
    """The turns of order keys follow what is cancelled, restarted and removed along."""
    session = engine.reset()
    perform(session, insert(1), insert(2, [1], order="k"), insert(3, order="k"))
    expect(claimable(session), [1])
    expect(one(session, cancel(1)), ("done", [2]))
    expect(claimable(session), [3])
    expect(one(session, restart(1)), ("done", [2]))
    expect(claimable(session), [1])
    perform(session, insert(4), insert(5, [4], order="l"), insert(6, order="l"))
    session.text(f"update task set holds_order = true where id = '{identity(5)}'")
    expect(one(session, cancel(4)), ("done", [5]))
    expect(claimable(session), [1])
    prune(session, "cancelled", 99, 0)
    expect(claimable(session), [1, 6])


def random_changes(engine):
    """Random changes leave what the contract says."""
    for seed in range(20):
        session, model = engine.reset(), Model()
        draw = random.Random(seed)
        for step in range(120):
            changes = drawn(draw, step, model)
            if changes == "prune":
                values = draw.choice(ENDED), draw.choice([0, step]), draw.randrange(4)
                prune(session, *values)
                model.prune(*values)
            elif changes == "run":
                ready = [task for task, values in model.rows().items() if not values["waits"]]
                waiting = [task for task in ready if model.tasks[task]["state"] == "waiting"]
                for task in draw.sample(waiting, min(1, len(waiting))):
                    model.tasks[task]["state"] = "running"
                    session.text(
                        f"update task set state = 'running' where id = '{identity(task)}'")
            else:
                expect((seed, step, perform(session, *changes)), (seed, step, applied(model, changes)))
            found, expected = rows(session), model.rows()
            for task in found.keys() | expected.keys():
                expect(
                    (seed, step, changes, task, found.get(task)),
                    (seed, step, changes, task, expected.get(task)))


def applied(model, changes):
    before = Model()
    before.tasks = {task: {**values} for task, values in model.tasks.items()}
    outcomes = [model.perform(change) for change in changes]
    if any(outcome[0] in ("unmet", "taken") for outcome in outcomes):
        model.tasks = before.tasks
        return outcomes
    for change, outcome in zip(changes, outcomes):
        if change.kind == "insert" and outcome == ("done",):
            model.follow(change)
    return outcomes


def drawn(draw, step, model):
    """One change at random, a batch with its follower, `prune` or `run`."""
    recent = [step * 10 - 10 * n for n in range(1, 8) if step >= n]
    if draw.random() < 0.08:
        return draw.choice(["prune", "run", "run"])
    if draw.random() < 0.5 or not recent:
        # Now and then a task that has ended or gone.
        there = recent if draw.random() < 0.2 else [
            task for task in model.tasks if model.is_open(task)][-8:]
        values = {
            "after": draw.sample(there, min(len(there), draw.choice([0, 1, 1, 2, 3]))),
            "rule": draw.choice(["allSucceeded", "allSucceeded", "allEnded"]),
            "key": draw.choice([None, None, None, "k", "l"]),
        }
        if draw.random() < 0.2:
            members = [
                insert(10 * step + n + 1, follower=10 * step, key=draw.choice([None, None, "k"]))
                for n in range(draw.randrange(1, 4))
            ]
            return [*members, insert(10 * step, **{**values, "key": None})]
        # Only a task that names none is added to a batch, so that there is no circle.
        followers = [task for task in recent if task in model.tasks]
        if not values["after"] and followers and draw.random() < 0.4:
            values["follower"] = draw.choice(followers)
        return [insert(10 * step, **values)]
    task = draw.choice([*model.tasks, *recent])
    kind = draw.choice([succeed, abandon, cancel, restart, restart, remove])
    if kind in (remove, restart):
        return [kind(task)]
    return [kind(task, retains=draw.random() < 0.7, second=1 + step // 3)]


# Sessions at once


def beside(engine, session, first_changes, second_changes):
    """Makes changes in a session and, before it commits, others in a second one."""
    first, second = engine.session(), engine.session()
    known = lock(first, first_changes)
    if isinstance(engine, SQLite):
        try:
            lock(second, second_changes)
        except sqlite3.OperationalError:
            return make(first, first_changes, known), perform(second, *second_changes)
        raise AssertionError("both sessions write")
    found = []
    thread = threading.Thread(target=lambda: found.extend(perform(second, *second_changes)))
    thread.start()
    second.wait_until_blocked(session)
    outcomes = make(first, first_changes, known)
    thread.join()
    return outcomes, found


def last_of_a_batch(engine):
    """Two sessions end the last two tasks of a batch, each of them first."""
    for order in ((1, 2), (2, 1)):
        for follower in (5, 0):
            session = engine.reset()
            if follower == 0:
                perform(session, insert(0))
            perform(
                session, insert(1, follower=follower), insert(2, follower=follower),
                *([insert(5)] if follower else []))
            expect(follower in claimable(session), False)
            first, second = order
            outcomes = beside(engine, session, [succeed(first, retains=False)], [succeed(second)])
            expect(outcomes, ([("done", [], (2, 1, 0))], [("done", [], (2, 2, 0))]))
            expect(claimable(session), [follower])


def insertion_beside_end(engine):
    """A session adds a task while another one ends the task that it names."""
    for kind in (succeed, abandon):
        for retains in (True, False):
            session = engine.reset()
            perform(session, insert(1))
            outcomes = beside(engine, session, [insert(2, [1])], [kind(1, retains=retains)])
            along = [2] if kind is abandon else []
            expect(outcomes, ([("done",)], [("done", along)]))
            expect(claimable(session), [] if along else [2])
            session = engine.reset()
            perform(session, insert(1))
            outcomes = beside(engine, session, [kind(1, retains=retains)], [insert(2, [1])])
            is_met = kind is succeed and retains
            expect(outcomes, ([("done",)], [("done",) if is_met else ("unmet", 1)]))
            expect(claimable(session), [2] if is_met else [])


def addition_beside_end(engine):
    """A session adds a task to a batch while another one ends the last task of it."""
    for is_first in (True, False):
        session = engine.reset()
        perform(session, insert(1, follower=5), insert(5))
        changes = [[insert(2, follower=5)], [succeed(1)]]
        beside(engine, session, *(changes if is_first else changes[::-1]))
        expect(rows(session)[5]["batch"], (2, 1, 0))
        expect(claimable(session), [2])


def at_once(*works):
    """Does work in threads that begin at once."""
    barrier, problems = threading.Barrier(len(works)), []

    def checked(work):
        try:
            barrier.wait()
            work()
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=checked, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def last_of_many_batches(engine):
    """Two sessions end the last tasks of many batches, in opposite orders."""
    session = engine.reset()
    first, second = engine.session(), engine.session()
    for start in range(0, 6000, 100):
        followers = [start + 50 + n for n in range(3)]
        members = [insert(start + n, follower=followers[n % 3]) for n in range(6)]
        perform(session, *members, *map(insert, followers))
        forth = [succeed(start + n, retains=n % 2 == 0) for n in (0, 1, 2)]
        back = [succeed(start + n, retains=n % 2 == 0) for n in (5, 4, 3)]
        outcomes = {}
        at_once(
            lambda: outcomes.update(first=perform(first, *forth)),
            lambda: outcomes.update(second=perform(second, *back)))
        told = sorted(batch for found in outcomes.values() for _, _, batch in found)
        expect(told, [(2, 1, 0)] * 3 + [(2, 2, 0)] * 3)
        expect(claimable(session), followers)
        perform(session, *(cancel(task, retains=False) for task in followers))


def overlapping_cancellations(engine):
    """Two sessions cancel tasks that many others wait for, some of them for both."""
    first, second = None, None
    for seed in range(40):
        session = engine.reset()
        first, second = engine.session(), engine.session()
        draw = random.Random(seed)
        changes = [insert(1), insert(2)]
        for task in range(3, 40):
            rule = draw.choice(["allSucceeded", "allSucceeded", "allEnded"])
            named = draw.sample(range(1, task), draw.randrange(1, 3))
            changes.append(insert(task, named, rule=rule))
        perform(session, *changes)
        ends = cancel(1), abandon(2, retains=seed % 2 == 0)
        at_once(lambda: perform(first, ends[0]), lambda: perform(second, ends[1]))
        possible = []
        for order in (ends, ends[::-1]):
            model = Model()
            applied(model, changes)
            for change in order:
                applied(model, [change])
            possible.append(model.rows())
        assert rows(session) in possible, f"seed {seed}"


def many_sessions(engine):
    """Sessions add, end, restart, remove and prune tasks that wait for each other, at random."""
    session = engine.reset()
    seed = random.randrange(1_000_000)

    def work(index, session):
        draw = random.Random(f"{seed} {index}")
        for step in range(120):
            known = [task for task, *_ in tasks(session)][-12:]
            new = 4 * (step + 1) * 10 + index
            kind = draw.randrange(10)
            if kind < 4:
                after = draw.sample(known, min(len(known), draw.randrange(3)))
                rule = draw.choice(["allSucceeded", "allEnded"])
                order = draw.choice([None, None, "a", "b"])
                key = draw.choice([None, None, "k"])
                perform(session, insert(new, after, rule=rule, order=order, key=key))
            elif kind == 4:
                perform(session, insert(new, follower=new + 4), insert(new + 4))
            elif kind == 5:
                prune(session, draw.choice(ENDED), 0, 10)
            else:
                kinds = [succeed, succeed, abandon, cancel, restart, restart, remove]
                changes = [
                    draw.choice(kinds)(task)
                    for task in draw.sample(known, min(len(known), draw.randrange(1, 4)))
                ]
                perform(session, *changes)

    at_once(*(
        lambda index=index, other=engine.session(collides=True): work(index, other)
        for index in range(4)))
    found = rows(session)
    for task, values in found.items():
        message = f"seed {seed}: task {task}: {values}"
        open_tasks = [
            name for name in values["names"] if name in found and found[name]["state"] not in ENDED]
        assert values["open"] == len(open_tasks), message
        assert values["cause"] is None or values["state"] == "cancelled", message
        cause = found.get(values["cause"])
        assert cause is None or cause["state"] in ENDED[1:], message
        for name, state in values["failed"].items():
            assert name not in found or found[name]["state"] == state, message
    # At the end, all tasks are performed.
    while ready := claimable(session):
        for task in ready:
            perform(session, succeed(task, retains=False))
    left = [task for task, values in rows(session).items() if values["state"] not in ENDED]
    assert not left, f"seed {seed}: {left} wait for nothing"


# Costs


def pages(session, name, *values, scans=False):
    """How many pages a statement reads; it may scan a table if it concerns half of it."""
    plan = session.text(f"explain (analyze, buffers) {filled(name, values)}")
    text = "\n".join(line for (line, *_) in plan)
    # The first line about buffers is that of the whole statement.
    found = re.search(r"Buffers: shared hit=(\d+)", text)
    assert found and (scans or not re.search(r"Seq Scan on (task|dependency)", text)), text
    return int(found[1])


def costs(engine):
    """What a change reads depends on the tasks that it concerns, and on no others."""
    session = engine.reset()
    if isinstance(engine, SQLite):
        one_task = ids(session, [1])
        for name, values in [
            ("concerned", [one_task, one_task]), ("along", [identity(1)]), ("note", [one_task, "abandoned"]),
            ("count", [one_task, "succeeded"]), ("is named", [identity(1)]),
            ("still failed", [one_task]), ("take the keys", [one_task]), ("leaving", [one_task]),
        ]:
            steps = [step for *_, step in session.text(f"explain query plan {filled(name, values)}")]
            wrong = [step for step in steps if re.match(r"SCAN (task|dependency|other)\b", step)]
            assert not wrong, f"{name}: {steps}"
        return
    count = 10_000
    session.text(
        "insert into task (id, name, payload, format, schema_version, priority, position,"
        " created_date, available_date, uses_backoff, order_number, holds_order)"
        " select ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'A', 'p', 'json', 1,"
        f" 0, nextval('place'), {date(0)}, {date(0)}, true, nextval('place'), false"
        f" from generate_series(1, {2 * count}) as n")
    fan_in, fan_out = 90_000, 1
    perform(session, insert(fan_in, range(2, count + 2), rule="allEnded"))
    session.text(
        "insert into dependency (dependency, dependent, is_named)"
        f" select '{identity(fan_out)}', id, true from task where id > '{identity(count)}'"
        f" and id <> '{identity(fan_in)}'")
    session.text("vacuum analyze task; vacuum analyze dependency")
    # A task that no other one waits for.
    plain = ids(session, [count - 1])
    session.text(f"delete from dependency where dependency = '{identity(count - 1)}'")
    none = ids(session, [])
    assert pages(session, "concerned", plain, none) < 10
    assert pages(session, "concerned", none, plain) < 20
    # Each end before a task that waits for 10,000.
    for task in (2, count):
        assert pages(session, "concerned", ids(session, [task]), none) < 20
    session.text("begin")
    for start in range(2, count - 1, 100):
        session.run("count", ids(session, range(start, min(start + 100, count - 1))), "succeeded")
    assert pages(session, "count", ids(session, [count]), "succeeded") < 200
    session.text("rollback")
    # The new task itself, and the end of a task that 10,000 others wait for.
    assert pages(session, "count the open", identity(fan_in), scans=True) < 8 * count
    session.text("begin")
    assert pages(session, "along", identity(fan_out), scans=True) < 20 * count
    assert pages(session, "count", ids(session, [fan_out]), "cancelled", scans=True) < 50 * count
    session.text("rollback")
    # A claim looks at none of those that wait.
    session.text("update task set open_count = 1")
    session.text("vacuum analyze task")
    claim = ["{A}", "{10}", 0, 10, date(30), session.lease(20), "{}", "", "{A}", "{1}", "me"]
    assert pages(session, "claim", *claim) < 50
    assert pages(session, "next date", date(1)) < 20


CHECKS = [
    waits, unmet, restarts, ended_members, member_again, member_gone, orders, random_changes,
    last_of_a_batch, insertion_beside_end, addition_beside_end, last_of_many_batches,
    overlapping_cancellations, many_sessions, costs,
]
# In SQLite, only one session writes at a time.
ONLY_IN_POSTGRESQL = [last_of_many_batches, overlapping_cancellations, many_sessions]
