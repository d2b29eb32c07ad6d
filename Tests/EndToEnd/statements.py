"""Checks that tasks commit with the rows of a program that has its own connection, or not at all.

    python3 Tests/EndToEnd/statements.py PROGRAM [--store sqlite] [--transactions 10000] [--kills 10]
                                         [--commits 1000] [--seed 1]

PROGRAM is StatementWorker, built with the trait of the store: sqlite, or postgresql, which needs a
server (postgresql_server.py). A process inserts orders, each with its task, by Python's own SQLite
module or by psql; every other transaction is rolled back. Another one performs the tasks. Both are
killed at random moments. Then the time is measured from a commit to the moment at which the task begins
in the other process.
"""

import argparse
import json
import os
import pathlib
import queue
import random
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

from support import PACKAGE, Score, temporary_folder
from worker import Worker

sys.path.insert(0, str(PACKAGE / "Tests" / "SQL"))

from engines import Psql, programs, with_parameters

LONGEST_MEDIAN = 0.1


def is_committed(number):
    """Whether the transaction of an order is committed, and not rolled back."""
    return number % 2 == 0


class SQLite:
    """A connection by Python's own module."""

    def __init__(self, place):
        self.connection = sqlite3.connect(place, timeout=30, isolation_level=None)
        self.connection.execute("pragma synchronous = full")

    def execute(self, text, values=()):
        return [row[0] for row in self.connection.execute(text, values)]

    def begin(self):
        self.execute("begin immediate")

    def wait_for_others(self):
        """A process that is gone has no lock any more."""

    def problem(self):
        """What is wrong with the database; nothing if it is sound."""
        found = self.execute("pragma integrity_check")[0]
        rows = self.execute("select count(*) from steadfast_payload")[0]
        if rows:
            return f"{rows} payloads are left without their tasks"
        return "" if found == "ok" else found


class PostgreSQL(Psql):
    """A session of psql, as a program of its own has it."""

    def __init__(self, place):
        super().__init__(
            [programs() / "psql"], place, env=os.environ | {"PGAPPNAME": "orders"})
        self.execute("set client_min_messages = warning")

    def execute(self, text, values=()):
        rows = self.text(with_parameters(text, values))
        return [int(row[0]) if re.fullmatch(r"\d+", row[0]) else row[0] for row in rows]

    def begin(self):
        self.execute("begin")

    def wait_for_others(self):
        """The server may still carry out what a client that is gone has sent."""
        while self.execute("select count(*) from pg_stat_activity where application_name = 'orders' "
                           "and pid <> pg_backend_pid() and state <> 'idle'")[0]:
            time.sleep(0.01)

    def problem(self):
        return ""


CLIENTS = {"sqlite": SQLite, "postgresql": PostgreSQL}


def add(client, text, number, values, commits):
    """One transaction of the program, with a row of its own and a task."""
    client.begin()
    client.execute(f"insert into orders values ({number})")
    client.execute(text, values)
    client.execute("commit" if commits else "rollback")


def parameters(line):
    """The parameters of a statement, from a line of the program."""
    return [bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for value in json.loads(line)]


def last_order(client):
    return client.execute("select coalesce(max(number), 0) from orders")[0]


def write_orders(kind, place, file):
    """What the process that is killed does: it goes on behind the last order that is there."""
    lines = pathlib.Path(file).read_text().splitlines()
    client = CLIENTS[kind](place)
    client.wait_for_others()
    for number in range(last_order(client) + 1, len(lines)):
        add(client, lines[0], number, parameters(lines[number]), is_committed(number))


def left(client):
    return client.execute("select count(*) from steadfast_task")[0]


def check_agreement(score, store, folder, count, kills, dice):
    kind, file = store.kind, folder / "statements"
    file.write_text("\n".join(store.statements(count)))
    client = store.connect()
    lines = queue.Queue()

    def writer():
        # The client of the database ends with it.
        return subprocess.Popen([sys.executable, __file__, "--write", kind, store.place, str(file)],
                                start_new_session=True)

    process, worker = writer(), Worker(store.command("ship"), lines)
    shares = sorted(dice.uniform(0.02, 0.98) for _ in range(kills))
    deadline = time.monotonic() + 600
    for share in shares:
        # Both are killed when a share of the orders is there, at whatever moment of a transaction.
        while (last_order(client) < share * count and process.poll() is None
               and time.monotonic() < deadline):
            time.sleep(dice.uniform(0, 0.01))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = writer()
        if dice.random() < 0.5:
            worker.kill()
            worker = Worker(store.command("ship"), lines)
    score.check(process.wait(timeout=600) == 0, "the writer has come to its end")
    while left(client) and time.monotonic() < deadline:
        time.sleep(0.05)
    score.check(left(client) == 0, "all tasks have ended:", str(left(client)))
    score.check(worker.process.poll() is None, "the worker goes on")
    worker.kill()
    performed = [int(line) for _, line, _ in lines.queue]
    orders = set(client.execute("select number from orders"))
    expected = {number for number in range(1, count + 1) if is_committed(number)}
    score.check(orders == expected, "each order that was committed is there, and no other:",
                f"{len(expected - orders)} are missing, {len(orders - expected)} are too many")
    score.check(set(performed) == orders, "the tasks of these orders were performed, and no others:",
                f"{len(orders - set(performed))} were not, {len(set(performed) - orders)} are others")
    score.check(not client.problem(), "the database is sound:", client.problem())
    print(f"{count} transactions, {len(orders)} committed, {kills} kills, "
          f"{len(performed) - len(set(performed))} tasks begun again", flush=True)


def check_latency(score, store, count):
    text, *statements = store.statements(count + 1)
    client = store.connect()
    lines = queue.Queue()
    worker = Worker(store.command("ship"), lines)
    times = []
    for number in range(1, count + 2):
        add(client, text, number, parameters(statements[number - 1]), True)
        committed = time.perf_counter()
        _, line, moment = lines.get(timeout=60)
        if int(line) != number:
            score.check(False, "the task that was committed begins:", f"{number}, not {line}")
        # The first one may come before the worker runs.
        if number > 1:
            times.append(max(0, moment - committed))
        # The worker is idle again when it has ended the task.
        while left(client):
            time.sleep(0.001)
    worker.kill()
    median = statistics.median(times)
    print(f"{len(times)} commits, begun in another process after a median of {median * 1e3:.1f} ms, "
          f"99 % within {sorted(times)[len(times) * 99 // 100] * 1e3:.1f} ms, "
          f"all within {max(times) * 1e3:.1f} ms", flush=True)
    score.check(median < LONGEST_MEDIAN, "a commit is seen soon:", f"{median} s")


class Store:
    """An empty store, and the program that uses it."""

    def __init__(self, program, kind, folder, name):
        self.program, self.kind = program, kind
        self.place = str(folder / name) if kind == "sqlite" else os.environ["STEADFAST_POSTGRESQL"]
        if kind == "postgresql":
            client = PostgreSQL(self.place)
            client.execute(f"create schema {name}")
            self.place += f" options='-c search_path={name}'"

    def command(self, what, *arguments):
        return [self.program, what, self.kind, self.place, *map(str, arguments)]

    def statements(self, count):
        """The text of the statement, and a line of parameters for each order."""
        return subprocess.run(self.command("insert", count), text=True, stdout=subprocess.PIPE,
                              check=True, timeout=600).stdout.splitlines()

    def connect(self):
        client = CLIENTS[self.kind](self.place)
        client.execute("create table orders (number integer primary key)")
        return client


def main():
    if sys.argv[1:2] == ["--write"]:
        return write_orders(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--store", default="sqlite", choices=CLIENTS)
    parser.add_argument("--transactions", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    print(f"seed {arguments.seed}", flush=True)
    score = Score()
    with temporary_folder() as folder:
        folder = pathlib.Path(folder)
        stores = [Store(program, arguments.store, folder, name) for name in ("orders", "latency")]
        check_agreement(score, stores[0], folder, arguments.transactions, arguments.kills,
                        random.Random(arguments.seed))
        check_latency(score, stores[1], arguments.commits)
    score.close()


if __name__ == "__main__":
    sys.exit(main())
