"""Spread tasks by cron and calendar: each has a place of its own in a window after each of its times."""

from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

import ticker
from tests.sentences import sentence
from ticker.cli import main
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.schedules.duration import words
from ticker.tasks import preview

HOUR = timedelta(hours=1)
MS = timedelta(milliseconds=1)
SIX = {"cron": "0 6 * * *", "spread": True, "within": "2h"}


def offset(task: ticker.Task) -> timedelta:
    assert task.phase_ms is not None
    return task.phase_ms * MS


@pytest.mark.slow
def test_a_thousand_tasks_are_due_one_after_another_in_the_window(environ, db):
    tasks = [ticker.register(db, "poll", owner=f"mail:{number}", **SIX) for number in range(200)]
    after = [task.next_run - datetime.combine(task.next_run.date(), datetime.min.time(), UTC) for task in tasks]
    assert all(6 * HOUR <= hours < 8 * HOUR for hours in after)
    assert len(set(after)) == 200 and min(after) < 6.2 * HOUR and max(after) > 7.8 * HOUR


@pytest.mark.slow
@pytest.mark.parametrize("said", [{"cron": "0 6 * * *"}, {"calendar": "*-*-* 06:00"}])
def test_the_next_time_is_as_long_after_its_own(said, environ, db, store, queue):
    task = ticker.register(db, "poll", owner="mail:5", spread=True, within="2h", **said)
    tick(store, queue, task.next_run + timedelta(seconds=20))
    assert ticker.get(db, task).next_run == task.next_run + 24 * HOUR
    tick(store, queue, task.next_run + 90 * HOUR)
    assert ticker.get(db, task).next_run == task.next_run + 96 * HOUR


@pytest.mark.slow
def test_what_is_shown_are_the_shifted_times(environ, db, store):
    task = ticker.register(db, "poll", owner="mail:5", **SIX)
    assert preview.of_task(task, store.now(), 3).times == tuple(task.next_run + days * 24 * HOUR for days in range(3))
    shown = CliRunner().invoke(main, ["next", str(task.id), "-n", "1", "--json"])
    assert f"{task.next_run:%Y-%m-%dT%H:%M:%SZ}" in shown.output
    said = CliRunner().invoke(main, ["next", str(task.id), "-n", "1"]).output
    assert f"At 06:00, every day, plus {words(task.phase_ms)}" in said


@pytest.mark.slow
def test_a_time_whose_place_lies_ahead_still_is_taken(environ, db, store, monkeypatch):
    """Registered after 6:00, and before its place."""
    task = ticker.register(db, "poll", owner="mail:5", **SIX)
    monkeypatch.setattr("ticker.clock.now", lambda: task.next_run - MS)
    again = ticker.register(db, "poll", name="other", owner="mail:5", **SIX)
    third = ticker.edit(db, again, queue="slow", cron="0 5 * * *")
    assert third.next_run - offset(third) in (
        task.next_run - offset(task) - HOUR,
        task.next_run - offset(task) + 23 * HOUR,
    )
    ticker.unregister(db, again.id)
    ticker.unregister(db, task.id)
    assert ticker.register(db, "poll", owner="mail:5", **SIX).next_run == task.next_run


@pytest.mark.slow
def test_a_window_comes_and_goes_with_an_edit(environ, db, store):
    plain = ticker.register(db, "poll", owner="mail:5", cron="0 6 * * *")
    spread = ticker.edit(db, plain, spread=True, within="2h")
    assert spread.next_run != plain.next_run and offset(spread) < 2 * HOUR
    narrow = ticker.edit(db, plain, within="1m")
    assert offset(narrow) < HOUR / 60 and (narrow.next_run - offset(narrow)).hour == 6
    assert ticker.edit(db, plain, spread=False, within=0).next_run == plain.next_run
    assert ticker.edit(db, plain, every="5m").within_ms is None


@pytest.mark.slow
def test_a_resumed_task_makes_one_late_run_and_waits_for_its_place(environ, db, store, queue):
    task = ticker.register(db, "poll", owner="mail:5", **SIX)
    ticker.pause(db, task.id, by="ada")
    db.execute("UPDATE ticker.tasks SET next_run = next_run - interval '30 days' WHERE id = %s", (task.id,))
    [resumed] = ticker.resume(db, task.id)
    assert resumed.next_run == task.next_run - timedelta(days=30)
    assert tick(store, queue).enqueued == 1
    assert ticker.get(db, task.id).next_run == task.next_run


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"cron": "0 6 * * *", "spread": True}, sentence("errors.spread_needs", field="spread", value="True")),
        ({"cron": "0 6 * * *", "within": "2h"}, sentence("errors.within_needs", field="within", value="'2h'")),
        ({"cron": "0 * * * *", "spread": True, "within": "1h"}, sentence("errors.within_too_long", field="within", value="'1h'", limit="1h between")),
        ({"cron": "0 6 * * *", "spread": True, "within": 0.5}, sentence("errors.field_and_value", field="within", value="0.5")),
        ({"every": "5m", "spread": True, "within": "1m"}, sentence("errors.within_for_times", field="within", value="'1m'")),
        ({"at": "2100-01-01T00:00:00Z", "spread": True, "within": "1m"}, sentence("errors.within_needs_spread", field="within", value="'1m'")),
    ],
)  # fmt: skip
def test_a_window_that_does_not_fit_is_refused(said, words, environ, db):
    with pytest.raises(BadInput) as refused:
        ticker.register(db, "poll", **said)
    assert words.within(refused.value)
