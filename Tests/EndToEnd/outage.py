"""Checks who waits how long for a PostgreSQL server that is away, and what they say.

    python3 Tests/EndToEnd/outage.py PROGRAM

PROGRAM is ComputeWorker, built with the trait PostgreSQL. The server is one of this script's own: it
stops as in a crash, and starts again.
"""

import os
import pathlib
import queue
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "SQL"))

from engines import PostgreSQL
from postgresql_server import connection
from support import Score, temporary_folder
from worker import Worker

TASKS = 4
# A process ends within its limit of 5 s, and a second more.
LIMIT = 6
WAITED = "Steadfast: the queue 'default' has waited 5 s for"
REACHED = "Steadfast: the queue 'default' has reached"


class Program:
    def __init__(self, path, server):
        self.path = path
        self.at(connection(server))

    def at(self, server):
        self.environment = os.environ | {"STEADFAST_POSTGRESQL": server}

    def command(self, *arguments):
        return [self.path, "postgresql", "outage", *map(str, arguments)]

    def run(self, *arguments):
        """Returns the result, and how long it took in seconds."""
        start = time.monotonic()
        result = subprocess.run(self.command(*arguments), text=True, capture_output=True,
                                timeout=120, env=self.environment)
        return result, time.monotonic() - start

    def worker(self, command, lines):
        return Worker(self.command(command), lines, env=self.environment)


def check_callers(score, program):
    result, took = program.run("add", 3)
    score.check(result.returncode == 2 and 2.5 < took < 5,
                "while the server is away, enqueue throws after storeTimeout:", f"{took:.1f} s")
    print(f"enqueue with a storeTimeout of 3 s and the server away: threw within {took:.1f} s")
    score.check(result.stderr.strip().count("\n") == 0 and "server" in result.stderr,
                "the error is a line that says what is wrong:", result.stderr)


def check_wrong_places(score, program, server):
    places = {
        "a host that does not exist": "host=no-such-host.invalid user=store dbname=postgres",
        "a database that does not exist": connection(server).replace("=postgres", "=no-such"),
        "a user that does not exist": connection(server).replace("user=store", "user=nobody"),
    }
    for name, place in places.items():
        program.at(place)
        result, took = program.run("list")
        # A resolver may take longer to say that there is no such host.
        score.check(result.returncode == 2 and took < 5, f"{name} is an error at once:",
                    f"{took:.1f} s, {result.stderr}")
    program.at(connection(server))


def check_shutdown(score, program, server):
    """Four attempts are under way, the server is away, and the process gets SIGTERM."""
    program.run("fill", TASKS)
    lines = queue.Queue()
    worker = program.worker("wait", lines)
    for _ in range(TASKS):
        lines.get(timeout=60)
    # The claims are on the disk by now.
    time.sleep(1)
    server.stop()
    start = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    code = worker.process.wait(timeout=120)
    took = time.monotonic() - start
    score.check(took < LIMIT, "the process ends in time:", f"{took:.1f} s, status {code}")
    print(f"SIGTERM with {TASKS} attempts under way and the server away: ended within {took:.1f} s")


def check_return(score, program, server):
    """A worker starts while the server is away, and performs the tasks when it is back."""
    lines = queue.Queue()
    worker = program.worker("work", lines)
    said = worker.process.stderr.readline()
    score.check(said.startswith(WAITED), "a worker says that it waits:", said)
    server.call("pg_ctl", *server.start)
    said = worker.process.stderr.readline()
    score.check(said.startswith(REACHED), "a worker says that it waits no longer:", said)
    left = program.run("list")[0].stdout.split()
    score.check(left == ["running", "0"] * TASKS, "no task is lost:", str(left))
    program.run("fill", 1)
    score.check(lines.get(timeout=60)[1] == "begins 0", "the worker goes on:")
    worker.process.send_signal(signal.SIGTERM)
    score.check(worker.process.wait(timeout=60) == 0, "the worker ends well")


def main():
    program_path = sys.argv[1] if len(sys.argv) == 2 else sys.exit(__doc__)
    score = Score()
    with temporary_folder() as folder:
        server = PostgreSQL(pathlib.Path(folder))
        try:
            program = Program(program_path, server)
            check_wrong_places(score, program, server)
            check_shutdown(score, program, server)
            check_callers(score, program)
            check_return(score, program, server)
        finally:
            server.stop()
    score.close()


if __name__ == "__main__":
    main()
