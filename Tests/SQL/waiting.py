"""What a store does with the statements about tasks that wait for others."""

from dataclasses import dataclass

from engines import Collision, date, identity, number
from store import give_turns, orders_of, row
from waiting_model import ENDED, is_stale


@dataclass(frozen=True)
class Change:
    """A change to a task: what becomes of it, or `insert`, `restart` or `remove`."""

    kind: str
    task: int
    retains: bool = True
    second: int = 1
    after: tuple = ()
    rule: str = "allSucceeded"
    follower: int = None
    key: str = None
    order: str = None

    @property
    def is_end(self):
        return self.kind in ENDED

    @property
    def named(self):
        """The tasks that the change names, and that may be there."""
        followed = () if self.follower is None else (self.follower,)
        return {self.task} if self.kind != "insert" else {*self.after, *followed}


def insert(task, after=(), **values):
    return Change("insert", task, after=tuple(after), **values)


def succeed(task, **values):
    return Change("succeeded", task, **values)


def abandon(task, **values):
    return Change("abandoned", task, **values)


def cancel(task, **values):
    return Change("cancelled", task, **values)


def restart(task, **values):
    return Change("restart", task, **values)


def remove(task):
    return Change("remove", task)


def ids(session, tasks):
    return session.array(identity(task) for task in sorted(tasks))


def numbers(rows):
    return [number(task) for task, *_ in rows]


# A transaction


def lock(session, changes, found=()):
    """Begins a transaction with the locks that the changes need; returns the locked tasks."""
    known = set(found).union(*(change.named for change in changes))
    well = [change.task for change in changes if change.kind == "succeeded"]
    badly = [change.task for change in changes if change.kind not in ("succeeded", "insert")]
    while True:
        session.text("begin")
        session.lock([change.order for change in changes if change.order], known)
        session.run("lock the tasks", ids(session, known))
        seen = set(numbers(session.run("concerned", ids(session, well), ids(session, badly))))
        if seen <= known:
            return known
        session.text("rollback")
        known |= seen


def make(session, changes, known):
    """Makes changes to tasks that are locked; returns the outcomes."""
    orders = orders_of(session, known) | {change.order for change in changes if change.order}
    outcomes = [make_one(session, change) for change in changes]
    if any(outcome[0] in ("unmet", "taken") for outcome in outcomes):
        session.text("rollback")
        return outcomes
    new = ids(session, (
        change.task for change, outcome in zip(changes, outcomes)
        if change.follower is not None and outcome == ("done",)))
    session.run("follow", new)
    session.run("count the new", new)
    give_turns(session, orders)
    session.text("commit")
    return outcomes


def perform(session, *changes):
    """Makes changes in one transaction, and again if it collides with another one."""
    while True:
        try:
            return make(session, changes, lock(session, changes))
        except Collision:
            session.text("rollback")


def make_one(session, change):
    if change.kind == "insert":
        return add(session, change)
    found = session.text(
        "select state, follower, name, unique_key from task"
        f" where id = '{identity(change.task)}'")
    if not found or is_stale(change, found[0][0]):
        return ("stale",)
    state, follower, name, key = found[0]
    if change.kind == "restart" and state not in ENDED:
        session.run("restart", identity(change.task), date(change.second), None)
        return ("done",)
    concerns = follower is not None or session.run("is named", identity(change.task))
    if change.is_end:
        along = end(session, change, name, key)
    elif change.kind == "restart":
        if key and session.run("twins", name, key):
            return ("duplicate",)
        along = bring_back(session, change, state)
    else:
        along = leave(session, change)
        follower = None
    if not concerns:
        assert not along
        return ("done",)
    batch = session.run("progress", follower)[:1] if follower else []
    counts = [tuple(int(count) for count in row) for row in batch if row[0] is not None]
    return ("done", sorted(along), *counts)


def add(session, change):
    task = identity(change.task)
    if session.text(f"select 1 from task where id = '{task}'"):
        return ("taken",)
    if change.key and session.run("twins", "A", change.key):
        return ("duplicate",)
    role = "holder" if change.key else None
    values = row(
        session, change.task, key=change.key, role=role, order=change.order, rule=change.rule,
        follower=change.follower)
    if not session.run("insert", *values):
        return ("duplicate",)
    if change.after:
        session.run("name", task, ids(session, change.after))
        if unmet := session.run("unmet", task, change.rule):
            return ("unmet", number(unmet[0][0]))
        session.run("count the open", task)
    return ("done",)


def end(session, change, name, key):
    task = identity(change.task)
    along = [] if change.kind == "succeeded" else session.run("along", task)
    others = ids(session, numbers(along))
    for ended, state in [(ids(session, [change.task]), change.kind), (others, "cancelled")]:
        if state != "succeeded":
            session.run("note", ended, state)
        session.run("count", ended, state)
    if change.retains:
        session.text(
            f"update task set state = '{change.kind}', finished_date = {date(change.second)},"
            f" key_role = null, lease_end = null where id = '{task}'")
    else:
        session.text(f"delete from task where id = '{task}'")
    if change.retains:
        both = ids(session, [change.task, *numbers(along)])
        session.run("cancel along", others, date(change.second), both)
    elif along:
        listed = ", ".join(f"'{other}'" for other, *_ in along)
        session.text(f"delete from task where id in ({listed})")
    for each_name, each_key in [(name, key), *(keys for _, *keys in along)]:
        if each_key:
            session.run("promote", each_name, each_key)
    return numbers(along)


def bring_back(session, change, state):
    session.run("restart", identity(change.task), date(change.second), None)
    restarted, tasks = [], [change.task]
    while tasks:
        session.run("take back", ids(session, tasks))
        session.run("count back", ids(session, tasks), state)
        for name in ("still failed", "key is held"):
            session.run(name, ids(session, tasks))
        tasks, state = numbers(session.run("take the keys", ids(session, tasks))), "cancelled"
        restarted += tasks
    session.run("restart along", ids(session, restarted), date(change.second))
    return restarted


def leave(session, change):
    leaving = numbers(session.run("leaving", ids(session, [change.task])))
    session.text(f"delete from task where id = '{identity(change.task)}'")
    return [task for task in leaving if task != change.task]


def prune(session, state, second, keeping):
    """Removes the tasks that are too old or too many, as removals."""
    values = [state, date(second), keeping, date(99), ""]
    tasks = numbers(session.run("prunable", *values))
    known = set(numbers(session.run("leaving", ids(session, tasks))))
    changes = [remove(task) for task in tasks]
    try:
        known = lock(session, changes, known)
        orders = orders_of(session, known)
        session.run("prune", state, ids(session, tasks))
        give_turns(session, orders)
        session.text("commit")
    except Collision:
        session.text("rollback")


def rows(session):
    """What the store has of each task."""
    found = {}
    for task, *values in session.text(
            "select id, state, cause, open_count, batch_total, batch_succeeded, batch_failed, waits,"
            " key_role from task order by id"):
        state, cause, open_count, total, succeeded, failed, waits, role = values
        batch = None if total is None else (int(total), int(succeeded), int(failed))
        found[number(task)] = {
            "state": state, "cause": cause and number(cause), "open": int(open_count),
            "batch": batch, "waits": waits in ("t", "1"), "role": role, "failed": {}, "names": set(),
        }
    for dependent, dependency, is_named, failed in session.run(
            "dependencies", ids(session, found)):
        task = found[number(dependent)]
        if failed:
            task["failed"][number(dependency)] = failed
        if is_named in ("t", "1"):
            task["names"].add(number(dependency))
    return found


def claimable(session):
    """The tasks that a claim would find now, which stay as they are."""
    session.text("begin")
    found = session.claim(["A"], 10_000, 99, [])
    session.text("rollback")
    return found


