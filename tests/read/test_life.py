"""The life of a run as bars: what it waited for, its work and its limits, on an axis that its attempts share."""

from datetime import timedelta
from uuid import uuid4

import pytest

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run
from ticker.read import life

pytestmark = pytest.mark.slow


@pytest.fixture
def task(db):
    return ticker.register(db, "mail.fetch", owner="mail_channels:5", every=60, tolerance=5)


def lived(db, run_id, now=NINE + MINUTE):
    run = ticker.get_run(db, run_id).run
    return life.drawn([run], now, with_limits=True)


def spans(lives, number=0):
    """Each part's kind, and its begin and end in seconds after nine."""
    return [(part.kind, seconds(part.begin), seconds(part.end)) for part in lives.lives[number].parts]


def seconds(at):
    return (at - NINE) / SECOND


def test_a_run_waits_for_its_push_and_in_its_queue_and_works(db, task):
    run = a_run(db, task, kind="manual", occurrence=None, due_at=NINE, pushed_at=NINE + 2 * SECOND,
                started_at=NINE + 5 * SECOND, until=NINE + 36 * SECOND, ended_at=NINE + 25 * SECOND)  # fmt: skip
    lives = lived(db, run)
    assert spans(lives) == [("planned", 0, 2), ("queue", 2, 5), ("succeeded", 5, 25)]
    assert [part.words for part in lives.lives[0].parts] == [
        "2 s until its push", "3 s in its queue", "20 s at work: succeeded"
    ]  # fmt: skip
    limits = lives.lives[0].limits
    assert [(one.kind, seconds(one.end)) for one in limits] == [("quota", 35), ("soft limit", 35.5), ("hard limit", 36)]
    assert seconds(lives.end) == 36 and limits[-1].d == "M1000.0 0v20"


def test_a_short_run_fills_the_axis_and_its_limits_are_only_told(db, task):
    lives = lived(db, a_run(db, task))
    assert (seconds(lives.begin), seconds(lives.end)) == (0, 1)
    assert [one.d for one in lives.lives[0].limits] == ["", "", ""]


def test_a_run_at_work_goes_on_until_now_and_shows_how_much_of_its_box_is_left(db, task):
    run = a_run(db, task, state="running", outcome=None, ended_at=None, token=str(uuid4()))
    lives = lived(db, run, NINE + 3 * SECOND)
    assert spans(lives) == [("running", 0, 3)] and seconds(lives.end) == 31


def test_a_drop_and_a_lost_run_say_what_is_known_of_them(db, task):
    drop = lived(db, a_drop(db, task, "too_early", occurrence=NINE - 9 * SECOND))
    assert spans(drop) == [("queue", -9, 0), ("dropped", 0, 0)] and drop.lives[0].limits == []
    lost = lived(db, a_run(db, task, outcome="lost", ended_at=NINE + 31 * SECOND))
    assert [part.words for part in lost.lives[0].parts] == ["declared lost after 31 s"]


def test_attempts_share_an_axis(db, task):
    first = a_run(db, task, outcome="failed", reason="OSError", retried=True, occurrence=NINE)
    a_run(db, task, kind="retry", parent_id=first, attempt=2, occurrence=NINE, due_at=NINE + 10 * SECOND,
          pushed_at=NINE + 10 * SECOND, started_at=NINE + 12 * SECOND, ended_at=NINE + 20 * SECOND)  # fmt: skip
    lives = life.drawn(ticker.get_run(db, first).attempts, NINE + MINUTE)
    assert [spans(lives, number) for number in (0, 1)] == [
        [("failed", 0, 1)], [("queue", 10, 12), ("succeeded", 12, 20)]
    ]  # fmt: skip
    assert [part.d for part in lives.lives[1].parts] == ["M500.0 4h100.0v12h-100.0z", "M600.0 4h400.0v12h-400.0z"]


def test_what_has_not_begun_has_no_picture(db, task):
    run = a_run(db, task, kind="manual", occurrence=None, due_at=NINE + timedelta(hours=1), state="planned",
                outcome=None, started_at=None, until=None, ended_at=None, checked_at=None)  # fmt: skip
    assert lived(db, run) is None
    assert spans(lived(db, run, NINE + timedelta(hours=2))) == [("planned", 3600, 7200)]
