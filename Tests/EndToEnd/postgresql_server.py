#!/usr/bin/env python3
"""Runs a command beside a PostgreSQL server of its own, which is gone afterwards.

    python3 Tests/EndToEnd/postgresql_server.py COMMAND ARGUMENT …

The server is in a temporary folder and listens on a socket there. STEADFAST_POSTGRESQL is the
connection string of its database, and STEADFAST_POSTGRESQL_RESTART a command that ends the server
as a crash does and starts it again. --durable has it flush each commit to the disk.
"""

import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "SQL"))

from engines import PostgreSQL


def main():
    command = sys.argv[1:]
    settings = ["fsync=off", "max_connections=1000"]
    if command[:1] == ["--durable"]:
        command, settings = command[1:], settings[1:]
    if not command:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        server = PostgreSQL(pathlib.Path(folder), settings)
        try:
            return subprocess.run(command, env=os.environ | environment(server)).returncode
        finally:
            server.stop()


def environment(server):
    """What a program needs to know of the server."""
    program = [*server.user, str(server.bin / "pg_ctl")]
    stop = shlex.join([*program, "-D", str(server.folder / "data"), "-m", "immediate", "stop"])
    start = shlex.join([*program, *map(str, server.start)])
    return {
        "STEADFAST_POSTGRESQL": f"host={server.folder} user=store dbname=postgres",
        "STEADFAST_POSTGRESQL_RESTART": f"cd / && {stop} >/dev/null && {start} >/dev/null",
    }


if __name__ == "__main__":
    sys.exit(main())
