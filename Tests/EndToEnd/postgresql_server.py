#!/usr/bin/env python3
"""Runs a command beside a PostgreSQL server of its own, which is gone afterwards.

    python3 Tests/EndToEnd/postgresql_server.py COMMAND ARGUMENT …

The server is in a temporary folder and listens on a socket there. STEADFAST_POSTGRESQL is the
connection string of its database. With --durable, it flushes each commit to the disk. With --restarts,
there is another server for tests that restart it: STEADFAST_POSTGRESQL_RESTARTED is its connection
string, and STEADFAST_POSTGRESQL_RESTART a command that ends it as a crash does and starts it again.
The role that STEADFAST_POSTGRESQL_GUARDED names is let in with a password only; a test makes it.
"""

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "SQL"))

from engines import PostgreSQL

GUARDED = "guarded"
GUARD = f"local all {GUARDED} scram-sha-256"


def main():
    command = sys.argv[1:]
    settings = ["max_connections=1000"]
    options = [option for option in ("--durable", "--restarts") if option in command[:2]]
    command = command[len(options):]
    if "--durable" not in options:
        settings.append("fsync=off")
    if not command:
        sys.exit(__doc__)
    servers = []
    with contextlib.ExitStack() as stack:
        for _ in range(1 + options.count("--restarts")):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            servers.append(PostgreSQL(pathlib.Path(folder), settings, [GUARD]))
            stack.callback(servers[-1].stop)
        environment = os.environ | {
            "STEADFAST_POSTGRESQL": connection(servers[0]),
            "STEADFAST_POSTGRESQL_GUARDED": GUARDED,
        }
        if len(servers) > 1:
            environment |= restarting(servers[1])
        return subprocess.run(command, env=environment).returncode


def connection(server):
    return f"host={server.folder} user=store dbname=postgres"


def restarting(server):
    """What a test needs to know of a server that it restarts."""
    program = [*server.user, str(server.bin / "pg_ctl")]
    stop = [*program, "-D", str(server.folder / "data"), "-m", "immediate", "stop"]
    start = [*program, *map(str, server.start)]
    # The server must not hold what the program that runs the command has open, or this program
    # would wait for it. Python closes all of that.
    script = (f"from subprocess import DEVNULL, run\n"
              f"for command in {stop!r}, {start!r}:\n"
              f"    run(command, check=True, stdout=DEVNULL, cwd='/')")
    return {
        "STEADFAST_POSTGRESQL_RESTARTED": connection(server),
        "STEADFAST_POSTGRESQL_RESTART": shlex.join([sys.executable, "-c", script]),
    }


if __name__ == "__main__":
    sys.exit(main())
