"""Checks of the statements about keys, order and conditions."""

import random
import re
import sqlite3
import threading

from engines import BASE, PostgreSQL, SQLite, date, filled, identity, literal, number
from store import (
    add, begin, claim, end, end_of, expect, give_turns, in_order, insertion, move, move_of,
    prune, put, remove, restart, restart_of, retry, row, second_of, succeed, tasks, was_sent,
    with_turns,
)

# One session


def policies(engine):
    session = engine.reset()
    expect(add(session, 1), ("done", "holder"))
    for policy in ("keep", "join", "reject"):
        expect(add(session, 2, policy), ("duplicate", 1))
    expect(add(session, 2, "replace", priority=4), ("replaced", 1))
    expect(tasks(session, "priority, payload")[0][1], "4")
    begin(session, 1)
    for policy in ("join", "reject"):
        expect(add(session, 2, policy), ("duplicate", 1))
    expect(add(session, 2), ("done", "successor"))
    expect(add(session, 3), ("duplicate", 2))
    expect(add(session, 3, "replace"), ("replaced", 2))
    for policy in ("join", "reject"):
        expect(add(session, 3, policy), ("duplicate", 1))
    # A key belongs to a name.
    expect(add(session, 4, name="B"), ("done", "holder"))
    expect(succeed(session, 1), [2])
    expect(tasks(session), [(2, "holder", "waiting"), (4, "holder", "waiting")])


def sent_again(engine):
    """An insertion that is sent again is there, and another task with its identity is not."""
    session = engine.reset()
    expect(add(session, 1), ("done", "holder"))
    begin(session, 1)
    expect(add(session, 2), ("done", "successor"))
    for policy in ("keep", "join", "reject", "replace"):
        for task in (1, 2):
            expect(add(session, task, policy), ("done", "before"))
    put(session, 3, "o", created=1)
    before = tasks(session, "state, key_role, position, payload")
    assert not session.run("insert", *row(session, 3, order="o", created=1))
    # After a rebase, it may have an earlier date than the one that is sent.
    for created in (1, 2):
        expect(was_sent(session, 3, order="o", created=created), True)
    for other in [
        {"name": "B"}, {"key": "k"}, {"order": "p"}, {"created": 0}, {"queue": "q"},
        {"payload": "other"},
    ]:
        expect(was_sent(session, 3, **{"order": "o", "created": 1, **other}), False)
    expect(tasks(session, "state, key_role, position, payload"), before)
    expect(succeed(session, 1, retains=True), [2])
    expect(add(session, 1, created=0), ("done", "before"))


def dates(engine):
    session = engine.reset()
    add(session, 1, at=10, latest=25)
    for at, expected in [(20, 20), (30, 25)]:
        add(session, 2, "replace", at=at)
        expect(second_of(session, 1), expected)
        # With the date that it has, it stays before its equals.
        place = tasks(session, "position")
        add(session, 2, "replace", at=at)
        expect((second_of(session, 1), tasks(session, "position")), (expected, place))
    add(session, 3, key="now", created=5)
    add(session, 4, key="now", created=6)
    place = tasks(session, "position")
    add(session, 5, "replace", key="now", created=9)
    expect(second_of(session, 3), 5)
    expect(tasks(session, "position"), place)
    retry(session, 3, 40, key="now")
    add(session, 5, "replace", key="now", created=9)
    expect(second_of(session, 3), 40)
    add(session, 5, "replace", key="now", created=9, at=50)
    expect(second_of(session, 3), 50)


def supersedes(engine):
    session = engine.reset()
    add(session, 1)
    begin(session, 1)
    add(session, 2)
    expect(retry(session, 1, 30), 2)
    expect(tasks(session, "key_role, retry_count, last_error"), [(2, "holder", "3", "no")])
    expect(second_of(session, 2), 30)
    begin(session, 2)
    expect(retry(session, 2, 40), None)
    expect(tasks(session), [(2, "holder", "waiting")])


def windows(engine):
    session = engine.reset()
    add(session, 1, until=30)
    begin(session, 1)
    expect(add(session, 2, created=5), ("duplicate", 1))
    expect(succeed(session, 1, retains=True), [])
    for policy in ("keep", "join", "reject"):
        expect(add(session, 2, policy, created=29), ("duplicate", 1))
    expect(add(session, 2, "replace", created=29), ("done", "holder"))
    succeed(session, 2)
    expect(add(session, 3, created=30), ("done", "holder"))


def expiries(engine):
    """A task that has expired stands for no new one, and is not restarted or updated beside it."""
    session = engine.reset()
    for number, policy in enumerate(("keep", "replace", "join", "reject")):
        key, old, new = f"key {policy}", 10 * number + 1, 10 * number + 2
        add(session, old, key=key, expires=30)
        expect(add(session, new, "join", key=key, created=29), ("duplicate", old))
        expect(add(session, new, policy, key=key, created=30), ("done", "holder"))
        expect(add(session, new + 1, "join", key=key, created=30), ("duplicate", new))
        expect(roles(session, old, new), [None, "holder"])
    # What runs keeps its key. What waits behind it is displaced.
    begin(session, 2)
    add(session, 4, key="key keep", created=31, expires=40)
    expect(add(session, 5, "replace", key="key keep", created=39, expires=40), ("replaced", 4))
    expect(add(session, 5, key="key keep", created=40, expires=50), ("done", "successor"))
    expect(roles(session, 2, 4, 5), ["holder", None, "successor"])
    # The successor will have expired when the other one is tried again.
    expect(retry(session, 2, 50, key="key keep"), None)
    begin(session, 2)
    expect(retry(session, 2, 49, key="key keep"), 5)
    # A live successor stands for new ones, though the holder has expired.
    begin(session, 12)
    session.text(f"update task set expiry_date = {literal(date(35))} where id = '{identity(12)}'")
    add(session, 14, key="key replace", created=31)
    session.text(f"update task set state = 'waiting' where id = '{identity(12)}'")
    for policy, outcome in [("keep", "duplicate"), ("join", "duplicate"), ("replace", "replaced")]:
        expect(add(session, 15, policy, key="key replace", created=36), (outcome, 14))
    # What is displaced is not updated.
    update = [None, None, None, 5, False, None, None, None, date(59), None, None]
    expect(session.run("update", identity(21), *update), [])
    expect(len(session.run("update", identity(22), *update)), 1)
    # It is restarted when its key is free.
    succeed(session, 22, key="key join")
    session.run("restart", identity(21), date(40), None)
    expect(roles(session, 21), ["holder"])


def roles(session, *wanted):
    found = {task: role for task, role, _ in tasks(session)}
    return [found[task] for task in wanted]


def texts_and_dates(engine):
    """Keys are the same only if their bytes are, and a date at either bound is held."""
    session = engine.reset()
    one, two = "\u00e9", "e\u0301"
    expect(add(session, 1, key=one), ("done", "holder"))
    expect(add(session, 2, key=two), ("done", "holder"))
    expect(add(session, 3, name=two, key=one), ("done", "holder"))
    expect(add(session, 4, key=two), ("duplicate", 2))
    if isinstance(engine, PostgreSQL):
        for seconds in (-62135769600, 253402300799):
            session.text(
                f"update task set available_date = to_timestamp({seconds})"
                f" where id = '{identity(1)}'")
            found = session.text(
                "select extract(epoch from available_date)::bigint from task"
                f" where id = '{identity(1)}'")
            expect(found, [(str(seconds),)])


# Two sessions


def run_behind(engine, session, first, second, sql):
    """Runs a statement in a session that waits until another one, which has written, commits."""
    if isinstance(engine, PostgreSQL):
        second.text("begin")
        second.begin_text(sql)
        second.wait_until_blocked(session)
        first.text("commit")
        return second.rows()
    try:
        second.text("begin")
    except sqlite3.OperationalError:
        first.text("commit")
        second.text("begin")
        return second.text(sql)
    raise AssertionError("both sessions write")


def end_beside_addition(engine):
    """A session ends the holder, and before it commits, another one adds a task with the key."""
    session = engine.reset()
    add(session, 1)
    begin(session, 1)
    first, second = engine.session(), engine.session()
    first.text("begin")
    expect(succeed(first, 1), [])
    expect(run_behind(engine, session, first, second, filled("twins", ["A", "k"])), [])
    expect(add(second, 2), ("done", "holder"))
    second.text("commit")
    expect(tasks(session), [(2, "holder", "waiting")])


def addition_beside_end(engine):
    """A session adds a successor, and before it commits, another one ends the holder."""
    session = engine.reset()
    add(session, 1)
    begin(session, 1)
    first, second = engine.session(), engine.session()
    first.text("begin")
    expect(add(first, 2), ("done", "successor"))
    run_behind(engine, session, first, second, f"delete from task where id = '{identity(1)}'")
    expect([number(row[0]) for row in second.run("promote", "A", "k")], [2])
    second.text("commit")
    expect(tasks(session), [(2, "holder", "waiting")])


def two_additions(engine):
    """Two sessions add a task with the key at once: the first one, and then a successor."""
    session = engine.reset()
    first, second = engine.session(), engine.session()
    for role in ("holder", "successor"):
        tasks_before = len(tasks(session))
        first.text("begin")
        second.text("begin")
        task = 10 * (tasks_before + 1)
        if role == "holder":
            # Neither sees a task, so both insert one.
            expect(second.run("twins", "A", "k"), [])
        expect(add(first, task), ("done", role))
        if role == "holder":
            second.begin_text(filled("insert", row(second, task + 1, key="k", role=role)))
        else:
            second.begin_text(filled("twins", ["A", "k"]))
        second.wait_until_blocked(session)
        first.text("commit")
        second.rows()
        expect(add(second, task + 1), ("duplicate", task))
        second.text("commit")
        expect(len(tasks(session)), tasks_before + 1)
        begin(session, task)


def two_replacements(engine):
    """Two sessions replace a task at once: the one that commits last counts."""
    session = engine.reset()
    add(session, 1)
    first, second = engine.session(), engine.session()
    first.text("begin")
    expect(add(first, 2, "replace"), ("replaced", 1))
    run_behind(engine, session, first, second, filled("twins", ["A", "k"]))
    expect(add(second, 3, "replace"), ("replaced", 1))
    second.text("commit")
    expect(len(tasks(session)), 1)


# Order keys


def order(engine):
    """One task at a time, in the order of insertion, whatever the names, priorities and dates."""
    session = engine.reset()
    expect(put(session, 9, "k"), [9])
    expect(put(session, 2, "k", name="B", priority=5), [])
    expect(put(session, 5, "k", priority=7, at=3), [])
    expect(put(session, 1, "K"), [1])
    expect(put(session, 4, None), [])
    expect(claim(session, 10), [1, 4, 9])
    expect(claim(session, 10), [])
    expect(end(session, 9), [2])
    expect(claim(session, 10), [2])
    expect(end(session, 2, "abandoned", retains=True), [5])
    expect(claim(session, 10), [5])
    expect(end(session, 5, retains=True), [])
    expect(put(session, 3, "k"), [3])
    # A task that is not first leaves without a change of turn.
    put(session, 6, "k")
    put(session, 7, "k")
    expect(end(session, 6, "cancelled"), [])
    expect(end(session, 3, "cancelled"), [7])


def held_up(engine):
    """The first task holds up the others in each state in which it has not ended."""
    session = engine.reset()
    put(session, 1, "k", at=10)
    put(session, 2, "k")
    expect(claim(session, 9), [])
    expect(session.run("next date", date(9))[0][0][:19], f"{BASE}10")
    expect(claim(session, 10), [1])
    expect(move(session, 1, "waiting", 20), [])
    expect(claim(session, 15), [])
    expect(claim(session, 20), [1])
    for state in ("parked", "paused", "waiting"):
        expect(move(session, 1, state, 30), [])
        expect(claim(session, 20), [])
    expect(claim(session, 30), [1])
    # A claim that has run out.
    expect(claim(session, 49), [])
    expect(claim(session, 50), [1])


def held_order(engine):
    """A retained task that holds its order holds up the others."""
    session = engine.reset()
    put(session, 1, "k", holds=True)
    put(session, 2, "k")
    put(session, 3, "l", holds=True)
    put(session, 4, "l")
    expect(claim(session), [1, 3])
    expect(end(session, 1, "abandoned", retains=True), [])
    expect(end(session, 3, "cancelled", retains=True), [])
    for state in ("abandoned", "cancelled"):
        prune(session, state, 50, 0)
    expect([task for task, *_ in tasks(session)], [1, 2, 3, 4])
    expect(claim(session), [])
    expect(restart(session, 1), [])
    expect(claim(session), [1])
    expect(end(session, 1, retains=True), [2])
    expect(remove(session, 3), [4])
    expect(claim(session), [2, 4])
    prune(session, "succeeded", 50, 0)
    expect([task for task, *_ in tasks(session)], [2, 4])


def restarted(engine):
    """A restarted task has its old place, behind one that is running."""
    session = engine.reset()
    for task in (1, 2, 3):
        put(session, task, "k")
    claim(session)
    expect(end(session, 1, "abandoned", retains=True), [2])
    expect(restart(session, 1), [1])
    expect(claim(session), [1])
    expect(end(session, 1, "abandoned", retains=True), [2])
    expect(claim(session), [2])
    expect(restart(session, 1), [])
    expect(claim(session), [])
    for state in ("waiting", "parked", "paused"):
        expect(move(session, 2, state), [1])
        expect(claim(session), [1])
        expect(end(session, 1, "cancelled", retains=True), [2])
        move(session, 2, "waiting")
        expect(claim(session), [2])
        expect(restart(session, 1), [])
    # A claim that runs out gives the turn back as well.
    expect(claim(session, 20), [1])
    expect(end(session, 1), [2])
    expect(claim(session, 20), [2])
    expect(end(session, 2), [3])


def required(engine):
    """Tasks wait until all of their conditions hold."""
    session = engine.reset()
    put(session, 1, None, conditions=["network", "charging"])
    put(session, 2, None, conditions=["network"])
    put(session, 3, None)
    put(session, 4, "k", conditions=['it\'s "so"'])
    put(session, 5, "k")
    expect(claim(session), [3])
    expect(claim(session, conditions=["charging", "other"]), [])
    expect(claim(session, conditions=["network"]), [2])
    expect(claim(session, conditions=["charging", "network", "other"]), [1])
    expect(claim(session, conditions=['it\'s "so"']), [4])
    # A task that takes another one over has its conditions.
    add(session, 6)
    session.text(f"update task set conditions = '{session.array(['a'])}' where unique_key = 'k'")
    expect(claim(session), [])
    expect(add(session, 7, "replace"), ("replaced", 6))
    expect(claim(session), [6])


def end_beside_insertion(engine):
    """A session ends the first task, and before it commits, another one inserts the second."""
    session = engine.reset()
    put(session, 1, "k")
    claim(session)
    first, second = engine.session(), engine.session()
    first.text("begin")
    first.lock(tasks=[1])
    expect(with_turns(first, end_of(1), tasks=[1]), [])
    run_behind(engine, session, first, second, second.lock_text(["k"]))
    expect(with_turns(second, insertion(2, "k"), keys=["k"]), [2])
    second.text("commit")
    expect(claim(session), [2])


def insertion_beside_end(engine):
    """A session inserts the second task, and before it commits, another one ends the first."""
    session = engine.reset()
    put(session, 1, "k")
    claim(session)
    first, second = engine.session(), engine.session()
    first.text("begin")
    first.lock(["k"])
    expect(with_turns(first, insertion(2, "k"), keys=["k"]), [])
    run_behind(engine, session, first, second, second.lock_text(tasks=[1]))
    expect(with_turns(second, end_of(1), tasks=[1]), [2])
    second.text("commit")
    expect(claim(session), [2])


def two_first_insertions(engine):
    """Two sessions insert the first task of a key at once."""
    session = engine.reset()
    first, second = engine.session(), engine.session()
    first.text("begin")
    first.lock(["k"])
    expect(with_turns(first, insertion(2, "k"), keys=["k"]), [2])
    run_behind(engine, session, first, second, second.lock_text(["k"]))
    expect(with_turns(second, insertion(1, "k"), keys=["k"]), [])
    second.text("commit")
    expect(claim(session), [2])
    expect(end(session, 2), [1])


def restart_beside_claim(engine):
    """A session claims the task with the turn; before it commits, another restarts the first."""
    session = engine.reset()
    put(session, 1, "k")
    put(session, 2, "k")
    end(session, 1, "abandoned", retains=True)
    first, second = engine.session(), engine.session()
    first.text("begin")
    expect(first.claim(["A"], 10, 0, []), [2])
    second.text("begin")
    second.lock(tasks=[1])
    restart_of(1)(second)
    second.begin_text(filled("take the turn", ["k"]))
    second.wait_until_blocked(session)
    first.text("commit")
    expect(second.rows(), [])
    expect(second.run("give the turn", "k"), [])
    second.text("commit")
    expect(claim(session), [])
    expect(end(session, 2), [1])


def claim_beside_restart(engine):
    """A session restarts the first task, and before it commits, another one claims."""
    session = engine.reset()
    put(session, 1, "k")
    put(session, 2, "k")
    end(session, 1, "abandoned", retains=True)
    first, second = engine.session(), engine.session()
    first.text("begin")
    first.lock(tasks=[1])
    expect(with_turns(first, restart_of(1), tasks=[1]), [1])
    expect(claim(second), [])
    first.text("commit")
    expect(claim(second), [1])
    expect(claim(second), [])


def many_sessions(engine):
    """Sessions insert, claim, end, restart, cancel and remove tasks of few keys at random."""
    session = engine.reset()
    session.text(
        "alter table task add check (state <> 'running' or order_key is null or has_turn)")
    keys = ["a", "b", "c"]
    seed = random.randrange(1_000_000)
    problems = []

    def work(index, session):
        draw = random.Random(f"{seed} {index}")
        last = 1000 * index
        for second in range(150):
            second //= 3
            known = [task for task, *_ in tasks(session)]
            some = draw.sample(known, min(len(known), draw.randrange(3)))
            changes, order_keys = [], []
            for task in some:
                state = draw.choice(["succeeded", "abandoned", "cancelled", "waiting", "paused"])
                if state in ("waiting", "paused"):
                    changes.append(draw.choice([move_of(task, state), restart_of(task)]))
                else:
                    changes.append(end_of(task, state, draw.random() < 0.5))
            for _ in range(draw.randrange(3)):
                last += 1
                order_keys.append(draw.choice(keys))
                changes.append(insertion(last, order_keys[-1], holds=draw.random() < 0.3))
            draw.shuffle(changes)
            # The rows of two batches are changed in any order: the locks keep them apart.
            in_order(session, *changes, keys=order_keys, tasks=some)
            claim(session, second, limit=2)

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
    for key in keys:
        rows = session.text(
            f"select has_turn, state from task where order_key = '{key}' and in_order"
            " order by order_number")
        turns = [place for place, (has_turn, _) in enumerate(rows) if has_turn == "t"]
        assert len(turns) == min(1, len(rows)), f"seed {seed}: {len(turns)} tasks have the turn"
        assert not turns or turns == [0] or rows[turns[0]][1] == "running", f"seed {seed}"
    # At the end, all tasks are performed.
    for task, *_ in tasks(session):
        restart(session, task)
    while found := claim(session, 99):
        for task in found:
            end(session, task)
    assert not tasks(session), f"seed {seed}: tasks wait for nothing"


def costs(engine):
    """A claim and a change of turn read few pages, with many keys, and many tasks of one key."""
    session = engine.reset()
    if isinstance(engine, SQLite):
        for name, values in [
            ("first on SQLite", ["A", date(1), "[]", 10, "", 1]),
            ("take the turn", ["k"]), ("give the turn", ["k"]),
        ]:
            plan = session.text(f"explain query plan {filled(name, values)}")
            steps = [step for *_, step in plan]
            wrong = [step for step in steps if re.search(r"SCAN (task|first|other)|B-TREE", step)]
            assert not wrong, f"{name}: {steps}"
        return
    rows = " union all ".join([
        "select 0, n, 'one' from generate_series(1, 20000) as n",
        "select 1, n, 'key ' || n from generate_series(1, 5000) as n",
    ])
    session.text(
        "insert into task (id, name, payload, format, schema_version, priority, position,"
        " created_date, available_date, uses_backoff, order_key, order_number, holds_order)"
        " select gen_random_uuid(), 'A', 'p', 'json', 1, 0, nextval('place'),"
        f" {date(0)}, {date(0)} + part * interval '21 s' + n * interval '1 ms', true, key,"
        " nextval('place'), false"
        f" from ({rows}) as new (part, n, key)")
    session.text(
        "update task set has_turn = true where order_key <> 'one' or order_number = ("
        " select min(order_number) from task where order_key = 'one')")
    session.text("vacuum analyze task")
    claim = ["{A}", "{10}", 0, 10, date(30), session.lease(20), "{}", "", "{A}", "{1}", "me"]
    for name, values in [
        ("claim", claim), ("next date", [date(1)]),
        ("take the turn", ["one"]), ("give the turn", ["one"]),
    ]:
        plan = session.text(f"explain (analyze, buffers) {filled(name, values)}")
        plan = "\n".join(line for (line, *_) in plan)
        # The first line about buffers is that of the whole statement.
        pages = re.search(r"Buffers: shared hit=(\d+)", plan)
        assert pages and int(pages[1]) < 400 and "Seq Scan on task" not in plan, f"{name}:\n{plan}"


CHECKS = [
    policies, sent_again, dates, supersedes, windows, expiries, texts_and_dates, end_beside_addition,
    addition_beside_end,
    two_replacements, two_additions,
    order, held_up, held_order, restarted, required, end_beside_insertion, insertion_beside_end,
    two_first_insertions, restart_beside_claim, claim_beside_restart, many_sessions, costs,
]
# In SQLite, the second session can't even look while the first one writes.
ONLY_IN_POSTGRESQL = [
    two_additions, restart_beside_claim, claim_beside_restart, many_sessions,
]
