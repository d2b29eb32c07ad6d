"""Checkouts in steps, in a process that is killed again and again.

    python3 Tests/EndToEnd/steps.py STEP_WORKER [--orders N] [--kills N] [--seed N]

A server records each effect with its key. The worker writes a line for each step that has returned.
What must hold at the end:

- a step that has returned is not performed again;
- a step that must not be repeated is performed at most once, or is asked for first;
- each order ends: it has succeeded, or is a dead letter whose step was interrupted;
- each interrupted step that must not be repeated is reported: it was asked for, or its order is a
  dead letter.
"""

import argparse
import http.server
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, log, seed):
        super().__init__(("127.0.0.1", 0), Handler)
        self.log = log
        self.effects = Counter()
        self.problems = []
        self.waiting = []
        self.lock = threading.Lock()
        self.random = random.Random(seed)

    def handle_error(self, request, client_address):
        # A client that is killed resets its connections.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def returned(self):
        try:
            with open(self.log, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return set()
        return {line.split(" ", 1)[1] for line in lines if line.startswith("returned ")}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_POST(self):
        server = self.server
        length = int(self.headers.get("Content-Length", 0))
        fields = json.loads(self.rfile.read(length) or b"{}")
        text = ""
        with server.lock:
            delay = server.random.random() * 0.02
            if self.path == "/perform":
                key = fields["key"]
                if key in server.returned():
                    server.problems.append(f"{key} has returned, and was performed again")
                server.effects[key] += 1
                text = f"receipt {key}"
            elif self.path == "/performed":
                text = f"receipt {fields['key']}" if server.effects[fields["key"]] else ""
            elif self.path == "/approve":
                server.waiting.append((time.monotonic() + server.random.random(), fields["token"]))
        if self.path == "/approved":
            with server.lock:
                server.waiting = [entry for entry in server.waiting if entry[1] != fields["token"]]
        if self.path == "/approvals":
            # The answer waits for tokens that are due, so that the worker need not ask all the time.
            for _ in range(20):
                with server.lock:
                    now = time.monotonic()
                    due = [token for date, token in server.waiting if date <= now]
                if due:
                    break
                time.sleep(0.02)
            text = "\n".join(due)
        time.sleep(delay)
        body = text.encode()
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass


def lines(path, beginning):
    with open(path, encoding="utf-8") as file:
        found = [line[len(beginning) :] for line in file.read().splitlines() if line.startswith(beginning)]
    return found


def check(server, log, orders, output):
    problems = list(server.problems)
    dead = dict(re.findall(r"^dead letter (\S+): (.*)$", output, re.M))
    for reason in dead.values():
        if "the step 'wire' was interrupted" not in reason:
            problems.append(f"a dead letter says '{reason}'")
    begun = dict(reversed(line.split(" ")) for line in lines(log, "begun "))
    ended = set(lines(log, "ended "))
    for task, number in begun.items():
        if number in ended or task in dead:
            continue
        problems.append(f"order {number} has not ended")
    if len(set(begun.values())) != orders:
        problems.append(f"{len(set(begun.values()))} orders were performed, of {orders}")
    if "done" not in output:
        problems.append("the last process did not end by itself")
    asked = Counter(lines(log, "asked "))
    wires = {key: count for key, count in server.effects.items() if key.endswith("/wire")}
    for key, count in wires.items():
        if count > 1:
            problems.append(f"{key} was performed {count} times")
    returned = server.returned()
    for key in wires:
        task = key.rsplit("/", 1)[0]
        if key not in returned and key not in asked and task not in dead:
            problems.append(f"{key} was interrupted, and nothing reports it")
    for number in range(orders):
        tasks = [task for task, other in begun.items() if other == str(number)]
        for task in tasks:
            if task in dead:
                continue
            for step in ["charge", "label", "mail", "pick[1]", "pick[2]", "pick[3]", "ship", "remind", "close"]:
                if not server.effects[f"{task}/{step}"]:
                    problems.append(f"{task}/{step} was never performed")
    return problems, len(dead), sum(asked.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    choice = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "orders.jsonl")
        log = file + ".steps"
        server = Server(log, options.seed)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [options.worker, file, server.url, str(options.orders)]
        kills = 0
        while kills < options.kills:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            try:
                process.wait(timeout=0.3 + choice.random() * 0.7)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                kills += 1
                continue
            output = process.stdout.read().decode()
            if process.returncode != 0:
                sys.exit(f"the worker ended with {process.returncode}:\n{output}")
            break
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        output = process.stdout.decode()
        problems, dead, asked = check(server, log, options.orders, output)
        effects = sum(server.effects.values())
        repeated = sum(count - 1 for count in server.effects.values())
        print(
            f"{options.orders} orders, {kills} kills, {effects} effects, {repeated} repeated before they "
            f"had returned, {asked} asked, {dead} dead letters"
        )
        if process.returncode != 0 or problems:
            print(output[-2000:])
            for problem in problems[:20]:
                print("FAILED:", problem)
            sys.exit(1)
        server.shutdown()


if __name__ == "__main__":
    main()
