"""Checks what a process promises while its handlers compute on all threads that Swift has.

    python3 Tests/EndToEnd/computing.py PROGRAM [--store sqlite]

PROGRAM is ComputeWorker, built with the trait of the store. Four handlers compute for two and a half
leases. Each task is performed once, by one process or two, and none is abandoned. A shutdown with a
limit ends in time. Then four processes perform 1,000 tasks that only wait, and a fifth cancels them.
"""

import argparse
import collections
import pathlib
import queue
import signal
import subprocess
import time

from support import Score, temporary_folder
from worker import Worker

TASKS = 4
LIMIT = 5
WAITING = 1000
WAITING_POLL = 120


class Store:
    def __init__(self, program, kind, place):
        self.command = [program, kind, place]

    def run(self, *arguments):
        return subprocess.run(
            self.command + list(arguments), text=True, capture_output=True, timeout=60, check=True)

    def fill(self, count=TASKS):
        self.run("fill", str(count))

    def workers(self, count, command="work"):
        lines = queue.Queue()
        return [Worker(self.command + [command], lines) for _ in range(count)], lines


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


def check_cancelled(score, store):
    """A process cancels all tasks that four others perform; only hints tell them in time."""
    store.fill(WAITING)
    workers, lines = store.workers(4, "wait")
    seen = collections.Counter(next_line(lines) for _ in range(WAITING))
    start = time.perf_counter()
    count = store.run("cancel").stdout.strip()
    ends = [lines.get(timeout=60) for _ in range(WAITING)]
    times = sorted(date - start for _, _, date in ends)
    seen.update(line for _, line, _ in ends)
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    codes = [worker.process.wait(timeout=60) for worker in workers]
    score.check(count == str(WAITING), "one call cancels the tasks of all processes:", count)
    expected = {f"{word} {number}" for word in ("begins", "ends") for number in range(WAITING)}
    score.check(set(seen) == expected and max(seen.values()) == 1,
                "each task begins once, and is cut short:", str(len(seen)))
    score.check(times[-1] < WAITING_POLL / 4, "hints cut them short in time:", f"{times[-1]:.1f} s")
    left = collections.Counter(store.run("list").stdout.split("\n")[:-1])
    score.check(left == {"cancelled 0": WAITING}, "all of them are cancelled:", str(left))
    score.check(codes == [0] * 4, "the processes end well:", str(codes))
    print(f"{WAITING} running tasks, cancelled by another process: half within {times[WAITING // 2]:.2f} s, "
          f"95 % within {times[WAITING * 95 // 100]:.2f} s, all within {times[-1]:.2f} s", flush=True)


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
        check_cancelled(score, store("cancelled"))
    score.close()


if __name__ == "__main__":
    main()
