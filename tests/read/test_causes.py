"""Failing tasks, grouped by cause: how many, since when, which, and what is left out."""

import pytest

import ticker
from tests.factories import MINUTE, NINE, an_event
from ticker.read import overview

REFUSED, SLOW = "ConnectionRefusedError: *", "TimeoutError: timed out"


def fail(db, name, cause, at=NINE, **columns):
    """A task that fails, as a tick writes it."""
    made = ticker.register(db, name, every="1m", subject=f"{name}@example.org")
    assignments = "".join(f", {column} = %s" for column in columns)
    db.execute(f"UPDATE ticker.tasks SET failures = 2, told = 'failed', cause = %s{assignments} WHERE id = %s", [cause, *columns.values(), made.id])  # fmt: skip
    an_event(db, made, "failed", at, words=f"failed: {cause}")
    return made


@pytest.fixture
def failing(environ, db):
    """Five that are refused, two that are slow; one that is paused by ann, one that is disabled, one without a cause."""
    for number in range(5):
        fail(db, f"refused{number}", REFUSED, at=NINE - number * MINUTE)
    for number in range(2):
        fail(db, f"slow{number}", SLOW)
    fail(db, "paused", SLOW, paused_by="ann")
    fail(db, "disabled", SLOW, enabled=False)
    fail(db, "unknown", "")
    fail(db, "given.up", SLOW, paused_by="ticker")
    db.execute("UPDATE ticker.tasks SET cause = 'no success in time', failures = 0 WHERE name = 'unknown'")


def test_the_largest_group_comes_first_with_its_begin_and_three_examples(failing, db):
    first, second = overview.causes(db)
    assert (first.cause, first.tasks, first.since) == (REFUSED, 5, NINE - 4 * MINUTE)
    assert [task.subject for task in first.examples] == [f"refused{number}@example.org" for number in range(3)]
    assert (second.cause, second.tasks, len(second.ids)) == (SLOW, 3, 3)
    assert [one.cause for one in overview.causes(db, limit=1)] == [REFUSED]
    db.execute("DELETE FROM ticker.events")
    assert overview.causes(db)[0].since is None


def test_a_list_has_the_tasks_that_a_group_counts(failing, db):
    for one in overview.causes(db):
        assert [task.id for task in ticker.list_tasks(db, cause=one.cause)] == list(one.ids)
        assert [task.id for task in ticker.list_tasks(db, cause=one.cause, state="failing")] == list(one.ids)
    assert ticker.list_tasks(db, cause="OSError") == []


def test_the_pace_is_that_of_the_minutes_counted_last(environ, db):
    assert overview.overview(db).per_minute is None
    db.execute("UPDATE ticker.installation SET counted_until = date_trunc('minute', clock_timestamp())")
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, outcome, count) SELECT counted_until - n * interval '1 minute', 'q', o, 8"
        " FROM ticker.installation, generate_series(1, 12) n, unnest(ARRAY['succeeded', 'dropped']) o"
    )
    assert overview.overview(db).per_minute == 8
