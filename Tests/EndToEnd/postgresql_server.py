#!/usr/bin/env python3
"""Runs a command beside a PostgreSQL server of its own, which is gone afterwards.

    python3 Tests/EndToEnd/postgresql_server.py COMMAND ARGUMENT …

The server is in a temporary folder and listens on a socket there. STEADFAST_POSTGRESQL is the
connection string of its database. With --durable, it flushes each commit to the disk. With --restarts,
there is another server for tests that restart it: STEADFAST_POSTGRESQL_RESTARTED is its connection
string, and STEADFAST_POSTGRESQL_RESTART a command that ends it as a crash does and starts it again. With
--failover, that server has a standby instead, for which its commits wait; the connection string names
both, and the command ends the server and lets the standby take its place, once.
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
    known = ("--durable", "--restarts", "--failover")
    options = [option for option in known if option in command[:2]]
    command = command[len(options):]
    if "--durable" not in options:
        settings.append("fsync=off")
    if not command:
        sys.exit(__doc__)
    with contextlib.ExitStack() as stack:

        def server(*more, primary=None):
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = PostgreSQL(folder, [*settings, *more], [GUARD], primary)
            stack.callback(stop, server)
            return server

        environment = os.environ | {
            "STEADFAST_POSTGRESQL": connection(server()),
            "STEADFAST_POSTGRESQL_GUARDED": GUARDED,
        }
        if "--restarts" in options:
            environment |= restarting(server())
        if "--failover" in options:
            primary = server("synchronous_standby_names=walreceiver")
            environment |= failing_over(primary, server(primary=primary))
        return subprocess.run(command, env=environment).returncode


def stop(server):
    # One that has failed over has ended before.
    if (server.folder / "data/postmaster.pid").exists():
        server.stop()


def connection(*servers):
    hosts = ",".join(str(server.folder) for server in servers)
    attributes = " target_session_attrs=read-write" if len(servers) > 1 else ""
    return f"host={hosts} user=store dbname=postgres{attributes}"


def restarting(server):
    """What a test needs to know of a server that it restarts."""
    return {
        "STEADFAST_POSTGRESQL_RESTARTED": connection(server),
        "STEADFAST_POSTGRESQL_RESTART": script(server.command("pg_ctl", *server.end),
                                               server.command("pg_ctl", *server.start)),
    }


def failing_over(primary, standby):
    """What a test needs to know of a server whose place another one takes."""
    crash = primary.command("pg_ctl", *primary.end)
    promote = standby.command("pg_ctl", "-D", standby.folder / "data", "-w", "promote")
    return {
        "STEADFAST_POSTGRESQL_RESTARTED": connection(primary, standby),
        "STEADFAST_POSTGRESQL_RESTART": script(crash, promote),
    }


def script(*commands):
    """A command that runs others.

    A server must not hold what the program that runs the command has open, or this program would
    wait for it. Python closes all of that.
    """
    text = (f"from subprocess import DEVNULL, run\n"
            f"for command in {commands!r}:\n"
            f"    run(command, check=True, stdout=DEVNULL, cwd='/')")
    return shlex.join([sys.executable, "-c", text])


if __name__ == "__main__":
    sys.exit(main())
