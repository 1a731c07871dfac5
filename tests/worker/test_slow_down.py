"""`SlowDown` ends a run and leaves a key of its limits alone; `run.slow_down` leaves it alone while the run continues."""

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import ticker
from tests.harness import start
from tests.running import PATIENCE, stock_worker, work
from tests.sentences import sentence
from ticker import clock
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.errors import BadInput
from ticker.model import Outcome
from wrappers import SlowDown
from wrappers.pipeline.database import Database
from wrappers.pipeline.slow_down import span
from wrappers.sandbox.handoff import End, PendingEnd

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FUNCTIONS = """
from wrappers import SlowDown, task

def slow_down(run, key=None, until=None, holds=False):
    if holds:
        run.slow_down(key, until)
        return 7
    raise SlowDown(key, until)

task("slows")(slow_down)

@task("slows.together", batch=10, concurrency=10)
async def slow_down_together(run, **kwargs):
    return slow_down(run, **kwargs)
"""


@pytest.mark.parametrize(
    ("until", "milliseconds"),
    [
        (None, None), (60, 60_000), (0.0004, 1), ("60", 60_000), ("5m", 300_000), (timedelta(seconds=2), 2_000),
        (NOW + timedelta(seconds=90), 90_000), (NOW - timedelta(seconds=90), 0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60_000), ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
    ],
)  # fmt: skip
def test_a_time_is_a_datetime_a_duration_or_an_http_header(until, milliseconds, monkeypatch):
    monkeypatch.setattr(clock, "python_utc", lambda: NOW)
    assert span(until) == SlowDown("host", until).for_ms == milliseconds


@pytest.mark.parametrize("until", ["", "soon", "-5", "500d", f"Sun, 01 Mar {10**20} 12:00:00 GMT"])
def test_a_header_that_is_no_time_holds_the_key_as_if_there_were_none(until, caplog):
    assert SlowDown("host", until).for_ms is None
    assert repr(until) in caplog.text


@pytest.mark.parametrize("until", [datetime(2026, 3, 1), -1, float("nan"), []])  # noqa: DTZ001
def test_what_is_no_time_is_refused(until):
    with pytest.raises(BadInput, match="until"):
        SlowDown("host", until)


@pytest.fixture
def slows(environ, db, store, queue):
    """Registers a task of the function with the keys `host` and `account`, and pushes it."""
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('host', 5)")
    db.execute(
        "INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('slows.together', 10, clock_timestamp())"
    )

    def register(function="slows", keys=("host", "account"), **kwargs) -> ticker.Task:
        tasks = [
            ticker.register(db, function, name=name, every="1h", kwargs=kwargs, retries=2)
            for name in ("one", "two")[: 2 if function == "slows.together" else 1]
        ]
        tick(store, queue)
        db.execute("UPDATE ticker.tasks SET limits = %s", [[*keys] or None])
        return tasks[0]

    return register


def held(db: Any) -> dict[str, float]:
    """For how many seconds each key is left alone."""
    query = "SELECT key, extract(epoch FROM closed_until - clock_timestamp())::float8 FROM ticker.limited_keys"
    return {key: seconds for key, seconds in db.execute(query).fetchall() if seconds is not None}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["slows", "slows.together"])
@pytest.mark.parametrize("worker", [work, stock_worker], ids=["ours", "stock"])
def test_a_run_that_is_held_off_is_no_failure_and_its_first_key_is_left_alone(
    worker, function, slows, db, store, queue
):
    slows(function, until="10m")
    worker(patch=FUNCTIONS)
    runs = ticker.list_runs(db)
    assert {(run.outcome, run.state) for run in runs} == {("slowed_down", "ended")}
    assert sentence("why.slowed_down", key="host").within(runs[0].reason)
    assert held(db).keys() == {"host"}
    assert 500 < held(db)["host"] <= 600
    tick(store, queue)
    task = ticker.get(db, runs[0].task_id)
    assert (task.failures, task.failed, task.last_outcome) == (0, 0, "slowed_down")
    assert len(ticker.list_runs(db)) == len(runs)  # no retry
    assert db.execute("SELECT count(*) FROM ticker.slots WHERE token IS NOT NULL").fetchone() == (0,)


@pytest.mark.slow
def test_runs_of_a_group_that_are_held_off_together_hold_their_key_for_one_minute(slows, db):
    slows("slows.together", key="account")
    work(patch=FUNCTIONS)
    assert [run.outcome for run in ticker.list_runs(db)] == ["slowed_down"] * 2
    assert db.execute("SELECT closed_step, allowed FROM ticker.limited_keys WHERE key = 'account'").fetchone() == (1, 1)
    assert held(db).keys() == {"account"}
    assert 30 < held(db)["account"] <= 60


@pytest.mark.slow
@pytest.mark.parametrize("function", ["slows", "slows.together"])
def test_a_run_may_leave_a_key_alone_and_continue(function, slows, db):
    slows(function, key="account", until=600, holds=True)
    work(patch=FUNCTIONS)
    assert {(run.outcome, run.result) for run in ticker.list_runs(db)} == {("succeeded", 7)}
    assert held(db).keys() == {"account"}


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("host", "account"), ()])
def test_a_key_that_the_task_does_not_have_fails_the_run_with_one_sentence(keys, slows, db):
    slows(keys=keys, key="other")
    work(patch=FUNCTIONS)
    [run] = ticker.list_runs(db)
    assert (run.outcome, held(db)) == ("failed", {})
    assert sentence("errors.no_key", key="'other'").within(run.reason)


@pytest.mark.slow
def test_an_end_that_makes_room_for_a_task_that_is_due_wakes_the_tickers(environ, db, monkeypatch):
    monkeypatch.setenv("TICKER_WAKE", "on")
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('host', 1)")
    tasks = [ticker.register(db, "poll", name=name, every="1m") for name in ("first", "second")]
    db.execute("UPDATE ticker.tasks SET limits = '{host}', next_run = clock_timestamp() - interval '1 s'")
    heard = []
    with connect(os.environ["DATABASE_URL"]) as listener:
        listener.execute("LISTEN ticker_wake")
        for due in (True, False):
            occurrence = ticker.get(db, tasks[0]).next_run
            assert occurrence is not None
            token = str(uuid4())
            db.execute("UPDATE ticker.tasks SET last_run = NULL, last_occurrence = NULL")
            assert start(db, tasks[0], occurrence - timedelta(seconds=due), now=None, token=token)["refusal"] is None
            if not due:
                db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 h'")
            database = Database(os.environ["DATABASE_URL"], "ticker")
            assert database.finish(PendingEnd(tasks[0].id, 0, token, End(Outcome.SUCCEEDED)))
            database.close()
            heard.append(len(list(listener.notifies(timeout=PATIENCE if due else 0.2, stop_after=1))))
    assert heard == [1, 0]
