"""What a worker has said, over all its processes, and whether a queue file agrees with it."""

import copy

# What an error says was not stored; of the others, nothing is known.
REFUSALS = {"systemCall", "displaced", "inUse", "damaged", "unsafeFile"}


class Ledger:
    """Facts, in the order in which they became facts."""

    def __init__(self):
        self.keys = {}
        self.ids = {}
        self.kept = {}
        self.batches = []
        self.refused = set()
        self.begun = set()
        self.performed = set()
        self.settled = {}
        self.problems = []
        # How many tasks were found that wait for the end of another one with their key.
        self.successors = 0
        self.listing = None
        self._open_listing = []

    def copy(self):
        return copy.deepcopy(self)

    def begin_listing(self):
        """Forgets a listing in which a worker was killed."""
        self._open_listing = []

    def note(self, line):
        """Takes a line in that a worker has said."""
        word, *rest = line.split(" ")
        take = getattr(self, f"_note_{word}", None)
        if take:
            take(*rest)

    def expect(self, holds, problem):
        if not holds:
            self.problems.append(problem)

    def check(self):
        """Compares the last listing, of a file that was opened anew, with all that was said."""
        tasks, self.problems = self.listing, self.problems
        titles = [title for _, title, *_ in tasks]
        ids = {identity for identity, *_ in tasks}
        # While the task that has a key runs, one more with that key may wait for its end.
        keys = [(key, role) for *_, key, role, _ in tasks if key != "-"]
        self.expect(len(set(titles)) == len(titles), "a task is there twice")
        self.expect(len(ids) == len(tasks), "two tasks have one identity")
        twice = sorted({key for key in keys if keys.count(key) > 1})
        self.expect(not twice, f"two tasks have a key in the same role: {twice}")
        self.successors += sum(role == "successor" for _, role in keys)
        for identity, title, state, key, _, condition in tasks:
            self._check_task(identity, title, state, key, condition)
        known = set(titles) | self.performed
        for title in self.ids:
            self.expect(title in known, f"{title} was acknowledged, and is lost")
        for title, outcome in self.settled.items():
            states = [task[2] for task in tasks if task[1] == title]
            expected = ["abandoned"] if outcome == "abandoned" else []
            self.expect(states == expected, f"{title} was {outcome}, and now is {states}")
        owners = {identity: title for title, identity in self.ids.items()}
        for title, identity in self.kept.items():
            found = identity in ids or owners.get(identity) in self.performed
            self.expect(found, f"the task that was kept in place of {title} is lost")
        for batch in self.batches:
            traces = [title in known or title in self.begun for title in batch]
            self.expect(len(set(traces)) == 1, f"of the batch {batch} only a part is there")
        # What was read of a file that was recovered is there for good.
        self.ids.update({title: identity for identity, title, *_ in tasks})

    def _check_task(self, identity, title, state, key, condition):
        self.expect(condition == "intact", f"{title} is changed")
        self.expect(title not in self.refused, f"{title} was refused, and is there")
        if title not in self.keys:
            self.problems.append(f"{title} is invented")
            return
        known = self.ids.get(title, identity)
        self.expect(known == identity, f"{title} is {identity}, and was {known}")
        # A succeeded task may have lost its key to a twin that took its place.
        self.expect(key == self.keys[title], f"{title} has the key {key}, not {self.keys[title]}")
        self.expect(state in ("waiting", "running", "abandoned"), f"{title} is {state}")

    # Facts.

    def _note_submitted(self, title, key):
        self.expect(title not in self.keys, f"{title} is submitted twice")
        self.keys[title] = key

    def _note_batch(self, *titles):
        self.batches.append(titles)

    def _note_enqueued(self, title, identity, news):
        if news == "new":
            self.expect(self.ids.get(title, identity) == identity, f"{title} has two identities")
            self.ids[title] = identity
        else:
            self.kept[title] = identity

    def _note_refused(self, title, code):
        if code in REFUSALS:
            self.refused.add(title)

    def _note_began(self, title, identity, condition):
        self.expect(condition == "intact", f"{title} is performed, and changed")
        self.expect(title in self.keys, f"{title} is performed, and invented")
        self.expect(title not in self.refused, f"{title} was refused, and is performed")
        outcome = self.settled.get(title)
        self.expect(outcome is None, f"{title} is performed after it was {outcome}")
        known = self.ids.setdefault(title, identity)
        self.expect(known == identity, f"{title} is performed as {identity}, and was {known}")
        self.begun.add(title)

    def _note_performed(self, title):
        self.performed.add(title)

    def _note_settled(self, title, outcome):
        self.settled[title] = outcome

    def _note_task(self, *task):
        self._open_listing.append(task)

    def _note_listed(self, count, *_):
        self.expect(len(self._open_listing) == int(count), f"a listing is not of {count} tasks")
        self.listing = self._open_listing
        self.begin_listing()
