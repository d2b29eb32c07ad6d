"""Checks what several processes on one store have asked and were answered, while they meet faults.

    python3 Tests/EndToEnd/histories.py PROGRAM [--store KIND] [--runs 1] [--tasks 1000] [--strikes 8] [--seed 1]
                                        [--crashes 0] [--forgetful] [--pooled]

PROGRAM is HistoryWorker, built with the trait of the store: KIND is sqlite, or postgresql, which needs
a server (postgresql_server.py). Four processes add and perform tasks. They are killed, stopped for half
a lease to three, and started again; in every second run, the clock of one is an hour ahead. Then their
histories are checked. Two hundred runs of 10,000 tasks: `--runs 200 --tasks 10000`; they must meet rare
paths, too.

With --crashes, the server crashes so often in each run (`postgresql_server.py --restarts`, or --failover
for one run and one crash). Then it may forget that attempts have begun, so that they are made twice at
the same time; nothing that was acknowledged may be missing. With --forgetful, the server acknowledges
what is not flushed yet: the check must find that tasks are lost. With --pooled, a PgBouncer stands
before the server (`postgresql_server.py --pooler`).
"""

import argparse
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import time

from support import Score, temporary_folder

PROCESSES = 4
LEASE = 1.0
LOSS = "H1"
# What follows from attempts that the server has forgotten.
FORGOTTEN = {"H4", "H5", "H7"}


def environment(arguments):
    """The server of the processes, and how it answers them."""
    values = dict(os.environ)
    if arguments.crashes:
        values["STEADFAST_POSTGRESQL"] = values["STEADFAST_POSTGRESQL_RESTARTED"]
    if arguments.pooled:
        values["STEADFAST_POSTGRESQL"] = values["STEADFAST_POSTGRESQL_SESSIONS"]
    if arguments.forgetful:
        values["PGOPTIONS"] = "-c synchronous_commit=off"
    return values


class Run:
    def __init__(self, arguments, folder, dice, hour):
        self.program, self.store = arguments.program, arguments.store
        self.folder, self.dice, self.strikes = folder, dice, arguments.strikes
        self.crashes = arguments.crashes
        self.environment = environment(arguments)
        # The tables of a server have a prefix; a file has a path.
        self.place = folder / "store"
        if self.store == "postgresql":
            self.place = f"history_{random.SystemRandom().randrange(1 << 48):x}"
        self.histories = []
        self.share = max(1, arguments.tasks // (PROCESSES + self.strikes))
        # The clock of a machine stays wrong when a process is started again.
        self.offsets = [3600 if hour and number == 0 else 0 for number in range(PROCESSES)]
        self.processes = [self.start(number) for number in range(PROCESSES)]

    def history(self):
        self.histories.append(self.folder / f"p{len(self.histories) + 1}.jsonl")
        return self.histories[-1]

    def start(self, number):
        history = self.history()
        process = subprocess.Popen(
            [self.program, "work", self.store, self.place, history, str(self.share),
             str(self.offsets[number])],
            stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        while not history.exists() and process.poll() is None:
            time.sleep(0.01)
        return process

    def strike(self):
        number = self.dice.randrange(PROCESSES)
        time.sleep(self.dice.uniform(0.05, 0.5))
        if self.dice.random() < 0.6:
            self.processes[number].kill()
            self.processes[number].wait()
        else:
            self.processes[number].send_signal(signal.SIGSTOP)
            time.sleep(LEASE * self.dice.uniform(0.5, 3))
            self.processes[number].send_signal(signal.SIGCONT)
            # It goes on for a while with claims that have run out.
            time.sleep(self.dice.uniform(0, 0.2))
            self.processes[number].kill()
            self.processes[number].wait()
        self.processes[number] = self.start(number)

    def crash(self):
        """Crashes the server while a process that has just begun adds tasks."""
        time.sleep(self.dice.uniform(0.05, 0.3))
        subprocess.run(shlex.split(self.environment["STEADFAST_POSTGRESQL_RESTART"]), check=True)

    def perform(self, score):
        for number in range(self.strikes):
            self.strike()
            if number < self.crashes:
                self.crash()
        # What was added by a clock that is ahead is performed by that clock's process.
        end = time.monotonic() + 60
        for number, process in enumerate(self.processes):
            score.check(process.poll() is None, "a process that was not killed goes on:",
                        "" if process.poll() is None else process.stderr.read())
        while time.monotonic() < end and not self.is_quiet():
            time.sleep(0.2)
        for process in self.processes:
            try:
                _, said = process.communicate(timeout=30)
                score.check(process.returncode == 0, "a process ends in good order:", said)
            except subprocess.TimeoutExpired:
                process.kill()
                score.check(False, "a process ends when it is asked to")
        finish = subprocess.run(
            [self.program, "finish", self.store, self.place, self.history()],
            text=True, capture_output=True, timeout=120, env=self.environment)
        score.check(finish.returncode == 0, "what is left is performed:", finish.stderr)

    def is_quiet(self):
        """Whether no process begins an attempt for two leases."""
        before = self.attempts()
        time.sleep(2 * LEASE)
        return self.attempts() == before

    def attempts(self):
        return sum(path.read_bytes().count(b"attemptBegan") for path in self.histories)

    def report(self, limits):
        return subprocess.run(
            [self.program, "check", limits, *self.histories],
            text=True, capture_output=True, timeout=600)


def check(score, arguments, seed, rare):
    """Makes one run; returns the promises that were broken."""
    dice = random.Random(seed)
    hour = seed % 2 == 1
    with temporary_folder() as folder:
        run = Run(arguments, pathlib.Path(folder), dice, hour)
        try:
            run.perform(score)
        finally:
            for process in run.processes:
                process.kill()
        report = run.report("none" if hour else "limits")
        broken = set(re.findall(r"^(H\d+):", report.stdout, re.MULTILINE))
        allowed = FORGOTTEN if arguments.crashes else set()
        if not arguments.forgetful:
            score.check(report.returncode in (0, 1) and broken <= allowed,
                        f"every promise is kept with the seed {seed}:",
                        report.stdout + report.stderr)
        first = report.stdout.splitlines()[:1]
        print(f"seed {seed}{', an hour ahead' if hour else ''}: {''.join(first)}",
              *sorted(broken), flush=True)
        numbers = [int(number) for number in re.findall(r"\d+", "".join(first))]
        for index, number in enumerate(numbers):
            rare[index] = rare.get(index, 0) + number
        return broken


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--store", default="sqlite")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--strikes", type=int, default=8)
    parser.add_argument("--crashes", type=int, default=0)
    parser.add_argument("--forgetful", action="store_true")
    parser.add_argument("--pooled", action="store_true")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    arguments = parser.parse_args()
    if arguments.crashes and "STEADFAST_POSTGRESQL_RESTART" not in os.environ:
        parser.error("--crashes needs postgresql_server.py --restarts or --failover")
    if arguments.crashes > arguments.strikes:
        parser.error("a crash follows a strike, so there are no more crashes than strikes")
    if arguments.forgetful and not arguments.crashes:
        parser.error("--forgetful needs --crashes: what is not flushed is lost in a crash only")
    if arguments.pooled and "STEADFAST_POSTGRESQL_SESSIONS" not in os.environ:
        parser.error("--pooled needs postgresql_server.py --pooler")
    arguments.program = str(pathlib.Path(arguments.program).resolve())
    score, rare = Score(), {}
    broken = [check(score, arguments, arguments.seed + run, rare) for run in range(arguments.runs)]
    score.check(rare.get(0, 0) > 0, "the histories have tasks")
    if arguments.forgetful:
        score.check(any(LOSS in promises for promises in broken),
                    "the check finds what was acknowledged and is lost")
    elif arguments.runs >= 20:
        score.check(rare[2] >= 50, "50 claims run out under their attempts:", str(rare[2]))
        score.check(rare[5] >= 20, "the last two tasks of 20 batches end together:", str(rare[5]))
    score.close()


if __name__ == "__main__":
    sys.exit(main())
