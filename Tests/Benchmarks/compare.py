#!/usr/bin/env python3
"""Compares two builds of the benchmarks, row by row, in turns: A B B A A B B A …

    python3 Tests/Benchmarks/compare.py main~3 queue name='1 producer'
    python3 Tests/Benchmarks/compare.py /path/to/bench retry clock --rounds 12

The first argument is a commit, whose benchmarks are built in a copy of their own, or a built `bench`
(A); the other build (B) is of the working tree. What follows goes to both. Each row is measured in
processes of its own, one of A right beside one of B, because the speed of a machine drifts. A row's
figure is the median of the ratios B / A, of CPU time and of elapsed time; below 1 is faster. The
numbers in brackets are the quartiles: where they are far apart, the machine was too noisy to tell.
"""

import argparse
import collections
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROW = re.compile(r"^(\S.*?)\s{2,}([\d.]+)\s+([\d.]+)\s+(\d+)\s+([\d.]+)(?:\s|$)")


def build(folder):
    subprocess.run(["swift", "build", "-c", "release", "--product", "bench"], check=True,
                   cwd=folder / "Tests" / "Benchmarks", stdout=subprocess.DEVNULL)
    return folder / "Tests" / "Benchmarks" / ".build" / "release" / "bench"


def build_commit(commit, work):
    name = subprocess.run(["git", "rev-parse", "--short", f"{commit}^{{commit}}"], check=True,
                          cwd=ROOT, capture_output=True, text=True).stdout.strip()
    folder = work / name
    if not folder.exists():
        folder.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", name], check=True, cwd=ROOT, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
    return build(folder)


def measure(binary, arguments):
    """The rows that one process measures: name to elapsed ns, CPU ns, allocations."""
    output = subprocess.run([str(binary), *arguments], check=True, capture_output=True,
                            text=True, errors="replace").stdout
    matches = (ROW.match(line) for line in output.splitlines())
    return {m[1]: (float(m[2]), float(m[3]), float(m[5])) for m in matches if m}


def quartiles(values):
    if len(values) < 2:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a commit, or a built bench")
    parser.add_argument("arguments", nargs="*", help="what both are called with: groups, name=…")
    parser.add_argument("--rounds", type=int, default=8, help="how many pairs of each row")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "steadfast-compare",
                        help="where the commit is built")
    options = parser.parse_args()
    base = pathlib.Path(options.base)
    binaries = [base.resolve() if base.is_file() else build_commit(options.base, options.work),
                build(ROOT)]

    groups = [argument for argument in options.arguments if not argument.startswith("name=")]
    known = [measure(binary, options.arguments) for binary in binaries]
    names = [name for name in known[1] if name in known[0]]
    for name in known[1]:
        if name not in known[0]:
            print(f"only in B: {name}")
    if not names:
        sys.exit("compare: both builds have no row of these names")
    print(f"{'':52}{'CPU':>8}{'':17}{'elapsed':>9}{'':17}{'A ns':>10}{'allocations':>14}")
    for name in names:
        pairs = collections.defaultdict(list)
        for turn in range(options.rounds):
            figures = {}
            for index in ([0, 1], [1, 0])[turn % 2]:
                figures[index] = measure(binaries[index], [*groups, f"name={name}"])[name]
            for part, key in enumerate(["elapsed", "cpu", "allocations"]):
                pairs[key].append((figures[0][part], figures[1][part]))
        line = f"{name:50}"
        for key in ["cpu", "elapsed"]:
            low, middle, high = quartiles([b / a for a, b in pairs[key] if a])
            line += f"{middle:9.3f} [{low:.3f} {high:.3f}]  "
        line += f"{statistics.median(a for a, _ in pairs['elapsed']):11.1f}"
        line += "{:7.2f} →{:6.2f}".format(*(statistics.median(values)
                                            for values in zip(*pairs["allocations"])))
        print(line, flush=True)


if __name__ == "__main__":
    main()
