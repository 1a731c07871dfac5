"""Starts that meet a pause: nothing starts, nothing is lost, and the newest occurrence waits in the table."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

import ticker
from tests.harness import WORKER, events, handed_out, start, start_planned
from ticker import clock
from ticker.db import sql

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def poll(environ, db):
    """Registers a task that every scope of a pause covers."""

    def register(name="poll", **fields):
        if not {"cron", "at"} & fields.keys():
            fields = {"every": "1m", "tolerance": "5s"} | fields
        return ticker.register(db, "poll", name=name, group="mail", queue="slow", owner=("channel", "1"), **fields)

    return register


@pytest.fixture
def task(poll):
    return poll(first=NOW)


def put(db, task, **columns):
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    db.execute(f"UPDATE ticker.tasks SET {assignments} WHERE id = %(id)s", {**columns, "id": task.id})


def pause_all(db, **scope):
    with clock.use(lambda: NOW - SECOND):
        return ticker.pause_all(db, **scope)


def state(db, task):
    return db.execute(
        "SELECT waiting, next_run, dropped, last_run FROM ticker.tasks WHERE id = %s", [task.id]
    ).fetchone()


SCOPES = [{}, {"group": "mail"}, {"function": "poll"}, {"queue": "slow"}, {"owner_type": "channel"}]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_that_meets_a_pause_leaves_no_record_and_its_occurrence_is_due_again(scope, db, task):
    put(db, task, waiting=[NOW], next_run=NOW + MINUTE)
    pause_all(db, **scope)
    verdict = start(db, task, NOW, NOW + SECOND)
    assert (verdict["refusal"], verdict["run_id"]) == ("closed", None)
    assert state(db, task) == ([], NOW, 0, None)
    assert ticker.list_runs(db) == []


@pytest.mark.parametrize(
    "scope",
    [{"group": "mai"}, {"function": "fetch"}, {"queue": "polling"}, {"owner_type": "channels"}, {"limit": "imap.*"}],
)
def test_a_pause_of_other_tasks_keeps_no_job_from_its_start(scope, db, task):
    pause_all(db, **scope)
    assert start(db, task, NOW)["refusal"] is None


def test_a_task_with_limits_that_meets_a_pause_takes_no_slot(db, poll):
    ticker.limit(db, "imap.a", concurrency=1, rate="1/1d")
    task = poll(first=NOW, limits=["imap.a", "b"])
    pause_all(db, limit="imap.*")
    assert start(db, task, NOW)["refusal"] == "closed"
    assert state(db, task)[:2] == ([], NOW)
    assert db.execute("SELECT count(until) FROM ticker.slots").fetchone() == (0,)


@pytest.mark.parametrize("until", [None, NOW + SECOND])
def test_a_job_that_meets_the_tasks_own_pause_is_not_dropped_either(until, db, task):
    put(db, task, waiting=[NOW], next_run=NOW + MINUTE, paused_by="ann", paused_until=until)
    assert start(db, task, NOW)["refusal"] == "closed"
    assert state(db, task) == ([], NOW, 0, None)


@pytest.mark.parametrize(("now", "refusal"), [(NOW + MINUTE - SECOND, "closed"), (NOW + MINUTE, None)])
def test_a_pause_is_in_force_until_its_end(now, refusal, db, task):
    pause_all(db, until=NOW + MINUTE)
    assert start(db, task, NOW, now)["refusal"] == refusal


def test_a_job_starts_after_the_end_of_the_pause_that_it_met(db, task):
    pause_all(db)
    start(db, task, NOW)
    with clock.use(lambda: NOW + MINUTE):
        ticker.resume_all(db)
    assert start(db, task, NOW, NOW + MINUTE, pushed=False)["refusal"] is None


@pytest.mark.parametrize("columns", [{"waiting": [NOW, NOW + MINUTE]}, {"waiting": [NOW], "next_run": NOW + MINUTE}])
@pytest.mark.parametrize("own", [True, False])
def test_an_occurrence_that_a_newer_one_has_overtaken_is_dropped_and_the_newer_one_stays(columns, own, db, task):
    put(db, task, **{"next_run": NOW + 2 * MINUTE} | columns)
    if own:
        put(db, task, paused_by="ann")
    else:
        pause_all(db)
    later = NOW + 90 * SECOND
    assert start(db, task, NOW, later)["refusal"] == "superseded"
    waiting, next_run, dropped, _ = state(db, task)
    assert (NOW + MINUTE in waiting) or next_run == NOW + MINUTE
    assert (NOW not in waiting, dropped) == (True, 1)
    assert [(run.occurrence, run.reason) for run in ticker.list_runs(db)] == [(NOW, "superseded")]


@pytest.mark.parametrize(("fields", "following"), [({"cron": "0 12 * * *"}, NOW + DAY), ({"at": NOW}, None)])
@pytest.mark.parametrize("own", [True, False])
def test_a_task_by_cron_and_one_for_a_single_time_keep_the_time_that_met_a_pause(fields, following, own, db, poll):
    with clock.use(lambda: NOW - MINUTE):
        task = poll(**fields)
    put(db, task, waiting=[NOW], next_run=following, paused_by="ann" if own else None)
    if not own:
        pause_all(db)
    assert start(db, task, NOW)["refusal"] == "closed"
    assert state(db, task)[:2] == ([], NOW)


@pytest.mark.parametrize("columns", [{"enabled": False}, {"owner_active": False}])
def test_a_job_of_a_task_that_is_disabled_is_dropped_whether_it_is_paused_or_not(columns, db, task):
    put(db, task, **columns)
    pause_all(db)
    assert start(db, task, NOW)["refusal"] == "paused"
    assert [run.reason for run in ticker.list_runs(db)] == ["paused"]


def test_a_job_that_would_be_dropped_anyway_is_dropped_under_a_pause_too(db, task):
    put(db, task, last_run=NOW - SECOND)
    pause_all(db)
    assert start(db, task, NOW)["refusal"] == "too_early"


def test_of_many_jobs_in_one_statement_only_those_of_paused_tasks_wait(db, poll):
    paused, free = poll("paused", first=NOW), ticker.register(db, "poll", name="free", every="1m", first=NOW)
    pause_all(db, group="mail")
    given = {**WORKER, "now": NOW, "job_ids": ["j", "j"]}
    given.pop("job_id")
    given |= {"task_ids": [paused.id, free.id], "occurrences": [NOW] * 2, "tokens": [str(uuid4()), str(uuid4())]}

    verdicts = {row["name"]: row["refusal"] for row in sql.on(db, "ticker")("start", **given)}
    assert verdicts == {"paused": "closed", "free": None}


@pytest.mark.parametrize("own", [True, False])
def test_an_occurrence_from_ahead_of_the_clock_does_not_make_its_task_wait_for_it(own, db, task):
    """The clock was set back since the push, and a tick has brought the task back to it."""
    put(db, task, waiting=[NOW + 8 * HOUR], next_run=NOW + MINUTE, paused_by="ann" if own else None)
    if not own:
        pause_all(db)
    assert start(db, task, NOW + 8 * HOUR, pushed=False)["refusal"] == "superseded"
    assert state(db, task)[:3] == ([], NOW + MINUTE, 1)


def test_a_task_by_cron_comes_to_an_occurrence_from_ahead_of_the_clock_again(db, poll):
    with clock.use(lambda: NOW):
        task = poll(cron="* * * * *")
    put(db, task, waiting=[NOW + 8 * HOUR], next_run=NOW + MINUTE)
    pause_all(db)
    assert start(db, task, NOW + 8 * HOUR, pushed=False)["refusal"] == "closed"
    assert state(db, task)[:3] == ([], NOW + MINUTE, 0)


# ---------------------------------------------------------------------------------------------------- planned runs


def planned(db, task, kind):
    """A run of this kind, whose job a worker has."""
    if kind == "piece":
        handed_out(db, task, "1")
        which = "kind = 'piece'"
    else:
        ticker.run_now(db, task)
        which = "kind = 'manual'"
    update = f"UPDATE ticker.runs SET state = 'pushed', pushed_at = %s, kind = %s WHERE {which} RETURNING id"
    return db.execute(update, [NOW, kind]).fetchone()[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manual", "retry", "piece"])
@pytest.mark.parametrize(
    ("scope", "own", "waits"),
    [
        ({}, False, {"manual", "retry", "piece"}),
        ({"group": "mail"}, False, {"retry", "piece"}),
        (None, True, {"retry", "piece"}),
        ({"group": "mai"}, False, set()),
    ],
)
@pytest.mark.parametrize("limits", [[], ["imap.a"]])
def test_planned_runs_that_meet_a_pause_are_planned_again(kind, scope, own, waits, limits, db, poll):
    """Manual ones only under a pause of all tasks."""
    task = poll(first=NOW + HOUR, every="1h", limits=limits)
    run_id = planned(db, task, kind)
    if own:
        put(db, task, paused_by="ann")
    else:
        pause_all(db, **scope)
    verdict = start_planned(db, task, run_id, NOW + SECOND)
    assert verdict["refusal"] == ("closed" if kind in waits else None)
    [run] = [run for run in ticker.list_runs(db) if run.id == run_id]
    assert (run.state, run.pushed_at) == (("planned", None) if kind in waits else ("running", NOW))
    assert state(db, task)[2] == 0


def test_what_waits_for_a_gate_leaves_no_event(db, task):
    pause_all(db)
    run_id = planned(db, task, "manual")
    before = events(db, "what")
    start(db, task, NOW)
    start_planned(db, task, run_id)
    assert events(db, "what") == before
