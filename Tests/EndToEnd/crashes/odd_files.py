"""Locks, and files that are not what they should be: plain words, nothing lost, no hang."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from crashes.ledger import Ledger
from crashes.worker import Worker, inspect, scratch_folder

NOBODY = 65534


class Bench:
    """A folder, and workers that use files in it."""

    def __init__(self, score, program, folder):
        self.score = score
        self.program = program
        self.folder = folder
        self.path = folder / "queue.jsonl"

    @contextlib.contextmanager
    def worker(self, ledger=None, **options):
        worker = Worker(self.program, ledger or Ledger(), **options)
        try:
            yield worker
        finally:
            worker.kill()

    @contextlib.contextmanager
    def opened(self):
        """A worker that has the file open, with two tasks in it."""
        with self.worker() as worker:
            self.done(worker, f"open {self.path}")
            self.done(worker, "fill a 2 50")
            yield worker

    def done(self, worker, command):
        answer = worker.ask(command)
        self.score.check(answer.is_done, f"{command} succeeds", answer.ending)

    def refused(self, promise, worker, command, code, *words):
        """Expects an error of this kind that names the file and says these words."""
        answer = worker.ask(command)
        problems = [word for word in (str(self.path), *map(str, words)) if word not in answer.message]
        if answer.code != code:
            problems.insert(0, f"the code is not {code}")
        self.score.check(not problems, f"{promise}:", f"{problems} in: {answer.ending}")
        if not problems:
            print(f"  {promise}: {answer.message.replace(str(self.folder), '…')}", flush=True)

    def refuses_opening(self, promise, code, *words, **options):
        with self.worker(**options) as worker:
            self.refused(promise, worker, f"open {self.path}", code, *words)

    def nothing_is_lost(self, ledger, path=None):
        with self.worker(ledger) as worker:
            inspect(worker, path or self.path, "probe")
        self.score.check(not ledger.problems, "nothing is lost", f"{ledger.problems[:3]}")


def two_processes(bench):
    with bench.opened() as worker:
        bench.refuses_opening("a file in use", "inUse", f"process {worker.pid};")
        bench.done(worker, "enqueue b 50")
        bench.done(worker, "close")
        bench.nothing_is_lost(worker.ledger)


def a_forked_child(bench):
    with bench.opened() as worker:
        answer = worker.ask("fork")
        said = {line.split(" ")[1]: line for line in answer.lines if line.startswith("child ")}
        for call in ("enqueue", "perform", "list", "close", "destroy"):
            words = ["inUse", str(bench.path), "forked process"]
            clear = all(word in said.get(call, "") for word in words)
            bench.score.check(clear, f"a child may not {call}", said.get(call))
        clear = f"in use by process {worker.pid};" in said.get("open", "")
        bench.score.check(clear, "a child may not open the file anew", said.get("open"))
        print(f"  in a child: {said.get('enqueue')}", flush=True)
        bench.refuses_opening("the parent's lock is held on", "inUse", f"process {worker.pid};")
        bench.done(worker, "enqueue b 50")
        bench.done(worker, "close")
        bench.nothing_is_lost(worker.ledger)


def a_child_that_stays(bench):
    with bench.opened() as worker:
        bench.done(worker, "fork stay")
        bench.done(worker, "close")
        bench.done(worker, f"open {bench.path}")
        bench.done(worker, "enqueue b 50")
        bench.done(worker, "close")
        bench.nothing_is_lost(worker.ledger)


def a_lock_file_that_is_deleted(bench):
    lock = pathlib.Path(f"{bench.path}.lock")
    with bench.opened() as worker:
        lock.unlink()
        bench.refuses_opening("a lock file deleted", "inUse", "deleted or replaced")
        lock.unlink(missing_ok=True)
        lock.write_text("1\n")
        lock.chmod(0o600)
        bench.refuses_opening("a lock file replaced", "inUse", "deleted or replaced")
        bench.done(worker, "fill b 72 60000")
        bench.done(worker, "perform")
        answer = worker.ask("list")
        bench.score.check(answer.lines[-1].endswith("compacted"), "the file is compacted")
        lock.unlink(missing_ok=True)
        bench.refuses_opening("a lock file deleted, after a compaction", "inUse")
        bench.done(worker, "enqueue c 50")
        bench.done(worker, "close")
        bench.nothing_is_lost(worker.ledger)


def a_file_that_is_moved(bench):
    with bench.opened() as worker:
        away = bench.folder / "away"
        bench.path.rename(away)
        bench.refused("a file moved", worker, "enqueue b 50", "displaced")
        away.rename(bench.path)
        bench.done(worker, "enqueue c 50")
        bench.done(worker, "close")
        bench.nothing_is_lost(worker.ledger)


def a_file_that_is_deleted(bench):
    with bench.opened() as worker:
        bench.path.unlink()
        bench.refused("a file deleted", worker, "enqueue b 50", "displaced")
        bench.refused("a file deleted, then performed", worker, "perform", "queue")
        bench.refused("a file deleted, then closed", worker, "close", "displaced")
        bench.score.check(not bench.path.exists(), "closing makes no file")
        bench.done(worker, f"open {bench.path}")


def a_file_that_is_replaced(bench):
    for command in ("close", "destroy"):
        with bench.opened() as worker:
            other = bench.folder / "other"
            other.write_text("my diary\n")
            other.replace(bench.path)
            bench.refused("a file replaced", worker, f"enqueue b{command} 50", "displaced")
            bench.refused(f"a file replaced, then {command}", worker, command, "displaced")
            same = bench.path.read_text() == "my diary\n"
            bench.score.check(same, "what replaced a file is left alone")
            bench.path.unlink()


def a_folder_that_is_moved(bench):
    home = bench.path.parent / "home"
    away = bench.path.parent / "away"
    home.mkdir()
    bench.path = home / "queue.jsonl"
    with bench.opened() as worker:
        home.rename(away)
        bench.refused("a folder moved", worker, "enqueue b 50", "displaced")
        away.rename(home)
        bench.done(worker, "enqueue c 50")
        # A folder that vanishes in a compaction: it is given up, and so is what comes after it.
        bench.done(worker, "fill d 72 60000")
        worker.begin("perform")
        while not (line := worker.read()).startswith("performed d.60"):
            pass
        home.rename(away)
        answer = worker.answer("perform")
        bench.score.check(answer.code == "queue", "a folder moved at work", answer.ending or line)
        bench.refused("a folder moved, then closed", worker, "close", "displaced")
        away.rename(home)
        bench.nothing_is_lost(worker.ledger)


def a_folder_that_is_deleted(bench):
    home = bench.path.parent / "home"
    home.mkdir()
    bench.path = home / "queue.jsonl"
    with bench.opened() as worker:
        shutil.rmtree(home)
        bench.refused("a folder deleted", worker, "enqueue b 50", "displaced")
        bench.refused("a folder deleted, then opened", worker, f"open {bench.path}", "systemCall", "does not exist")


def what_is_no_file_of_ours(bench):
    path = bench.path
    path.write_text("my diary\n")
    bench.refuses_opening("a foreign file", "notAQueueFile", "not a queue file")
    bench.score.check(path.read_text() == "my diary\n", "a foreign file is left alone")
    other = bench.folder / "other"
    path.rename(other)
    path.symlink_to(other)
    bench.refuses_opening("a symbolic link", "unsafeFile", "symbolic link")
    path.unlink()
    path.symlink_to(bench.folder / "nowhere")
    bench.refuses_opening("a symbolic link to nowhere", "unsafeFile", "symbolic link")
    path.unlink()
    path.hardlink_to(other)
    bench.refuses_opening("a hard link to a foreign file", "notAQueueFile", "not a queue file")
    bench.score.check(other.read_text() == "my diary\n", "a foreign file's other name is left alone")
    path.unlink()
    os.mkfifo(path, 0o600)
    bench.refuses_opening("a FIFO", "unsafeFile", "not a regular file")
    path.unlink()
    path.mkdir()
    bench.refuses_opening("a folder in its place", "unsafeFile", "not a regular file")
    path.rmdir()
    os.mknod(path, 0o600 | 0o140000)
    bench.refuses_opening("a socket", "unsafeFile", "not a regular file")
    path.unlink()
    for make in (os.mkfifo, os.mkdir):
        lock = pathlib.Path(f"{path}.lock")
        lock.unlink(missing_ok=True)
        make(lock)
        bench.refuses_opening(f"a lock file by {make.__name__}", "unsafeFile", lock)
    lock.rmdir()


def what_may_not_be_written(bench):
    """As a user without rights: the administrator may write everywhere."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    bench.folder.chmod(0o777)
    with bench.worker(**user) as worker:
        bench.done(worker, f"open {bench.path}")
        bench.done(worker, "close")
    bench.path.chmod(0o400)
    bench.refuses_opening("a read-only file", "systemCall", "Permission denied", **user)
    bench.path.unlink()
    bench.folder.chmod(0o555)
    bench.refuses_opening("a read-only folder", "systemCall", "Permission denied", **user)
    bench.folder.chmod(0o755)


GROUPS = [
    two_processes,
    a_forked_child,
    a_child_that_stays,
    a_lock_file_that_is_deleted,
    a_file_that_is_moved,
    a_file_that_is_deleted,
    a_file_that_is_replaced,
    a_folder_that_is_moved,
    a_folder_that_is_deleted,
    what_is_no_file_of_ours,
    what_may_not_be_written,
]


def check_odd_files(score, program):
    for group in GROUPS:
        with tempfile.TemporaryDirectory(prefix="odd-", dir=scratch_folder()) as name:
            print(group.__name__.replace("_", " "), flush=True)
            group(Bench(score, program, pathlib.Path(name).resolve()))
