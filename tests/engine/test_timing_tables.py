"""The four timing tables of seed 003, and Nuntium's own cases, through tick, RQ queue and wrapper on a frozen clock."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory
from rq import SimpleWorker

import ticker
from tests.timing_tables import BASE, Replay, tables
from ticker import clock
from ticker.engine.tick import tick

SECOND = timedelta(seconds=1)


@pytest.fixture
def frozen(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenDateTimeFactory]:
    """Python's clock stands still at the base, statements are handed it, and nothing is killed."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    with freeze_time(BASE) as frozen, clock.use():
        yield frozen


def run_next_job(redis: Any) -> None:
    SimpleWorker(["polling"], connection=redis).work(burst=True, max_jobs=1, logging_level="ERROR")


@pytest.mark.promise("S1")
@pytest.mark.parametrize("tolerance", [3, 5, 29])
@pytest.mark.parametrize("name", list(tables()))
def test_the_table_holds(name, tolerance, frozen, store, queue, db, redis, function):
    task = ticker.register(db, "poll", every=60, tolerance=tolerance, first=BASE + 30 * SECOND)
    replay = Replay(frozen, store, queue, db, redis, task.id)
    function("poll")(replay.body)
    replay.play(tables()[name])


def test_there_are_four_tables_of_which_the_third_drops_one_job():
    dropped = [sum(row.event.endswith("dropped") for row in rows) for rows in tables().values()]
    assert dropped == [0, 0, 1, 0]


def test_a_tick_enqueues_what_is_due_and_moves_it_on_from_now(frozen, store, queue, db, redis):
    for every, offset in [(30, 10), (35, 20), (40, 30), (45, 40), (60, 50)]:
        ticker.register(db, "poll", name=f"every {every}", every=every, first=BASE + offset * SECOND)
    frozen.move_to(BASE + 30 * SECOND)
    report = tick(store, queue, BASE + 30 * SECOND)
    assert report.due.enqueued == 3
    next_runs = [(task.next_run - BASE) / SECOND for task in ticker.list_tasks(db)]
    assert next_runs == [60, 65, 70, 40, 50]


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    ("last_run", "start", "runs"),
    [(None, 0, True), (0, 60, True), (0, 55, True), (0, 95, True), (0, 45, False)],
    ids=["never run", "on time", "equality", "late", "too early"],
)
def test_a_start_is_judged_by_the_last_one(last_run, start, runs, frozen, store, queue, db, redis, function):
    calls = []
    function("poll")(lambda: calls.append(1))
    task = ticker.register(db, "poll", every=60, tolerance=5)
    if last_run is not None:
        db.execute("UPDATE ticker.tasks SET last_run = %s", [BASE])
    tick(store, queue, BASE)
    frozen.move_to(BASE + start * SECOND)
    run_next_job(redis)
    assert (len(calls) == 1) == runs
    after = ticker.get(db, task).last_run
    assert after == (BASE + start * SECOND if runs else BASE)


@pytest.mark.promise("S2")
def test_a_job_that_comes_while_a_run_holds_the_task_is_dropped(frozen, store, queue, db, redis, function):
    """Nuntium's overlap case; its own numbers cannot occur here, since the box ends the first run before."""
    calls = []

    @function("poll")
    def poll() -> None:
        calls.append(1)
        if len(calls) == 1:
            frozen.tick(1)
            run_next_job(redis)
            frozen.tick(0.5)

    ticker.register(db, "poll", every=4, tolerance=0)
    ticker.run_now(db, "poll")
    tick(store, queue, BASE)
    run_next_job(redis)
    assert len(calls) == 1
    outcomes = [(run.kind, run.outcome, run.reason) for run in ticker.list_runs(db)]
    assert outcomes == [("scheduled", "dropped", "still_running"), ("manual", "succeeded", "")]


@pytest.mark.slow
def test_the_log_says_what_was_dropped_with_its_numbers(frozen, store, queue, db, redis, function, caplog):
    function("poll")(lambda: None)
    task = ticker.register(db, "poll", every=60, tolerance=5)
    db.execute("UPDATE ticker.tasks SET last_run = %s", [BASE - 28 * SECOND])
    tick(store, queue, BASE)
    run_next_job(redis)
    [line] = [
        record.getMessage() for record in caplog.records if record.name == "ticker.run" and "dropped" in record.msg
    ]
    assert f"reason=too_early task={task.id} name=poll owner=- last_run=2000-01-01 04:59:32+00:00" in line
    assert (
        f"interval=1m tolerance=5s job=test1234-t{task.id}-946702800000000: 27 s early, 28 s after the last start"
        in line
    )
