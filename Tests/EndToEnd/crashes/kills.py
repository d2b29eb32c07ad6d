"""A worker is killed at random, over and over, and started again on the same file."""

import pathlib
import random
import signal
import tempfile
import time

from crashes.ledger import Ledger
from crashes.worker import Worker, scratch_folder

KILLS_A_FILE = 200
# A worker says about four lines for a task.
MOST_LINES = 240
# A file of 4 MB that is mostly dead is compacted.
NEARLY_COMPACTED = 3_900_000


class KillRuns:
    def __init__(self, program, seed):
        self.program = program
        self.numbers = random.Random(seed)
        self.kills = self.kills_in_compaction = self.facts = self.successors = 0
        self.failures = []

    def run_file(self, path, count, deadline):
        """Kills a worker so many times on one file; each next one is asked what it has found."""
        ledger = Ledger()
        for round_number in range(count):
            if time.monotonic() > deadline:
                break
            worker = Worker(self.program, ledger)
            flushing = self.numbers.choice(["", " unflushed"])
            if not self._is_sound(worker, ledger, f"open {path}{flushing}"):
                return
            worker.begin(f"work k{self.kills} 100000")
            self.facts += worker.watch(self.numbers.randint(0, MOST_LINES))
            replacement = path.with_name(path.name + ".new")
            if path.stat().st_size > NEARLY_COMPACTED and self.numbers.random() < 0.7:
                self._wait_for(replacement, worker)
            code = worker.kill()
            ledger.expect(code == -signal.SIGKILL, f"the worker has ended with {code}")
            self.kills += 1
            self.kills_in_compaction += replacement.exists()
        worker = Worker(self.program, ledger)
        if self._is_sound(worker, ledger, f"open {path}"):
            # What is left is performed to its end.
            for command in ("perform", "perform", "list", "close"):
                answer = worker.ask(command)
                ledger.expect(answer.is_done, f"{command}: {answer.ending}")
            left = {task[2] for task in ledger.listing} - {"abandoned"}
            ledger.expect(not left, f"at the end there are tasks that are {left}")
            ledger.check()
        worker.end()
        self._note_problems(ledger)

    def _wait_for(self, replacement, worker):
        """Lets a worker go on until it compacts its file, if it does so soon."""
        for _ in range(4 * MOST_LINES):
            if replacement.exists() or worker.watch(1) == 0:
                return
            self.facts += 1

    def _is_sound(self, worker, ledger, opening):
        for command in (opening, "list"):
            answer = worker.ask(command)
            if not answer.is_done:
                ledger.problems.append(f"reopening: {answer.ending or 'the worker has ended'}")
        if ledger.listing is not None and not ledger.problems:
            ledger.check()
        if ledger.problems:
            self._note_problems(ledger)
            worker.kill()
            return False
        return True

    def _note_problems(self, ledger):
        self.successors += ledger.successors
        if ledger.problems:
            self.failures.append(f"after {self.kills} kills: {ledger.problems[:3]}")


def sees_a_loss(score, program):
    """The ledger itself is checked: a file that has lost its end, and one that nobody filled."""
    with tempfile.TemporaryDirectory(prefix="kills-", dir=scratch_folder()) as name:
        path = pathlib.Path(name, "queue.jsonl")
        ledger = Ledger()
        for size in (1.0, 0.5):
            worker = Worker(program, ledger)
            worker.ask(f"open {path}")
            if not ledger.ids:
                worker.ask("fill a 20 50")
            worker.ask("list")
            ledger.check()
            score.check(bool(ledger.problems) == (size < 1), "a loss is seen", f"{ledger.problems}")
            worker.kill()
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)
        stranger = Ledger()
        stranger.listing = ledger.listing
        stranger.check()
        score.check(any("invented" in problem for problem in stranger.problems), "a task from nowhere is seen")


def check_kills(score, program, count=200, seconds=None, seed=1):
    sees_a_loss(score, program)
    begin = time.monotonic()
    deadline = begin + (seconds or float("inf"))
    runs = KillRuns(program, seed)
    while runs.kills < count and time.monotonic() < deadline and not runs.failures:
        with tempfile.TemporaryDirectory(prefix="kills-", dir=scratch_folder()) as name:
            path = pathlib.Path(name, "queue.jsonl")
            runs.run_file(path, min(KILLS_A_FILE, count - runs.kills), deadline)
        if count > KILLS_A_FILE:
            print(f"{runs.kills} kills in {time.monotonic() - begin:.0f} s", flush=True)
    print(
        f"killed {runs.kills} times, {runs.kills_in_compaction} of them in a compaction; "
        f"{runs.facts} facts; {runs.successors} successors; {time.monotonic() - begin:.0f} s",
        flush=True,
    )
    for failure in runs.failures:
        print(failure, flush=True)
    score.check(not runs.failures, "a kill costs nothing that was acknowledged")
    score.check(runs.kills == count, f"a worker is killed {count} times", f"but {runs.kills} times")
    if count >= KILLS_A_FILE:
        score.check(runs.kills_in_compaction > 0, "some kills come in a compaction")
