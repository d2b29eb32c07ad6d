"""Checks that several processes on one SQLite database lose no task, though they are killed.

    python3 Tests/EndToEnd/sqlite_processes.py PROGRAM [--tasks 3000] [--seed 1]

PROGRAM is SQLiteWorker, built with the trait SQLite. Four processes perform tasks. Some are killed, and
one is stopped for longer than its claims last. Then a program is replaced by its next version, one process
after another, while both add tasks. Then bad databases get one clear sentence each.
"""

import argparse
import collections
import os
import pathlib
import queue
import random
import signal
import sqlite3
import subprocess
import sys
import time

from worker import Worker
from support import Score, temporary_folder

PROCESSES = 4
LEASE = 4
NOBODY = 65534


def run(program, *arguments, **options):
    return subprocess.run(
        [program, *map(str, arguments)], text=True, capture_output=True, timeout=60, **options)


def left(database):
    with sqlite3.connect(database, timeout=30) as connection:
        return connection.execute("select count(*) from steadfast_task").fetchone()[0]


def check_processes(score, program, folder, count, dice):
    database = folder / "tasks.sqlite"
    filled = run(program, "fill", database, count)
    expected = set(filled.stdout.split())
    score.check(len(expected) == count, "all tasks are added:", filled.stderr)
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select count(*) from steadfast_payload").fetchone()[0]
        score.check(rows == count // 10, "long payloads have rows of their own:", str(rows))
    lines = queue.Queue()
    workers = [Worker([program, "work", database], lines) for _ in range(PROCESSES)]
    begun = collections.defaultdict(list)
    # The workers that were killed, or stopped for longer than their claims last.
    victims = set()

    def note(timeout):
        worker, task, date = lines.get(timeout=timeout)
        begun[task].append((worker, date))

    def attempts():
        return sum(map(len, begun.values()))

    for share in (0.1, 0.2, 0.3, 0.4):
        while attempts() < count * share:
            note(60)
        victim = dice.randrange(PROCESSES)
        workers[victim].kill()
        victims.add(workers[victim])
        workers[victim] = Worker([program, "work", database], lines)
    stopped = workers[dice.randrange(PROCESSES)]
    victims.add(stopped)
    stopped.process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 2 * LEASE
    # The others go on meanwhile, and take over what the stopped one has claimed.
    while time.monotonic() < end:
        try:
            note(0.1)
        except queue.Empty:
            pass
    stopped.process.send_signal(signal.SIGCONT)
    end = time.monotonic() + 60
    while left(database) and time.monotonic() < end:
        try:
            note(0.1)
        except queue.Empty:
            pass
    remaining = left(database)
    for worker in workers:
        score.check(worker.process.poll() is None, "a process that was not killed goes on")
        worker.kill()
    while not lines.empty():
        note(0)
    score.check(remaining == 0, "all tasks have ended:", f"{remaining} are left")
    score.check(set(begun) == expected, "each task was performed, and no other one:",
                f"{len(expected - set(begun))} were not, {len(set(begun) - expected)} are others")
    # Where the disk or the processor is slow, a claim may run out though its process goes on. It
    # lasts for two thirds of its time at least when a task begins.
    dates = {task: sorted(date for worker, date in by if worker not in victims)
             for task, by in begun.items()}
    doubtful = [task for task, by in dates.items()
                if any(second - first < LEASE / 2 for first, second in zip(by, by[1:]))]
    score.check(not doubtful, "what no victim had begun was performed again only if its claim ran out:",
                str(doubtful[:3]))
    with sqlite3.connect(database) as connection:
        sound = connection.execute("pragma integrity_check").fetchone()[0]
        score.check(sound == "ok", "the database is sound:", sound)
        for table in ("payload", "dependency", "memory"):
            rows = connection.execute(f"select count(*) from steadfast_{table}").fetchone()[0]
            score.check(rows == 0, f"no row of {table} is left without its task:", str(rows))
    again = attempts() - len(begun)
    print(f"{count} tasks, {len(victims)} victims, {again} tasks performed again", flush=True)


def check_deployment(score, program, folder, count):
    """Three processes get the next version of the program, one after another."""
    database = folder / "deployment.sqlite"
    lines = queue.Queue()
    workers = [Worker([program, command, database], lines) for command in ("work", "work", "work-new")]
    begun = collections.defaultdict(set)
    new, added, part = set(), set(), max(1, count // 20)

    def note_all():
        while not lines.empty():
            worker, task, _ = lines.get()
            begun[task].add(worker)

    old = set(workers[:2])
    for step in range(10):
        for command in ("fill", "fill-new"):
            tasks = set(run(program, command, database, part).stdout.split())
            added |= tasks
            new |= tasks if command == "fill-new" else set()
        if step in (3, 6):
            victim = 0 if step == 3 else 1
            workers[victim].kill()
            workers[victim] = Worker([program, "work-new", database], lines)
        note_all()
    end = time.monotonic() + 60
    while left(database) and time.monotonic() < end:
        time.sleep(0.1)
    with sqlite3.connect(database, timeout=30) as connection:
        states = connection.execute("select state, count(*) from steadfast_task group by 1").fetchall()
    for worker in workers:
        worker.kill()
    note_all()
    score.check(not states, "all tasks of both versions have ended, and none is parked:", str(states))
    score.check(set(begun) == added and len(added) == 20 * part, "each task was performed:",
                f"{len(added - set(begun))} of {len(added)} were not")
    wrong = [task for task in new if begun[task] & old]
    score.check(not wrong, "the old version performed no task of the new one:", str(wrong[:3]))
    print(f"a deployment over 3 processes: {len(added)} tasks, {len(new)} of the new version", flush=True)


def refuses(score, program, promise, database, *words, **options):
    before = database.read_bytes() if database.is_file() else None
    process = run(program, "open", database, **options)
    problems = []
    if process.returncode != 2:
        problems.append(f"the exit code is {process.returncode}")
    if process.stderr.count("\n") != 1:
        problems.append("it is not one sentence")
    problems += [f"'{word}' is not mentioned" for word in words if word not in process.stderr]
    if database.is_file() and database.read_bytes() != before:
        problems.append("the database has changed")
    score.check(not problems, f"{promise}:", f"{problems}, {process.stderr}")


def check_bad_input(score, program, folder):
    text = folder / "text"
    text.write_text("no database at all\n" * 500)
    refuses(score, program, "a file that is no database is refused", text, "is not a SQLite database")
    refuses(score, program, "a missing folder is named", folder / "missing" / "db", "folder")
    refuses(score, program, "a folder is no database", folder, "can't be opened")
    full = folder / "full.sqlite"
    run(program, "fill", full, 1000)
    damaged = folder / "damaged.sqlite"
    content = bytearray(full.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    damaged.write_bytes(content)
    refuses(score, program, "a damaged database is reported", damaged, "is damaged", ".recover")
    for path in (full, folder):
        path.chmod(0o555)
    reader = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
    refuses(score, program, "a database that can't be written is reported", full,
            "can't be written", **reader)
    folder.chmod(0o755)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    program = str(pathlib.Path(arguments.program).resolve())
    print(f"seed {arguments.seed}", flush=True)
    score = Score()
    with temporary_folder() as folder:
        folder = pathlib.Path(folder)
        os.chmod(folder, 0o755)
        check_processes(score, program, folder, arguments.tasks, random.Random(arguments.seed))
        check_deployment(score, program, folder, arguments.tasks)
        bad = folder / "bad"
        bad.mkdir()
        check_bad_input(score, program, bad)
    score.close()


if __name__ == "__main__":
    sys.exit(main())
