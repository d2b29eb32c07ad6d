"""What the contract says of tasks that wait for others, as simple as possible."""

ENDED = ("succeeded", "abandoned", "cancelled")


def is_stale(change, state):
    """Whether a change does not apply to a task in a state."""
    if change.is_end:
        return state in ENDED
    return state not in ENDED and (change.kind == "remove" or state == "running")


class Model:
    def __init__(self):
        self.tasks = {}
        # Tasks that have ended, and are about to wait again.
        self.reserved = set()

    def is_open(self, task):
        return task in self.tasks and self.tasks[task]["state"] not in ENDED

    def awaiting(self, task, follower):
        """Those that name a task, or follow it, in the order of their identities."""
        return [
            other for other, found in sorted(self.tasks.items())
            if task in found["names"] or other == follower
        ]

    def concerns(self, task):
        return self.tasks[task]["follower"] is not None or any(
            task in found["names"] for found in self.tasks.values())

    def count(self, follower, state, difference, total=0):
        if follower not in self.tasks:
            return
        counts = self.tasks[follower]["batch"] or (0, 0, 0)
        well, badly = (difference, 0) if state == "succeeded" else (0, difference)
        self.tasks[follower]["batch"] = (
            counts[0] + total, counts[1] + well, counts[2] + badly)

    def perform(self, change):
        task = change.task
        if change.kind == "insert":
            return self.insert(change)
        found = self.tasks.get(task)
        if found is None or is_stale(change, found["state"]):
            return ("stale",)
        if change.kind == "restart" and found["state"] not in ENDED:
            return ("done",)
        if change.kind == "restart" and self.holder(found["key"]):
            return ("duplicate",)
        concerns, follower = self.concerns(task), found["follower"]
        if change.is_end:
            along = self.end(change)
        elif change.kind == "restart":
            along = self.restart(task)
        else:
            along, follower = self.remove(task), None
        if not concerns:
            return ("done",)
        batch = self.tasks[follower]["batch"] if follower in self.tasks else None
        return ("done", sorted(along), *([batch] if batch else []))

    def holder(self, key):
        return key and [
            task for task, found in self.tasks.items()
            if found["key"] == key and (found["state"] not in ENDED or task in self.reserved)
        ]

    def insert(self, change):
        if change.task in self.tasks:
            return ("taken",)
        if self.holder(change.key):
            return ("duplicate",)
        states = {task: self.tasks[task]["state"] for task in change.after if task in self.tasks}
        unmet = [
            task for task in change.after
            if task not in states
            or (states[task] in ENDED[1:] and change.rule == "allSucceeded")
        ]
        if unmet:
            return ("unmet", min(unmet))
        self.tasks[change.task] = {
            "state": "waiting", "names": set(change.after), "rule": change.rule, "cause": None,
            "follower": change.follower, "batch": None, "key": change.key, "end": 0,
            "failed": {task: state for task, state in states.items() if state in ENDED[1:]},
        }
        return ("done",)

    def follow(self, change):
        """Counts a new task for its follower, behind the last insertion."""
        self.count(change.follower, "", 0, total=1)

    def end(self, change):
        task, follower = change.task, self.tasks[change.task]["follower"]
        self.tasks[task]["state"] = change.kind
        along, found = [], [(task, follower, change.kind)]
        for other, follower, state in found:
            self.count(follower, state, 1)
            if state == "succeeded":
                continue
            for waiting in self.awaiting(other, follower):
                self.tasks[waiting]["failed"][other] = state
                values = self.tasks[waiting]
                if values["rule"] == "allSucceeded" and values["state"] == "waiting":
                    values["state"] = "cancelled"
                    along.append(waiting)
                    found.append((waiting, values["follower"], "cancelled"))
        ended = {task, *along}
        for other in along:
            values = self.tasks[other]
            followed = {
                member for member in ended if self.tasks[member]["follower"] == other}
            values["cause"] = min((values["names"] | followed) & ended)
        for other in [*along, task]:
            self.tasks[other]["end"] = (change.second, other)
            if not change.retains:
                del self.tasks[other]
        return along

    def restart(self, task):
        restarted, tasks = [], [task]
        self.reserved = {task}
        while tasks:
            for other in tasks:
                values = self.tasks[other]
                self.count(values["follower"], values["state"], -1)
                for waiting in self.awaiting(other, values["follower"]):
                    self.tasks[waiting]["failed"].pop(other, None)
            causes, tasks = set(tasks), []
            for other, values in sorted(self.tasks.items()):
                if values["cause"] not in causes:
                    continue
                if values["failed"]:
                    left = [cause for cause in values["failed"] if cause in self.tasks]
                    values["cause"] = min(left, default=None)
                elif self.holder(values["key"]):
                    values["cause"] = None
                else:
                    tasks.append(other)
                    self.reserved.add(other)
            restarted += tasks
        for other in self.reserved:
            self.tasks[other].update(state="waiting", cause=None)
        self.reserved = set()
        return restarted

    def remove(self, task):
        found = [task]
        for other in found:
            found += [
                waiting for waiting, values in self.tasks.items() if values["cause"] == other]
        for other in found:
            del self.tasks[other]
        return found[1:]

    def prune(self, state, second, keeping):
        ended = sorted(
            (values["end"], task) for task, values in self.tasks.items()
            if values["state"] == state and values["cause"] is None)
        surplus = len(ended) - keeping
        for place, (end, task) in enumerate(ended):
            if task in self.tasks and (place < surplus or end[0] < second):
                self.remove(task)

    def rows(self):
        """What the store must have of each task."""
        return {
            task: {
                "state": values["state"], "cause": values["cause"], "batch": values["batch"],
                "open": sum(self.is_open(name) for name in values["names"]),
                "failed": values["failed"], "names": values["names"],
                "role": "holder" if values["key"] and values["state"] not in ENDED else None,
                "waits": any(self.is_open(name) for name in values["names"]) or any(
                    other["follower"] == task and other["state"] not in ENDED
                    for other in self.tasks.values()),
            }
            for task, values in self.tasks.items()
        }
