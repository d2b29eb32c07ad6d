"""An HTTP server that takes files by PUT and fails about a third of the requests on purpose.

It drops connections before, while and after it reads, answers 500, 503 and 429, answers late, and
sometimes not at all. A file has arrived when its whole body was read and the answer is 201; what
was dropped or refused does not count, so a client that takes a failure for a success is found out.

    python3 Tests/EndToEnd/server.py [PORT]
"""

import email.utils
import hashlib
import http.server
import random
import socket
import struct
import sys
import threading
import time
import urllib.parse
from collections import Counter, defaultdict

FAULTS = (
    "drop before the body",
    "drop within the body",
    "drop before the answer",
    "reset before the answer",
    "500",
    "503",
    "429 with seconds",
    "429 with a date",
    "late answer",
    "no answer",
)


class Server(http.server.ThreadingHTTPServer):
    """Listens on a port of its own once `start` is called; until then connections are refused.

    `fault_rate` is the share of requests that fail, `longest_wait` the time in seconds up to which
    a late answer is late. `answers` maps paths to the status that they always get.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, seed, fault_rate=1 / 3, longest_wait=3.0, answers=None, port=0):
        super().__init__(("127.0.0.1", port), Handler, bind_and_activate=False)
        self.server_bind()
        self.answers = answers or {}
        self.fault_rate = fault_rate
        self.longest_wait = longest_wait
        self.faults = Counter()
        self.strangers = []
        self.impatient = []
        self.requests = []
        self.stopping = threading.Event()
        self._random = random.Random(seed)
        self._arrivals = defaultdict(list)
        self._not_before = {}
        self._count = 0
        self._changed = threading.Condition()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def start(self):
        self.server_activate()
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self):
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def draw(self):
        """Decides how the next request fails, if it does, and a number from 0 to 1."""
        with self._changed:
            number = self._random.random()
            if self._random.random() >= self.fault_rate:
                return None, number
            fault = self._random.choice(FAULTS)
            self.faults[fault] += 1
            return fault, number

    def ask_to_wait(self, path, date):
        with self._changed:
            self._not_before[path] = date

    def asked(self, path):
        """Notes a request, and whether it comes before the date that `Retry-After` has named."""
        with self._changed:
            self.requests.append(path)
            early = self._not_before.pop(path, 0) - time.time()
            # The two processes read the same clock, but not with the same precision.
            if early > 0.01:
                self.impatient.append(f"{path} by {early:.2f} s")

    def arrived(self, path, digest, size):
        with self._changed:
            self._arrivals[path].append((digest, size))
            self._count += 1
            self._changed.notify_all()

    @property
    def arrivals(self):
        """What has arrived: for each path the SHA-256 and size of each arrival."""
        with self._changed:
            return {path: list(files) for path, files in self._arrivals.items()}

    @property
    def arrival_count(self):
        with self._changed:
            return self._count

    def wait_for_arrivals(self, count, unless, timeout=60):
        """Waits until so many files have arrived, or `unless()` is true; says which."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._count < count:
                if unless():
                    return False
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._count} of {count} arrivals after {timeout} s")
                self._changed.wait(0.2)
        return True

    def handle_error(self, request, client_address):
        # A client that was killed is no news.
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        self.server.asked(path)
        status = self.server.answers.get(path)
        fault, number = (None, 0) if status else self.server.draw()
        length = int(self.headers.get("Content-Length", 0))
        if fault == "drop before the body":
            return self.drop()
        if fault == "drop within the body":
            self.read(int(length * number))
            return self.drop()
        body = self.read(length)
        if body is None or fault == "drop before the answer":
            return self.drop()
        if fault == "reset before the answer":
            return self.reset()
        if fault == "no answer":
            return self.wait_for_hang_up()
        if fault == "late answer":
            self.server.stopping.wait(self.server.longest_wait * number)
        if fault and fault[0].isdigit():
            return self.refuse(fault, path)
        if status is None:
            self.server.arrived(path, *body)
        self.answer(status or 201)

    def do_GET(self):
        self.server.strangers.append(f"{self.command} {self.path}")
        self.answer(405)

    do_HEAD = do_POST = do_DELETE = do_GET

    def read(self, length):
        """Reads the body; its SHA-256 and size, or nothing if the client hangs up within it."""
        digest, rest = hashlib.sha256(), length
        while rest > 0:
            piece = self.rfile.read(min(rest, 1 << 16))
            if not piece:
                return None
            digest.update(piece)
            rest -= len(piece)
        return digest.hexdigest(), length

    def refuse(self, fault, path):
        headers, now = {}, time.time()
        if fault == "429 with seconds":
            headers["Retry-After"] = "1"
            self.server.ask_to_wait(path, now + 1)
        if fault == "429 with a date":
            # HTTP dates have no fractions.
            headers["Retry-After"] = email.utils.formatdate(int(now) + 2, usegmt=True)
            self.server.ask_to_wait(path, int(now) + 2)
        self.answer(int(fault[:3]), headers, b"not now\n")

    def answer(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if 300 <= status < 400:
            self.send_header("Location", self.server.url + "/elsewhere")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drop(self):
        self.close_connection = True

    def reset(self):
        no_lingering = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_lingering)
        self.close_connection = True

    def wait_for_hang_up(self):
        self.close_connection = True
        while self.connection.recv(1024):
            pass

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    server = Server(seed=1, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
    print(f"takes files at {server.url}/", flush=True)
    server.server_activate()
    server.serve_forever()
