"""Checks the program's promises against a server that fails, with the program killed in between.

    python3 Tests/EndToEnd/outbox.py [PROGRAM]
"""

import hashlib
import pathlib
import random
import signal
import time

from server import Server
from support import Process, QueueFile, Score, make_files, temporary_folder

SEED = 20
FILES = 330
KILLS = 12
SOME_RETRYING = r"\b[1-9]\d* retrying"


def survives_being_killed(score, folder):
    """Kills the program after random numbers of arrivals; at the end all files are there."""
    source, queue = folder / "source", folder / "queue.jsonl"
    files = make_files(source, FILES, SEED)
    server = Server(SEED).start()
    command = ["--from", source, "--to", server.url, "--queue", queue]
    command += ["--concurrency", 8, "--timeout", 1]
    numbers = random.Random(SEED)
    kills, begin = 0, time.monotonic()
    while kills < KILLS:
        target = server.arrival_count + numbers.randint(0, 2 * FILES // (3 * KILLS))
        process = Process(*command)
        server.wait_for_arrivals(target, unless=lambda: process.has_ended)
        code, errors = process.kill()
        if code != -signal.SIGKILL:
            score.check(False, "the program lives until it is killed", f"{code}: {errors}")
            break
        kills += 1
    score.check(kills == KILLS, f"the program is killed {KILLS} times", f"but {kills} times")
    code, errors = Process(*command).end()
    score.check(code == 0, "the last run exits with 0", f"but with {code}: {errors}")
    check_arrivals(score, server, files)
    check_queue_file(score, queue, len(files))
    print(
        f"killed {kills} times; {len(files)} files, {sum(size for _, size in files.values())} "
        f"bytes, {server.arrival_count} arrivals; failures on purpose: {dict(server.faults)}; "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    delivers_nothing_twice(score, server, command)
    delivers_a_changed_file(score, server, command, source / min(files), min(files))
    server.stop()


def check_arrivals(score, server, files):
    arrivals = server.arrivals
    missing = sorted(files.keys() - arrivals.keys())
    score.check(not missing, "every file arrives", f"but not {missing[:5]}")
    invented = sorted(arrivals.keys() - files.keys())
    score.check(not invented, "nothing else arrives", f"but {invented[:5]}")
    for path, expected in files.items():
        wrong = [arrival for arrival in arrivals.get(path, []) if arrival != expected]
        score.check(not wrong, f"'{path}' arrives with its exact content", f"but as {wrong}")
    score.check(not server.strangers, "only PUT is used", f"but {server.strangers[:5]}")


def check_queue_file(score, queue, count):
    content = QueueFile(queue)
    score.check(not content.problems, "the queue file is sound", f"but {content.problems[:5]}")
    score.check(content.count("waiting") == 0, "the queue file has none pending")
    score.check(content.count("succeed") == count, "the queue file has every file as delivered")
    score.check(content.is_sealed, "the queue file is closed in good order")


def delivers_nothing_twice(score, server, command):
    # Requests are counted, because a late answer to a run before may still become an arrival.
    count = len(server.requests)
    process = Process(*command)
    code, _ = process.end()
    score.check(code == 0, "running again exits with 0", f"but with {code}")
    score.check("Nothing to do" in process.output, "running again says there is nothing to do")
    score.check(len(server.requests) == count, "running again delivers nothing")


def delivers_a_changed_file(score, server, command, file, path):
    count = len(server.requests)
    file.write_bytes(b"changed")
    changed = (hashlib.sha256(b"changed").hexdigest(), 7)
    code, errors = Process(*command).end()
    score.check(code == 0, "delivering a changed file exits with 0", f"but with {code}: {errors}")
    score.check(changed in server.arrivals[path], "a changed file is delivered again")
    others = set(server.requests[count:]) - {path}
    score.check(not others, "a file that has not changed is left alone", f"but not {others}")


def waits_for_the_server(score, folder):
    """Starts the server only when the program has tried in vain; nothing is lost."""
    source, queue = folder / "source", folder / "queue.jsonl"
    files = make_files(source, 60, SEED + 1)
    server = Server(SEED)
    process = Process("--from", source, "--to", server.url, "--queue", queue, "--timeout", 1)
    process.wait_until_said(SOME_RETRYING)
    score.check(not process.has_ended, "without a server it goes on trying")
    server.start()
    code, errors = process.end()
    score.check(code == 0, "it delivers when the server appears", f"but ends with {code}: {errors}")
    waits = sum(server.faults[fault] for fault in ("429 with seconds", "429 with a date"))
    score.check(waits > 0, "the server asks to wait")
    score.check(not server.impatient, "Retry-After is honoured", f"but not {server.impatient}")
    check_arrivals(score, server, files)
    check_queue_file(score, queue, len(files))
    server.stop()
    print(f"began without a server; {len(files)} files arrived when it was there", flush=True)


def gives_up_with_the_reason(score, folder):
    """What can't succeed is listed, the rest is delivered, and another run tries again."""
    source, queue = folder / "source", folder / "queue.jsonl"
    files = make_files(source, 30, SEED + 2)
    refused = dict(zip(sorted(files), [404, 403, 307, 302, 303]))
    gone = sorted(files)[-1]
    server = Server(SEED, fault_rate=0, answers=dict(refused))
    command = ["--from", source, "--to", server.url, "--queue", queue]
    process = Process(*command)
    process.wait_until_said(SOME_RETRYING)
    (source / gone).unlink()
    server.start()
    code, _ = process.end()
    score.check(code == 1, "it exits with 1 when files were given up", f"but with {code}")
    for path, status in refused.items():
        said = [line for line in process.output.splitlines() if f"{status} " in line]
        score.check(len(said) == 1, f"the answer {status} is given as a reason", process.output)
    score.check("not there any more" in process.output, "a vanished file is given as a reason")
    left = {path: file for path, file in files.items() if path not in refused and path != gone}
    check_arrivals(score, server, left)
    server.answers.clear()
    code, errors = Process(*command).end()
    score.check(code == 0, "the next run tries again", f"but ends with {code}: {errors}")
    del files[gone]
    check_arrivals(score, server, files)
    server.stop()
    print(f"gave up {len(refused) + 1} files with the reasons; later tried again", flush=True)


def stops_when_asked(score, folder, number):
    """Ends gently at a signal, says how to go on, and goes on."""
    source, queue = folder / "source", folder / "queue.jsonl"
    files = make_files(source, 20, SEED + 3)
    server = Server(SEED, fault_rate=0)
    process = Process("--from", source, "--to", server.url, "--queue", queue)
    process.wait_until_said(SOME_RETRYING)
    process.signal(number)
    code, _ = process.end()
    score.check(code == 128 + number, f"it exits with {128 + number}", f"but with {code}")
    score.check("go on with: " in process.output, "it says how to go on")
    score.check(QueueFile(queue).is_sealed, "it closes the queue file in good order")
    server.start()
    code, _ = Process("--from", source, "--to", server.url, "--queue", queue).end()
    score.check(code == 0, "it goes on where it was stopped", f"but ends with {code}")
    check_arrivals(score, server, files)
    server.stop()
    print(f"stopped by {signal.Signals(number).name}, and went on", flush=True)


def delivers_to_a_folder(score, folder):
    """Copies, killed in between, and leaves nothing behind but the files."""
    source, target, queue = folder / "source", folder / "target", folder / "queue.jsonl"
    files = make_files(source, 120, SEED + 4)
    command = ["--from", source, "--to", target, "--queue", queue]
    for _ in range(3):
        process = Process(*command)
        process.wait_until_said("Delivering")
        process.kill()
    code, errors = Process(*command).end()
    score.check(code == 0, "copying exits with 0", f"but with {code}: {errors}")
    copies = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    score.check(copies == set(files), "the folder holds the files and nothing else")
    for path in files:
        score.check(
            (target / path).read_bytes() == (source / path).read_bytes(),
            f"'{path}' is copied with its exact content",
        )
    check_queue_file(score, queue, len(files))
    print(f"copied {len(files)} files into a folder, killed 3 times", flush=True)


def main():
    score = Score()
    scenarios = [
        survives_being_killed,
        waits_for_the_server,
        gives_up_with_the_reason,
        lambda score, folder: stops_when_asked(score, folder, signal.SIGINT),
        lambda score, folder: stops_when_asked(score, folder, signal.SIGTERM),
        delivers_to_a_folder,
    ]
    for scenario in scenarios:
        with temporary_folder() as folder:
            scenario(score, pathlib.Path(folder))
    score.close()


if __name__ == "__main__":
    main()
