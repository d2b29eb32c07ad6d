"""The power fails while a worker writes to ext4.

The file system lies in an image file, behind a loop device. The worker is stopped, the image is
copied, and the worker is killed; what goes on is the copy, as the machine would after a power cut.
The copy has every write that ext4 had handed to its device, and none that was only in the page cache
of the files above it: a store that acknowledges before it flushes is found out. What it does not
show is a device that lies about its own cache: the loop device keeps all that it is given. Every
other image is mounted with data=writeback, where a file's size may come before its content.
"""

import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

from crashes.ledger import Ledger
from crashes.mounts import mount, unmount
from crashes.worker import Worker, scratch_folder

IMAGE_SIZE = 40 << 20
CUTS_AN_IMAGE = 15
MOST_LINES = 200


def wait_until_stopped(process):
    """Until no thread of a process is in the midst of a call any more."""
    while True:
        states = [
            path.read_text().rpartition(")")[2].split()[0]
            for path in pathlib.Path(f"/proc/{process}/task").glob("*/stat")
        ]
        if all(state == "T" for state in states):
            return


def copy_at_one_moment(image, copy, second):
    """Copies an image that the system may write to, until two copies in succession agree.

    A write to what the first copy had read already shows in the second; so it is the image of the
    moment at which it was finished.
    """
    shutil.copyfile(image, copy)
    while True:
        shutil.copyfile(image, second)
        if subprocess.run(["cmp", "-s", copy, second]).returncode == 0:
            return
        copy, second = second, copy


class PowerCuts:
    def __init__(self, program, folder, seed, flushing=""):
        self.program = program
        self.flushing = flushing
        self.image, self.copies = folder / "image", [folder / "copy0", folder / "copy1"]
        self.folder = folder / "mounted"
        self.folder.mkdir()
        self.numbers = random.Random(seed)
        self.cuts = self.facts = self.recoveries = 0
        self.failures = []

    def make_image(self):
        with self.image.open("wb") as file:
            file.truncate(IMAGE_SIZE)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True)

    def mount(self, mode):
        result = mount("-t", "ext4", "-o", f"loop,data={mode}", self.image, self.folder)
        return result.stderr.strip() if result.returncode else None

    def cut(self, ledger, mode):
        """Goes on with what the last cut has left, works for a while, and cuts the power."""
        problem = self.mount(mode)
        if problem:
            return problem
        worker = Worker(self.program, ledger)
        path = self.folder / "queue.jsonl"
        try:
            for command in (f"open {path}{self.flushing}", "list"):
                answer = worker.ask(command)
                if not answer.is_done:
                    return f"reopening: {answer.ending}"
            ledger.check()
            worker.begin(f"work c{self.cuts} 100000")
            self.facts += worker.watch(self.numbers.randint(0, MOST_LINES))
            worker.signal(signal.SIGSTOP)
            wait_until_stopped(worker.pid)
            copy_at_one_moment(self.image, *self.copies)
        finally:
            worker.kill()
            unmount(self.folder)
        self.copies[0].replace(self.image)
        self.cuts += 1
        return ledger.problems[:3] or None

    def run_image(self, count):
        self.make_image()
        ledger = Ledger()
        mode = "writeback" if self.cuts // CUTS_AN_IMAGE % 2 else "ordered"
        for _ in range(count):
            problem = self.cut(ledger, mode)
            if problem:
                self.failures.append(f"after {self.cuts} cuts, data={mode}: {problem}")
                return
        problem = self.mount(mode)
        worker = Worker(self.program, ledger)
        worker.ask(f"open {self.folder / 'queue.jsonl'}")
        worker.ask("list")
        ledger.check()
        worker.kill()
        unmount(self.folder)
        if ledger.problems:
            self.failures.append(f"after {self.cuts} cuts, data={mode}: {ledger.problems[:3]}")


def sees_what_is_not_flushed(score, program, folder, seed):
    """The cuts themselves are checked: with what acknowledges before it flushes."""
    folder.mkdir()
    cuts = PowerCuts(program, folder, seed, " unflushed")
    cuts.run_image(CUTS_AN_IMAGE)
    score.check(cuts.failures, "a power cut takes away what was not flushed", "but nothing is lost")


def check_power_cuts(score, program, count=60, seed=1):
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="power-", dir=scratch_folder()) as name:
        cuts = PowerCuts(program, pathlib.Path(name), seed)
        cuts.make_image()
        problem = cuts.mount("ordered")
        if problem:
            print(f"SKIPPED: no image can be mounted here: {problem}", flush=True)
            return
        unmount(cuts.folder)
        sees_what_is_not_flushed(score, program, pathlib.Path(name, "unflushed"), seed)
        while cuts.cuts < count and not cuts.failures:
            cuts.run_image(min(CUTS_AN_IMAGE, count - cuts.cuts))
    print(f"{cuts.cuts} power cuts; {cuts.facts} facts; {time.monotonic() - begin:.0f} s", flush=True)
    for failure in cuts.failures:
        print(failure, flush=True)
    score.check(not cuts.failures, "a power cut costs nothing that was acknowledged")
