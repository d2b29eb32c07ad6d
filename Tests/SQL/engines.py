"""The statements of the articles about stores, and the engines that run them.

Each statement is read from an article, so that what is run is what is printed.
"""

import itertools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import time

STORES = pathlib.Path(__file__).resolve().parents[2] / (
    "Sources/SteadfastQueue/SteadfastQueue.docc/Stores")
ARTICLES = ["WritingAStore.md", "StoringDependencies.md", "StoringMemory.md"]
# The next tokens of leases.
LEASES = itertools.count(1)
BASE = "2026-01-01 00:00:"
# A key that another session has just taken, a cause that it has just removed, and a deadlock.
# No date, where a statement does not tell its type.
NO_DATE = "null::timestamptz"
COLLISIONS = {"23505", "23503", "40P01"}


def statements():
    """The schema, and each statement by the comment that stands before it."""
    schema, named, title = [], {}, None
    text = "".join((STORES / name).read_text(encoding="utf-8") for name in ARTICLES)
    for block in re.findall(r"```sql\n(.*?)```", text, re.DOTALL):
        if "create table" in block:
            schema.append(block)
        for line in block.splitlines():
            if line.startswith("-- "):
                title = line[3:]
                assert title not in named, f"two statements are called {title}"
                named[title] = ""
            elif title:
                named[title] += line + "\n"
        title = None
    assert schema, "the articles have no table"
    return schema[0], {name: text.strip().rstrip(";") for name, text in named.items()}


SCHEMA, STATEMENTS = statements()


def date(second):
    if second is None:
        return None
    minute, second = divmod(second, 60)
    return f"timestamptz '{BASE[:-3]}{minute:02}:{second:02}+00'"


def literal(value):
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'"
    if isinstance(value, str) and not value.startswith(("timestamptz", "interval", NO_DATE)):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower() if isinstance(value, bool) else str(value)


def with_parameters(text, values):
    """A text with values in place of $1, $2 and so on."""
    return re.sub(r"\$(\d+)", lambda match: literal(values[int(match[1]) - 1]), text)


def filled(name, values):
    """A statement with its parameters."""
    return with_parameters(STATEMENTS[name], values)


def identity(number):
    return f"00000000-0000-7000-8000-{number:012}"


def number(text):
    return int(text[-12:])


# The server's clock stands still until a check sets it.
CLOCK = """
create function now() returns timestamptz language sql stable
as 'select current_setting(''store.clock'')::timestamptz';
"""


# Engines


class Collision(Exception):
    """PostgreSQL has ended a transaction because of another one."""


def programs():
    """The folder of PostgreSQL's programs."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else pathlib.Path(shutil.which("initdb")).parent


class PostgreSQL:
    """A server in a temporary folder; with a primary, a standby of that one."""

    name = "PostgreSQL"

    def __init__(self, folder, settings=("fsync=off",), rules=(), primary=None):
        self.folder = folder / "postgresql"
        self.folder.mkdir()
        # The server refuses to run as root.
        self.user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self.user:
            os.chmod(folder, 0o755)
            shutil.chown(self.folder, "postgres")
        self.bin = programs()
        data = self.folder / "data"
        if primary is None:
            self.call("initdb", "-D", data, "-U", "store", "--auth=trust", "--no-sync")
            # The first rule that fits decides who is let in.
            hba = data / "pg_hba.conf"
            hba.write_text("".join(f"{rule}\n" for rule in rules) + hba.read_text())
        else:
            self.call("pg_basebackup", "-h", primary.folder, "-U", "store", "-D", data, "-c", "fast",
                      "--write-recovery-conf", "--no-sync")
        options = " ".join(["-c listen_addresses=''", f"-k {self.folder}",
                            *(f"-c {setting}" for setting in settings)])
        self.start = ["-D", data, "-o", options, "-w", "-l", self.folder / "log", "start"]
        self.end = ["-D", data, "-m", "immediate", "stop"]
        self.call("pg_ctl", *self.start)
        self.sessions = []

    def command(self, program, *arguments):
        return [*self.user, str(self.bin / program), *map(str, arguments)]

    def call(self, program, *arguments):
        command = self.command(program, *arguments)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def reset(self):
        for session in self.sessions:
            session.close()
        self.sessions = []
        session = self.session()
        session.text("set client_min_messages = warning")
        session.text("drop schema public cascade; create schema public;" + CLOCK)
        session.make_tables()
        return session

    def session(self, collides=False):
        session = PostgreSQLSession(self, collides)
        self.sessions.append(session)
        return session

    def stop(self):
        self.call("pg_ctl", *self.end)


class Psql:
    """A session of psql, which runs one text after another."""

    def __init__(self, command, database, stops=True, **options):
        self.process = subprocess.Popen(
            [*map(str, command), "-XqAt", "-F", "|", "-v", f"ON_ERROR_STOP={int(stops)}", database],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def begin_text(self, sql):
        self.process.stdin.write(f"{sql};\n\\echo END :SQLSTATE :LAST_ERROR_MESSAGE\n")
        self.process.stdin.flush()

    def rows(self):
        rows = []
        for line in self.process.stdout:
            if line.startswith("END "):
                _, code, *message = line.split(None, 2)
                if code in COLLISIONS:
                    raise Collision(code, *message)
                assert code == "00000", f"{code}: {message}"
                return rows
            rows.append(tuple(value or None for value in line.rstrip("\n").split("|")))
        raise AssertionError("the session has ended")

    def text(self, sql):
        self.begin_text(sql)
        return self.rows()


class PostgreSQLSession(Psql):
    """A session; one that may collide with others goes on after an error."""

    def __init__(self, server, collides=False):
        self.server = server
        super().__init__(
            server.command("psql", "-h", server.folder, "-U", "store"), "postgres",
            stops=not collides, stderr=subprocess.DEVNULL if collides else None, cwd="/")
        self.pid = self.text("select pg_backend_pid()")[0][0]
        # A function of the schema comes before the system's.
        self.text("set search_path = public, pg_catalog")
        self.set_clock(0)

    def set_clock(self, second):
        """Sets the clock by which the statements of this session know when a claim has run out."""
        self.text(f"set store.clock = {date(second).removeprefix('timestamptz ')}")

    def make_tables(self):
        self.text(SCHEMA)

    def destroy(self):
        self.run("destroy")
        self.run("destroy the sequences")

    def relations(self):
        """The names of tables, indexes and sequences."""
        return self.text("select relname from pg_class where relnamespace = 'public'::regnamespace")

    def lease(self, seconds):
        return f"interval '{seconds} s'"

    def run(self, name, *values):
        return self.text(filled(name, values))

    def array(self, values):
        return "{" + ",".join(json.dumps(value) for value in values) + "}"

    def lock(self, keys=(), tasks=()):
        """Locks the order keys of new tasks, and of tasks that are there."""
        self.text(self.lock_text(keys, tasks))

    def lock_text(self, keys=(), tasks=()):
        tasks = [identity(task) for task in tasks]
        return filled("lock the order", [self.array(keys), self.array(tasks)])

    def lock_values(self, names):
        self.text(self.lock_values_text(names))

    def lock_values_text(self, names):
        return filled("lock the values", [self.array(names)])

    def claim(self, names, limit, second, conditions, queue="", others=0, versions=None):
        known = (versions or {}).items()
        rooms = "{" + ",".join(["1000"] * len(names)) + "}"
        rows = self.run(
            "claim", self.array(names), rooms, others, limit, date(second), self.lease(20),
            self.array(conditions), queue, self.array(name for name, _ in known),
            "{" + ",".join(str(version) for _, version in known) + "}", "host 1 queue")
        return sorted(number(row[0]) for row in rows)

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
        session.make_tables()
        return session

    def session(self):
        return SQLiteSession(self.path)

    def stop(self):
        pass


class SQLiteSession:
    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        self.connection.execute("pragma foreign_keys = on")
        self.clock = 0
        self.connection.create_function("now", 0, lambda: self.clock)

    def make_tables(self):
        schema = re.sub(r"text\[\] not null default '\{\}'", "text not null default '[]'", SCHEMA)
        schema = schema.replace("timestamptz '", "'")
        schema = re.sub(r"create sequence .*?;|create index on task using .*?;", "", schema)
        number = iter(range(100))
        schema = re.sub(
            r"create (unique )?index on",
            lambda match: f"create {match[1] or ''}index index_{next(number)} on", schema)
        self.connection.executescript(schema)

    def destroy(self):
        drop, tables = re.fullmatch(r"(drop table if exists) (.*)", STATEMENTS["destroy"]).groups()
        for table in tables.split(", "):
            self.text(f"{drop} {table}")

    def relations(self):
        return self.text("select name from sqlite_schema where name not like 'sqlite_%'")

    def set_clock(self, second):
        self.clock = second

    def lease(self, seconds):
        return seconds

    def text(self, sql):
        sql = sql.replace("::timestamptz", "").replace("timestamptz ", "").replace("for update", "")
        sql = sql.replace("greatest(", "max(").replace("least(", "min(")
        sql = sql.replace("nextval('place')", "(select coalesce(max(position), 0) + 1 from task)")
        sql = re.sub(r"^begin$", "begin immediate", sql)
        sql = re.sub(r"= any \(('[^']*')\)", r"in (select value from json_each(\1))", sql)
        sql = re.sub(
            r"unnest\(('[^']*')::uuid\[\]\) as named \(id\)",
            r"(select value as id from json_each(\1)) as named", sql)
        sql = re.sub(r"octet_length\((\w+)\)", r"length(cast(\1 as blob))", sql)
        sql = re.sub(r"'\\x([0-9a-f]*)'", r"x'\1'", sql)
        rows = self.connection.execute(sql).fetchall()
        return [tuple(map(self.shown, row)) for row in rows]

    @staticmethod
    def shown(value):
        if isinstance(value, bytes):
            return "\\x" + value.hex()
        return None if value is None else str(value)

    def run(self, name, *values):
        return self.text(filled(name, values))

    def array(self, values):
        return json.dumps(list(values))

    def lock(self, keys=(), tasks=()):
        """A session that writes keeps others from writing."""

    def lock_text(self, keys=(), tasks=()):
        return "select 1"

    def lock_values(self, names):
        """A session that writes keeps others from writing."""

    def lock_values_text(self, names):
        return "select 1"

    def claim(self, names, limit, second, conditions, queue="", others=0, versions=None):
        claimed = []
        for name in names:
            rows = self.run(
                "first on SQLite", name, date(second), self.array(conditions),
                limit - len(claimed), queue, (versions or {}).get(name, 2**62))
            for (task,) in rows:
                self.text(
                    "update task set state = 'running', lease_end = now() + 20,"
                    f" lease_token = {next(LEASES)}"
                    f" where id = '{task}'")
                claimed.append(number(task))
        return sorted(claimed)


