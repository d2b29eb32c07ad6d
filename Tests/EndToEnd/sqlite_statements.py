"""Checks that tasks commit with the rows of a program that has its own connection, or not at all.

    python3 Tests/EndToEnd/sqlite_statements.py PROGRAM [--transactions 10000] [--kills 10]
                                                [--commits 1000] [--seed 1]

PROGRAM is SQLiteWorker, built with the trait SQLite. A process inserts orders, each with its task, by
Python's own SQLite module; every other transaction is rolled back. Another one performs the tasks. Both
are killed at random moments. Then the time is measured from a commit to the moment at which the task
begins in the other process.
"""

import argparse
import json
import pathlib
import queue
import random
import sqlite3
import statistics
import subprocess
import sys
import time

from sqlite_worker import Worker
from support import Score, temporary_folder

LONGEST_MEDIAN = 0.1


def is_committed(number):
    """Whether the transaction of an order is committed, and not rolled back."""
    return number % 2 == 0


def connect(database):
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    connection.execute("pragma synchronous = full")
    return connection


def add(connection, text, number, values, commits):
    """One transaction of the program, with a row of its own and a task."""
    connection.execute("begin immediate")
    connection.execute("insert into orders values (?)", (number,))
    connection.execute(text, values)
    connection.execute("commit" if commits else "rollback")


def parameters(line):
    """The parameters of a statement, from a line of the program."""
    return [bytes.fromhex(value["hex"]) if isinstance(value, dict) else value
            for value in json.loads(line)]


def write_orders(database, file):
    """What the process that is killed does: it goes on behind the last order that is there."""
    lines = pathlib.Path(file).read_text().splitlines()
    connection = connect(database)
    first = connection.execute("select coalesce(max(number), 0) + 1 from orders").fetchone()[0]
    for number in range(first, len(lines)):
        add(connection, lines[0], number, parameters(lines[number]), is_committed(number))


def left(connection):
    return connection.execute("select count(*) from steadfast_task").fetchone()[0]


def check_agreement(score, program, folder, count, kills, dice):
    database, file = folder / "orders.sqlite", folder / "statements"
    with open(file, "w") as output:
        subprocess.run([program, "insert", str(database), str(count)], stdout=output, check=True)
    connection = connect(database)
    connection.execute("create table orders (number integer primary key)")
    lines = queue.Queue()

    def writer():
        return subprocess.Popen([sys.executable, __file__, "--write", str(database), str(file)])

    process, worker = writer(), Worker(program, "ship", database, lines)
    shares = sorted(dice.uniform(0.02, 0.98) for _ in range(kills))
    deadline = time.monotonic() + 600
    for share in shares:
        # Both are killed when a share of the orders is there, at whatever moment of a transaction.
        while (connection.execute("select coalesce(max(number), 0) from orders").fetchone()[0]
               < share * count and process.poll() is None and time.monotonic() < deadline):
            time.sleep(dice.uniform(0, 0.01))
        process.kill()
        process.wait()
        process = writer()
        if dice.random() < 0.5:
            worker.kill()
            worker = Worker(program, "ship", database, lines)
    score.check(process.wait(timeout=600) == 0, "the writer has come to its end")
    while left(connection) and time.monotonic() < deadline:
        time.sleep(0.05)
    score.check(left(connection) == 0, "all tasks have ended:", str(left(connection)))
    score.check(worker.process.poll() is None, "the worker goes on")
    worker.kill()
    performed = [int(line) for _, line, _ in lines.queue]
    orders = {row[0] for row in connection.execute("select number from orders")}
    expected = {number for number in range(1, count + 1) if is_committed(number)}
    score.check(orders == expected, "each order that was committed is there, and no other:",
                f"{len(expected - orders)} are missing, {len(orders - expected)} are too many")
    score.check(set(performed) == orders, "the tasks of these orders were performed, and no others:",
                f"{len(orders - set(performed))} were not, {len(set(performed) - orders)} are others")
    sound = connection.execute("pragma integrity_check").fetchone()[0]
    score.check(sound == "ok", "the database is sound:", sound)
    rows = connection.execute("select count(*) from steadfast_payload").fetchone()[0]
    score.check(rows == 0, "no payload is left without its task:", str(rows))
    print(f"{count} transactions, {len(orders)} committed, {kills} kills, "
          f"{len(performed) - len(set(performed))} tasks begun again", flush=True)


def check_latency(score, program, folder, count):
    database = folder / "latency.sqlite"
    text, *statements = subprocess.run(
        [program, "insert", str(database), str(count + 1)], text=True, capture_output=True,
        check=True, timeout=600).stdout.splitlines()
    connection = connect(database)
    connection.execute("create table orders (number integer primary key)")
    lines = queue.Queue()
    worker = Worker(program, "ship", database, lines)
    times = []
    for number in range(1, count + 2):
        add(connection, text, number, parameters(statements[number - 1]), True)
        committed = time.perf_counter()
        _, line, moment = lines.get(timeout=60)
        if int(line) != number:
            score.check(False, "the task that was committed begins:", f"{number}, not {line}")
        # The first one may come before the worker runs.
        if number > 1:
            times.append(max(0, moment - committed))
        # The worker is idle again when it has ended the task.
        while left(connection):
            time.sleep(0.001)
    worker.kill()
    median = statistics.median(times)
    print(f"{len(times)} commits, begun in another process after a median of {median * 1e3:.1f} ms, "
          f"99 % within {sorted(times)[len(times) * 99 // 100] * 1e3:.1f} ms, "
          f"all within {max(times) * 1e3:.1f} ms", flush=True)
    score.check(median < LONGEST_MEDIAN, "a commit is seen soon:", f"{median} s")


def main():
    if sys.argv[1:2] == ["--write"]:
        return write_orders(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
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
        check_agreement(score, program, folder, arguments.transactions, arguments.kills,
                        random.Random(arguments.seed))
        check_latency(score, program, folder, arguments.commits)
    score.close()


if __name__ == "__main__":
    sys.exit(main())
