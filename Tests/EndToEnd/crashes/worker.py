"""A worker process: commands go in, facts come out, and into a ledger."""

import os
import pathlib
import signal
import subprocess
import threading

TIMEOUT = 60


class Answer:
    """The lines that answer a command, and how it ended."""

    def __init__(self, lines, ending):
        self.lines = lines
        self.ending = ending

    @property
    def is_done(self):
        return self.ending is not None and self.ending.startswith("done ")

    @property
    def code(self):
        """The word for the error, if it is one."""
        if self.ending is None or self.is_done:
            return None
        return self.ending.split(" ")[2]

    @property
    def message(self):
        return " ".join((self.ending or "it has ended").split(" ")[3:])


class Worker:
    """A worker that is asked one thing after another."""

    def __init__(self, program, ledger, environment=None, **options):
        self.ledger = ledger
        self._process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            **options,
        )

    @property
    def pid(self):
        return self._process.pid

    def begin(self, command):
        """Gives a command, without waiting for its answer."""
        if command == "list":
            self.ledger.begin_listing()
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def ask(self, command):
        self.begin(command)
        return self.answer(command)

    def answer(self, command):
        """Waits for the end of a command; if the process hangs, it is killed."""
        word = command.split(" ")[0]
        guard = threading.Timer(TIMEOUT, self._process.kill)
        guard.start()
        lines = []
        try:
            while line := self.read():
                if line.startswith((f"done {word}", f"error {word}")):
                    return Answer(lines, line)
                lines.append(line)
        finally:
            guard.cancel()
        return Answer(lines, None)

    def read(self):
        """The next line that was said; empty at the end."""
        line = self._process.stdout.readline().rstrip("\n")
        if line:
            self.ledger.note(line)
        return line

    def watch(self, count):
        """Reads so many facts of a work that does not end by itself; how many there were."""
        for number in range(count):
            line = self.read()
            if not line or line.startswith(("error", "done")):
                self.ledger.problems.append(f"the work has ended: {line or 'without a word'}")
                return number
        return count

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """Kills it at once, and takes in what it had said."""
        self._process.send_signal(signal.SIGKILL)
        return self.end()

    def end(self):
        """Gives no more commands, and waits for its end; the code that it ends with."""
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        while self.read():
            pass
        self._process.stderr.read()
        code = self._process.wait(TIMEOUT)
        self._process.stdout.close()
        self._process.stderr.close()
        return code


def inspect(worker, path, probe):
    """Opens a file anew and compares it with the ledger; then it must take in one task more."""
    ledger = worker.ledger
    for command in (f"open {path}", "list"):
        answer = worker.ask(command)
        if not answer.is_done:
            ledger.problems.append(f"reopening: {answer.ending or 'the worker has ended'}")
            return
    ledger.check()
    before = ledger.listing
    worker.ask(f"enqueue {probe} 20")
    worker.ask("list")
    ledger.expect(
        [task[1] for task in ledger.listing] == [task[1] for task in before] + [probe],
        "one task more is not just that",
    )
    answer = worker.ask("close")
    ledger.expect(answer.is_done, f"closing: {answer.ending}")


def scratch_folder():
    """Where files are fast: what is tested is the process's end, not the disk's."""
    shared = pathlib.Path("/dev/shm")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else None
