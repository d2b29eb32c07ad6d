"""Runs the SQL of the article "Writing a store" on PostgreSQL and SQLite, with two sessions at once.

    python3 Tests/SQL/check.py              # on both
    python3 Tests/SQL/check.py sqlite       # on one

PostgreSQL's server programs must be there; a server of its own is started in a temporary folder.
Each statement is read from the article, so that what is run is what is printed.
"""

import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

ARTICLE = (
    pathlib.Path(__file__).resolve().parents[2]
    / "Sources/SteadfastQueue/SteadfastQueue.docc/Stores/WritingAStore.md"
)
BASE = "2026-01-01 00:00:"


def statements():
    """The schema, and each statement by the comment that stands before it."""
    schema, named, title = [], {}, None
    for block in re.findall(r"```sql\n(.*?)```", ARTICLE.read_text(encoding="utf-8"), re.DOTALL):
        if "create table" in block:
            schema.append(block)
        for line in block.splitlines():
            if line.startswith("-- "):
                title = line[3:]
                named[title] = ""
            elif title:
                named[title] += line + "\n"
        title = None
    assert schema, "the article has no table"
    return schema[0], {name: text.strip().rstrip(";") for name, text in named.items()}


SCHEMA, STATEMENTS = statements()


def date(second):
    return None if second is None else f"timestamptz '{BASE}{second:02}+00'"


def literal(value):
    if value is None:
        return "null"
    if isinstance(value, str) and not value.startswith("timestamptz"):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def filled(name, values):
    """A statement with its parameters."""
    return re.sub(r"\$(\d+)", lambda match: literal(values[int(match[1]) - 1]), STATEMENTS[name])


# Engines


class PostgreSQL:
    """A server in a temporary folder."""

    name = "PostgreSQL"

    def __init__(self, folder):
        self.folder = folder / "postgresql"
        self.folder.mkdir()
        # The server refuses to run as root.
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.user:
            os.chmod(folder, 0o755)
            shutil.chown(self.folder, "postgres")
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        self.bin = found[-1].parent if found else pathlib.Path(shutil.which("initdb")).parent
        data = self.folder / "data"
        self.call("initdb", "-D", data, "-U", "store", "--auth=trust", "--no-sync")
        options = f"-c listen_addresses='' -c fsync=off -k {self.folder}"
        self.call("pg_ctl", "-D", data, "-o", options, "-w", "-l", self.folder / "log", "start")
        self.sessions = []

    def call(self, program, *arguments):
        command = [*self.user, str(self.bin / program), *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def reset(self):
        for session in self.sessions:
            session.close()
        self.sessions = []
        session = self.session()
        session.text("set client_min_messages = warning")
        session.text("drop schema public cascade; create schema public;" + SCHEMA)
        return session

    def session(self):
        session = PostgreSQLSession(self)
        self.sessions.append(session)
        return session

    def stop(self):
        self.call("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop")


class PostgreSQLSession:
    def __init__(self, server):
        self.server = server
        psql = [str(server.bin / "psql"), "-XqAt", "-F", "|", "-h", server.folder, "-U", "store"]
        command = [*server.user, *map(str, psql), "-v", "ON_ERROR_STOP=1", "postgres"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")
        self.pid = self.text("select pg_backend_pid()")[0][0]

    def begin_text(self, sql):
        self.process.stdin.write(f"{sql};\n\\echo END\n")
        self.process.stdin.flush()

    def rows(self):
        rows = []
        for line in self.process.stdout:
            if line == "END\n":
                return rows
            rows.append(tuple(value or None for value in line.rstrip("\n").split("|")))
        raise AssertionError("the session has ended")

    def text(self, sql):
        self.begin_text(sql)
        return self.rows()

    def run(self, name, *values):
        return self.text(filled(name, values))

    def wait_until_blocked(self, other):
        """Waits until this session waits for a lock."""
        query = f"select wait_event_type from pg_stat_activity where pid = {self.pid}"
        end = time.monotonic() + 30
        while other.text(query) != [("Lock",)]:
            assert time.monotonic() < end, "the session waits for no other one"

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class SQLite:
    """A file; a session that writes keeps others from writing."""

    name = "SQLite"

    def __init__(self, folder):
        self.path = folder / "tasks.sqlite"

    def reset(self):
        self.path.unlink(missing_ok=True)
        session = self.session()
        schema = re.sub(r"text\[\] not null default '\{\}'", "text", SCHEMA)
        schema = re.sub(r"create sequence .*?;|create index on task using .*?;", "", schema)
        number = iter(range(100))
        schema = re.sub(
            r"create (unique )?index on",
            lambda match: f"create {match[1] or ''}index index_{next(number)} on", schema)
        session.connection.executescript(schema)
        return session

    def session(self):
        return SQLiteSession(self.path)

    def stop(self):
        pass


class SQLiteSession:
    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=0)

    def text(self, sql):
        sql = sql.replace("timestamptz ", "").replace("for update", "")
        sql = sql.replace("greatest(", "max(").replace("least(", "min(")
        sql = sql.replace("nextval('place')", "(select coalesce(max(position), 0) + 1 from task)")
        sql = re.sub(r"^begin$", "begin immediate", sql)
        rows = self.connection.execute(sql).fetchall()
        return [tuple(None if value is None else str(value) for value in row) for row in rows]

    def run(self, name, *values):
        return self.text(filled(name, values))


# What a store does with the statements


def identity(number):
    return f"00000000-0000-7000-8000-{number:012}"


def number(text):
    return int(text[-12:])


def add(session, task, policy="keep", name="A", key="k", created=0, at=None, until=None,
        latest=None, priority=0):
    """Does what the article says of an insertion; returns what became of it."""
    at = created if at is None else at
    while True:
        twins = {row[1]: row for row in session.run("twins", name, key)}
        holder, successor = twins.get("holder"), twins.get("successor")
        if holder is None and policy != "replace":
            if same := session.run("recent", name, key, date(created)):
                return "duplicate", number(same[0][0])
        role = "holder"
        if holder:
            if policy in ("reject", "join"):
                return "duplicate", number(holder[0])
            stands = holder[3] is not None and holder[3][:19] > f"{BASE}{created:02}"
            if successor or holder[2] != "running" or (policy == "keep" and stands):
                twin = successor or holder
                if policy == "keep":
                    return "duplicate", number(twin[0])
                # The next place, which a sequence gives and a caller passes on.
                place = session.text("select max(position) + 1 from task")[0][0]
                rows = session.run(
                    "take over", twin[0], f"payload {task}", "json", 1, priority, 10, True,
                    "{}", None, None, date(until), date(latest), date(at), date(created),
                    int(place))
                assert len(rows) == 1
                return "replaced", number(twin[0])
            role = "successor"
        rows = session.run(
            "insert", identity(task), name, f"payload {task}", "json", 1, priority,
            date(created), date(at), 10, True, key, role, date(until), date(latest),
            "{}", None, None)
        if rows:
            return "done", role
        # Another session has taken the role.


def begin(session, task):
    session.text(f"update task set state = 'running' where id = '{identity(task)}'")


def succeed(session, task, name="A", key="k", retains=False):
    if retains:
        session.text(
            "update task set state = 'succeeded', finished_date = created_date, key_role = null"
            f" where id = '{identity(task)}'")
    else:
        session.text(f"delete from task where id = '{identity(task)}'")
    return [number(row[0]) for row in session.run("promote", name, key)]


def retry(session, task, second, name="A", key="k"):
    """Makes a task wait for a retry; returns the successor that takes its place."""
    session.run("twins", name, key)
    session.text(
        f"update task set state = 'waiting', retry_count = 3, put_off = true, last_error = 'no',"
        f" available_date = {literal(date(second))} where id = '{identity(task)}'")
    twins = {row[1]: row for row in session.run("twins", name, key)}
    if "successor" not in twins:
        return None
    successor = twins["successor"][0]
    session.run("give up the role", identity(task))
    session.run("take the place", identity(task), successor)
    session.run("leave", identity(task))
    return number(successor)


def tasks(session, columns="key_role, state"):
    rows = session.text(f"select id, {columns} from task order by id")
    return [(number(row[0]), *row[1:]) for row in rows]


def second_of(session, task):
    text = session.text(f"select available_date from task where id = '{identity(task)}'")[0][0]
    return int(text[17:19])


def expect(found, expected):
    assert found == expected, f"expected {expected}, but found {found}"


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


def dates(engine):
    session = engine.reset()
    add(session, 1, at=10, latest=25)
    for at, expected in [(20, 20), (30, 25)]:
        add(session, 2, "replace", at=at)
        expect(second_of(session, 1), expected)
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
            second.begin_text(filled("insert", [
                identity(task + 1), "A", "p", "json", 1, 0, date(0), date(0), 10, True, "k",
                role, None, None, "{}", None, None]))
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


CHECKS = [
    policies, dates, supersedes, windows, end_beside_addition, addition_beside_end,
    two_replacements, two_additions,
]
# In SQLite, the second session can't even look while the first one writes.
ONLY_IN_POSTGRESQL = [two_additions]


def main():
    names = sys.argv[1:] or ["postgresql", "sqlite"]
    with tempfile.TemporaryDirectory(prefix="steadfast-sql-") as folder:
        for kind in (PostgreSQL, SQLite):
            if kind.name.lower() not in names:
                continue
            engine = kind(pathlib.Path(folder))
            try:
                for check in CHECKS:
                    if kind is SQLite and check in ONLY_IN_POSTGRESQL:
                        continue
                    check(engine)
                    print(f"{engine.name}: {check.__name__}", flush=True)
            finally:
                engine.stop()
    print("every statement about unique keys does what the article says")


if __name__ == "__main__":
    main()
