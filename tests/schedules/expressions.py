"""Schedule expressions: recorded, random and refused ones."""

import json
import random
from pathlib import Path

from tests.schedules.oracle import RANGES
from tests.sentences import sentence

RECORDED = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "scenarios" / "systemd-calendar.jsonl").read_text("utf-8").splitlines()
]
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata",
    "Pacific/Apia", "Africa/Casablanca", "Asia/Beirut", "America/Nuuk", "Pacific/Chatham", "Antarctica/Troll",
)  # fmt: skip
REFUSED = [
    ("", sentence("schedules.no_calendar_event")),
    ("foo", sentence("schedules.no_schedule", text="'foo'")),
    ("* * * *", sentence("schedules.cron_fields", number=4, allowed="5, 6 (seconds first) or 7 (year last)")),
    ("* * * * * * * *", sentence("schedules.has_fields", number=8)),
    ("/5 * * * *", sentence("errors.write_instead", remedy="*/5")),
    ("*/0 * * * *", sentence("schedules.step_allowed", step=0, field="minute", least=1, most=60)),
    ("*/61 * * * *", sentence("schedules.step", step=61)),
    ("60 * * * *", sentence("schedules.field_allowed", field="minute", value=60, least=0, most=59)),
    ("0 24 * * *", sentence("schedules.field_allowed", field="hour", value=24, least=0, most=23)),
    ("0 0 0 * *", sentence("schedules.field_allowed", field="day of month", value=0, least=1, most=31)),
    ("0 0 32 * *", sentence("schedules.field", field="day of month", value=32)),
    ("0 0 * 13 *", sentence("schedules.field_allowed", field="month", value=13, least=1, most=12)),
    ("0 0 * * 8", sentence("schedules.field_allowed", field="day of week", value=8, least=0, most=7)),
    ("0 0 1 1 * 2027", sentence("schedules.year_needs_all_fields")),
    ("0 0 0 1 1 * 2200", sentence("schedules.field_allowed", field="year", value=2200, least=1970, most=2199)),
    ("0 22-3 * * *", sentence("schedules.runs_backwards_write", remedy="22-23,0-3")),
    ("0 0 30 2 *", sentence("errors.never_fires")),
    ("0 0 31 4,6,9,11 *", sentence("errors.never_fires")),
    ("0 0 0 29 2 * 2027", sentence("schedules.never_fires_again")),
    ("0 0 0 1 1 * 2020", sentence("schedules.never_fires_again")),
    ("0 0 L * *", sentence("schedules.calendar_event_has", remedy="*-*~01")),
    ("0 0 LW * *", sentence("schedules.has_letter", letter="L", field="day of month")),
    ("0 0 15W * *", sentence("schedules.has_letter", letter="W", field="day of month")),
    ("0 0 * * 5#2", sentence("schedules.calendar_event_has", remedy="Mon *-*-01..07")),
    ("0 0 ? * *", sentence("schedules.write_star_instead", remedy="*")),
    ("0 0 0 * * MON", sentence("schedules.only_cron_of_5_write")),
    ("0 0 0 1 JAN *", sentence("schedules.only_cron_of_5")),
    ("@reboot", sentence("schedules.no_shorthand")),
    ("0 0 * * 1-5,", sentence("schedules.write_numbers")),
    ("0 0 * * a", sentence("schedules.write_numbers")),
    ("\u0660 \u0660 * * *", sentence("schedules.write_numbers")),
    ("0 0 * * *\x00", sentence("schedules.write_numbers")),
    ("0," * 100_000 + "0 0 * * *", sentence("schedules.characters_allowed", number=200)),
    ("*:0/61", sentence("schedules.step_in", step=61, field="minute")),
    ("*:*/15", sentence("errors.write_instead", remedy="00/15")),
    ("Mon..Foo 10:00", sentence("schedules.no_weekday", value="'Foo'")),
    ("Fri..Mon 10:00", sentence("schedules.runs_backwards")),
    ("*-02-30", sentence("schedules.never_fires_again")),
    ("2020-01-01 00:00:00", sentence("schedules.never_fires_again")),
    ("12:00:00.5", sentence("schedules.fraction")),
    ("foo bar", sentence("schedules.no_schedule_write", text="'foo bar'", interval="15m")),
    ("at noon", sentence("schedules.is_no_schedule")),
    ("Monday Europe/Nowhere", sentence("errors.no_zone_of_the_iana_database")),
    ("daily Europe/Nowhere", sentence("errors.no_zone_of_the_iana_database")),
    ("12:00 Europe/Nowhere", sentence("errors.no_zone_of_the_iana_database")),
    ("2026-01-01T00:00:00Z", sentence("errors.in_the_past")),
    ("2027-13-01T00:00:00Z", sentence("errors.is_no_time")),
    ("0", sentence("durations.under_the_limit", limit="1s")),
    ("-1m", sentence("durations.under_the_limit", limit="1s")),
    ("367d", sentence("durations.over_the_limit", limit="366d")),
]


def field(dice: random.Random, place: int) -> str:
    low, high = RANGES[place][0], RANGES[place][-1]
    a, b = sorted((dice.randint(low, high), dice.randint(low, high)))
    step = dice.randint(1, max(2, (high - low) // 2))
    forms = ("*", f"*/{step}", f"{a}", f"{a}", f"{a}-{b}", f"{a}-{b}/{step}", f"{a}/{step}", f"{a},{b}", f"{b},{a}-{b}")
    return dice.choice(forms)


def expression(dice: random.Random) -> str:
    """Returns a random cron expression of 5, 6 or 7 fields."""
    count = dice.choice((5, 6, 7))
    second, minute, hour, day, month, weekday = (field(dice, place) for place in range(6))
    if count > 5 and dice.random() < 0.7:
        second = str(dice.randint(0, 59))
    day, month, weekday = (text if dice.random() < 0.4 else "*" for text in (day, month, weekday))
    year = dice.choice(("*", "2024-2031", "2026", "2026/2", "2011,2027", "*/4"))
    return " ".join([[], [second], [second]][count - 5] + [minute, hour, day, month, weekday] + [year] * (count == 7))
