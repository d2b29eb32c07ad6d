#!/usr/bin/env python3
"""Runs a command beside a PostgreSQL server of its own, which is gone afterwards.

    python3 Tests/EndToEnd/postgresql_server.py COMMAND ARGUMENT …

The server is in a temporary folder and listens on a socket there. STEADFAST_POSTGRESQL is the
connection string of its database. With --durable, it flushes each commit to the disk. With --restarts,
there is another server for tests that restart it: STEADFAST_POSTGRESQL_RESTARTED is its connection
string, and STEADFAST_POSTGRESQL_RESTART a command that ends it as a crash does and starts it again. With
--failover, that server has a standby instead, for which its commits wait; the connection string names
both, and the command ends the server and lets the standby take its place, once.
With --tls, there is a server that lets in over TLS only: STEADFAST_POSTGRESQL_TLS is its connection
string, without the certificate that must be trusted, which is in STEADFAST_POSTGRESQL_CERTIFICATE.
With --pooler, STEADFAST_POSTGRESQL_SESSIONS leads through a PgBouncer that pools whole sessions, and
STEADFAST_POSTGRESQL_POOLED through one that gives each transaction another session.
The role that STEADFAST_POSTGRESQL_GUARDED names is let in with a password only; a test makes it.
"""

import contextlib
import itertools
import os
import pathlib
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "SQL"))

from engines import PostgreSQL

GUARDED = "guarded"
GUARD = f"local all {GUARDED} scram-sha-256"
OPTIONS = ["--durable", "--restarts", "--failover", "--tls", "--pooler"]


def main():
    command = sys.argv[1:]
    settings = ["max_connections=1000"]
    options = list(itertools.takewhile(OPTIONS.__contains__, command))
    command = command[len(options):]
    if "--durable" not in options:
        settings.append("fsync=off")
    if not command:
        sys.exit(__doc__)
    with contextlib.ExitStack() as stack:

        def folder():
            return pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def server(*more, primary=None, rules=(GUARD,)):
            server = PostgreSQL(folder(), [*settings, *more], rules, primary)
            stack.callback(stop, server)
            return server

        main = server()
        environment = os.environ | {
            "STEADFAST_POSTGRESQL": connection(main),
            "STEADFAST_POSTGRESQL_GUARDED": GUARDED,
        }
        if "--restarts" in options:
            environment |= restarting(server())
        if "--failover" in options:
            primary = server("synchronous_standby_names=walreceiver")
            environment |= failing_over(primary, server(primary=primary))
        if "--tls" in options:
            environment |= secured(folder(), server)
        if "--pooler" in options:
            for name, mode in (("SESSIONS", "session"), ("POOLED", "transaction")):
                environment[f"STEADFAST_POSTGRESQL_{name}"] = pooled(stack, folder(), main, mode)
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


def secured(folder, server):
    """What a test needs to know of a server that is reached over TLS only."""
    key, certificate = folder / "key", folder / "certificate"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    hand_over(folder, key)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server(f"port={port}", "listen_addresses=127.0.0.1", "ssl=on", f"ssl_key_file={key}",
           f"ssl_cert_file={certificate}", rules=["hostnossl all all all reject"])
    return {
        "STEADFAST_POSTGRESQL_TLS":
            f"host=localhost hostaddr=127.0.0.1 port={port} user=store dbname=postgres",
        "STEADFAST_POSTGRESQL_CERTIFICATE": str(certificate),
    }


def pooled(stack, folder, server, mode):
    """Starts a pooler before a server; returns the connection string that leads through it."""
    settings = folder / "settings"
    settings.write_text(f"""[databases]
postgres = host={server.folder} user=store
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
pool_mode = {mode}
default_pool_size = {100 if mode == "session" else 1}
max_client_conn = 1000
auth_type = any
""")
    hand_over(folder, folder)
    pooler = subprocess.Popen(
        [*server.user, shutil.which("pgbouncer", path=os.environ["PATH"] + ":/usr/sbin"), "-q",
         settings], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(pooler.wait)
    stack.callback(pooler.terminate)
    while not (folder / ".s.PGSQL.6432").exists():
        if pooler.poll() is not None:
            sys.exit("PgBouncer has ended")
        time.sleep(0.01)
    return f"host={folder} port=6432 user=store dbname=postgres"


def hand_over(folder, path):
    """Gives a path in a folder to the user of the servers, which refuse to run as root."""
    if os.geteuid() == 0:
        os.chmod(folder, 0o755)
        shutil.chown(path, "postgres")


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
