"""Checks what a process promises while its handlers compute on all threads that Swift has.

    python3 Tests/EndToEnd/computing.py PROGRAM [--store sqlite]

PROGRAM is ComputeWorker, built with the trait of the store. Four handlers compute for two and a half
leases. Each task is performed once, by one process or two, and none is abandoned. A shutdown with a
limit ends in time.
"""

import argparse
import pathlib
import queue
import signal
import subprocess
import time

from support import Score, temporary_folder
from worker import Worker

TASKS = 4
LIMIT = 5


class Store:
    def __init__(self, program, kind, place):
        self.command = [program, kind, place]

    def run(self, *arguments):
        return subprocess.run(
            self.command + list(arguments), text=True, capture_output=True, timeout=60, check=True)

    def fill(self):
        self.run("fill", str(TASKS))

    def workers(self, count):
        lines = queue.Queue()
        return [Worker(self.command + ["work"], lines) for _ in range(count)], lines


def next_line(lines):
    return lines.get(timeout=60)[1]


def check_once(score, store, processes):
    store.fill()
    workers, lines = store.workers(processes)
    seen = []
    while sum(line.startswith("ends") for line in seen) < TASKS:
        seen.append(next_line(lines))
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    codes = [worker.process.wait(timeout=60) for worker in workers]
    begun = sorted(line for line in seen if line.startswith("begins"))
    score.check(begun == [f"begins {number}" for number in range(TASKS)],
                f"{processes} processes: each task is performed once:", ", ".join(seen))
    left = store.run("list").stdout
    score.check(left == "", f"{processes} processes: nothing is left, and nothing abandoned:", left)
    score.check(codes == [0] * processes, "the processes end well:", str(codes))


def check_shutdown(score, store):
    store.fill()
    (worker,), lines = store.workers(1)
    next_line(lines)
    start = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    code = worker.process.wait(timeout=60)
    took = time.monotonic() - start
    score.check(code == 0 and took < LIMIT + 1, "a shutdown ends in time:", f"{took:.1f} s, {code}")
    left = store.run("list").stdout.split("\n")
    score.check(all(line in ("", "waiting 0") for line in left),
                "tasks that had not begun wait, and none counts as interrupted:", str(left))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    arguments = parser.parse_args()
    score = Score()
    with temporary_folder() as folder:
        def store(name):
            place = name if arguments.store == "postgresql" else str(pathlib.Path(folder, name))
            return Store(arguments.program, arguments.store, place)
        check_once(score, store("one"), 1)
        check_once(score, store("two"), 2)
        check_shutdown(score, store("ending"))
    score.close()


if __name__ == "__main__":
    main()
