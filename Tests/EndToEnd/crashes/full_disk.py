"""The disk is full: calls are refused in plain words, nothing is lost, and it goes on later."""

import pathlib
import resource
import tempfile
import time

from crashes.ledger import Ledger
from crashes.mounts import small_disk
from crashes.worker import Worker, inspect, scratch_folder

MEGABYTE = 1 << 20
# Ends what would never end; a debug build takes a second or two.
SECONDS_TO_COMPACT = 60


def check_full_disk(score, program):
    with small_disk(6 * MEGABYTE) as folder:
        if folder:
            refuses_and_goes_on(score, program, folder)
    with small_disk(6 * MEGABYTE) as folder:
        if folder:
            opens_what_it_cannot_write(score, program, folder)
    with small_disk(12 * MEGABYTE) as folder:
        if folder:
            keeps_what_it_cannot_compact(score, program, folder)
    meets_a_limit_for_files(score, program)


def finish(score, program, worker, path):
    """Closes, and compares what a new process finds with all that was said."""
    ledger = worker.ledger
    answer = worker.ask("close")
    ledger.expect(answer.is_done, f"closing: {answer.ending}")
    worker.end()
    inspector = Worker(program, ledger)
    inspect(inspector, path, f"probe{path.parent.name}")
    inspector.end()
    score.check(not ledger.problems, f"nothing is lost on {path}", f"{ledger.problems[:3]}")


def refuses_and_goes_on(score, program, folder):
    path, ballast = folder / "queue.jsonl", folder / "ballast"
    ballast.write_bytes(bytes(MEGABYTE))
    worker = Worker(program, Ledger())
    worker.ask(f"open {path}")
    for attempt in range(3):
        answer = worker.ask(f"fill a{attempt} 100000 {20_000 >> attempt * 4}")
        named = all(word in answer.message for word in (str(path), "No space left", "free some space"))
        score.check(answer.code == "systemCall" and named, "a full disk is named", answer.ending)
    print(f"a full disk: {answer.message}", flush=True)
    worker.ask("list")
    worker.ledger.check()
    other = Worker(program, Ledger())
    answer = other.ask(f"open {folder / 'other.jsonl'}")
    score.check(
        "No space left" in answer.message and "other.jsonl" in answer.message,
        "a full disk is named to who makes a file",
        answer.ending,
    )
    other.end()
    ballast.unlink()
    answer = worker.ask("enqueue later 20")
    score.check(answer.is_done, "it goes on when there is space", answer.ending)
    finish(score, program, worker, path)


def fill_up(ballast):
    """Takes all the space that is left."""
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


def opens_what_it_cannot_write(score, program, folder):
    """A crash has left running tasks, and there is no space to say so; nor for a lock file's text."""
    path, ballast = folder / "queue.jsonl", folder / "ballast"
    ledger = Ledger()
    worker = Worker(program, ledger)
    worker.ask(f"open {path}")
    worker.begin("work w 10000")
    worker.watch(100)
    worker.kill()
    path.with_name("queue.jsonl.lock").unlink()
    fill_up(ballast)
    worker = Worker(program, ledger)
    answer = worker.ask(f"open {path}")
    score.check(answer.is_done, "a file is opened on a full disk", answer.ending)
    answer = worker.ask("list")
    score.check(answer.is_done, "its tasks are told", answer.ending)
    ledger.check()
    answer = worker.ask("fill more 100 20000")
    score.check("No space left" in answer.message, "a full disk is named", answer.ending)
    answer = worker.ask("close")
    is_true = answer.is_done or "All acknowledged changes are stored" in answer.message
    score.check(is_true, "closing says that all is stored", answer.ending)
    worker.end()
    ballast.unlink()
    worker = Worker(program, ledger)
    worker.ask(f"open {path}")
    finish(score, program, worker, path)


def keeps_what_it_cannot_compact(score, program, folder):
    """What is alive would take 2 MB; that much is free only later."""
    path, ballast = folder / "queue.jsonl", folder / "ballast"
    for has_space in (True, False):
        path.unlink(missing_ok=True)
        worker = Worker(program, Ledger())
        worker.ask(f"open {path}")
        worker.ask("fill dead 40 60000")
        if not has_space:
            free = 12 * MEGABYTE - path.stat().st_size
            ballast.write_bytes(bytes(free - 5 * MEGABYTE // 2))
        worker.ask("perform")
        answer = worker.ask("fill live 33 60000")
        score.check(answer.is_done, "work goes on beside a compaction", answer.ending)
        # It is beside the work, and may be under way still.
        deadline = time.monotonic() + SECONDS_TO_COMPACT
        while path.with_name("queue.jsonl.new").exists() and time.monotonic() < deadline:
            worker.ask("list")
        answer = worker.ask("list")
        compacts = answer.lines[-1].endswith(" compacted")
        score.check(compacts == has_space, "a compaction happens if there is space", answer.lines[-1])
        score.check(
            not path.with_name("queue.jsonl.new").exists(), "nothing is left of a compaction"
        )
        if not has_space:
            ballast.unlink()
            # It is tried again when the file has doubled.
            worker.ask("perform")
            for part in range(3):
                worker.ask(f"fill more{part} 30 60000")
                worker.ask("perform")
            answer = worker.ask("list")
            score.check(
                answer.lines[-1].endswith(" compacted"),
                "a compaction that failed is tried again",
                answer.lines[-1],
            )
        finish(score, program, worker, path)


def meets_a_limit_for_files(score, program):
    """The limit of `ulimit -f`, which ends a process that does not expect it."""
    with tempfile.TemporaryDirectory(prefix="limit-", dir=scratch_folder()) as name:
        path = pathlib.Path(name, "queue.jsonl")

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, MEGABYTE))

        worker = Worker(program, Ledger(), preexec_fn=limit)
        worker.ask(f"open {path}")
        for attempt in range(2):
            answer = worker.ask(f"fill a{attempt} 1000 9000")
            named = str(path) in answer.message and "ulimit -f" in answer.message
            score.check(answer.code == "systemCall" and named, "the limit is named", answer.ending)
        print(f"a limit for files: {answer.message}", flush=True)
        finish(score, program, worker, path)
