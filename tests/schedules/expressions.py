"""Expressions for times: recorded ones, random ones, and refused ones."""

import json
import random
from pathlib import Path

from tests.schedules.oracle import RANGES

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "scenarios" / "systemd-calendar.jsonl").read_text("utf-8").splitlines()
]
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata",
    "Pacific/Apia", "Africa/Casablanca", "Asia/Beirut", "America/Nuuk", "Pacific/Chatham", "Antarctica/Troll",
)  # fmt: skip
REFUSED = [
    ("", "is no calendar event"),
    ("foo", "'foo' is no schedule"),
    ("* * * *", "has 4 fields; cron has 5, 6 (seconds first) or 7 (year last)"),
    ("* * * * * * * *", "has 8 fields"),
    ("/5 * * * *", "write */5"),
    ("*/0 * * * *", "has a step of 0 in the minute; 1 to 60 are allowed"),
    ("*/61 * * * *", "has a step of 61"),
    ("60 * * * *", "has minute 60; 0 to 59 are allowed"),
    ("0 24 * * *", "has hour 24; 0 to 23 are allowed"),
    ("0 0 0 * *", "has day of month 0; 1 to 31 are allowed"),
    ("0 0 32 * *", "has day of month 32"),
    ("0 0 * 13 *", "has month 13; 1 to 12 are allowed"),
    ("0 0 * * 8", "has day of week 8; 0 to 7 are allowed"),
    ("0 0 1 1 * 2027", "a year needs all seven fields"),
    ("0 0 0 1 1 * 2200", "has year 2200; 1970 to 2199 are allowed"),
    ("0 22-3 * * *", "which runs backwards; write 22-23,0-3"),
    ("0 0 30 2 *", "never fires"),
    ("0 0 31 4,6,9,11 *", "never fires"),
    ("0 0 0 29 2 * 2027", "never fires again"),
    ("0 0 0 1 1 * 2020", "never fires again"),
    ("0 0 L * *", "a calendar event has: *-*~01"),
    ("0 0 LW * *", "has L in the day of month"),
    ("0 0 15W * *", "has W in the day of month"),
    ("0 0 * * 5#2", "a calendar event has: Mon *-*-01..07"),
    ("0 0 ? * *", "write * instead"),
    ("0 0 0 * * MON", "which only cron of 5 fields may; write its number"),
    ("0 0 0 1 JAN *", "which only cron of 5 fields may"),
    ("@reboot", "is no cron shorthand"),
    ("0 0 * * 1-5,", "write numbers, *, lists"),
    ("0 0 * * a", "write numbers, *, lists"),
    ("\u0660 \u0660 * * *", "write numbers, *, lists"),
    ("0 0 * * *\x00", "write numbers, *, lists"),
    ("0," * 100_000 + "0 0 * * *", "characters; 200 are allowed"),
    ("*:0/61", "has a step of 61 in the minute"),
    ("*:*/15", "write 00/15"),
    ("Mon..Foo 10:00", "'Foo' is no weekday"),
    ("Fri..Mon 10:00", "which runs backwards"),
    ("*-02-30", "never fires again"),
    ("2020-01-01 00:00:00", "never fires again"),
    ("12:00:00.5", "has a fraction of a second"),
    ("foo bar", "'foo bar' is no schedule; write an interval such as 15m, cron"),
    ("at noon", "is no schedule"),
    ("Monday Europe/Nowhere", "is no zone of the IANA database"),
    ("daily Europe/Nowhere", "is no zone of the IANA database"),
    ("12:00 Europe/Nowhere", "is no zone of the IANA database"),
    ("2026-01-01T00:00:00Z", "lies in the past"),
    ("2027-13-01T00:00:00Z", "is no time"),
    ("0", "is under the limit of 1s"),
    ("-1m", "is under the limit of 1s"),
    ("367d", "is over the limit of 366d"),
]


def field(dice: random.Random, place: int) -> str:
    low, high = RANGES[place][0], RANGES[place][-1]
    a, b = sorted((dice.randint(low, high), dice.randint(low, high)))
    step = dice.randint(1, max(2, (high - low) // 2))
    forms = ("*", f"*/{step}", f"{a}", f"{a}", f"{a}-{b}", f"{a}-{b}/{step}", f"{a}/{step}", f"{a},{b}", f"{b},{a}-{b}")
    return dice.choice(forms)


def expression(dice: random.Random) -> str:
    """A random cron expression of 5, 6 or 7 fields."""
    count = dice.choice((5, 6, 7))
    second, minute, hour, day, month, weekday = (field(dice, place) for place in range(6))
    if count > 5 and dice.random() < 0.7:
        second = str(dice.randint(0, 59))
    day, month, weekday = (text if dice.random() < 0.4 else "*" for text in (day, month, weekday))
    year = dice.choice(("*", "2024-2031", "2026", "2026/2", "2011,2027", "*/4"))
    return " ".join([[], [second], [second]][count - 5] + [minute, hour, day, month, weekday] + [year] * (count == 7))
