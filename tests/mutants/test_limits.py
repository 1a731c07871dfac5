"""From when a run's limits count, seen where the start's answer is slow: time passes on a frozen clock alone."""

import importlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

import ticker
from ticker import clock
from ticker.db import sql
from ticker.settings import Settings
from ticker.tasks.fields import Task
from wrappers.layers import time_box
from wrappers.pipeline import start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database
from wrappers.sandbox import limits
from wrappers.sandbox.limits import Limits


class SlowDatabase(Database):
    """Each answer takes its seconds, and nobody waits for them."""

    def __init__(self, url: str, frozen: FrozenDateTimeFactory, seconds: float) -> None:
        super().__init__(url, "ticker")
        self._frozen, self._seconds = frozen, seconds
        self.asked_at = 0.0

    def execute(self, name: str, /, **parameters: Any) -> list[sql.Row]:
        self.asked_at = limits.now()
        rows = super().execute(name, **parameters)
        self._frozen.tick(self._seconds)
        return rows


@pytest.fixture
def frozen() -> Iterator[FrozenDateTimeFactory]:
    with freeze_time("2026-03-01 12:00") as frozen:
        yield frozen


@pytest.fixture
def task(environ: dict[str, str], db: psycopg.Connection[Any], function: Any) -> Task:
    """Its box is 30 s, its grace 1 s."""
    function("poll")(lambda: None)
    return ticker.register(db, "poll", every="1m")


def call_of(task: Task, database: Database) -> Call:
    return Call(
        task_id=task.id, occurrence=task.next_run, planned=None, job_id="j", worker="w", rq_timeout=None,
        settings=Settings(), database=database,
    )  # fmt: skip


def started(task: Task, database: Database) -> Call | None:
    """The call with its start; None where it gets none."""
    asked = start.ask(call_of(task, database))
    return None if isinstance(asked, str) else asked


@pytest.mark.slow
def test_a_run_counts_its_time_from_before_the_start_was_asked_for(task, environ, frozen):
    asked = clock.monotonic()
    with closing(SlowDatabase(environ["DATABASE_URL"], frozen, 1.9)) as database:
        call = started(task, database)
    assert call.began == asked == clock.monotonic() - 1.9
    assert 0 < call.since <= database.asked_at


@pytest.mark.slow
def test_a_start_whose_answer_took_over_two_seconds_is_given_up_and_says_so(task, environ, db, frozen):
    with closing(SlowDatabase(environ["DATABASE_URL"], frozen, 2.1)) as database:
        assert started(task, database) is None
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == (
        "lost",
        "the start statement took 2.1 s, over the limit of 2 s: its function was not called",
    )
    assert ticker.get(db, task).running_until is None


@pytest.mark.slow
def test_a_start_whose_answer_took_longer_than_the_box_is_given_up(task, environ, db, frozen):
    """It would be killed as soon as its limits are armed, and recorded as a run that overran them."""
    ticker.edit(db, task, box="500ms")
    with closing(SlowDatabase(environ["DATABASE_URL"], frozen, 0.6)) as database:
        assert started(task, database) is None
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == (
        "lost",
        "the start statement took 0.6 s, over the limit of 0.5 s: its function was not called",
    )


@pytest.mark.slow
def test_what_the_start_took_is_gone_from_the_quota_and_from_both_limits(task, environ, frozen, monkeypatch):
    seen: list[tuple[float, float, float]] = []

    class SeenLimits(Limits):
        def __init__(self, soft: float, hard: float, *, since: float, **how: Any) -> None:
            seen.append((soft, hard, since))
            super().__init__(soft, hard, since=since, **how)

    # by its full name: in the package `time_box` is the function
    monkeypatch.setattr(importlib.import_module("wrappers.layers.time_box"), "Limits", SeenLimits)
    with closing(SlowDatabase(environ["DATABASE_URL"], frozen, 1.5)) as database:
        call = started(task, database)
    quotas: list[float] = []
    with time_box(call) as boxed:
        quotas.append(boxed.run.quota.remaining)
    assert quotas == [28.5]
    assert seen == [(30.5, 31.0, call.since)]
