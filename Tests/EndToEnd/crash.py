"""Checks the file store in real processes: faults, kills, full disks, power cuts, odd files.

    python3 Tests/EndToEnd/crash.py .build/release/CrashWorker
    python3 Tests/EndToEnd/crash.py .build/release/CrashWorker faults
    python3 Tests/EndToEnd/crash.py .build/release/CrashWorker kills --count 10000
    python3 Tests/EndToEnd/crash.py .build/release/CrashWorker power-cuts --count 60

Without names it does the share of continuous integration: each check, with a limit in time.
"""

import argparse
import pathlib
import sys
import time

from crashes.faults import check_faults
from crashes.full_disk import check_full_disk
from crashes.kills import check_kills
from crashes.odd_files import check_odd_files
from crashes.power_cuts import check_power_cuts
from support import Score

CHECKS = {
    "odd-files": lambda score, program, options: check_odd_files(score, program),
    "full-disk": lambda score, program, options: check_full_disk(score, program),
    "faults": lambda score, program, options: check_faults(
        score, program, options.seconds, options.seed
    ),
    "kills": lambda score, program, options: check_kills(
        score, program, options.count or 200, options.seconds, options.seed
    ),
    "power-cuts": lambda score, program, options: check_power_cuts(
        score, program, options.count or 6, options.seed
    ),
}
# How long each check that repeats itself may go on in continuous integration.
SECONDS_IN_CI = 90


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program", help="the worker: .build/release/CrashWorker")
    parser.add_argument("checks", nargs="*", help=f"of {', '.join(CHECKS)}; by default all")
    parser.add_argument("--seconds", type=float, help="the time for each check that repeats itself")
    parser.add_argument("--count", type=int, help="how many kills or power cuts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = set(options.checks) - CHECKS.keys()
    if unknown:
        parser.error(f"there is no check {', '.join(sorted(unknown))}")
    program = pathlib.Path(options.program).resolve()
    if not program.is_file():
        sys.exit(f"{program} is missing; build it with: swift build -c release --product CrashWorker")
    if not options.checks and options.seconds is None:
        options.seconds = SECONDS_IN_CI
    score = Score()
    for name in options.checks or CHECKS:
        print(f"= {name}", flush=True)
        begin = time.monotonic()
        CHECKS[name](score, program, options)
        print(f"- {name}: {time.monotonic() - begin:.0f} s", flush=True)
    score.close()


if __name__ == "__main__":
    main()
