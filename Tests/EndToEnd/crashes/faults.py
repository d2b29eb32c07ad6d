"""One system call of a worker fails, or the worker is killed there; for every call and fault."""

import collections
import itertools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from crashes.ledger import Ledger
from crashes.worker import TIMEOUT, Worker, inspect, scratch_folder

SHIM = pathlib.Path(__file__).resolve().parents[1] / "fault_shim.c"

# The faults that a call can meet.
FAULTS = {
    "open": ("before", "after", "EIO", "EINTR", "ENOSPC"),
    "close": ("before", "after", "EIO", "EINTR"),
    "pread": ("before", "EIO", "EINTR", "short"),
    "pwrite": ("before", "after", "torn", "EIO", "EINTR", "ENOSPC", "short"),
    "ftruncate": ("before", "after", "EIO", "EINTR"),
    "fsync": ("before", "after", "EIO", "EINTR", "ENOSPC"),
    "fdatasync": ("before", "after", "EIO", "EINTR", "ENOSPC"),
    "rename": ("before", "after", "EIO", "ENOSPC"),
    "unlink": ("before", "after", "EIO"),
    "lock": ("before", "after", "EIO", "EINTR"),
    "unlock": ("before", "after", "EIO"),
    "lstat": ("before", "EIO"),
    "fstat": ("EIO",),
}
KILLS = {"before", "after", "torn"}


class Scenario:
    """A file to begin with, and what a worker does with it.

    After a fault the worker opens the file anew and goes on, as a program would.
    """

    def __init__(self, name, commands, base=None, ledger=None):
        self.name = name
        self.commands = commands
        self.base = base
        self.ledger = ledger or Ledger()

    def script(self, path):
        return "".join(command.format(path=path) + "\n" for command in self.commands)

    def prepare(self, folder):
        if self.base:
            shutil.copytree(self.base, folder)
        else:
            folder.mkdir()
        return folder / "queue.jsonl"


def make_scenarios(program, folder):
    again = ["open {path}", "work b 8", "list", "close"]
    almost, almost_ledger = make_base(program, folder / "almost", is_due=False)
    due, due_ledger = make_base(program, folder / "due", is_due=True)
    return [
        Scenario("a new file", ["open {path}", "work a 12", *again]),
        Scenario("a new file, unflushed", ["open {path} unflushed", "work a 12", *again]),
        Scenario(
            "compaction beside work",
            ["open {path}", "work a 32", *again],
            almost,
            almost_ledger,
        ),
        Scenario(
            "compaction beside work, unflushed",
            ["open {path} unflushed", "work a 32", *again],
            almost,
            almost_ledger,
        ),
        Scenario("compaction while closing", ["open {path}", "close", *again], due, due_ledger),
    ]


def make_base(program, folder, is_due):
    """A file of about 4 MB that is mostly dead, with a torn end and what a compaction has left."""
    folder.mkdir()
    path = folder / "queue.jsonl"
    replacement = folder / "queue.jsonl.new"
    worker = Worker(program, Ledger())
    worker.ask(f"open {path}")
    # No compaction can begin while this is there.
    replacement.mkdir()
    worker.ask(f"fill dead {72 if is_due else 67} 60000")
    worker.ask("perform")
    worker.ask("fill live 6 3000")
    worker.kill()
    replacement.rmdir()
    replacement.write_bytes(path.read_bytes()[:10_000])
    with path.open("ab") as file:
        file.write(b'{"c":"0a1b2c3d","b":')
    return folder, worker.ledger


class FaultRuns:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder
        self.shim = folder / "fault_shim.so"
        compiler = shutil.which("gcc") or shutil.which("clang") or "cc"
        command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror"]
        subprocess.run([*command, "-o", self.shim, SHIM], check=True)
        self.counts = collections.Counter()
        self.missed = 0
        self.failures = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def calls_of(self, scenario):
        """The calls that the worker makes when nothing fails."""
        ledger, log, _ = self._run(scenario, {}, next(self._numbers))
        if ledger.problems:
            self.failures.append(f"{scenario.name} without a fault: {ledger.problems[:3]}")
        return [line.split(" ")[0] for line in log]

    def plan(self, scenarios):
        """Every call of every scenario with every fault that it can meet."""
        plan = []
        for scenario in scenarios:
            calls = self.calls_of(scenario)
            print(f"{scenario.name}: {len(calls)} calls", flush=True)
            for call, count in collections.Counter(calls).items():
                steps = itertools.product([scenario], [call], range(1, count + 1), FAULTS[call])
                plan += steps
        return plan

    def run_all(self, plan):
        queue = iter(plan)

        def work():
            inspector = Worker(self.program, Ledger())
            while True:
                with self._lock:
                    step = next(queue, None)
                if step is None:
                    break
                self._check(inspector, *step)
            inspector.end()

        threads = [threading.Thread(target=work) for _ in range(os.cpu_count() or 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _check(self, inspector, scenario, call, number, kind):
        run = next(self._numbers)
        faults = {"FAULT_CALL": call, "FAULT_NUMBER": str(number), "FAULT_KIND": kind}
        ledger, log, code = self._run(scenario, faults, run, inspector)
        with self._lock:
            if not log:
                self.missed += 1
            else:
                self.counts[call, kind] += 1
            expected = -signal.SIGKILL if log and kind in KILLS else 0
            if code != expected:
                ledger.problems.append(f"the worker has ended with {code}, not {expected}")
            if ledger.problems:
                fault = f"{call} {number} {kind}"
                self.failures.append(f"{scenario.name}, {fault}: {ledger.problems[:3]}")

    def _run(self, scenario, faults, run, inspector=None):
        folder = self.folder / f"run{run}"
        log = self.folder / f"log{run}"
        path = scenario.prepare(folder)
        ledger = scenario.ledger.copy()
        code = self._run_worker(scenario, path, ledger, log, faults)
        if inspector:
            inspector.ledger = ledger
            said = ledger.listing
            inspect(inspector, path, "probe")
            if code == 0 and said is not None and not ledger.problems:
                self._compare(ledger, said)
        lines = log.read_text().splitlines() if log.exists() else []
        shutil.rmtree(folder)
        log.unlink(missing_ok=True)
        return ledger, lines, code

    @staticmethod
    def _compare(ledger, said):
        """What a worker held in memory at the end is what the file holds."""
        found = ledger.listing[:-1]
        same = [task[:2] for task in said] == [task[:2] for task in found]
        ledger.expect(same, f"in memory were {len(said)} tasks, in the file are {len(found)}")

    def _run_worker(self, scenario, path, ledger, log, faults):
        environment = {
            **os.environ,
            **faults,
            "FAULT_FOLDER": str(path.parent),
            "FAULT_LOG": str(log),
            "LD_PRELOAD": str(self.shim),
        }
        process = subprocess.Popen(
            [self.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        try:
            output, _ = process.communicate(scenario.script(path), TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            ledger.problems.append("the worker hangs")
        for line in output.splitlines():
            ledger.note(line)
        return process.returncode


def check_faults(score, program, seconds=None, seed=1):
    """Runs the whole plan, or what of it, in random order, can be begun within so many seconds."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", dir=scratch_folder()) as name:
        folder = pathlib.Path(name)
        runs = FaultRuns(program, folder)
        plan = runs.plan(make_scenarios(program, folder))
        random.Random(seed).shuffle(plan)
        # Each call meets each fault once before any meets it again.
        ranks = collections.Counter()
        ranked = []
        for step in plan:
            _, call, _, kind = step
            ranks[call, kind] += 1
            ranked.append((ranks[call, kind], step))
        plan = [step for _, step in sorted(ranked, key=lambda pair: pair[0])]
        within = itertools.takewhile(
            lambda _: seconds is None or time.monotonic() - begin < seconds, plan
        )
        runs.run_all(within)
    print_counts(runs.counts)
    count = sum(runs.counts.values())
    print(f"{count} faults met of {len(plan)} planned, {runs.missed} runs ended before theirs")
    for failure in runs.failures[:20]:
        print(failure, flush=True)
    score.check(not runs.failures, "a fault costs nothing that was acknowledged")
    for call, kinds in FAULTS.items():
        met = sum(runs.counts[call, kind] for kind in kinds)
        score.check(met > 0, f"a fault is met by {call}")
    return count


def print_counts(counts):
    kinds = sorted({kind for _, kind in counts})
    print(f"{'':10}" + "".join(f"{kind:>8}" for kind in kinds))
    for call in FAULTS:
        print(f"{call:10}" + "".join(f"{counts[call, kind] or '':>8}" for kind in kinds))
