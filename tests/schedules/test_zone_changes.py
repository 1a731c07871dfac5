"""The days on which clocks are changed: every change from 2011 to 2026 in four zones; in twelve in the long version."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from tests.running import ROOT
from tests.schedules.oracle import segments
from ticker.schedules import calendar, cron, kinds, zones
from ticker.schedules.interval import Interval

PAGE = (ROOT / "docs/concepts/time.md").read_text("utf-8")
DAY = timedelta(days=1)
HALF = timedelta(minutes=30)
HOUR = 2 * HALF
SECOND = timedelta(seconds=1)
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Pacific/Apia", "Asia/Kolkata",
    "Africa/Casablanca", "Asia/Beirut", "America/Nuuk", "Pacific/Chatham", "Antarctica/Troll", "America/Havana",
)  # fmt: skip
SOME = ("Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Nuuk")
FEW = [pytest.param(name, marks=() if name in SOME else pytest.mark.long) for name in ZONES]
BEGIN, END = datetime(2011, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC)


@cache
def changes(name: str) -> list[datetime]:
    return [begin for begin, _, _ in segments(ZoneInfo(name), BEGIN, END)[1:]]


def between(schedule, begin: datetime, end: datetime) -> list[datetime]:
    found, at = [], begin
    while (following := schedule.next_after(at)) is not None and following <= end:
        assert following > at
        found.append(following)
        at = following
    return found


def dates(zone: ZoneInfo, begin: datetime, end: datetime) -> set:
    """Those of which the zone's clocks show any time."""
    return {zones.wall(begin + n * HOUR, zone).date() for n in range(int((end - begin) / HOUR))}


@pytest.mark.parametrize("fields", [5, 6, 7])
@pytest.mark.parametrize("name", FEW)
def test_a_fixed_time_comes_exactly_once_a_day_also_when_clocks_are_changed(name, fields):
    zone = ZoneInfo(name)
    for clock in ("30 0", "30 2", "59 23"):
        text = {5: f"{clock} * * *", 6: f"0 {clock} * * *", 7: f"0 {clock} * * * *"}[fields]
        schedule = cron.parse(text, zone)
        for change in changes(name):
            noon = zones.wall(change, zone).replace(hour=12, minute=0, second=0) - 2 * DAY
            begin, end = zones.instants(noon, zone)[0], zones.instants(noon + 4 * DAY, zone)[0]
            days = sorted(dates(zone, begin, end))
            late = clock == "59 23"  # passed over, it comes on the next day
            found = [zones.wall(x - late * SECOND, zone).date() for x in between(schedule, begin, end)]
            first = 0 if late else 1  # from noon to noon
            assert found == days[first : first + len(days) - 1], (text, name, change)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["*/30 * * * *", "0 */30 * * * *", "0 */30 * * * * *"])
@pytest.mark.parametrize("name", FEW)
def test_each_half_hour_is_a_half_hour_of_real_time(name, text):
    schedule = cron.parse(text, ZoneInfo(name))
    for change in changes(name):
        found = between(schedule, change - DAY, change + DAY)
        assert {b - a for a, b in pairwise(found)} == {HALF}


@pytest.mark.parametrize("name", FEW)
def test_an_interval_does_not_notice(name):
    schedule = Interval(1_800_000, ZoneInfo(name))
    for change in changes(name):
        found = between(schedule, change - DAY, change + DAY)
        assert {b - a for a, b in pairwise(found)} == {HALF}


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("text", ["*-*-* 02:30:00", "*-*-* *:00/30:00", "*-*-* 00:15:00"])
def test_a_calendar_event_comes_the_first_time_that_clocks_show_it_or_not_at_all(name, text):
    zone = ZoneInfo(name)
    schedule = calendar.parse(text, zone)
    for change in changes(name):
        found = between(schedule, change - DAY, change + DAY)
        shown = [zones.wall(x, zone) for x in found]
        assert shown == sorted(set(shown))
        assert all(zones.instants(w, zone)[0] == x for w, x in zip(shown, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_no_next_time_is_at_or_before_its_start_wherever_that_lies(name):
    zone = ZoneInfo(name)
    schedules = [cron.parse(text, zone) for text in ("30 1 * * *", "*/7 * * * *", "* 1,2 * * *", "0 59 1,2 * * * *")]
    schedules.append(calendar.parse("*-*-* 01,02:30", zone))
    for change in changes(name)[:6]:
        for n in range(-30, 31):
            start = change + n * timedelta(minutes=7, seconds=1, microseconds=1)
            for schedule in schedules:
                assert schedule.next_after(start) > start


# ------------------------------------------------------------------------------- the table in docs/concepts/time.md, row by row

BERLIN = ZoneInfo("Europe/Berlin")
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)  # change at 01:00 UTC
ROWS = {
    "30 2 * * *": (["01:00"], ["00:30"]),
    "0,30 2 * * *": (["01:00"], ["00:00", "00:30"]),
    "*/30 * * * *": (["00:30", "01:00", "01:30"], ["00:00", "00:30", "01:00", "01:30"]),
    "*/30 2 * * *": ([], ["00:00", "00:30", "01:00", "01:30"]),
    "*-*-* 02:30": ([], ["00:30"]),
    "*:0/30": (["00:30", "01:00", "01:30"], ["00:00", "00:30", "02:00"]),
}


@pytest.mark.parametrize("text", ROWS)
def test_the_row_of_the_page_holds(text):
    schedule = kinds.detect(text, BERLIN.key)
    wide = {"*/30 * * * *", "*:0/30"}
    for start, expected in zip((FORWARD, BACK), ROWS[text], strict=True):
        found = [f"{x:%H:%M}" for x in between(schedule, start - HOUR, start + 3 * HOUR)]
        if text in wide:  # from the last half hour before the change on
            found = found[found.index(expected[0]) :][: len(expected)]
        assert found == expected
    assert f"`{text}`" in PAGE


def test_an_interval_of_half_an_hour_notices_neither():
    for start in (FORWARD, BACK):
        assert [x - start for x in between(Interval(1_800_000), start, start + 2 * HOUR)] == [
            n * HALF for n in (1, 2, 3, 4)
        ]
