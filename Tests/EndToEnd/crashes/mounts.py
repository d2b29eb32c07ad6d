"""File systems of our own, where this user may mount them."""

import contextlib
import pathlib
import subprocess
import tempfile


def mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)


def unmount(folder):
    subprocess.run(["umount", str(folder)], check=True, capture_output=True)


@contextlib.contextmanager
def small_disk(size):
    """A folder on a disk of so many bytes; `None`, with loud words, where none can be mounted."""
    with tempfile.TemporaryDirectory(prefix="disk-") as name:
        folder = pathlib.Path(name)
        result = mount("-t", "tmpfs", "-o", f"size={size}", "steadfast", folder)
        if result.returncode != 0:
            print(f"SKIPPED: no small disk can be mounted here: {result.stderr.strip()}", flush=True)
            yield None
            return
        try:
            yield folder
        finally:
            unmount(folder)
