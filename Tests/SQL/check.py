"""Runs the SQL of the articles about stores on PostgreSQL and SQLite, with sessions at once.

    python3 Tests/SQL/check.py              # on both
    python3 Tests/SQL/check.py sqlite       # on one

PostgreSQL's server programs must be there; a server of its own is started in a temporary folder.
"""

import pathlib
import sys
import tempfile

import census
import dependencies
import keys
import leases
import memory
import metadata
import moves
import opening
import queues
import rebases
import stored_values
from engines import PostgreSQL, SQLite


def main():
    names = sys.argv[1:] or ["postgresql", "sqlite"]
    with tempfile.TemporaryDirectory(prefix="steadfast-sql-") as folder:
        for kind in (PostgreSQL, SQLite):
            if kind.name.lower() not in names:
                continue
            engine = kind(pathlib.Path(folder))
            try:
                modules = (
                    opening, census, keys, metadata, leases, moves, rebases, queues, stored_values, dependencies,
                    memory)
                for module in modules:
                    for check in module.CHECKS:
                        if kind is SQLite and check in module.ONLY_IN_POSTGRESQL:
                            continue
                        check(engine)
                        print(f"{engine.name}: {check.__name__}", flush=True)
            finally:
                engine.stop()
    print("every statement about tables, counts, keys, metadata, leases, moves, conditions, queues, values, dependencies and memories does what the articles say")


if __name__ == "__main__":
    main()
