"""What ended over time: from minutes and hours, its points, and how they are drawn."""

import re
from datetime import timedelta

import pytest

from tests.factories import MINUTE, NINE
from tests.sentences import sentence
from ticker import clock
from ticker.errors import BadInput
from ticker.read import activity as chart
from ticker.read.activity import activity, within

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def at_nine(environ):
    with clock.use(lambda: NINE + MINUTE / 2):
        yield


def count(db, at, outcome, number=1, table="minutes", reason="", late=()):
    db.execute(
        f"INSERT INTO ticker.{table} (at, function, queue, outcome, reason, count, late) VALUES (%s, %s, %s, %s, %s, %s, %s)",
        [at, "(all)" if table == "hours" else "poll", f"q{at}", outcome, reason, number, [*late]],
    )


def see(db, at, listening, busy, table="minutes"):
    db.execute(
        f"INSERT INTO ticker.{table} (at, function, queue, samples, listening, busy) VALUES (%s, %s, 'q', 2, %s, %s)",
        [at, "(all)" if table == "hours" else "", listening, busy],
    )


def counted_until(db, at):
    db.execute("UPDATE ticker.installation SET counted_until = %s", [at])


def points(seen):
    return {point.at: point for point in seen.points if point.outcomes or point.drops or point.busy is not None}


def test_two_hours_have_a_point_for_each_minute(db):
    counted_until(db, NINE - MINUTE)
    for outcome, number, late in (("succeeded", 10, [9, 0, 1]), ("failed", 2, [2]), ("nothing_to_do", 3, [])):
        count(db, NINE - 5 * MINUTE, outcome, number, late=late)
    count(db, NINE - 5 * MINUTE, "dropped", 4, reason="too_early")
    see(db, NINE - 5 * MINUTE, 8, 5)
    count(db, NINE - 3 * HOUR, "failed")
    seen = activity(db)
    assert (seen.step_ms, seen.counted_until, len(seen.points)) == (60_000, NINE - MINUTE, 120)
    assert (seen.points[0].at, seen.points[-1].at) == (NINE - 119 * MINUTE, NINE)
    [point] = points(seen).values()
    assert point.outcomes == {"succeeded": 10, "failed": 2, "nothing_to_do": 3} and point.drops == {"too_early": 4}
    assert (point.late_p50_ms, point.late_p95_ms, point.busy) == (1_000, 4_000, 0.625)


@pytest.mark.parametrize(("span", "step", "number"), [("24h", HOUR, 24), ("7d", 2 * HOUR, 84), ("30d", 6 * HOUR, 120)])
def test_longer_spans_have_whole_hours_and_the_minutes_after_them(db, span, step, number):
    counted_until(db, NINE - 20 * MINUTE)
    count(db, NINE - 2 * HOUR, "succeeded", 7, table="hours")
    count(db, NINE - 2 * HOUR + MINUTE, "succeeded", 3)  # it is in the hour
    count(db, NINE - 25 * MINUTE, "succeeded", 5)
    see(db, NINE - 2 * HOUR, 4, 4, table="hours")
    seen = activity(db, span)
    assert (seen.step_ms, len(seen.points)) == (step // timedelta(milliseconds=1), number)
    assert sum(point.outcomes.get("succeeded", 0) for point in seen.points) == 12
    assert chart.tracks(seen)[0].note.startswith("up to ") and len(chart.labels(seen)) == 4
    assert [point.busy for point in points(seen).values() if point.busy is not None] == [1.0]


def test_minutes_that_are_no_longer_kept_are_read_as_hours(db):
    kept = NINE - 30 * DAY + 2 * HOUR
    counted_until(db, NINE)
    count(db, kept - 2 * HOUR, "succeeded", 7, table="hours")
    count(db, kept - HOUR, "failed", 2, table="hours")
    assert activity(db, at=kept).step_ms == 60_000
    seen = activity(db, at=kept - MINUTE)
    assert (seen.step_ms, chart.labels(seen)) == (3_600_000, ["09:00", "10:00"])
    assert [dict(point.outcomes) for point in seen.points] == [{"succeeded": 7}, {"failed": 2}]
    assert chart.tracks(seen)[0].note == "up to 7 an hour"


def test_nothing_is_counted_before_the_first_minute(db):
    seen = activity(db)
    assert seen.counted_until is None and points(seen) == {}
    assert [track.bars for track in chart.tracks(seen)] == [{}] * 4 and chart.totals(seen) == []
    assert chart.title(seen.points[-1]) == "01 Mar 09:00 UTC, nothing"


def test_what_is_no_span_is_refused(db):
    with pytest.raises(BadInput, check=sentence("errors.is_none_of", values="2h").within):
        activity(db, "1h")


def test_a_share_of_values_is_within_the_end_of_a_bucket():
    assert within([], 0.5) is None
    assert within([19, 0, 0, 0, 0, 0, 1], 0.95) == 1_000
    assert within([18, 0, 0, 0, 0, 0, 2], 0.95) == 64_000


def test_bars_are_stacked_and_the_highest_column_fills_its_track(db):
    counted_until(db, NINE)
    count(db, NINE - MINUTE, "succeeded", 15, late=[14, 1])
    count(db, NINE - MINUTE, "failed", 5)
    count(db, NINE, "succeeded", 10)
    for number, reason in enumerate(("too_early", "expired", "paused", "missed", "gone")):
        count(db, NINE, "dropped", 9 - number, reason=reason)
    seen = activity(db)
    ended, late, dropped, busy = chart.tracks(seen)
    assert (ended.name, ended.note) == ("Ended", "up to 20 a minute")
    assert ended.bars == {
        "succeeded": "M118 25.0h0.84v75.0h-0.84zM119 50.0h0.84v50.0h-0.84z", "failed": "M118 0.0h0.84v25.0h-0.84z",
    }  # fmt: skip
    assert (late.note, sorted(late.bars), busy.bars) == ("95% within 2 s", ["late-p50", "late-p95"], {})
    assert sorted(dropped.bars) == ["drop-1", "drop-2", "drop-3", "drop-4"]
    heights = [float(height) for bar in dropped.bars.values() for height in re.findall(r"v([\d.]+)", bar)]
    assert sum(heights) == pytest.approx(100, abs=0.5)
    assert [(one.word, one.number) for one in chart.totals(seen)][:3] == [
        ("succeeded", 25),
        ("failed", 5),
        ("too_early", 9),
    ]
    assert chart.title(seen.points[-2]) == (
        "01 Mar 08:59 UTC, ended: 15 succeeded, 5 failed; started: half within 1 s, 95% within 2 s"
    )
    assert chart.labels(seen) == ["07:01", "07:31", "08:01", "08:31"]
