#!/usr/bin/env python3
"""Checks the dates that rules of schedules have in every time zone: schedules.py FOLDER

A test writes the dates of the years 2000 to 2039 to FOLDER (`ZoneTests`, with STEADFAST_ZONES). This
reckons them again with Python's zoneinfo, from when the offset of a zone changes: which times its
clocks show between two changes, and which they skip. It asks a zone for its offset only to find the
changes, and knows nothing of the other program's way.
"""

import array
import bisect
import datetime
import pathlib
import sys
import zoneinfo

DAY = 86_400
START = 946_684_800
END = 2_208_988_800
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
NAMES = ["daily 02:30", "weekly Sun,Wed 00:00", "cron 30 8 * * 1-5",
         "cron */30 0-3 1-7 3,4,10,11 sun", "cron 59 23 28-31 * *"]


def times():
    """What the clocks show on the dates of each rule, in seconds as if it were GMT."""
    found = [[] for _ in NAMES]
    day = datetime.date(1999, 12, 29)
    while day < datetime.date(2040, 1, 4):
        midnight = (day - datetime.date(1970, 1, 1)).days * DAY
        weekday = day.isoweekday() % 7
        found[0].append(midnight + 2 * 3600 + 30 * 60)
        if weekday in (0, 3):
            found[1].append(midnight)
        if 1 <= weekday <= 5:
            found[2].append(midnight + 8 * 3600 + 30 * 60)
        if day.month in (3, 4, 10, 11) and (day.day <= 7 or weekday == 0):
            found[3] += [midnight + half * 1800 for half in range(8)]
        if day.day >= 28:
            found[4].append(midnight + 23 * 3600 + 59 * 60)
        day += datetime.timedelta(days=1)
    return found


def changes(zone):
    """The instants from which another offset holds, with the offset: (instant, offset), …"""
    def offset(instant):
        moment = (EPOCH + datetime.timedelta(seconds=instant)).astimezone(zone)
        return int(moment.utcoffset().total_seconds())

    first, step = START - 8 * DAY, 4 * DAY
    found = [(first, offset(first))]
    for instant in range(first + step, END + 8 * DAY, step):
        if offset(instant) == found[-1][1]:
            continue
        low, high = instant - step, instant
        while high - low > 1:
            middle = (low + high) // 2
            if offset(middle) == found[-1][1]:
                low = middle
            else:
                high = middle
        found.append((high, offset(high)))
        if offset(instant) != found[-1][1]:
            raise SystemExit(f"{zone}: two changes of the offset within four days")
    return tuple(found)


def instants(shown, spans):
    """When the clocks show these times first; for those that they skip, the moment after that."""
    found, index, last = array.array("i"), 0, len(spans) - 1
    start, offset = spans[0]
    end = spans[1][0] if last else END * 2
    previous = None
    for time in shown:
        while time >= end + offset:
            index += 1
            start, offset = spans[index]
            end = spans[index + 1][0] if index < last else END * 2
        instant = max(start, time - offset)
        if START <= instant < END and instant != previous:
            found.append(instant - START)
        previous = instant
    return found


def hours(spans):
    """The instants at which the clocks show :20, in three days around each change of the offset."""
    found = array.array("i")
    starts = [start for start, _ in spans]

    def offset(instant):
        return spans[bisect.bisect_right(starts, instant) - 1][1]

    # A change shows on the first midnight in GMT after it.
    days = {START + -(-(start - START) // DAY) * DAY for start in starts[1:]}
    for day in sorted(days):
        if not START + 2 * DAY <= day < END - 1 - DAY or offset(day) == offset(day - DAY):
            continue
        first, last = day - 2 * DAY + 1, day + DAY
        for index, (start, offset_here) in enumerate(spans):
            low = max(first, start)
            high = min(last, starts[index + 1] - 1 if index + 1 < len(spans) else last)
            if low <= high:
                low += (20 * 60 - low - offset_here) % 3600
                found.extend(instant - START for instant in range(low, high + 1, 3600))
    return found


def main():
    folder = pathlib.Path(sys.argv[1])
    shown, known, wrong, zones, dates = times(), {}, 0, 0, 0
    for line in (folder / "index").read_text().splitlines():
        number, counts, names = line.split(" ", 2)
        told = array.array("i", (folder / f"{number}.bin").read_bytes())
        if sys.byteorder == "big":
            told.byteswap()
        counts = [int(count) for count in counts.split(",")]
        for name in names.split(","):
            zones += 1
            spans = changes(zoneinfo.ZoneInfo(name))
            if spans not in known:
                known[spans] = [instants(rule, spans) for rule in shown] + [hours(spans)]
            position = 0
            for rule, count, expected in zip(NAMES + ["hourly 20"], counts, known[spans]):
                found = told[position:position + count]
                position += count
                dates += count
                if found == expected:
                    continue
                wrong += 1
                differ = sorted(set(found) ^ set(expected))
                moment = EPOCH + datetime.timedelta(seconds=START + (differ or [0])[0])
                print(f"{name}: '{rule}' has {len(found)} dates, not {len(expected)}; they differ "
                      f"first at {moment.isoformat()}", file=sys.stderr)
    print(f"{dates} dates of {zones} zones in {len(known)} histories, {wrong} rules wrong")
    return 1 if wrong or zones < 400 or dates < 10_000_000 else 0


if __name__ == "__main__":
    sys.exit(main())
