"""Hours of the day in which an interval task is due: their texts, when they begin and end, and how tasks share the beginning."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.model import Alarm, DueTask, Kind
from ticker.schedules import hours, interval, kinds, zones

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")

NORMAL = {
    "9-17 mon-fri": "9-17 mon-fri", "09:00-17:00 MON-FRI": "9-17 mon-fri", "  9-17  fri,mon,tue-thu ": "9-17 mon-fri",
    "9:30-17:30": "9:30-17:30", "22-6 sat,sun": "22-6 sat,sun", "22-6": "22-6", "22-0": "22-24", "mon-fri": "mon-fri",
    "13-17,8-12 mon-fri": "8-12,13-17 mon-fri", "fri-mon": "mon,fri-sun", "sun-mon": "mon,sun", "0-24 mon-fri": "mon-fri",
    "8-12,8-12": "8-12", "0-24": "", "mon-sun": "", "mon-sun,tue": "", "00:00-24:00 sat-fri": "",
}  # fmt: skip


@pytest.mark.parametrize(("text", "normal"), NORMAL.items())
def test_the_text_is_normalized(text, normal):
    read = hours.parse("during", text)
    assert read.text == normal
    if normal:
        assert hours.parse("during", normal) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", sentence("schedules.no_hours")), ("9", sentence("schedules.no_hours")), ("9-17 mon-fri utc", sentence("schedules.no_hours")),
        ("mon-fri 9-17", sentence("schedules.no_hours")), ("9 - 17", sentence("schedules.no_hours")),
        ("9-17,", sentence("schedules.no_hours")), ("9-17-18", sentence("schedules.no_hours")), ("٩-17", sentence("schedules.no_hours")),
        ("²-17", sentence("schedules.no_hours")), ("9.5-17", sentence("schedules.no_hours")), ("9:5-17", sentence("schedules.no_hours")),
        ("9-25", sentence("schedules.hours_are", value="9-25")), ("24-6", sentence("schedules.hours_are", value="24-6")),
        ("9:60-10", sentence("schedules.hours_are", value="9:60-10")), ("9-24:30", sentence("schedules.hours_are", value="9-24:30")),
        ("9-9", sentence("schedules.hours_end_at_once", value="9-9")),
        ("9-9:05", sentence("schedules.hours_too_short")), ("9-9:09,12-13", sentence("schedules.hours_too_short")),
        ("9-17 monday", sentence("schedules.no_day", value="monday")), ("9-17 mon-", sentence("schedules.no_day", value="mon-")),
        ("9-17 mon--fri", sentence("schedules.no_day", value="mon--fri")), ("weekdays", sentence("schedules.no_day", value="weekdays")),
        (f"9-17{' ' * 97}", sentence("schedules.characters_allowed", number=100)),
        (917, sentence("errors.is_no_text", field="during", value=917)),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(text, said):
    with pytest.raises(BadInput, check=said.within) as error:
        hours.parse("during", text)
    assert error.value.field == "during"


def begins_and_ends(text, instant, zone="UTC", count=1):
    """The times of the next spans by the clocks of the zone."""
    found = []
    for _ in range(count):
        span = hours.span(text, zone, instant)
        found.append(" ".join(f"{at.astimezone(ZoneInfo(zone)):%a %H:%M}" for at in span))
        instant = span.ends
    return found


def test_each_span_begins_and_ends_on_its_days():
    noon = MONDAY + 12 * HOUR
    assert begins_and_ends("9-17 mon-fri", noon, count=6) == [
        "Mon 09:00 Mon 17:00", "Tue 09:00 Tue 17:00", "Wed 09:00 Wed 17:00", "Thu 09:00 Thu 17:00", "Fri 09:00 Fri 17:00",
        "Mon 09:00 Mon 17:00",
    ]  # fmt: skip
    assert begins_and_ends("22-6 sat,sun", noon, count=3) == [
        "Sat 22:00 Sun 06:00", "Sun 22:00 Mon 06:00", "Sat 22:00 Sun 06:00",
    ]  # fmt: skip
    assert begins_and_ends("8-12,13-17", noon, count=2) == ["Mon 13:00 Mon 17:00", "Tue 08:00 Tue 12:00"]


def test_an_end_is_outside_and_a_beginning_inside():
    for moment, expected in ((9 * HOUR, "Mon 09:00"), (17 * HOUR - MINUTE, "Mon 09:00"), (17 * HOUR, "Tue 09:00")):
        assert begins_and_ends("9-17", MONDAY + moment)[0].startswith(expected)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("mon-fri", "Mon 00:00 Sat 00:00"), ("sat-mon", "Sat 00:00 Tue 00:00"), ("0-6,20-24", "Sun 20:00 Mon 06:00"),
        ("9-13,12-17", "Mon 09:00 Mon 17:00"), ("9-12,12-17", "Mon 09:00 Mon 17:00"), ("22-6,5-8", "Sun 22:00 Mon 08:00"),
        ("12-11,10-13 mon", "Mon 10:00 Tue 11:00"), ("6-5:50", "Sun 06:00 Mon 05:50"), ("1-24 mon-sat", "Mon 01:00 Tue 00:00"),
    ],
)  # fmt: skip
def test_spans_that_touch_are_one(text, span):
    assert begins_and_ends(text, MONDAY + 3 * HOUR)[0] == span


def test_hours_that_never_end_are_none():
    for text in ("0-12,12-24", "20-4,3-21", "12-11,11-12", "0-24 sun,mon-sat"):
        assert hours.parse("during", text).text == ""


# ------------------------------------------------------------------------------------------------- days on which clocks change


@pytest.mark.parametrize(
    ("text", "spring", "autumn"),
    [
        ("9-17", "07:00 15:00", "08:00 16:00"),
        ("0-6", "23:00 04:00", "22:00 05:00"),
        ("2:30-5", "01:00 03:00", "00:30 04:00"),
        ("0-2:30", "23:00 01:00", "22:00 00:30"),
        ("1-3", "00:00 01:00", "23:00 02:00"),
        ("22-6", "21:00 04:00", "20:00 05:00"),
    ],
)
def test_they_begin_and_end_once_on_days_on_which_clocks_change(text, spring, autumn):
    """The clocks of Berlin skip 02:00 to 03:00, which is 01:00 UTC, or show it twice, from 00:00 UTC."""
    for day, expected in (
        (datetime(2026, 3, 28, 12, tzinfo=UTC), spring),
        (datetime(2026, 10, 24, 12, tzinfo=UTC), autumn),
    ):
        span = hours.span(text, "Europe/Berlin", day)
        while span.ends < day + 12 * HOUR:
            span = hours.span(text, "Europe/Berlin", span.ends)
        assert f"{span.begins:%H:%M} {span.ends:%H:%M}" == expected


def test_hours_that_the_clocks_skip_are_left_out():
    assert begins_and_ends("2:10-2:50", datetime(2026, 3, 28, 12, tzinfo=UTC), "Europe/Berlin") == [
        "Mon 02:10 Mon 02:50"
    ]
    before = datetime(2011, 12, 29, 12, tzinfo=UTC)  # Samoa skipped Friday, 30 December
    assert begins_and_ends("9-17 fri", before, "Pacific/Apia") == ["Fri 09:00 Fri 17:00"]
    assert hours.span("9-17 fri", "Pacific/Apia", before).begins > before + 7 * DAY
    assert begins_and_ends("fri-sun", before, "Pacific/Apia") == ["Sat 00:00 Mon 00:00"]
    assert begins_and_ends("22-6", before + 6 * HOUR, "Pacific/Apia", 2) == [
        "Thu 22:00 Sat 00:00",
        "Sat 00:00 Sat 06:00",
    ]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.sampled_from(["9-17 mon-fri", "22-6 sat,sun", "2:30-5", "0-2:30,23-24", "mon-fri", "1-3,4-4:30 sun-tue"]),
    st.sampled_from(
        ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata"]
    ),
    st.datetimes(datetime(2009, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001
)
def test_spans_follow_each_other_and_agree_with_the_clocks(text, zone, instant):
    """Away from changes, an instant is inside exactly if the zone's clocks show a time that the text names."""
    at, where = instant.replace(tzinfo=UTC), ZoneInfo(zone)
    span = hours.span(text, zone, at)
    assert at < span.ends and span.begins < span.ends
    assert hours.span(text, zone, span.begins) == span
    assert hours.span(text, zone, span.ends).begins >= span.ends
    if zones.next_change(at - DAY, where, 3 * DAY) is None:
        shown = zones.wall(at, where)
        minute = shown.weekday() * hours.A_DAY + shown.hour * 60 + shown.minute
        named = any(a <= minute < b or a <= minute + hours.A_WEEK < b for a, b in hours.parse("during", text).spans)
        assert (span.begins <= at) == named


# ------------------------------------------------------------------------------------------------------------- when tasks are due


def due_task(id_=1, every="1m", during="9-17 mon-fri", **columns):
    every_ms = kinds.interval.parse("every", every).every_ms
    return DueTask(id_, MONDAY, "polling", "poll", every_ms, 0, 0, during=during, **columns)


def test_inside_its_hours_a_task_is_due_as_without_them():
    at = MONDAY + 12 * HOUR
    assert hours.in_hours(due_task(), at) == at
    assert kinds.next_run(due_task(), at) == at + MINUTE
    assert kinds.next_run(due_task(), MONDAY + 17 * HOUR - 2 * MINUTE) == MONDAY + 17 * HOUR - MINUTE


@pytest.mark.slow
def test_many_tasks_share_the_interval_after_the_beginning():
    opening = MONDAY + DAY + 9 * HOUR
    after = sorted(hours.in_hours(due_task(id_), MONDAY + 18 * HOUR) - opening for id_ in range(1, 6001))
    assert after[0] >= timedelta(0) and after[-1] < MINUTE
    for second in range(60):
        count = sum(timedelta(seconds=second) <= one < timedelta(seconds=second + 1) for one in after)
        assert 90 <= count <= 110


def test_a_task_is_due_at_the_same_time_each_day_that_it_is_put_off():
    first = hours.in_hours(due_task(7), MONDAY + 18 * HOUR)
    assert hours.in_hours(due_task(7), MONDAY + DAY + 8 * HOUR) == first
    assert hours.in_hours(due_task(7), MONDAY + DAY + 19 * HOUR) == first + DAY


def test_quiet_tasks_share_their_interval_in_force():
    opening = MONDAY + DAY + 9 * HOUR
    after = [hours.in_hours(due_task(id_, pace_ms=1_800_000), MONDAY + 18 * HOUR) - opening for id_ in range(1, 1001)]
    assert min(after) < MINUTE and max(after) > 29 * MINUTE and max(after) < 30 * MINUTE


def test_a_longer_interval_in_force_is_not_put_off_before_its_run_has_ended():
    """The run may find work. Then the task is due after a minute, and not on the next day."""
    late = MONDAY + 16.9 * HOUR
    assert kinds.next_run(due_task(pace_ms=1_800_000), late) == late + 30 * MINUTE
    assert kinds.next_run(due_task(every="30m"), late) > MONDAY + DAY + 9 * HOUR


@pytest.mark.parametrize("pace", [None, 1_800_000])
def test_a_task_with_a_phase_is_due_in_phase(pace):
    opening = MONDAY + DAY + 9 * HOUR
    for id_ in range(1, 50):
        due = hours.in_hours(due_task(id_, phase_ms=45_000, pace_ms=pace), MONDAY + 18 * HOUR)
        assert interval.since_phase(due, 60_000, 45_000) == 0
        assert opening <= due < opening + (30 * MINUTE if pace else MINUTE)


@pytest.mark.parametrize("phase_ms", [None, 8 * 3_600_000 - 1000])
def test_no_task_is_put_off_to_the_last_minutes_in_which_a_tick_could_miss_it_each_day(phase_ms):
    for id_ in range(1, 500):
        due = hours.in_hours(due_task(id_, every="8h", phase_ms=phase_ms), MONDAY + 18 * HOUR)
        assert MONDAY + DAY + 9 * HOUR <= due <= MONDAY + DAY + 17 * HOUR - 10 * MINUTE
    short = due_task(499, every="10m", during="9-9:10")
    assert hours.in_hours(short, MONDAY + 18 * HOUR) <= MONDAY + DAY + 9 * HOUR + 5 * MINUTE


def test_a_schedule_that_ends_before_its_hours_begin_again_is_over():
    ends = MONDAY + DAY + 8 * HOUR
    assert kinds.next_run(due_task(ends_at=ends), MONDAY + 17 * HOUR) is None


def test_the_hours_are_by_the_clocks_of_the_zone():
    summer = datetime(2026, 7, 6, tzinfo=UTC)
    task = due_task(0, zone="Europe/Berlin")
    assert hours.in_hours(task, summer) == summer + 7 * HOUR
    assert hours.in_hours(task, MONDAY) == MONDAY + 8 * HOUR


# -------------------------------------------------------------------------------------------------------------- the n-th due time


def alarm(id_, every, during, since, pace=None):
    every_ms = kinds.interval.parse("every", every).every_ms
    return Alarm(id_, Kind.INTERVAL, "", "UTC", every_ms, 1, since, None, 0, False, pace_ms=pace, during=during)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.integers(1, 10_000), st.sampled_from(["1m", "7m", "45m", "2h"]), st.sampled_from(["9-17 mon-fri", "22-6", "8-12,13-17", "sat,sun"]),
    st.integers(1, 400), st.datetimes(datetime(2026, 3, 2), datetime(2026, 3, 9)),  # noqa: DTZ001
)  # fmt: skip
def test_the_nth_due_time_is_that_of_a_task_whose_runs_take_no_time(id_, every, during, count, since):
    task = alarm(id_, every, during, since.replace(tzinfo=UTC))
    at = task.since
    for _ in range(count):
        at = hours.in_hours(task, at + task.every_ms * interval.MILLISECOND)
    found = hours.nth_due(task, count)
    assert found == at if count < 100 or every in ("1m", "7m") else abs(found - at) < (at - task.since) / 5


def test_it_is_estimated_after_many_spans():
    year = hours.nth_due(alarm(1, "1h", "9-17", MONDAY), 365 * 8)
    assert abs(year - MONDAY - 365 * DAY) < 5 * DAY
