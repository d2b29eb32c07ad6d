"""Reads a queue's file and prints its tasks and values: a second reader, written from the article "The file
format" alone, so that the article can be trusted.

    python3 Tests/EndToEnd/read_queue_file.py queue.jsonl   # prints the tasks and values as JSON
    python3 Tests/EndToEnd/read_queue_file.py --golden      # checks the golden files
    python3 Tests/EndToEnd/read_queue_file.py --files DIR   # checks the files that tests have made

Each file `NAME.jsonl` is checked against `NAME.tasks.json`. Tests put their files into the folder
that STEADFAST_FILES names.

It is strict where the article says that a file is refused, and changes no file.
"""

import base64
import json
import math
import re
import sys
import unicodedata
from pathlib import Path

MAX_LINE = 16 << 20
MAX_RESERVATION = 64 << 20
MAX_DEPTH = 64
MAX_FIELDS = 64
MAX_TOKEN = 64
MAX_QUEUE = 255
MAX_NOTED = 1000
REFERENCE = 978307200.0  # seconds from 1970 to 2001
DISTANT_PAST = -62135769600.0
DISTANT_FUTURE = 64092211200.0  # no task that is suspended until then is ever due
ENDED = {"succeeded", "abandoned", "cancelled"}
FORMS = ("payload", "data", "sealed", "sealedData")
STATES = ENDED | {"waiting", "suspended", "parked", "paused"}
NOTES = {"abandoned": "afterAbandoned", "cancelled": "afterCancelled"}
COUNTS = ("members", "membersSucceeded", "membersFailed")
DEPENDENCIES = ("after", "when", "follower", *NOTES.values(), "cause", *COUNTS)

ENVELOPE = re.compile(
    rb'{"c":"([0-9a-f]{8})","b":(0|[1-9][0-9]*),"s":(0|[1-9][0-9]*),(?:("more":true),)?("k":.*)}',
    re.DOTALL,
)
UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")


class Refused(Exception):
    pass


class Number(str):
    """A number as it is written: an integer must not go through a double."""


def crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (0x82F63B78 if byte & 1 else 0) ^ (byte >> 1)
        table.append(byte)
    return table


TABLE = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class Object(list):
    """The fields of a JSON object, as pairs: a name that is there twice must be seen."""


class Line:
    """A line that is not bad."""

    def __init__(self, number, data):
        match = ENVELOPE.fullmatch(data) if len(data) <= MAX_LINE else None
        if not match or crc32c(data[len('{"c":"00000000') :]) != int(match[1], 16):
            raise ValueError("bad")
        self.number = number
        self.durable = int(match[2])
        self.sequence = int(match[3])
        self.more = match[4] is not None
        self.body = match[5]
        if self.durable >= 1 << 64 or self.sequence >= 1 << 64:
            raise ValueError("bad")


def split(data):
    """The lines, None for a bad one, and whether anything stands behind the last line feed."""
    parts = data.split(b"\n")
    rest = parts.pop()
    lines = []
    for number, part in enumerate(parts, 1):
        try:
            lines.append(Line(number, part))
        except ValueError:
            lines.append(None)
    return lines + ([None] if rest else [])


def seal_at_end(data):
    """The seal that ends the last line, if it is not bad by itself."""
    start = data.rfind(b"{")
    if start < 0 or not data.endswith(b'"k":"seal"}\n'):
        return None
    try:
        return Line(0, data[start:-1])
    except ValueError:
        return None


def is_returned(data):
    """Whether the first line is not bad but for a carriage return at its end."""
    first, feed, _ = data.partition(b"\n")
    try:
        return bool(feed) and first.endswith(b"\r") and bool(Line(1, first[:-1]))
    except ValueError:
        return False


def batches(lines, seal, returned=False):
    """The batches to take in, in order; refuses a damaged file."""
    taken = 0
    batch = []
    for index, line in enumerate(lines):
        if line is None:
            known = [later for later in lines[index:] if later]
            if index == 0:
                raise Refused("line 1 is damaged" if known or returned else "this is no queue file")
            if any(later.durable > taken for later in known + ([seal] if seal else [])):
                raise Refused(f"line {index + 1} is damaged, and later ones show that it was stored")
            return
        if line.sequence != taken + len(batch):
            raise Refused(f"line {line.number} has another number than the next")
        if line.durable > line.sequence:
            raise Refused(f"line {line.number} was stored before it was written")
        if batch and batch[0].durable != line.durable:
            raise Refused(f"line {line.number} follows a batch without an end")
        batch.append(line)
        if not line.more:
            yield batch
            taken += len(batch)
            batch = []


class Fields:
    """The fields of a line, with their values checked."""

    def __init__(self, line):
        self.line = line
        try:
            pairs = json.loads(
                b"{" + line.body + b"}",
                object_pairs_hook=Object,
                parse_int=Number,
                parse_float=Number,
                parse_constant=self.refuse,
            )
        except (ValueError, RecursionError) as error:
            self.refuse(error)
        self.kind = pairs[0][1]
        self.values = dict(pairs[1:])
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names) or len(names) > MAX_FIELDS + 1:
            self.refuse("it has a field twice, or too many")
        if any(len(name.encode()) > MAX_TOKEN for name in names):
            self.refuse("the name of a field is too long")
        if not isinstance(self.kind, str) or isinstance(self.kind, Number):
            self.refuse("it has no kind")

    def refuse(self, reason):
        raise Refused(f"line {self.line.number}: {reason}")

    def has(self, name):
        return name in self.values

    def value(self, name):
        if name not in self.values:
            self.refuse(f"it has no field '{name}'")
        return self.values[name]

    def text(self, name):
        value = self.value(name)
        if not isinstance(value, str) or isinstance(value, Number):
            self.refuse(f"'{name}' is not a text")
        return value

    def texts(self, name):
        values = self.value(name)
        if not isinstance(values, list) or any(type(value) is not str for value in values):
            self.refuse(f"'{name}' is not a list of texts")
        return values

    def metadata(self):
        """Texts under names, of which no two look the same."""
        pairs = self.value("metadata")
        if not isinstance(pairs, Object) or any(type(text) is not str for _, text in pairs):
            self.refuse("its metadata is no object of texts")
        names = {unicodedata.normalize("NFD", name) for name, _ in pairs}
        length = sum(len(name.encode()) + len(text.encode()) for name, text in pairs)
        if len(names) < len(pairs) or len(pairs) > 64 or length > 4096 or "" in names:
            self.refuse("its metadata has a bad name, or too much text")
        if any("\0" in name + text for name, text in pairs):
            self.refuse("its metadata has a NUL")
        return dict(pairs)

    def failures(self, name):
        values = self.value(name)
        pairs = values if isinstance(values, list) else []
        if not pairs or any(not isinstance(pair, list) or len(pair) != 2 for pair in pairs):
            self.refuse(f"'{name}' is not a list of failures")
        if any(type(text) is not str for text, _ in pairs):
            self.refuse(f"'{name}' has a text that is none")
        failures = [[text, float(self.number(name, date))] for text, date in pairs]
        if not all(math.isfinite(date) for _, date in failures):
            self.refuse(f"'{name}' has a date that is not finite")
        if self.has("attempts"):
            attempts = self.texts("attempts")
            if len(attempts) != len(failures):
                self.refuse("'attempts' are not those of its failures")
            failures = [
                failure + [attempt] if attempt else failure
                for failure, attempt in zip(failures, attempts)]
        return failures[-4:]

    def number(self, name, value):
        if not isinstance(value, Number) or len(value) > MAX_TOKEN:
            self.refuse(f"'{name}' is not a number")
        return value

    def integer(self, name, low=-(1 << 63), high=(1 << 63) - 1):
        text = self.number(name, self.value(name))
        if not re.fullmatch("-?[0-9]+", text) or not low <= int(text) <= high:
            self.refuse(f"'{name}' is out of range")
        return int(text)

    def count(self, name):
        return self.integer(name, 0)

    def date(self, name):
        date = float(self.number(name, self.value(name)))
        if not math.isfinite(date):
            self.refuse(f"'{name}' is not finite")
        return date

    def flag(self, name, value=True):
        if self.has(name) and self.value(name) is not value:
            self.refuse(f"'{name}' is not {value}")
        return self.has(name)

    def truth(self, name):
        value = self.value(name)
        if value is not True and value is not False:
            self.refuse(f"'{name}' is neither true nor false")
        return value

    def identity(self, text):
        if type(text) is not str or not UUID.fullmatch(text):
            self.refuse("its identity is none")
        return text.lower()

    def id(self, name="id"):
        return self.identity(self.text(name))

    def ids(self, name):
        """The identities in a field, in their order; none if it is not there."""
        values = self.value(name) if self.has(name) else []
        if not isinstance(values, list) or self.has(name) and not values:
            self.refuse(f"'{name}' is not a list of identities")
        return sorted(set(map(self.identity, values)))

    def queue(self):
        """The name of a queue; empty if it is not there."""
        name = self.text("queue") if self.has("queue") else ""
        if len(name.encode()) > MAX_QUEUE or min(name.encode(), default=0x20) < 0x20:
            self.refuse("the name of its queue is none")
        return name

    def duration(self, name):
        value = self.value(name)
        if not isinstance(value, list) or len(value) != 2:
            self.refuse(f"'{name}' is not a duration")
        parts = [self.number(name, part) for part in value]
        if not all(re.fullmatch("-?[0-9]+", part) for part in parts):
            self.refuse(f"'{name}' is not a duration")
        seconds, attoseconds = map(int, parts)
        if not 0 < seconds * 10**18 + attoseconds <= 10**18 << 60:
            self.refuse(f"'{name}' is out of range")
        return [seconds, attoseconds]


def plain(value):
    """A payload with its numbers as Python has them."""
    if isinstance(value, Number):
        return json.loads(value)
    if isinstance(value, Object):
        return {name: plain(item) for name, item in value}
    return [plain(item) for item in value] if isinstance(value, list) else value


class Tasks:
    """What the lines come to."""

    def __init__(self):
        self.tasks = {}
        self.places = {}
        self.roles = {}  # the identity of the task, by queue, name, key and role
        self.naming = {}  # the identities of the tasks, by field and the identity that it names
        self.early_members = {}  # what counts for a follower that is not there yet
        self.values = {}  # the bytes, by name
        self.memories = {}  # what each task remembers: the bytes, by name
        self.counter = 0
        self.generation = 0
        self.has_changed = False
        self.last_kept = None  # the identity of the task that the last line has kept

    def follow(self, line):
        fields = Fields(line)
        if (fields.kind == "header") != (line.sequence == 0):
            fields.refuse("a header stands elsewhere than at the beginning")
        step = getattr(self, "do_" + fields.kind, None)
        if step is None:
            fields.refuse(f"the kind '{fields.kind}' is of a newer version")
        if fields.has("metadata") != (fields.kind in ("create", "stored", "edit")):
            fields.refuse("only a line of another kind may have metadata, or lack it")
        if fields.kind in ("task", "kept", "stored") and self.has_changed:
            fields.refuse("a kept task stands behind changes")
        self.has_changed |= fields.kind not in (
            "header", "task", "kept", "stored", "memory", "begin"
        )  # fmt: skip
        self.last_kept = step(fields)

    def do_header(self, fields):
        if fields.text("format") != "steadfast-queue":
            fields.refuse("it is of another format")
        if fields.integer("version", 1) > 1:
            fields.refuse("the file is of a newer version")
        self.generation = fields.integer("generation", 1)

    def do_compacted(self, fields):
        fields.date("at")
        fields.integer("before")

    def do_seal(self, fields):
        pass

    def do_interruption(self, fields):
        self.interrupt()

    def interrupt(self):
        for task in self.tasks.values():
            if task["state"] == "running":
                task["state"] = "waiting"
                self.add_interruption(task)

    def add_interruption(self, task):
        task["interruptions"] = min(task.get("interruptions", 0) + 1, (1 << 63) - 1)

    # Tasks

    def do_insert(self, fields):
        task = self.record(fields)
        replaces = fields.flag("replace")
        holder = self.old_holder(task)
        if holder is not None:
            if not replaces:
                fields.refuse("its key is held")
            if self.tasks[holder]["state"] == "running":
                self.tasks[holder]["keyless"] = True
                self.leave_role(self.tasks[holder])
            else:
                self.drop(holder, self.tasks[holder]["state"] in ENDED)
        self.add(fields, task, "holder")
        self.join(task)
        self.move(task["id"])

    def do_create(self, fields):
        return self.do_add(fields)

    def do_add(self, fields):
        task = self.record(fields)
        role = self.role(fields)
        reasons = ("key", "order", "requires", "metadata", *DEPENDENCIES)
        is_plain = "queue" not in task and task["state"] != "suspended"
        if is_plain and not any(map(fields.has, reasons)):
            fields.refuse("it adds a task that an insert would add")
        if role and "key" not in task:
            fields.refuse("it has a role, and no unique key")
        if fields.has("into"):
            if role:
                fields.refuse("it has a role, and was taken over")
            return self.take_over(fields, fields.id("into"), task)
        self.displace(task, role or "holder")
        self.add(fields, task, role or "holder")
        self.join(task)
        self.promote(self.key(task))
        if "order" in task:
            self.counter += 1
            task["orderNumber"] = self.counter
        self.move(task["id"])

    def do_task(self, fields):
        return self.keep(fields, is_old=True)

    def do_kept(self, fields):
        return self.keep(fields, is_old=False)

    def do_stored(self, fields):
        return self.keep(fields, is_old=False)

    def keep(self, fields, is_old):
        task = self.record(fields)
        place = fields.integer("place", 0, (1 << 63) - 2)
        role = (None if is_old else self.role(fields)) or "holder"
        if fields.flag("keyless"):
            if is_old or "expires" not in task or task["state"] in ENDED:
                task["keyless"] = True
            else:
                role = None
        elif is_old and self.old_holder(task) is not None:
            fields.refuse("its key is held")
        self.add(fields, task, role)
        self.places[task["id"]] = place
        if "order" in task:
            task["orderNumber"] = fields.integer("orderNumber", 0, (1 << 63) - 2)
        self.counter = max(self.counter, place, task.get("orderNumber", 0))
        return task["id"]

    def add(self, fields, task, role):
        self.tasks[task["id"]] = task
        for name, id in self.named(task):
            self.naming.setdefault((name, id), set()).add(task["id"])
        if "key" not in task or "keyless" in task or task["state"] in ENDED or role is None:
            return
        if (*self.key(task), role) in self.roles:
            fields.refuse(f"its key has a {role}")
        self.take_role(task, role)

    def drop(self, id, has_ended=True):
        task = self.tasks.pop(id)
        self.memories.pop(id, None)
        if not has_ended and "follower" in task:
            self.count(task["follower"], ["members"], -1)
        del self.places[id]
        for name, other in self.named(task):
            self.naming[name, other].remove(id)
        self.leave_role(task)

    # Unique keys

    def role(self, fields):
        if not fields.has("role"):
            return None
        if fields.text("role") not in ("holder", "successor"):
            fields.refuse("its role is none")
        return fields.text("role")

    def key(self, task):
        return task.get("queue", ""), task["name"], task.get("key")

    def old_holder(self, task):
        """The task that held the key by the old rules: of any name, and even if it has ended."""
        for other in self.tasks.values():
            if "key" in task and other.get("key") == task["key"] and "keyless" not in other:
                if other.get("role") != "successor":
                    return other["id"]
        return None

    def take_role(self, task, role):
        task["role"] = role
        self.roles[*self.key(task), role] = task["id"]

    def displace(self, task, role):
        """Takes a role from tasks that have expired, for a new task."""
        if "key" not in task or task["state"] in ENDED:
            return
        roles = ["holder", "successor"] if role == "holder" else ["successor"]
        keys = [key for role in roles if (key := (*self.key(task), role)) in self.roles]
        others = [self.tasks[self.roles[key]] for key in keys]
        if all(
            other["state"] != "running" and other.get("expires", math.inf) <= task["created"]
            for other in others
        ):
            for key, other in zip(keys, others):
                del self.roles[key], other["role"]

    def is_displaced(self, task):
        has_lost_role = "key" in task and "keyless" not in task and "role" not in task
        return has_lost_role and task["state"] not in ENDED

    def leave_role(self, task):
        role = task.pop("role", None)
        if role:
            del self.roles[*self.key(task), role]
            self.promote(self.key(task))

    def promote(self, key):
        successor = self.roles.get((*key, "successor"))
        if successor and (*key, "holder") not in self.roles:
            del self.roles[*key, "successor"]
            self.take_role(self.tasks[successor], "holder")

    def take_over(self, fields, id, new):
        task = self.tasks.get(id)
        if task is None or "role" not in task or task["state"] == "running":
            fields.refuse("no such task can take it over")
        if self.key(task) != self.key(new):
            fields.refuse("the task that takes it over has another key")
        old = dict(task)
        options = ("maxRetries", "priority", "backoff", "tags", "metadata", "limit", "expires", "schema", "requires")
        for name in options + FORMS + ("uniqueUntil",):
            task.pop(name, None)
            if name in new:
                task[name] = new[name]
        if "latestDate" not in task and "latestDate" in new:
            task["latestDate"] = new["latestDate"]
        if task["state"] == "suspended":
            self.wake(task)
        if task["state"] == "parked":
            task["state"] = "waiting"
        latest = task.get("latestDate", math.inf)
        if task["putOff"]:
            takes_date = new["available"] > task["available"]
        else:
            takes_date = new["available"] > new["created"] or new["available"] < task["available"]
        if takes_date:
            task["available"], task["from"] = new["available"], new["from"]
        if not task["putOff"] and new["available"] > new["created"] and latest < new["available"]:
            task["available"], task["from"] = latest, task["created"]
        if any(task[name] != old[name] for name in ("state", "available", "priority")):
            self.move(id)

    def supersede(self, task):
        other = self.tasks[self.roles[*self.key(task), "successor"]]
        if task["available"] >= other["available"]:
            other["available"], other["from"] = task["available"], task["from"]
        for name in ("retries", "interruptions", "error", "failed", "attempt", "earlier", "putOff"):
            other.pop(name, None)
            if name in task:
                other[name] = task[name]
        self.drop(task["id"], has_ended=False)

    def move(self, id):
        self.counter += 1
        self.places[id] = self.counter

    def record(self, fields):
        task = {"id": fields.id(), "name": fields.text("name")}
        if task["id"] in self.tasks:
            fields.refuse("its identity is taken")
        task["priority"] = fields.integer("priority")
        task["created"] = fields.date("created")
        task["available"] = fields.date("available")
        task["maxRetries"] = self.max_retries(fields)
        task["state"] = fields.text("state") if fields.has("state") else "waiting"
        if task["state"] not in STATES:
            fields.refuse("its state is none")
        if fields.flag("backoff", False):
            task["backoff"] = False
        for name in ("tags", "requires"):
            if fields.has(name):
                task[name] = sorted(set(fields.texts(name)), key=str.encode)
        if fields.has("metadata"):
            task["metadata"] = fields.metadata()
            if not task["metadata"]:
                fields.refuse("its metadata is empty")
        if fields.flag("holds"):
            task["holds"] = True
        readers = {
            "key": fields.text, "order": fields.text, "uniqueUntil": fields.date, "latestDate": fields.date, "limit": fields.duration, "expires": fields.date,
            "schema": fields.integer, "retries": fields.count, "interruptions": fields.count,
            "error": fields.text, "failed": fields.date, "attempt": fields.text, "earlier": fields.failures,
            "knows": fields.integer, "ended": fields.date,
        }  # fmt: skip
        for name, read in readers.items():
            if fields.has(name):
                task[name] = read(name)
        if fields.queue():
            task["queue"] = fields.queue()
        self.read_dependencies(fields, task)
        has_retries = task.get("retries", 0) > 0
        task["putOff"] = fields.truth("putOff") if fields.has("putOff") else has_retries
        self.count_from(task, fields)
        self.read_payload(fields, task)
        return task

    def usual_origin(self, task):
        """The date from which that of a task was counted if no line says so."""
        if task["state"] == "suspended":
            return None
        is_at_once = task["available"] <= task["created"]
        return task["created"] if is_at_once else task.get("failed")

    def count_from(self, task, fields):
        """Notes the date from which that of a task was counted; None if it was chosen."""
        origin = fields.date("from") if fields.has("from") else self.usual_origin(task)
        # A date that is equal to that of the addition counts as counted from it.
        chosen = task["created"] if task["available"] == task["created"] else None
        task["from"] = chosen if origin in (None, DISTANT_PAST) else origin

    def read_dependencies(self, fields, task):
        if ids := fields.ids("after"):
            task["after"] = ids
        if fields.has("when"):
            if fields.text("when") not in ("allSucceeded", "allEnded"):
                fields.refuse("it waits for something unknown")
            if fields.text("when") == "allEnded":
                task["when"] = "allEnded"
        if fields.has("follower"):
            task["follower"] = fields.id("follower")
        if task["id"] in (*task.get("after", []), task.get("follower")):
            fields.refuse("it waits for itself")
        found = {name: fields.ids(name) for name in NOTES.values() if fields.has(name)}
        if fields.has("cause") and (cause := fields.id("cause")) and task["state"] == "cancelled":
            found["cause"] = cause
        if fields.has("members"):
            found |= {name: fields.count(name) for name in COUNTS}
            if found["membersSucceeded"] + found["membersFailed"] > found["members"]:
                fields.refuse("more tasks of its batch have ended than it has")
        # Of a new task, the file says what it finds of others.
        if fields.kind in ("task", "kept", "stored"):
            task |= found

    def max_retries(self, fields):
        is_text = fields.value("maxRetries") == "always"
        return "always" if is_text else fields.count("maxRetries")

    def read_payload(self, fields, task):
        forms = [name for name in FORMS if fields.has(name)]
        if len(forms) != 1:
            fields.refuse("it has no payload, or several")
        if forms == ["payload"]:
            task["payload"] = plain(fields.value("payload"))
        else:
            self.base64(fields, forms[0])
            task[forms[0]] = fields.text(forms[0])

    # Changes

    def task(self, fields, *states):
        task = self.tasks.get(fields.id())
        if task is None or task["state"] not in states:
            fields.refuse(f"no such task is {' or '.join(states)}")
        return task

    def note(self, fields, task):
        if "error" in task and "failed" in task:
            last = [task["error"][:500], task["failed"]]
            if "attempt" in task:
                last.append(task["attempt"])
            task["earlier"] = (task.get("earlier", []) + [last])[-4:]
        task["error"], task["failed"] = fields.text("error"), fields.date("failed")
        task.pop("attempt", None)
        if fields.has("attempt"):
            task["attempt"] = fields.text("attempt")

    def wake(self, task):
        """Makes a suspended task wait, available at once."""
        task["state"], task["putOff"] = "waiting", False
        task["available"] = task["from"] = task["created"]

    def wait(self, task):
        task["state"] = "waiting"
        self.move(task["id"])

    def end(self, fields, task, state, date):
        for other in self.ending_along(task, state):
            self.end_alone(fields, other, "cancelled", date)
        self.end_alone(fields, task, state, date)

    def end_alone(self, fields, task, state, date):
        if not fields.flag("keep"):
            return self.drop(task["id"])
        task["state"], task["ended"] = state, date
        self.leave_role(task)
        self.move(task["id"])

    # Dependencies

    def named(self, task):
        """The identities that a task names, each with the field that does."""
        yield from (("after", id) for id in task.get("after", []))
        if "cause" in task:
            yield "cause", task["cause"]

    def naming_tasks(self, name, id):
        """The tasks that name an identity in a field, in the order of their own."""
        return [self.tasks[other] for other in sorted(self.naming.get((name, id), ()))]

    def dependents(self, task):
        follower = self.tasks.get(task.get("follower"))
        others = self.naming_tasks("after", task["id"]) + ([follower] if follower else [])
        return sorted({other["id"]: other for other in others}.values(), key=lambda t: t["id"])

    def waits_for_others(self, task):
        others = [self.tasks[id] for id in task.get("after", []) if id in self.tasks]
        is_open = any(other["state"] not in ENDED for other in others)
        return is_open or self.unfinished(task) > 0

    def join(self, task):
        """What a new task finds of those that it waits for, and means for its follower."""
        for id in task.get("after", []):
            if id in self.tasks and self.tasks[id]["state"] in NOTES:
                self.note_end(task, id, self.tasks[id]["state"])
        task |= self.early_members.pop(task["id"], {})
        if "follower" in task:
            counted = ["members"]
            if task["state"] in ENDED:
                counted.append(self.counter_of(task["state"]))
            self.count(task["follower"], counted, 1)

    def counter_of(self, state):
        return "membersSucceeded" if state == "succeeded" else "membersFailed"

    def count(self, follower, names, difference):
        """Changes the counts of a follower, as far as that is possible, even if it is not there."""
        is_there = follower in self.tasks
        old = self.tasks[follower] if is_there else self.early_members.get(follower, {})
        new = {name: old.get(name, 0) + (difference if name in names else 0) for name in COUNTS}
        is_possible = min(new.values()) >= 0 and self.unfinished(new) >= 0
        new = new if is_possible else old
        if is_there:
            old |= new
        elif self.unfinished(new) > 0 or new.get("members", 0) > old.get("members", 0):
            self.early_members[follower] = new
        else:
            self.early_members.pop(follower, None)

    def unfinished(self, task):
        return (
            task.get("members", 0) - task.get("membersSucceeded", 0) - task.get("membersFailed", 0)
        )

    def count_end(self, task, state, difference):
        if "follower" in task:
            self.count(task["follower"], [self.counter_of(state)], difference)

    def noted(self, task):
        return sorted(id for name in NOTES.values() for id in task.get(name, []))

    def note_end(self, task, id, state):
        if id not in self.noted(task) and len(self.noted(task)) < MAX_NOTED:
            task[NOTES[state]] = sorted([*task.get(NOTES[state], []), id])

    def forget_end(self, task, id):
        for name in NOTES.values():
            if id in task.get(name, []):
                task[name].remove(id)
                if not task[name]:
                    del task[name]

    def set_cause(self, task, cause):
        if "cause" in task:
            self.naming["cause", task.pop("cause")].remove(task["id"])
        if cause is not None:
            task["cause"] = cause
            self.naming.setdefault(("cause", cause), set()).add(task["id"])

    def ending_along(self, first, state):
        """Tells the tasks around one that it ends; those that are cancelled along with it, in the
        order of their identities."""
        ends = {first["id"]: (first, state)}
        following = [first["id"]]
        for id in following:
            task, state = ends[id]
            self.count_end(task, state, 1)
            if state == "succeeded":
                continue
            for other in self.dependents(task):
                self.note_end(other, id, state)
                if "when" in other or other["state"] in ENDED | {"running"} or other is first:
                    continue
                if other["id"] not in ends:
                    ends[other["id"]] = (other, "cancelled")
                    following.append(other["id"])
                    self.set_cause(other, id)
                self.set_cause(other, min(other["cause"], id))
        return [ends[id][0] for id in sorted(ends) if id != first["id"]]

    def restarting_along(self, first, excluded):
        """Tells the tasks around one that has ended that it waits again; those that are restarted
        along with it, in the order of their identities."""
        restarts = {first["id"]: first}
        keys = {self.key(first)}
        following = [first["id"]]
        for id in following:
            task = restarts[id]
            self.count_end(task, task["state"], -1)
            for other in self.dependents(task):
                self.forget_end(other, id)
            for other in self.naming_tasks("cause", id):
                if other["state"] != "cancelled" or other["id"] in restarts:
                    continue
                noted = self.noted(other)
                self.set_cause(other, next(filter(self.tasks.get, noted), None))
                key = self.key(other)
                is_taken = "key" in other and (key in keys or self.has_role(key))
                stays = noted or other.get("membersFailed", 0) > len(noted)
                if not stays and not is_taken and other["id"] not in excluded:
                    restarts[other["id"]] = other
                    keys.add(key)
                    following.append(other["id"])
        return [restarts[id] for id in sorted(restarts) if id != first["id"]]

    def has_role(self, key):
        return any((*key, role) in self.roles for role in ("holder", "successor"))

    def take_away(self, id):
        """Drops a task, and those that were cancelled because of its end."""
        self.drop(id)
        for other in self.naming_tasks("cause", id):
            if other["state"] == "cancelled" and other["id"] in self.tasks:
                self.take_away(other["id"])

    def do_begin(self, fields):
        task = self.task(fields, "waiting", "suspended", "running")
        if task["state"] == "suspended" and task["available"] >= DISTANT_FUTURE:
            fields.refuse("it is suspended without a date")
        if task.get("role") == "successor":
            fields.refuse("another task holds its key")
        if "order" in task and any(
            other is not task and other.get("order") == task["order"] and other["state"] == "running"
            for other in self.tasks.values()
            if other.get("queue") == task.get("queue")
        ):
            fields.refuse("another task with its order key is running")
        if task["state"] != "running" and self.last_kept != task["id"] and self.waits_for_others(task):
            fields.refuse("it waits for another task")
        if task["state"] == "running":
            self.add_interruption(task)
        task["state"] = "running"
        self.counter += 1

    def do_succeed(self, fields):
        task = self.task(fields, "running")
        self.memories.pop(task["id"], None)
        self.end(fields, task, "succeeded", fields.date("at"))

    def do_abandon(self, fields):
        task = self.task(fields, "running")
        self.note(fields, task)
        self.end(fields, task, "abandoned", task["failed"])

    def do_cancel(self, fields):
        task = self.task(fields, "running", "waiting", "suspended", "parked", "paused")
        self.end(fields, task, "cancelled", fields.date("at"))

    def do_retry(self, fields):
        task = self.task(fields, "running")
        task["available"], task["retries"] = fields.date("available"), fields.count("retries")
        task["interruptions"] = 0
        task["putOff"] = True
        task["state"] = "waiting"
        if fields.has("error"):
            self.note(fields, task)
            task["from"] = task["failed"]
        else:
            self.count_from(task, fields)
        if fields.flag("superseded"):
            if task.get("role") != "holder" or (*self.key(task), "successor") not in self.roles:
                fields.refuse("it has no successor")
            return self.supersede(task)
        self.wait(task)

    def do_release(self, fields):
        self.task(fields, "running")["state"] = "waiting"

    def do_park(self, fields):
        task = self.task(fields, "running")
        self.note(fields, task)
        task["state"] = "parked"
        task.pop("knows", None)
        if fields.has("knows"):
            task["knows"] = fields.integer("knows")
        self.move(task["id"])

    def do_pause(self, fields):
        task = self.task(fields, "running", "waiting", "suspended", "parked")
        if task["state"] == "suspended":
            self.wake(task)
        task["state"] = "paused"
        self.move(task["id"])

    def do_resume(self, fields):
        self.wait(self.task(fields, "paused"))

    def do_restart(self, fields):
        task = self.task(fields, "running", *STATES)
        available, excluded = fields.date("available"), fields.ids("except")
        if task["state"] in ENDED or self.is_displaced(task):
            if "key" in task and "keyless" not in task and (*self.key(task), "holder") in self.roles:
                fields.refuse("another task holds its key")
        if task["state"] in ENDED:
            for other in self.restarting_along(task, excluded):
                self.restart(other, available)
        if fields.flag("forgets"):
            self.memories.pop(task["id"], None)
        self.restart(task, available)

    def restart(self, task, available):
        if "key" in task and "keyless" not in task and "role" not in task:
            self.take_role(task, "holder")
        self.set_cause(task, None)
        task["available"] = task["from"] = available
        for name in ("retries", "interruptions", "error", "failed", "attempt", "earlier", "ended"):
            task.pop(name, None)
        task["putOff"] = False
        if task.get("expires", math.inf) <= task["available"]:
            del task["expires"]
        self.wait(task)

    def do_reschedule(self, fields):
        task = self.task(fields, "running", "waiting", "suspended", "parked", "paused")
        task["available"] = fields.date("available")
        task["putOff"] = False
        if task["state"] in ("running", "suspended"):
            task["state"] = "waiting"
        self.count_from(task, fields)
        self.move(task["id"])

    def do_edit(self, fields):
        self.do_update(fields)
        self.task(fields, "waiting", "suspended", "parked", "paused")["metadata"] = fields.metadata()

    def do_update(self, fields):
        task = self.task(fields, "waiting", "suspended", "parked", "paused")
        if self.is_displaced(task):
            fields.refuse("another task has its key")
        if fields.has("priority"):
            priority = fields.integer("priority")
            if priority != task["priority"]:
                self.move(task["id"])
            task["priority"] = priority
        if fields.has("maxRetries"):
            task["maxRetries"] = self.max_retries(fields)
        if fields.has("backoff"):
            task.pop("backoff", None)
            if fields.value("backoff") is not True and fields.flag("backoff", False):
                task["backoff"] = False
        if fields.has("tags"):
            task["tags"] = sorted(set(fields.texts("tags")), key=str.encode)
        if fields.has("limit"):
            task["limit"] = fields.duration("limit")
        if fields.has("expires"):
            task["expires"] = fields.date("expires")
        if any(fields.has(name) for name in ("schema", *FORMS)):
            for name in ("schema", *FORMS):
                task.pop(name, None)
            if fields.has("schema"):
                task["schema"] = fields.integer("schema")
            self.read_payload(fields, task)

    def do_remove(self, fields):
        self.take_away(self.task(fields, *ENDED)["id"])

    # Values, and what tasks remember

    def do_value(self, fields):
        name, value = self.name_of_value(fields), self.bytes_if_any(fields, 65536)
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def name_of_value(self, fields):
        name = fields.text("name")
        if not 1 <= len(name.encode()) <= 1024:
            fields.refuse("the name of its value is too short or too long")
        return name

    def bytes_if_any(self, fields, limit):
        if fields.has("value") and fields.has("data"):
            fields.refuse("it has more than one value")
        if not fields.has("value") and not fields.has("data"):
            return None
        value = fields.text("value").encode() if fields.has("value") else self.base64(fields, "data")
        if len(value) > limit:
            fields.refuse("its value is too long")
        return value

    def remembered(self, fields):
        name, value = self.name_of_value(fields), self.bytes_if_any(fields, 131072)
        if value is None:
            fields.refuse("it has no value")
        return name, value

    def memory(self, task):
        return self.memories.setdefault(task["id"], {})

    def do_memory(self, fields):
        if fields.id() != self.last_kept:
            fields.refuse("it does not follow its task")
        name, value = self.remembered(fields)
        self.memory(self.tasks[self.last_kept])[name] = value
        return self.last_kept

    def do_remember(self, fields):
        name, value = self.remembered(fields)
        task = self.task(fields, "running")
        self.memory(task)[name] = value
        task["interruptions"] = 0

    def do_suspend(self, fields):
        names = fields.texts("awaits") if fields.has("awaits") else []
        if fields.has("awaits") and not names:
            fields.refuse("it awaits nothing")
        if not all(1 <= len(name.encode()) <= 1024 for name in names):
            fields.refuse("a name that it awaits is too short or too long")
        task = self.task(fields, "running")
        task["state"], task["available"] = "suspended", fields.date("until")
        task["interruptions"], task["putOff"] = 0, False
        self.count_from(task, fields)
        if any(self.memories.get(task["id"], {}).get(name) for name in names):
            self.wake(task)
        self.move(task["id"])

    def do_complete(self, fields):
        name, value = self.remembered(fields)
        if not value:
            fields.refuse("it completes nothing")
        task = self.tasks.get(fields.id())
        if task is None or task["state"] in ENDED:
            return
        if self.memories.get(task["id"], {}).get(name) != b"":
            return
        self.memory(task)[name] = value
        if task["state"] == "suspended":
            self.wake(task)
            self.move(task["id"])

    def base64(self, fields, name):
        try:
            return base64.b64decode(fields.text(name), validate=True)
        except ValueError as error:
            fields.refuse(error)

    def do_extend(self, fields):
        if fields.has("until"):
            fields.date("until")
        self.task(fields, "running")

    def in_order(self, is_meant):
        return sorted(filter(is_meant, self.tasks.values()), key=lambda t: self.places[t["id"]])

    def do_unpark(self, fields):
        name, queue = fields.text("name"), fields.queue()
        version = fields.integer("knows") if fields.has("knows") else None
        for task in self.in_order(lambda t: t["state"] == "parked" and t["name"] == name):
            knows = task.get("knows")
            is_older = version is None or knows is None or knows < version
            if task.get("queue", "") == queue and is_older:
                self.wait(task)

    def do_prune(self, fields):
        state, queue = fields.text("state"), fields.queue()
        if state not in STATES | {"running"}:
            fields.refuse("its state is none")
        before = fields.date("before") if fields.has("before") else -math.inf
        now = fields.date("at") if fields.has("at") else DISTANT_PAST
        if state not in ENDED:
            return
        tasks = self.in_order(
            lambda task: task["state"] == state
            and task.get("queue", "") == queue
            and not self.stays(task, now)
        )
        surplus = len(tasks) - fields.count("latest") if fields.has("latest") else 0
        for number, task in enumerate(tasks):
            if number >= surplus and not task.get("ended", DISTANT_PAST) < before:
                return
            self.take_away(task["id"])

    def stays(self, task, now):
        holds = task["state"] != "succeeded" and "order" in task and "holds" in task
        return holds or "cause" in task or task.get("uniqueUntil", DISTANT_PAST) > now

    def do_rebase(self, fields):
        at = fields.date("at")
        for task in self.in_order(lambda task: True):
            created, origin = task["created"], task["from"]
            # An earlier rebase may have made them equal.
            if task["available"] == created:
                origin = created
            if created > at:
                task["created"] = at
                for name in ("uniqueUntil", "latestDate"):
                    if task.get(name, -math.inf) >= created:
                        task[name] = moved(task[name], created, at)
            if task["state"] in ENDED:
                continue
            if "failed" in task:
                task["failed"] = min(task["failed"], at)
            if origin is None or origin <= at:
                continue
            if task["state"] == "suspended":
                self.wake(task)
            else:
                task["available"], task["from"] = moved(task["available"], origin, at), at
            if task["state"] == "waiting":
                self.move(task["id"])

    def told(self, memory):
        """Pairs of a name and its bytes, in the order of the names."""
        return [
            [name, base64.b64encode(value).decode()]
            for name, value in sorted(memory.items(), key=lambda pair: pair[0].encode())
        ]

    def listing(self):
        """The tasks in the order of their places, without what is as if it were not there, and
        the values in the order of their names."""
        for *key, _ in list(self.roles):
            self.promote(key)
        self.interrupt()
        for task in self.tasks.values():
            if self.is_displaced(task):
                task["keyless"] = True
            if task.get("role") == "holder":
                del task["role"]
            if task["putOff"] == (task.get("retries", 0) > 0):
                del task["putOff"]
            if task["state"] != "parked":
                task.pop("knows", None)
            if task["from"] == self.usual_origin(task):
                del task["from"]
            elif task["from"] is None:
                task["from"] = DISTANT_PAST
            if memory := self.memories.get(task["id"]):
                task["memory"] = self.told(memory)
        defaults = {"retries": 0, "interruptions": 0, "schema": 1, "tags": [], "metadata": {}}
        return [
            {name: value for name, value in task.items() if defaults.get(name) != value}
            for task in self.in_order(lambda task: True)
        ] + [
            {"value": name, "data": base64.b64encode(value).decode()}
            for name, value in sorted(self.values.items(), key=lambda pair: pair[0].encode())
        ]


def moved(date, origin, now):
    """The date that is as far from another one as this one is from its origin."""
    if date == origin:
        return now
    # As in memory, where dates count from 2001.
    seconds = (now - REFERENCE) + ((date - REFERENCE) - (origin - REFERENCE)) + REFERENCE
    return seconds if math.isfinite(seconds) else date


def without_reservation(data):
    """The bytes before the zeros at the end of a file, which reserve space for lines."""
    lines = data.rstrip(b"\0")
    return lines if lines and len(data) - len(lines) <= MAX_RESERVATION else data


def read(data):
    tasks = Tasks()
    data = without_reservation(data)
    for batch in batches(split(data), seal_at_end(data), is_returned(data)):
        for line in batch:
            tasks.follow(line)
    if not tasks.generation:
        raise Refused("this is no queue file")
    return tasks.listing()


def write(tasks):
    lines = (json.dumps(task, ensure_ascii=False, separators=(", ", ": ")) for task in tasks)
    return "[" + ",".join("\n  " + line for line in lines) + "\n]\n"


def check(name):
    """Whether a file holds what is said beside it; the number of its tasks and values."""
    expected = json.loads(name.with_suffix(".tasks.json").read_text(encoding="utf-8"))
    try:
        found = read(name.read_bytes())
    except Refused as refused:
        sys.exit(f"{name}: {refused}")
    if found != expected:
        sys.exit(f"{name}: expected\n{write(expected)}but found\n{write(found)}")
    return len(found)


def check_golden_files():
    folder = Path(__file__).parent.parent / "SteadfastQueueTests/GoldenFiles"
    assert crc32c(b"123456789") == 0xE3069283
    names = sorted(folder.glob("version-*/*.jsonl"))
    assert len(names) >= 5, f"golden files are missing in {folder}"
    for name in names:
        print(f"{name.name}: {check(name)} tasks and values")


def check_files(folder):
    names = sorted(Path(folder).glob("*.jsonl"))
    assert names, f"there are no files in {folder}"
    count = sum(map(check, names))
    print(f"{len(names)} files with {count} tasks and values")


if __name__ == "__main__":
    if sys.argv[1:] == ["--golden"]:
        check_golden_files()
    elif sys.argv[1:2] == ["--files"] and len(sys.argv) == 3:
        check_files(sys.argv[2])
    elif len(sys.argv) == 2:
        try:
            sys.stdout.write(write(read(Path(sys.argv[1]).read_bytes())))
        except Refused as refused:
            sys.exit(f"{sys.argv[1]}: {refused}")
    else:
        sys.exit(__doc__)
