"""The process of a group takes further jobs of its function, so that no slot waits for the slowest run."""

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rq import Queue

import ticker
from tests.factories import ticked
from tests.running import ASKED_UNDER_A_LOCK, PATIENCE, until, work, working
from tests.worker.grouped import outcomes, register
from ticker import settings
from ticker.db.connections import connect
from ticker.engine.tick import tick
from wrappers.group.group import Group
from wrappers.pipeline import start
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import Database
from wrappers.sandbox import limits

pytestmark = pytest.mark.slow

LATER = datetime.now(UTC) + timedelta(days=300)
FUNCTIONS = """
import asyncio, logging, os, time
from pathlib import Path
from wrappers import task

FOLDER = Path(os.environ.get("GROUP_FOLDER", "/nonexistent"))

@task("pairs", batch=2, concurrency=2)
async def pairs(run, deed, number=0):
    (FOLDER / run.name).write_text(str(os.getpid()))
    while deed == "waits" and len(list(FOLDER.iterdir())) < number:
        await asyncio.sleep(0.01)
    if deed == "dies":
        while len(list(FOLDER.iterdir())) < number:
            await asyncio.sleep(0.01)
        os._exit(3)
    if deed == "vanishes":
        while len(list(FOLDER.iterdir())) < number:
            await asyncio.sleep(0.01)
        os._exit(0)
    if deed == "blocks":
        await asyncio.sleep(1000)
    if deed == "naps":
        await asyncio.sleep(1.3)

@task("other")
def other(run):
    (FOLDER / run.name).write_text(str(os.getpid()))
"""

LEAVES_A_TRACE = """
from wrappers.group.group import Group

take_in = Group._take_in

def taken(group, job):
    take_in(group, job)
    (FOLDER / "taken").touch()

Group._take_in = taken
"""


@pytest.fixture(autouse=True)
def announced(environ: dict[str, str], db: Any, folder: Path) -> None:
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at)"
        " VALUES ('pairs', 2, 2, clock_timestamp()), ('other', 1, 1, clock_timestamp())"
    )


def batches_of(db: Any, batch: int, **report: Any) -> None:
    """Lets a job carry so many tasks: their slots begin them within half a tick, by what was measured."""
    ticked(db, tick_ms=30_000, **report)
    db.execute("UPDATE ticker.functions SET batch = %s, mean_ms = 10 WHERE name = 'pairs'", [batch])


def processes(folder: Path) -> set[str]:
    return {file.read_text() for file in folder.iterdir()}


def test_the_slots_next_to_a_slow_run_take_the_tasks_of_further_jobs(db, store, queue, folder, redis):
    """The slow run waits until all others have begun: job after job, it would wait until its time box."""
    register(db, "pairs", "waits", *["returns"] * 6, kwargs={"number": 7})
    tick(store, queue)
    assert len(Queue("polling", connection=redis).job_ids) == 4
    work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 7
    assert len(processes(folder)) == 1
    assert not redis.keys("rq:job:*") + redis.keys("rq:*execution*")
    assert not redis.exists("rq:wip:polling", "rq:queue:polling:intermediate")


def test_a_group_whose_runs_all_end_at_once_takes_the_next_job(db, store, queue, folder):
    register(db, "pairs", *["returns"] * 8)
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 8
    assert len(processes(folder)) == 1


def test_each_job_ends_in_rq_once_its_tasks_have_begun(db, store, queue, folder, redis):
    register(db, "pairs", "waits", *["returns"] * 4, kwargs={"number": 99})
    tick(store, queue)
    with working("--burst", patch=FUNCTIONS) as process:
        until(lambda: len(list(folder.iterdir())) == 5, "all have begun")
        until(lambda: not redis.keys("rq:job:*"), "no job is left")
        until(lambda: list(outcomes(db).values()).count("succeeded") == 4, "the others have ended")
        assert outcomes(db)["0 waits"] == "None"
        for number in range(99):
            (folder / f"more {number}").touch()
        process.communicate()
    assert set(outcomes(db).values()) == {"succeeded"}


def test_a_job_of_another_function_runs_next_and_is_not_overtaken(db, store, queue, folder, redis):
    """The group takes nothing that was pushed after it, and the slow run ends by itself."""
    register(db, "pairs", "waits", "returns", kwargs={"number": 3})
    tick(store, queue)
    ticker.register(db, "other", name="next", every="1h")
    tick(store, queue)
    register(db, "pairs", "later", "later", owner=("x", "1"))
    tick(store, queue)
    with working("--burst", patch=FUNCTIONS) as process:
        until(lambda: outcomes(db).get("1 returns") == "succeeded", "its neighbour has ended")
        until(lambda: len(list(folder.iterdir())) == 2, "two have begun")
        (folder / "go").write_text((folder / "0 waits").read_text())
        process.communicate()
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 5
    started = {run.task_name: run.started_at for run in ticker.list_runs(db)}
    assert started["next"] < min(started["0 later"], started["1 later"])
    assert len(processes(folder)) == 3


def test_the_jobs_of_a_process_that_dies_leave_nothing_and_what_had_not_begun_is_pushed_again(
    db, store, queue, folder, redis
):
    register(db, "pairs", "dies", "returns", "blocks", "returns", kwargs={"number": 3})
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert outcomes(db)["0 dies"] == outcomes(db)["2 blocks"] == "interrupted"
    assert redis.zcard("rq:wip:polling") == 0
    tick(store, queue)
    work(patch=FUNCTIONS)
    assert len(ticker.list_runs(db)) == 4
    assert outcomes(db)["3 returns"] == "succeeded"


def test_what_had_not_begun_is_pushed_again_after_a_process_that_exits_as_if_all_were_done(
    db, store, queue, folder, redis
):
    """RQ takes a status of 0 for a success, and would wait until the job counts as abandoned."""
    register(db, "pairs", "vanishes", "blocks", "returns", kwargs={"number": 2})
    batches_of(db, 3)
    tick(store, queue)
    work(patch=FUNCTIONS.replace("batch=2", "batch=3"))
    assert outcomes(db) == {"0 vanishes": "interrupted", "1 blocks": "interrupted"}
    assert redis.zcard("rq:wip:polling") == 0
    assert tick(store, queue).swept.repushed == 1


def test_a_worker_that_is_stopped_twice_leaves_no_open_job(db, store, queue, folder, redis, environ):
    """Otherwise, the third task would wait until RQ declares the job abandoned."""
    *_, third = register(db, "pairs", *["blocks"] * 3)
    batches_of(db, 3)
    tick(store, queue)
    with (
        working(patch=FUNCTIONS.replace("batch=2", "batch=3")) as process,
        connect(environ["DATABASE_URL"]) as other,
        other.transaction(),
    ):
        until(lambda: len(list(folder.iterdir())) == 2, "two have begun")
        assert redis.zcard("rq:wip:polling") == 1
        other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [third.id])  # it cannot be given back
        process.terminate()
        until(lambda: process.poll() is not None or process.terminate(), "a second signal has stopped it")
    assert redis.zcard("rq:wip:polling") == 0
    assert sorted(filter(None, outcomes(db).values())) == ["interrupted"] * 2
    assert tick(store, queue).swept.repushed == 1


def test_a_task_without_a_slot_goes_back_to_its_row_while_another_worker_is_idle(db, store, queue, folder, monkeypatch):
    """Both slots are taken by runs that wait for the third. The row says why it waits, and another worker runs it."""
    monkeypatch.setenv("TICKER_TICK", "1s")
    batches_of(db, 3, crews=[[["polling"], 2, 1]])
    register(db, "pairs", "waits", "waits", kwargs={"number": 3})
    third = ticker.register(db, "pairs", name="third", every="1h", kwargs={"deed": "returns"})
    tick(store, queue)
    with working("--burst", patch=FUNCTIONS.replace("batch=2", "batch=3")) as process:
        until(lambda: len(list(folder.iterdir())) == 2, "two have begun")
        until(lambda: ticker.get(db, third.id).wait_reason == "no_slot", "the third is given back")
        report = tick(store, queue)
        assert (report.due.enqueued, report.swept.repushed) == (1, 0)
        work(patch=FUNCTIONS)
        process.communicate()
    assert set(outcomes(db).values()) == {"succeeded"} and len(processes(folder)) == 2


def test_a_group_keeps_its_tasks_for_many_ticks_until_slots_are_free(db, store, queue, folder, monkeypatch):
    """The workers are busy, so nobody else would run them sooner. No tick pushes anything again."""
    monkeypatch.setenv("TICKER_TICK", "1s")
    batches_of(db, 6, crews=[[["polling"], 1, 1]])
    register(db, "pairs", *["naps"] * 6)
    tick(store, queue)
    with working("--burst", patch=FUNCTIONS.replace("batch=2", "batch=6")) as process:
        while process.poll() is None:
            report = tick(store, queue)
            assert (report.due.enqueued, report.swept.repushed, report.swept.expired) == (0, 0, 0)
        process.communicate()
    assert set(outcomes(db).values()) == {"succeeded"} and len(processes(folder)) == 1


def test_a_worker_that_stops_gives_back_what_has_not_begun(db, store, queue, folder):
    """The run at work goes on to its own end."""
    batches_of(db, 3)
    register(db, "pairs", *["waits"] * 3, kwargs={"number": 99})
    tick(store, queue)
    with working(patch=FUNCTIONS.replace("batch=2", "batch=3")) as process:
        until(lambda: len(list(folder.iterdir())) == 2, "two have begun")
        process.terminate()
        until(lambda: [task.wait_reason for task in ticker.list_tasks(db)].count("no_slot") == 1, "one is given back")
        assert tick(store, queue).due.enqueued == 1
        for number in range(99):
            (folder / f"more {number}").touch()
        process.communicate()
    assert list(outcomes(db).values()) == ["succeeded"] * 2


@pytest.mark.parametrize(
    ("seconds", "begun", "closes", "given_back"),
    [(1, 0, False, []), (40, 0, False, [1, 2, 3]), (40, 2, False, [3]), (40, 3, False, []), (1, 2, True, [1, 2, 3])],
    ids=["before a tick", "no slot was free", "two slots were free", "slots for all", "it closes"],
)
def test_what_the_starts_of_a_tick_would_not_reach_is_given_back(
    seconds, begun, closes, given_back, environ, monkeypatch
):
    """The tick takes 30 s. Only a group that closes does not ask whether another worker is idle."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    at, database, asked = datetime(2026, 1, 1, tzinfo=UTC), Database.from_environment(), []
    first = Call(1, at, None, "j1", "w", None, settings.from_environment(), database)
    group = Group([replace(first, task_id=number) for number in (1, 2, 3)], 2)

    def give_back(calls, reason, if_idle):
        asked.append((reason, if_idle))
        return calls

    monkeypatch.setattr(start, "give_back", give_back)
    later = limits.now() + seconds
    monkeypatch.setattr(limits, "now", lambda: later)
    group._begun, group._is_closing = begun, closes
    asyncio.run(group._give_back())
    assert {1, 2, 3} - {call.task_id for call in group._unstarted} == {*given_back}
    assert asked == [("no_slot", not closes)] * bool(given_back)


# ------------------------------------------------------------------------------------------------ jobs of single tasks


def test_single_jobs_that_were_pushed_before_concurrency_was_known_run_in_one_group(db, store, queue, folder, redis):
    """Each waits until all have begun. The group begins with a single job, and takes the others in."""
    db.execute("DELETE FROM ticker.functions")
    register(db, "pairs", *["waits"] * 4, kwargs={"number": 4})
    tick(store, queue)
    assert len(Queue("polling", connection=redis).job_ids) == 4
    work(patch=FUNCTIONS.replace("batch=2, concurrency=2", "concurrency=4"))
    assert set(outcomes(db).values()) == {"succeeded"} and len(outcomes(db)) == 4
    assert len(processes(folder)) == 1
    assert not redis.keys("rq:job:*") + redis.keys("rq:*execution*")


def test_a_task_that_runs_alone_gets_its_own_process_and_a_planned_run_may_join_a_group(db, store, queue, folder):
    tasks = register(db, "pairs", *["returns"] * 2)
    db.execute("UPDATE ticker.tasks SET alone_until = now() + interval '1 hour' WHERE id = %s", [tasks[0].id])
    tick(store, queue)
    planned = ticker.register(db, "pairs", name="by hand", every="1h", kwargs={"deed": "returns"}, first=LATER)
    ticker.run_now(db, planned.id)
    tick(store, queue)
    work(patch=FUNCTIONS)
    of_run = {file.name: file.read_text() for file in folder.iterdir()}
    assert set(outcomes(db).values()) == {"succeeded"} and of_run.keys() == {"0 returns", "1 returns", "by hand"}
    assert of_run["0 returns"] not in (of_run["1 returns"], of_run["by hand"])


def test_two_occurrences_of_a_locked_task_are_decided_one_after_the_other(db, environ, store, queue, folder):
    """While the row is locked, both jobs of the task are open in the process, and their starts are requested."""
    task = ticker.register(db, "pairs", name="twice", every="1h", kwargs={"deed": "returns"})
    tick(store, queue)
    db.execute("UPDATE ticker.tasks SET next_run = now() WHERE id = %s", [task.id])
    tick(store, queue)
    with connect(environ["DATABASE_URL"]) as holder, ExitStack() as started:
        with holder.transaction():
            holder.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            process = started.enter_context(working("--burst", patch=FUNCTIONS + LEAVES_A_TRACE))
            until(lambda: (folder / "taken").exists(), "both are taken")
            holder.execute("SELECT")  # what is requested after this is requested for both
            until(lambda: db.execute(ASKED_UNDER_A_LOCK).fetchone(), "the starts are requested")
        process.communicate(timeout=PATIENCE)
    assert sorted(run.outcome for run in ticker.list_runs(db)) == ["dropped", "succeeded"]


def test_a_job_whose_tasks_are_all_refused_ends_its_process(db, store, queue, redis):
    register(db, "pairs", "returns", "returns")
    tick(store, queue)
    db.execute("UPDATE ticker.tasks SET enabled = false")
    work(patch=FUNCTIONS)
    assert outcomes(db) == {"0 returns": "dropped", "1 returns": "dropped"}
    assert not redis.keys("rq:job:*")


def test_a_row_that_is_locked_for_the_first_time_in_minutes_is_requested_again(environ, monkeypatch):
    """The patience with a locked row does not count from an earlier job of the task in the same process."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    at, database = datetime(2026, 1, 1, tzinfo=UTC), Database.from_environment()
    call = Call(1, at, None, "j1", "w", None, settings.from_environment(), database)
    group, answers = Group([call], 2), iter(["dropped: too_early", None])
    monkeypatch.setattr(start, "ask_all", lambda calls, tokens: [next(answers)])
    asyncio.run(group._start())
    group._open([replace(call, job_id="j2")])
    later = limits.now() + 300
    monkeypatch.setattr(limits, "now", lambda: later)
    asyncio.run(group._start())
    assert [call.job_id for call in group._unstarted] == ["j2"]


def test_a_worker_for_a_limited_number_of_jobs_gives_none_to_a_group(db, store, queue, folder, redis):
    """One slot is free until the other run reaches its soft limit."""
    register(db, "pairs", "waits", kwargs={"number": 3}, every="10s", box="2s")
    register(db, "pairs", *["returns"] * 3)
    tick(store, queue)
    with working("--burst", "--max-jobs", "1", patch=FUNCTIONS) as process:
        process.communicate()
    assert outcomes(db) == {"0 waits": "timed_out", "0 returns": "succeeded"}
    assert len(Queue("polling", connection=redis).job_ids) == 1


def test_an_error_while_tasks_are_given_back_ends_no_run(environ, monkeypatch, caplog):
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    database = Database.from_environment()
    call = Call(1, datetime(2026, 1, 1, tzinfo=UTC), None, "j1", "w", None, settings.from_environment(), database)
    group = Group([call], 2)
    group._has_failed = True

    def give_back(calls, reason, if_idle):
        raise psycopg.errors.InsufficientPrivilege("permission denied for table runs")

    monkeypatch.setattr(start, "give_back", give_back)
    asyncio.run(group._give_back())
    assert [one.task_id for one in group._unstarted] == [1]
    assert "permission denied for" in caplog.text


GIVES_NOTHING_BACK = """
from wrappers.pipeline import start

def give_back(*_):
    raise RuntimeError("nothing goes back")

start.give_back = give_back
"""


@pytest.mark.parametrize(("deeds", "number"), [(("vanishes", "blocks"), 2), (("waits", "waits"), 3)])
def test_planned_runs_that_a_group_did_not_begin_are_pushed_again_by_the_sweep(deeds, number, db, store, queue, folder):
    """The process exits, or it closes and cannot give the third run back."""
    for task in register(db, "pairs", *deeds, "returns", kwargs={"number": number}, first=LATER):
        ticker.run_now(db, task)
    batches_of(db, 3)
    tick(store, queue)
    with working("--burst", patch=GIVES_NOTHING_BACK + FUNCTIONS.replace("batch=2", "batch=3")) as process:
        until(lambda: len(list(folder.iterdir())) == 2, "two have begun")
        if "waits" in deeds:
            process.terminate()
            until(lambda: "warm shut down" in process.stdout.readline(), "the worker has heard it")
            (folder / "go").touch()
        process.communicate()
    assert Counter(run.state for run in ticker.list_runs(db)) == {"ended": 2, "pushed": 1}
    assert tick(store, queue).swept.repushed == 1
    work(patch=FUNCTIONS)
    assert [run.outcome for run in ticker.list_runs(db) if run.task_name == "2 returns"] == ["succeeded"]
