"""Downloads of many large files, by a process that is killed while its connections break.

    python3 Tests/EndToEnd/downloads.py DOWNLOADER [--files N] [--largest BYTES] [--kills N]
        [--rate BYTES] [--seed N]

A server answers ranges, slowly, and breaks connections. What must hold at the end:

- each file has the SHA-256 that it has on the server;
- no byte is fetched twice that was fetched more than a checkpoint's interval (a second) before the
  connection or the process ended; what was under way in between counts, too.
"""

import argparse
import hashlib
import http.server
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# A second is the interval of checkpoints. What is sent meanwhile may wait in buffers, in a process
# that shares two processors with the server.
INTERVAL = 1.0
SLACK = 1.0


def content(number, size):
    """The bytes of a file, which look random and are made quickly."""
    block = random.Random(number).randbytes(1 << 16)
    data = bytearray((block * (size // len(block) + 1))[:size])
    for place in range(0, size, 1 << 16):
        data[place : place + 8] = place.to_bytes(8, "big")[: len(data[place : place + 8])]
    return bytes(data)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files, rate, seed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.rate = rate
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        # For each file, when it was sent up to which byte, and when its last connection ended.
        self.sent = {name: [] for name in files}
        self.ended = {}
        self.problems = []
        self.bytes_sent = 0
        self.breaks = 0
        self.greatest_repeat = 0

    def handle_error(self, request, client_address):
        # A client that is killed resets its connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def begin(self, name, offset):
        """Checks what a request fetches again, and returns where its connection breaks."""
        with self.lock:
            history = self.sent[name]
            repeated = [(date, end) for date, end in history if end > offset]
            if repeated:
                self.greatest_repeat = max(self.greatest_repeat, history[-1][1] - offset)
                age = self.ended.get(name, time.monotonic()) - repeated[0][0]
                if age > INTERVAL + SLACK:
                    self.problems.append(
                        f"{name}: bytes from {offset} on were sent {age:.1f} s before the connection "
                        f"ended, and are fetched again"
                    )
            self.sent[name] = [(date, end) for date, end in history if end <= offset]
            rest = len(self.files[name]) - offset
            if rest > 1 << 20 and self.random.random() < 0.4:
                self.breaks += 1
                return offset + self.random.randrange(rest)
            return None

    def note(self, name, count, end):
        with self.lock:
            self.bytes_sent += count
            self.sent[name].append((time.monotonic(), end))

    def end(self, name):
        with self.lock:
            self.ended[name] = time.monotonic()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        name = self.path.lstrip("/")
        data = self.server.files.get(name)
        if data is None:
            return self.send_error(404)
        version = f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        offset = 0
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes=") and self.headers.get("If-Range") == version:
            offset = int(wanted[6:].split("-")[0])
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        if offset >= len(data) > 0:
            # The file is there already: nothing is left to send.
            self.send_response(206)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("ETag", version)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        breaks_at = self.server.begin(name, offset)
        try:
            self.send_response(206 if offset else 200)
            if offset:
                self.send_header("Content-Range", f"bytes {offset}-{len(data) - 1}/{len(data)}")
            self.send_header("ETag", version)
            self.send_header("Content-Length", str(len(data) - offset))
            self.end_headers()
            step = 1 << 15
            while offset < len(data):
                if breaks_at is not None and offset >= breaks_at:
                    self.connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    )
                    self.close_connection = True
                    return self.connection.close()
                chunk = data[offset : offset + step]
                self.wfile.write(chunk)
                offset += len(chunk)
                self.server.note(name, len(chunk), offset)
                time.sleep(len(chunk) / self.server.rate)
        except (BrokenPipeError, ConnectionResetError, OSError):
            self.close_connection = True
        finally:
            self.server.end(name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("downloader")
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--largest", type=int, default=50 << 20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rate", type=int, default=8 << 20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    choice = random.Random(options.seed)
    sizes = [0, options.largest] + [choice.randrange(options.largest) for _ in range(options.files - 2)]
    files = {f"file-{number}.bin": content(number, size) for number, size in enumerate(sizes)}
    server = Server(files, options.rate, options.seed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # All files take about this long.
    whole = sum(sizes) / (5 * options.rate)
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"{server.url}/{name}" for name in files]
        command = [options.downloader, folder] + urls
        kills = 0
        while kills < options.kills:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            try:
                process.communicate(timeout=0.5 + choice.random() * 2 * whole / (options.kills + 1))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
        # Without URLs, it goes on with what is left.
        last = subprocess.run(
            [options.downloader, folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=600,
        )
        problems = list(server.problems)
        if last.returncode != 0:
            problems.append(f"the last process ended with {last.returncode}: {last.stdout.decode()[-500:]}")
        for name, data in files.items():
            path = os.path.join(folder, name)
            if not os.path.exists(path):
                problems.append(f"{name} is missing")
                continue
            with open(path, "rb") as file:
                if hashlib.sha256(file.read()).digest() != hashlib.sha256(data).digest():
                    problems.append(f"{name} differs")
        total = sum(sizes)
        print(
            f"{len(files)} files, {total >> 20} MB, {kills} kills, {server.breaks} broken connections, "
            f"{server.bytes_sent - total} bytes fetched again, at most {server.greatest_repeat} at once"
        )
        for problem in problems[:20]:
            print("FAILED:", problem)
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
