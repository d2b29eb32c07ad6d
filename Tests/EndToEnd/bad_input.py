"""Checks that bad input gets one clear sentence and a non-zero exit, and changes nothing.

    python3 Tests/EndToEnd/bad_input.py [PROGRAM]
"""

import os
import pathlib
import signal

from server import Server
from support import Process, QueueFile, Score, crc32c, temporary_folder

NOBODY = 65534


class Bench:
    """A folder with three files to deliver, a place for them, and a path for a queue file."""

    def __init__(self, score, folder):
        self.score = score
        self.folder = folder
        self.source, self.target = folder / "source", folder / "target"
        self.queue = folder / "queue.jsonl"
        self.source.mkdir()
        for name in ("one", "two", "three"):
            (self.source / name).write_text(name * 50)

    def options(self, **changes):
        values = {"from": self.source, "to": self.target, "queue": self.queue, **changes}
        return [part for name, value in values.items() for part in (f"--{name}", value)]

    def refuses(self, promise, arguments, *words, **options):
        """Expects exit code 2, one sentence with these words, and every file as it was."""
        before = self.snapshot()
        process = Process(*arguments, **options)
        code, errors = process.end(30)
        problems = []
        if code != 2:
            problems.append(f"the exit code is {code}")
        if errors.count("\n") != 1 or not errors.startswith("Outbox: "):
            problems.append("it is not one sentence")
        problems += [f"'{word}' is not mentioned" for word in words if str(word) not in errors]
        if "Error Domain" in errors or "Error(" in errors:
            problems.append("it is not made for people")
        if process.output:
            problems.append(f"standard output says {process.output}")
        if self.snapshot() != before:
            problems.append("files have changed")
        self.score.check(not problems, f"{promise}:", f"{problems}, {errors}")

    def accepts(self, promise, arguments):
        code, errors = Process(*arguments).end(30)
        self.score.check(code == 0 and not errors, f"{promise}:", f"{code}, {errors}")

    def snapshot(self):
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


def line(sequence, body):
    text = f'","b":{sequence},"s":{sequence},{body}}}'.encode()
    return b'{"c":"%08x' % crc32c(text) + text + b"\n"


HEADER = line(0, '"k":"header","format":"steadfast-queue","version":1,"generation":1')


def refuses_a_wrong_call(bench):
    refuses, options = bench.refuses, bench.options
    for value in ("-1", "0", "1001", "four", "1.5", "99999999999999999999"):
        refuses(f"concurrency {value}", options(concurrency=value), "--concurrency", value)
        refuses(f"timeout {value}", options(timeout=value if value != "1001" else "0"), "--timeout")
    refuses("an unknown option", [*options(), "--fast", "1"], "--fast")
    refuses("a stray argument", [*options(), "photos"], "photos")
    refuses("an option without value at the end", [*options(), "--concurrency"], "--concurrency")
    refuses("an option in place of a value", ["--from", "--to", bench.target], "--from")
    refuses("an empty value", options(**{"from": ""}), "--from")
    refuses("an option given twice", [*options(), "--queue", bench.queue], "--queue", "twice")
    refuses("--from alone", ["--from", bench.source], "--to")
    refuses("--to alone", ["--to", bench.target], "--from")
    addresses = ["http://", "http:///x", "https://host:99999/", "htp://host/x", "ftp://host/x"]
    for address in [*addresses, "http://two words/", "localhost:8080/x", "mailto:someone"]:
        refuses(f"the address {address}", options(to=address), address)
    refuses("no package to show", [], "--from", cwd=bench.folder)


def refuses_wrong_folders(bench):
    refuses, options, source = bench.refuses, bench.options, bench.source
    refuses("a missing folder", options(**{"from": bench.folder / "none"}), bench.folder / "none")
    refuses("a file as folder", options(**{"from": source / "one"}), source / "one")
    refuses("a target in the folder", options(to=source / "copy"), source / "copy")
    refuses("the folder as its own target", options(to=source), source)
    file = bench.folder / "file"
    file.write_text("not a folder")
    refuses("a file as target", options(to=file), file)
    link = bench.folder / "link"
    link.symlink_to(source)
    refuses("a target in the folder behind a link", options(to=link / "copy"), link)


def refuses_wrong_queue_files(bench):
    refuses, queue = bench.refuses, bench.queue
    refuses("a folder as queue file", bench.options(queue=bench.source), bench.source)
    missing = bench.folder / "none" / "queue.jsonl"
    refuses("a queue file in a missing folder", bench.options(queue=missing), missing)
    other_formats = {
        "text": b"Dear diary,\ntoday\n",
        "JSON": b'{"tasks":[]}\n',
        "JSON Lines": b'{"id":1}\n{"id":2}\n',
        "an image": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "text without line feed": b"hello",
        "a database": b"SQLite format 3\0" + bytes(4080),
    }
    for name, content in other_formats.items():
        queue.write_bytes(content)
        refuses(f"{name} as queue file", bench.options(), queue, "not a queue file")
    newer = HEADER.replace(b'"version":1', b'"version":2')
    queue.write_bytes(line(0, newer[newer.index(b'"k"'):-2].decode()))
    refuses("a queue file of a newer version", bench.options(), queue, "newer version")
    identity = "00000000-0000-7000-8000-000000000001"
    task = f'"k":"insert","id":"{identity}","name":"Other","priority":0,"created":1,"available":1,'
    queue.write_bytes(HEADER + line(1, task + '"maxRetries":1,"payload":{}'))
    before = QueueFile(queue).states
    # It is opened and closed before its tasks are seen, which adds a last line.
    code, errors = Process(*bench.options()).end(30)
    named = code == 2 and "another program" in errors
    bench.score.check(named, "another program's queue file is refused", errors)
    bench.score.check(QueueFile(queue).states == before, "another program's tasks are left alone")


def refuses_what_it_may_not_touch(bench):
    """As a user without rights: the administrator may write everywhere."""
    user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    closed = bench.folder / "closed"
    closed.mkdir()
    bench.folder.chmod(0o755)
    bench.target.mkdir(mode=0o777)
    bench.target.chmod(0o777)
    closed.chmod(0o555)
    queue = closed / "queue.jsonl"
    bench.refuses("a queue file that can't be made", bench.options(queue=queue), queue, **user)
    closed.chmod(0o755)
    queue.write_bytes(HEADER)
    queue.chmod(0o400)
    closed.chmod(0o555)
    bench.refuses("a queue file that can't be written", bench.options(queue=queue), queue, **user)
    closed.chmod(0o755)
    locked = bench.source / "locked"
    locked.mkdir(mode=0)
    bench.refuses("a folder that can't be listed", bench.options(), bench.source, **user)
    locked.chmod(0o755)


def refuses_a_queue_file_in_use(bench):
    server = Server(seed=1, fault_rate=0)
    holder = Process(*bench.options(to=server.url))
    holder.wait_until_said("Delivering")
    code, errors = Process(*bench.options(to=server.url)).end(30)
    bench.score.check(code == 2, "a queue file in use is refused", f"exit code {code}")
    bench.score.check(f"process {holder.pid};" in errors, "its holder is named", errors)
    server.start()
    code, errors = holder.end()
    bench.score.check(code == 0, "the holder is not disturbed", f"{code}, {errors}")
    server.stop()


def recovers_what_was_torn(bench):
    """A cut end was promised to nobody; damage before the end is refused, and left as it is."""
    server = Server(seed=1, fault_rate=0)
    process = Process(*bench.options(to=server.url))
    process.wait_until_said(r"\b[1-9]\d* retrying")
    process.kill()
    whole = bench.queue.read_bytes()
    lines = whole.splitlines(keepends=True)
    promised = sum(map(len, lines[:4]))
    server.start()
    cuts = range(promised, len(whole), 1 + (len(whole) - promised) // 20)
    for size in cuts:
        bench.queue.write_bytes(whole[:size])
        bench.accepts(f"a queue file cut after {size} bytes", bench.options(to=server.url))
        bench.score.check(QueueFile(bench.queue).count("succeed") == 3, "and all is delivered")
    finished = bench.queue.read_bytes()
    for position in range(0, len(finished) - 200, len(finished) // 20):
        damaged = bytearray(finished)
        damaged[position] ^= 1
        bench.queue.write_bytes(damaged)
        bench.refuses(f"a bit flipped at byte {position}", bench.options(), bench.queue)
    server.stop()


def goes_on_trying(bench):
    """A server that is not there is no bad input: it may come."""
    process = Process(*bench.options(to="http://nowhere.invalid/"))
    process.wait_until_said(r"\b[1-9]\d* retrying")
    process.signal(signal.SIGINT)
    code, errors = process.end(30)
    bench.score.check(code == 130 and not errors, "an unknown host is tried until it is there")


def main():
    score = Score()
    groups = [
        refuses_a_wrong_call,
        refuses_wrong_folders,
        refuses_wrong_queue_files,
        refuses_what_it_may_not_touch,
        refuses_a_queue_file_in_use,
        recovers_what_was_torn,
        goes_on_trying,
    ]
    for group in groups:
        with temporary_folder() as folder:
            before = score.passed
            group(Bench(score, pathlib.Path(folder).resolve()))
            print(f"{group.__name__.replace('_', ' ')}: {score.passed - before} passed", flush=True)
    code, _ = Process("--help").end()
    score.check(code == 0, "--help exits with 0")
    score.close()


if __name__ == "__main__":
    main()
