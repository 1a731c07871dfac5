"""The arithmetic of the rules, for every interval; and that the start statement judges as it does."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ticker
from tests.doubles import too_early
from tests.harness import start
from tests.sentences import sentence
from tests.timing_tables import tables
from ticker.engine import timing
from ticker.errors import BadInput
from ticker.schedules.duration import DAY, HOUR, LONGEST, MINUTE, SECOND
from ticker.schedules.interval import Interval

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MINUTELY = 60 * SECOND

intervals = st.integers(timing.SHORTEST_INTERVAL, LONGEST)
boxes = st.integers(timing.SHORTEST_BOX, LONGEST)
graces = st.integers(1, SECOND)
instants = st.timedeltas(timedelta(0), timedelta(days=8000 * 365)).map(
    lambda age: datetime(1970, 1, 1, tzinfo=UTC) + age
)


# ---------------------------------------------------------------------------------------------------- how parts fit


@given(intervals)
@example(timing.SHORTEST_INTERVAL)
@example(LONGEST)
def test_what_is_set_by_default_always_fits_into_the_interval(every):
    tolerance, box, grace = timing.tolerance_by_default(every), timing.box_by_default(every), timing.grace(every)
    timing.check_fit(every, tolerance, box)
    assert tolerance + box + grace <= every
    assert box >= timing.SHORTEST_BOX and 1 <= grace <= SECOND and tolerance >= 1


@pytest.mark.parametrize(
    ("every", "tolerance", "box", "grace"),
    [
        (SECOND, 250, 500, 100),
        (10 * SECOND, 2500, 5 * SECOND, SECOND),
        (20 * SECOND, 5 * SECOND, 10 * SECOND, SECOND),
        (MINUTE, 5 * SECOND, 30 * SECOND, SECOND),
        (HOUR, 3 * MINUTE, 30 * MINUTE, SECOND),
        (366 * DAY, 26_352 * MINUTE, 183 * DAY, SECOND),
    ],
)
def test_defaults_are_those_that_the_design_names(every, tolerance, box, grace):
    found = timing.tolerance_by_default(every), timing.box_by_default(every), timing.grace(every)
    assert found == (tolerance, box, grace)


@pytest.mark.slow
@given(intervals, st.data())
def test_parts_are_taken_exactly_when_they_fit(every, data):
    room = every - timing.grace(every)
    tolerance = data.draw(st.integers(0, room))
    timing.check_fit(every, tolerance, room - tolerance)
    with pytest.raises(BadInput) as refused:
        timing.check_fit(every, tolerance, room - tolerance + 1)
    assert refused.value.field == ("box" if room - tolerance + 1 >= tolerance else "tolerance")


@pytest.mark.parametrize(
    ("tolerance", "box", "said"),
    [
        (
            30 * SECOND,
            30 * SECOND,
            sentence("errors.box_does_not_fit", field="box:", value="'30s'", limit="29s", every="1m"),
        ),
        (
            5 * SECOND,
            55 * SECOND,
            sentence("errors.box_does_not_fit", field="box:", value="'55s'", limit="54s", every="1m"),
        ),
        (
            30 * SECOND,
            29_001,
            sentence("errors.tolerance_does_not_fit", field="tolerance:", value="'30s'", limit="29s999ms", every="1m"),
        ),
        (DAY, DAY, sentence("errors.box_does_not_fit", field="box:", value="'1d'", limit="0s", every="1m")),
    ],
)
def test_the_larger_part_is_named_with_its_limit(tolerance, box, said):
    with pytest.raises(BadInput) as refused:
        timing.check_fit(MINUTELY, tolerance, box)
    assert str(refused.value) == said


# ------------------------------------------------------------------------------------------------ too early, or not


STARTS = [row for rows in tables().values() for row in rows if row.event.endswith((" begins", " is dropped"))]


def verdicts(tolerance: int) -> list[bool]:
    return [too_early(row.at, row.checked, MINUTELY, tolerance) for row in STARTS]


def test_the_tables_of_the_seed_hold_for_every_tolerance_from_3_s_to_under_32_s():
    expected = [row.event.endswith("dropped") for row in STARTS]
    assert expected == [False] * 5 + [True] + [False] * 3
    assert [verdicts(tolerance) for tolerance in (3000, 5000, 29_000, 31_999)] == [expected] * 4
    assert verdicts(2999) != expected != verdicts(32_000)


def test_the_ticks_of_the_tables_advance_by_the_interval_from_now():
    ticks = [row for rows in tables().values() for row in rows if " enqueues A" in row.event]
    assert [Interval(MINUTELY).next_after(row.at) for row in ticks] == [row.next_run for row in ticks]


@pytest.mark.slow
@given(instants, intervals, st.data())
def test_equality_runs_and_a_microsecond_before_is_too_early(last_run, every, data):
    tolerance = data.draw(st.integers(0, every - 1))
    earliest = timing.earliest_start(last_run, every, tolerance)
    assert earliest - last_run == timedelta(milliseconds=every - tolerance)
    assert not too_early(earliest, last_run, every, tolerance)
    assert too_early(earliest - MICROSECOND, last_run, every, tolerance)
    assert not too_early(last_run, None, every, tolerance)


# ------------------------------------------------------------------------------------- horizon, expiry, time to live


@pytest.mark.parametrize(
    ("look_ahead", "tolerance", "expected"),
    [(SECOND, 5 * SECOND, 1000), (SECOND, 4999, 999), (SECOND, 0, 0), (0, HOUR, 0)],
)
def test_the_horizon_is_the_setting_and_at_most_a_fifth_of_the_tolerance(look_ahead, tolerance, expected):
    assert timing.horizon(look_ahead, tolerance) == expected


@given(intervals, st.integers(0, 10 * SECOND))
def test_what_is_due_within_the_horizon_is_not_too_early_when_it_starts_at_once(every, look_ahead):
    """A task that started with its last tick, and is pushed by the horizon early, still runs."""
    tolerance = timing.tolerance_by_default(every)
    pushed = NOW + timing.span(every - timing.horizon(look_ahead, tolerance))
    assert not too_early(pushed, NOW, every, tolerance)


@given(intervals)
def test_what_waits_expires_after_two_intervals_and_ten_minutes_at_least(every):
    assert timing.expiry(every) == max(2 * every, 10 * MINUTE)
    edge = NOW - timing.span(timing.expiry(every))
    assert not timing.has_expired(edge, NOW, NOW, every)
    assert timing.has_expired(edge - MICROSECOND, NOW, NOW, every)


@given(intervals, instants)
def test_the_newest_that_waits_never_expires(every, occurrence):
    assert not timing.has_expired(occurrence, occurrence, datetime(9999, 1, 1, tzinfo=UTC), every)


@given(intervals)
def test_redis_forgets_a_job_long_after_it_has_expired(every):
    ttl = timing.job_ttl(every)
    assert isinstance(ttl, int)
    assert ttl * SECOND >= 2 * timing.expiry(every) + HOUR
    assert ttl < 2**31  # what Redis and RQ take without a question


# --------------------------------------------------------------------------------------------------- box, back-off


@pytest.mark.slow
@given(boxes, graces)
def test_the_time_out_of_rq_is_whole_and_30_s_or_more_behind_the_hard_limit(box, grace):
    timeout = timing.job_timeout(box, grace)
    assert isinstance(timeout, int)
    assert box + grace <= (timeout - 30) * SECOND < box + grace + SECOND


@pytest.mark.slow
@given(boxes, graces, boxes, graces)
def test_a_granted_box_ends_30_s_before_the_time_out_of_rq_however_the_row_was_edited(pushed, grace, box, grace_now):
    timeout = timing.job_timeout(pushed, grace)
    granted = timing.granted_box(box, grace_now, timeout)
    assert 0 <= granted <= box
    assert granted + grace_now <= (timeout - 30) * SECOND
    if (box, grace_now) == (pushed, grace) or box + grace_now <= pushed + grace:
        assert granted == box


@pytest.mark.parametrize("timeout", [None, -1])
def test_without_a_time_out_of_rq_the_whole_box_is_granted(timeout):
    assert timing.granted_box(DAY, SECOND, timeout) == DAY


@pytest.mark.parametrize("timeout", [0, 1, 29, 30, 31])
def test_no_time_out_of_rq_makes_a_box_negative(timeout):
    assert timing.granted_box(DAY, SECOND, timeout) == 0


def test_back_off_doubles_from_30_s_to_an_hour():
    assert [timing.back_off(errors) / timedelta(minutes=1) for errors in range(1, 10)] == [
        0.5,
        1,
        2,
        4,
        8,
        16,
        32,
        60,
        60,
    ]


@pytest.mark.slow
@given(st.integers(1, 2**31 - 1))
def test_back_off_never_shrinks_and_never_exceeds_an_hour(errors):
    assert timedelta(seconds=30) <= timing.back_off(errors) <= timing.back_off(errors + 1) <= timedelta(hours=1)


# ------------------------------------------------------------------------------------- the same inside the database


def refusal(db: Any, task_id: int, now: datetime, occurrence: datetime) -> str | None:
    """What the start statement says, without leaving a trace."""
    with db.transaction(force_rollback=True):
        return start(db, task_id, occurrence, now, pushed=False)["refusal"]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
def test_the_start_statement_judges_too_early_as_python_does(zone, db):
    """In zones with summer time, too: durations are added as seconds, never as days."""
    db.execute(f"SET timezone TO '{zone}'")
    task = ticker.register(db, "poll", every="1m")
    for every, tolerance in [
        (SECOND, 0),
        (SECOND, 250),
        (MINUTE, 5 * SECOND),
        (DAY, 0),
        (DAY, HOUR),
        (366 * DAY, 7 * DAY),
    ]:
        for last_run in (
            NOW,
            datetime(2026, 3, 8, 6, 59, 59, 999_999, tzinfo=UTC),
            datetime(2026, 4, 4, 14, tzinfo=UTC),
        ):
            db.execute(
                "UPDATE ticker.tasks SET every_ms = %s, tolerance_ms = %s, box_ms = 100, grace_ms = 1, last_run = %s",
                [every, tolerance, last_run],
            )
            earliest = timing.earliest_start(last_run, every, tolerance)
            for now in (
                last_run,
                earliest - MICROSECOND,
                earliest,
                earliest + MICROSECOND,
                earliest + timedelta(days=400),
            ):
                db.execute("UPDATE ticker.tasks SET waiting = %s", [[now]])
                expected = "too_early" if too_early(now, last_run, every, tolerance) else None
                assert refusal(db, task.id, now, occurrence=now) == expected, (every, tolerance, last_run, now)


@pytest.mark.slow
def test_the_start_statement_judges_a_first_run_and_expiry_as_python_does(db):
    task = ticker.register(db, "poll", every="1h")
    newest = NOW + timedelta(days=1)
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[%s, %s]", [NOW, newest])
    for every in (SECOND, HOUR):
        db.execute("UPDATE ticker.tasks SET every_ms = %s, tolerance_ms = 0, box_ms = 100, grace_ms = 1", [every])
        for age in (timing.span(timing.expiry(every)) + offset for offset in (-MICROSECOND, timedelta(), MICROSECOND)):
            expected = "expired" if timing.has_expired(NOW, newest, NOW + age, every) else None
            assert refusal(db, task.id, NOW + age, occurrence=NOW) == expected, (every, age)
        assert refusal(db, task.id, newest + timedelta(days=9), occurrence=newest) is None


@pytest.mark.slow
def test_the_due_query_looks_as_far_ahead_as_python_does(db, store):
    task = ticker.register(db, "poll", every="1m")
    for tolerance in (0, 4999, 5 * SECOND, 20 * SECOND):
        db.execute("UPDATE ticker.tasks SET tolerance_ms = %s", [tolerance])
        edge = NOW + timing.span(timing.horizon(SECOND, tolerance))
        for next_run, due in [(edge, True), (edge + MICROSECOND, False)]:
            db.execute("UPDATE ticker.tasks SET next_run = %s", [next_run])
            with store.batch() as rows:
                assert [found.id for found in rows.claim_due(NOW, SECOND, 10)] == ([task.id] if due else []), tolerance
