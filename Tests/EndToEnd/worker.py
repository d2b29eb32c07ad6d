"""A process that writes a line when it begins a task."""

import subprocess
import threading
import time


class Worker:
    """Puts itself, each line and the time of the line into a queue."""

    def __init__(self, command, lines, **options):
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            **options)
        self.lines = lines
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            # A process that is killed may have written half a line.
            if line.endswith("\n"):
                self.lines.put((self, line.strip(), time.perf_counter()))

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
