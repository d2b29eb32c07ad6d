"""What the end-to-end checks share: files to deliver, the program, its queue file, the score."""

import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

PACKAGE = pathlib.Path(__file__).resolve().parents[2]

ODD_NAMES = (
    "empty name extension.",
    "100%.txt",
    "a%2Fb%00.txt",
    "question?mark&more=1.txt",
    "hash#tag.txt",
    "semi;colon,comma+plus@at.txt",
    "quote\"and'quote.txt",
    "back\\slash.txt",
    "line\nfeed.txt",
    "tab\there.txt",
    " spaces around ",
    ".hidden",
    "..two dots",
    "-dash.txt",
    "fox 🦊.txt",
    # The same letter in both of its Unicode forms: two files.
    "caf\u00e9.txt",
    "cafe\u0301.txt",
    "n" * 200 + ".txt",
)


class Score:
    """Counts what holds and what does not, and says what does not."""

    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, holds, promise, otherwise=""):
        if holds:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {promise} {otherwise}".rstrip(), flush=True)

    def close(self):
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        sys.exit(1 if self.failed or not self.passed else 0)


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="outbox-", ignore_cleanup_errors=True)


def program():
    """The program to check: the first argument, or the release build."""
    path = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else PACKAGE / ".build/release/Outbox")
    if not path.is_file():
        sys.exit(f"{path} is missing; build it with: swift build -c release --product Outbox")
    return path.resolve()


def make_files(folder, count, seed):
    """Makes files from 0 bytes to 5 MB, most of them small; for each path its SHA-256 and size."""
    numbers = random.Random(seed)
    sizes = [0] * (count // 20) + [1, 4095, 4096, 65536, 65537] + [5_000_000] * 4
    while len(sizes) < count:
        top = 20 if len(sizes) % 12 == 0 else 16
        sizes.append(int(2 ** numbers.uniform(0, top)))
    numbers.shuffle(sizes)
    folders = ["", "a", "a/b", "a/b/c", "with space", "ünï", ".hidden folder"]
    names = list(ODD_NAMES) + [f"file{number}.bin" for number in range(len(ODD_NAMES), count)]
    files = {}
    for name, size in zip(names, sizes):
        path = pathlib.PurePosixPath(numbers.choice(folders), name)
        target = pathlib.Path(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        content = numbers.randbytes(size)
        target.write_bytes(content)
        files[str(path)] = (hashlib.sha256(content).hexdigest(), size)
    return files


class Process:
    """A process of the program, with what it has said so far."""

    def __init__(self, *arguments, **options):
        self.output = ""
        self._is_silent = False
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [program(), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._errors = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self):
        return self._process.pid

    @property
    def has_ended(self):
        return self._process.poll() is not None

    def wait_until_said(self, pattern, timeout=60):
        """Waits until the output has a match for the pattern; false if it ends without."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not re.search(pattern, self.output):
                if self._is_silent:
                    return False
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"no '{pattern}' within {timeout} s in: {self.output}")
        return True

    def signal(self, number):
        self._process.send_signal(number)

    def end(self, timeout=120):
        """Waits for the end; the exit code and what was said on standard error."""
        code = self._process.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
        return code, "".join(self._errors)

    def kill(self):
        self._process.kill()
        return self.end()

    def _read_output(self):
        for line in self._process.stdout:
            with self._changed:
                self.output += line
                self._changed.notify_all()
        with self._changed:
            self._is_silent = True
            self._changed.notify_all()

    def _read_errors(self):
        self._errors.append(self._process.stderr.read())


class QueueFile:
    """A queue file read without the library: JSON Lines, each with a checksum and a number."""

    def __init__(self, path):
        self.states = {}
        self.keys = {}
        self.problems = []
        self.is_sealed = False
        # What is behind the last line feed was torn by a kill: nobody was promised it.
        for number, line in enumerate(pathlib.Path(path).read_bytes().split(b"\n")[:-1]):
            record = json.loads(line)
            if record["s"] != number:
                self.problems.append(f"line {number} says it is {record['s']}")
            if int(record["c"], 16) != crc32c(line[14:]):
                self.problems.append(f"line {number} has a wrong checksum")
            self._apply(record)

    def count(self, *states):
        return sum(state in states for state in self.states.values())

    def _apply(self, record):
        kind, task = record["k"], record.get("id")
        self.is_sealed = kind == "seal"
        if kind in ("insert", "add"):
            key = record.get("key", task)
            # A task that was given up is added once more.
            if self.states.get(self.keys.get(key), "abandon") != "abandon":
                self.problems.append(f"the key {key} was added twice")
            self.keys[key] = task
            self.states[task] = "waiting"
        elif kind == "remove":
            if self.states.pop(task) != "abandon":
                self.problems.append("a task was removed that was not given up")
        elif kind in ("succeed", "abandon"):
            self.states[task] = kind
        # One that was interrupted twice is postponed while another such task is performed.
        elif kind not in ("header", "begin", "retry", "release", "reschedule", "rebase",
                          "interruption", "seal"):
            self.problems.append(f"unexpected line of kind {kind}")


def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def crc32c(data):
    """CRC-32C (Castagnoli), as in RFC 3720, appendix B.4."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
