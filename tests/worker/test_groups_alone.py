"""Tests what tickers know of a function with concurrency, and which tasks run alone after a death of unknown cause."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from freezegun import freeze_time
from rq import Queue

import ticker
from tests.doubles import INSTALLATION, NOW
from tests.factories import ticked
from tests.faults.address import server_of
from tests.faults.proxy import Proxy
from tests.harness import command, finish, handed_out, start, start_planned
from tests.running import work
from tests.sentences import sentence
from tests.worker.grouped import FUNCTIONS as GROUPS
from tests.worker.grouped import due, outcomes
from ticker import clock, settings
from ticker.db import sql
from ticker.engine import jobs, timing
from ticker.engine.tick import tick
from ticker.errors import BadInput, DatabaseUnavailable, RowLocked
from ticker.model import Outcome
from ticker.read import overview
from wrappers.pipeline import finish as finish_
from wrappers.pipeline import registry
from wrappers.pipeline import start as start_
from wrappers.pipeline.context import Call
from wrappers.pipeline.database import LOCKED, Database
from wrappers.sandbox import limits
from wrappers.sandbox.handoff import End, PendingEnd
from wrappers.sandbox.shared_state import OpenRun

FUNCTIONS = '''
import asyncio, os
from pathlib import Path
from wrappers import task

FOLDER = Path(os.environ.get("GROUP_FOLDER", "/nonexistent"))

@task("grouped", batch=10, concurrency=4, repeatable=True)
async def grouped(run):
    pass

@task("together", batch=10, concurrency=10)
async def together(run, deed, number):
    """The neighbours of a death stay active, until the file `go` lets their next runs return."""
    (FOLDER / deed).touch()
    while len(list(FOLDER.iterdir())) < number:
        await asyncio.sleep(0.01)
    if deed == "dies":
        os._exit(3)
    while not (FOLDER / "go").exists():
        await asyncio.sleep(0.01)
'''

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


# ------------------------------------------------------------------------------------------------- what is announced


def test_a_job_whose_tasks_run_together_gets_the_time_of_its_longest_tasks_one_after_another():
    tasks = [due(n, batch=10)._replace(concurrency=4, box_ms=box) for n, box in enumerate((5_000, 9_000, *[1_000] * 3))]
    [(job, _)] = jobs.packed(INSTALLATION, tasks)
    assert job.timeout == 2 * (9 + 1) + 30
    [(one_by_one, _)] = jobs.packed(INSTALLATION, [task._replace(concurrency=1) for task in tasks])
    assert one_by_one.timeout == 5 + 9 + 3 * 1 + 5 * 1 + 30


@pytest.mark.slow
def test_a_launcher_announces_the_concurrency_by_which_a_tick_limits_the_job(environ, db, store, queue, redis):
    work(patch=FUNCTIONS)
    assert [
        (one.batch, one.concurrency, one.repeatable) for one in overview.functions(db) if one.name == "grouped"
    ] == [(10, 4, True)]
    for n in range(5):
        ticker.register(db, "grouped", name=str(n), every="1m", box="10s")
    tick(store, queue)
    assert [(len(job.args), job.timeout) for job in Queue("polling", connection=redis).get_jobs()] == [(8, 41), (2, 41)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("concurrency", "batch", "mean_ms", "sizes"),
    [
        (2, 10, 1000, [6, 6]), (2, 10, 9000, [2] * 6), (2, 10, 1, [10, 2]), (2, 10, None, [2] * 6),
        (1, 10, None, [10, 2]), (1, 10, 1000, [3] * 4),
    ],
)  # fmt: skip
def test_a_job_carries_what_its_slots_begin_within_half_a_tick(
    concurrency, batch, mean_ms, sizes, environ, db, store, queue, redis
):
    """By the measured mean: at least what begins at once, and at most the batch. A tick takes 6 s."""
    ticked(db, tick_ms=6000)
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, mean_ms) VALUES ('together', %s, %s, %s)",
        [batch, concurrency, mean_ms],
    )
    for number in range(12):
        ticker.register(db, "together", name=str(number), every="1h")
    tick(store, queue)
    assert [len(job.args) // 2 for job in Queue("polling", connection=redis).get_jobs()] == sizes


@pytest.mark.parametrize("repeatable", [0, 1, "yes", None])
def test_repeatable_is_true_or_false(repeatable):
    with pytest.raises(BadInput, match="repeatable"):
        registry.task("x", repeatable=repeatable)


# ------------------------------------------------------------------------------------------------- alone next time


@pytest.fixture
def announced(db: Any, environ: dict[str, str]) -> None:
    """The function `together` takes groups. Its workers announce it only when they start, after the first tick."""
    db.execute(
        "INSERT INTO ticker.functions (name, batch, concurrency, announced_at) VALUES ('together', 10, 10, clock_timestamp())"
    )


def register(db: Any, *deeds: str, number: int = 0, **fields: Any) -> list[ticker.Task]:
    said = {"every": "1h", **fields}
    return [
        ticker.register(db, "together", name=deed, kwargs={"deed": deed, "number": number}, **said) for deed in deeds
    ]


def due_again(db: Any) -> None:
    db.execute(
        "UPDATE ticker.tasks SET next_run = statement_timestamp() - (1000 - id) * interval '1 ms', last_run = NULL, last_occurrence = NULL"
    )


def jobs_of_a_tick(db: Any, store: Any, queue: Any, redis: Any) -> list[list[str]]:
    """Returns the names of the tasks in each job of the next tick."""
    due_again(db)
    tick(store, queue)
    names = {task.id: task.name for task in ticker.list_tasks(db)}
    return sorted(sorted(names[id_] for id_ in job.args[::2]) for job in Queue("polling", connection=redis).get_jobs())


def ended(db: Any, tasks: list[ticker.Task], outcome: str, now: datetime | None = None, **said: Any) -> None:
    """Starts a run of each of these tasks, and ends it in this way."""
    for task in tasks:
        token = str(uuid4())
        assert began(db, task, now or ticker.get(db, task).next_run, now, token)
        assert finish(db, task, token, outcome, now, **said)


def began(db: Any, task: ticker.Task, due: datetime | None, now: datetime | None, token: str) -> int:
    """Returns the id of a run of this occurrence."""
    assert due is not None
    verdict = start(db, task, due, now, token=token, functions=["together"])
    assert verdict["refusal"] is None
    return int(verdict["run_id"])


def share_of(db: Any) -> int | None:
    [[share]] = db.execute("SELECT share FROM ticker.tasks").fetchall()
    return None if share is None else int(share)


def alone_until(db: Any) -> dict[str, Any]:
    return {task.name: task.alone_until for task in ticker.list_tasks(db)}


@pytest.mark.slow
def test_after_a_death_without_a_culprit_suspects_share_jobs_and_those_of_a_job_that_dies_again_run_alone(
    announced, folder, db, store, queue, redis
):
    register(db, "dies", "e", "f", "g", number=4)
    assert jobs_of_a_tick(db, store, queue, redis) == [["dies", "e", "f", "g"]]
    work(patch=FUNCTIONS)
    assert set(outcomes(db).values()) == {"interrupted"}
    assert set(alone_until(db).values()) == {timing.LATEST}
    (folder / "go").touch()
    assert jobs_of_a_tick(db, store, queue, redis) == [["dies", "e"], ["f", "g"]]
    work(patch=FUNCTIONS)
    assert alone_until(db) == {"dies": timing.LATEST, "e": timing.LATEST, "f": None, "g": None}
    assert jobs_of_a_tick(db, store, queue, redis) == [["dies"], ["f", "g"]]
    work(patch=FUNCTIONS)
    assert jobs_of_a_tick(db, store, queue, redis) == [["e"], ["f", "g"]]
    work(patch=FUNCTIONS)
    until = alone_until(db)
    [guilty] = [task for task in ticker.list_tasks(db) if task.name == "dies"]
    assert guilty.last_outcome == "killed" and guilty.failures == 1
    assert until == {"dies": guilty.last_ended_at + HOUR, "e": None, "f": None, "g": None}


@pytest.mark.parametrize(("number", "share"), [(2, 2), (4, 2), (5, 3), (80, 9), (81, 9), (1000, 32)])
def test_suspects_of_one_death_share_about_the_square_root_of_their_number_of_jobs(
    number, share, announced, environ, db
):
    [task] = register(db, "x")
    ended(db, [task], "interrupted", NOW, suspect_count=number)
    assert share_of(db) == share
    assert -(-number // share) <= share


@pytest.mark.parametrize("outcomes", [("interrupted", "succeeded"), ("interrupted", "interrupted", "failed")])
def test_a_suspect_is_cleared_by_its_first_ended_run_and_keeps_its_share_until_the_next(
    outcomes, announced, environ, db
):
    [task] = register(db, "x")
    for n, outcome in enumerate(outcomes):
        ended(db, [task], outcome, NOW + n * HOUR, suspect_count=9 * (outcome == "interrupted"))
    assert (ticker.get(db, task).alone_until, share_of(db)) == (None, 3 if len(outcomes) == 2 else 1)
    ended(db, [task], "succeeded", NOW + len(outcomes) * HOUR)
    assert share_of(db) is None


def test_no_other_job_shares_the_process_of_suspects():
    suspects = [due(n, batch=3)._replace(concurrency=4, apart="suspect") for n in range(4)]
    others = [due(n, batch=10)._replace(concurrency=4) for n in (10, 11)]
    packed = jobs.packed(INSTALLATION, [suspects[0], *others, *suspects[1:]])
    assert [[task.id for task in job.tasks] for job in packed] == [[0, 1, 2], [10, 11], [3]]
    assert [job.spec.description.endswith(jobs.APART) for job in packed] == [True, False, True]


def test_of_guilty_tasks_and_suspects_that_take_turns_one_job_is_pushed():
    turns = [due(n, batch=n)._replace(concurrency=4, apart="in turn") for n in (1, 1, 3, 3)]
    assert [len(job.tasks) for job in jobs.packed(INSTALLATION, turns)] == [1]
    assert [len(job.tasks) for job in jobs.packed(INSTALLATION, turns[2:])] == [2]
    elsewhere = [turns[0], turns[1]._replace(queue="slow")]
    assert len(jobs.packed(INSTALLATION, elsewhere)) == 2


@pytest.mark.slow
def test_a_culprit_that_was_observed_runs_alone_and_its_neighbours_do_not(announced, folder, db, store, queue, redis):
    register(db, "swallows", number=2, every="4s", box="1s")
    register(db, "waits", number=2)
    tick(store, queue)
    work(patch=GROUPS)
    assert outcomes(db) == {"swallows": "killed", "waits": "interrupted"}
    until = alone_until(db)
    assert until["swallows"] < timing.LATEST and until["waits"] is None


@pytest.mark.slow
def test_a_guilty_task_is_alone_for_an_hour_whatever_its_runs_do(announced, environ, db):
    [task] = register(db, "x", every="10m")
    ended(db, [task], "killed", NOW)
    ended(db, [task], "succeeded", NOW + 0.9 * HOUR)
    assert ticker.get(db, task).alone_until == NOW + HOUR
    ended(db, [task], "succeeded", NOW + 1.9 * HOUR)
    assert ticker.get(db, task).alone_until is None


@pytest.mark.parametrize(("outcome", "stays"), [("succeeded", False), ("failed", False), ("timed_out", False),
                                                ("interrupted", True), ("lost", True)])  # fmt: skip
def test_a_suspect_is_alone_until_a_run_of_it_has_ended(outcome, stays, announced, environ, db):
    [task] = register(db, "x")
    ended(db, [task], "interrupted", NOW, suspect_count=2)
    ended(db, [task], outcome, NOW + HOUR)
    assert ticker.get(db, task).alone_until == (timing.LATEST if stays else None)


def test_a_run_of_a_batch_that_is_killed_does_not_make_its_task_run_alone(announced, environ, db):
    db.execute("UPDATE ticker.functions SET concurrency = 1")
    [task] = register(db, "x")
    ended(db, [task], "killed", NOW)
    assert ticker.get(db, task).alone_until is None


def test_a_run_of_a_group_without_an_end_makes_its_task_a_suspect_and_a_suspect_guilty(announced, environ, db, store):
    [task] = register(db, "x")
    for n, until in enumerate((timing.LATEST, NOW + 3 * HOUR)):
        began(db, task, NOW + n * HOUR, NOW + n * HOUR, str(uuid4()))
        assert store.end_overdue(NOW + (n + 1) * HOUR, 10) == 1
        assert ticker.get(db, task).alone_until == until


def test_a_late_end_that_is_a_success_clears_the_suspect(announced, environ, db, store):
    [task] = register(db, "x")
    token = str(uuid4())
    run_id = began(db, task, NOW, NOW, token)
    store.end_overdue(NOW + HOUR, 10)
    end = dict.fromkeys(("reason", "traceback", "output", "error_output"), "") | {"result": None, "pid": None}
    assert sql.on(db, "ticker")("finish_late", task_id=task.id, run_id=run_id, token=token, outcome="succeeded", age=0,
                                now=NOW + HOUR, **end)  # fmt: skip
    assert ticker.get(db, task).alone_until is None


@pytest.mark.slow
def test_guilty_tasks_take_turns_and_their_function_goes_on_in_groups(announced, db, store, queue, redis):
    """With other tasks, a guilty one runs again when ten times the time of the last guilty run, or ten seconds, are over."""
    names = [chr(ord("a") + n) for n in range(14)]
    tasks = register(db, *names)
    ended(db, tasks[:11], "killed")
    age(db, "11s")
    assert jobs_of_a_tick(db, store, queue, redis) == [["a"], [*"lmn"]]
    assert store_has_due(db, store) == 10
    tick(store, queue)
    assert Queue("polling", connection=redis).count == 2
    token = str(uuid4())
    began(db, tasks[0], ticker.get(db, tasks[0]).waiting[0], None, token)
    tick(store, queue)
    assert Queue("polling", connection=redis).count == 2
    finish(db, tasks[0], token, "killed", None)
    tick(store, queue)
    assert Queue("polling", connection=redis).count == 2
    age(db, "11s")
    tick(store, queue)
    assert Queue("polling", connection=redis).count == 3


def age(db: Any, by: str) -> None:
    """Makes what has ended older."""
    db.execute(
        "UPDATE ticker.runs SET started_at = started_at - %s::interval, ended_at = ended_at - %s::interval", [by, by]
    )


def store_has_due(db: Any, store: Any) -> int:
    [[count]] = db.execute("SELECT count(*) FROM ticker.tasks WHERE next_run <= clock_timestamp()").fetchall()
    return int(count)


@pytest.mark.slow
def test_suspects_take_turns_only_while_their_function_has_other_tasks(announced, db, store, queue, redis):
    tasks = register(db, *"abcde")
    ended(db, tasks[:4], "interrupted", suspect_count=4)
    assert jobs_of_a_tick(db, store, queue, redis) == [["a", "b"], ["e"]]
    Queue("polling", connection=redis).empty()
    db.execute("UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL, enabled = name <> 'e'")
    assert jobs_of_a_tick(db, store, queue, redis) == [["a", "b"], ["c", "d"]]


@pytest.mark.slow
def test_retries_and_manual_runs_travel_in_groups_and_those_of_suspects_with_suspects(
    announced, db, store, queue, redis
):
    tasks = register(db, *"abcdef")
    ended(db, tasks[:3], "interrupted", suspect_count=9)
    for task in tasks:
        ticker.run_now(db, task)
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 hour'")
    tick(store, queue)
    packed = sorted(Queue("polling", connection=redis).get_jobs(), key=lambda job: job.args)
    assert [job.args[::2] for job in packed] == [tuple(task.id for task in part) for part in (tasks[:3], tasks[3:])]
    runs = {run.id: run for run in ticker.list_runs(db) if run.kind == "manual"}
    assert {-number for job in packed for number in job.args[1::2]} == {*runs}
    assert {run.job_id for run in runs.values()} == {job.id for job in packed}
    redis.flushdb()
    assert tick(store, queue).swept.repushed == 6
    assert {job.id for job in Queue("polling", connection=redis).get_jobs()} == {job.id for job in packed}


@pytest.mark.slow
def test_a_manual_run_in_a_group_runs_as_in_a_job_of_its_own(announced, folder, db, store, queue, redis):
    tasks = register(db, *"abc", number=3)
    (folder / "go").touch()
    for task in tasks:
        ticker.run_now(db, task)
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 hour'")
    tick(store, queue)
    [job] = Queue("polling", connection=redis).get_jobs()
    work(patch=FUNCTIONS)
    runs = ticker.list_runs(db)
    assert [(run.kind, run.outcome, run.job_id) for run in runs] == [("manual", "succeeded", job.id)] * 3
    assert len({run.pid for run in runs}) == 1


# ------------------------------------------------------------------------------------------------- too large a group


@pytest.mark.slow
def test_a_group_that_dies_again_although_no_part_did_is_halved_for_an_hour(announced, db, store, queue, redis):
    tasks = register(db, *"abcdef")
    for outcome in ("interrupted", "succeeded", "interrupted"):
        due_again(db)
        ended(db, tasks, outcome, suspect_count=6 * (outcome == "interrupted"))
    due_again(db)
    ended(db, tasks, "succeeded")
    assert jobs_of_a_tick(db, store, queue, redis) == [["a", "b", "c"], ["d", "e", "f"]]
    assert all(job.description.endswith(jobs.APART) for job in Queue("polling", connection=redis).get_jobs())
    assert sentence("why.group_too_large", until=re.compile("[0-9:]{8}"), number="3").within(
        ticker.why(db, tasks[0]).next
    )
    [(words,)] = db.execute("SELECT words FROM ticker.events WHERE what = 'group_too_large'").fetchall()
    assert sentence("why.group_too_large", until=re.compile("[0-9:]{8}"), number="3").within(words)
    Queue("polling", connection=redis).empty()
    db.execute("UPDATE ticker.functions SET halved_until = clock_timestamp()")
    db.execute("UPDATE ticker.tasks SET waiting = '{}', batch_jobs = NULL")
    assert jobs_of_a_tick(db, store, queue, redis) == [["a", "b", "c", "d", "e", "f"]]
    assert not sentence("why.group_too_large", until=re.compile("[0-9:]{8}"), number="3").within(
        ticker.why(db, tasks[0]).next
    )


@pytest.mark.slow
@pytest.mark.parametrize("history", [("interrupted", "succeeded", "succeeded", "interrupted"), ("interrupted", "interrupted", "succeeded", "interrupted")],
                         ids=["a full group has succeeded", "a part has died"])  # fmt: skip
def test_a_group_that_dies_for_another_reason_keeps_its_size(history, announced, environ, db):
    tasks = register(db, *"abcdef")
    for outcome in history:
        due_again(db)
        ended(db, tasks, outcome, suspect_count=6 * (outcome == "interrupted"))
    assert db.execute("SELECT halved_to FROM ticker.functions").fetchall() == [(None,)]


@pytest.mark.slow
def test_a_small_group_that_dies_again_halves_nothing(announced, environ, db):
    tasks = register(db, *"abcde")
    for outcome in ("interrupted", "succeeded", "interrupted"):
        due_again(db)
        ended(db, tasks, outcome, suspect_count=5 * (outcome == "interrupted"))
    assert db.execute("SELECT halved_to FROM ticker.functions").fetchall() == [(None,)]


def test_a_group_of_two_is_no_larger_than_its_parts(announced, environ, db):
    db.execute("UPDATE ticker.functions SET concurrency = 2")
    tasks = register(db, *"ab")
    for outcome in ("interrupted", "succeeded", "interrupted"):
        due_again(db)
        ended(db, tasks, outcome, suspect_count=2 * (outcome == "interrupted"))
    assert db.execute("SELECT halved_to FROM ticker.functions").fetchall() == [(None,)]


def test_an_end_waits_for_no_other_that_is_halving_the_groups_of_its_function(announced, environ, db, database_url):
    """It holds its task, so they could wait for each other."""
    tasks = register(db, *"abcdef")
    for outcome in ("interrupted", "succeeded"):
        due_again(db)
        ended(db, tasks, outcome, suspect_count=6 * (outcome == "interrupted"))
    due_again(db)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM ticker.functions FOR NO KEY UPDATE")
        db.execute("SET lock_timeout = '5s'")
        ended(db, tasks[:1], "interrupted", suspect_count=6)
    ended(db, tasks[1:2], "interrupted", suspect_count=6)
    assert db.execute("SELECT halved_to FROM ticker.functions").fetchall() == [(3,)]


# ------------------------------------------------------------------------------------------------- lost with their host


@pytest.mark.slow
def test_runs_that_are_lost_with_their_host_are_no_failures_and_make_one_notice(announced, environ, db, store, queue):
    tasks = register(db, *"abcde")
    for task in tasks:
        began(db, task, NOW, NOW, str(uuid4()))
    tick(store, queue, NOW + HOUR)
    lost = ticker.list_tasks(db)
    assert {(task.last_outcome, task.failures, task.failed) for task in lost} == {("lost", 0, 0)}
    assert {*alone_until(db).values()} == {timing.LATEST}
    assert {share for [share] in db.execute("SELECT share FROM ticker.tasks")} == {3}
    assert db.execute("SELECT what, task_id FROM ticker.events").fetchall() == [("host_lost", 0)]


def runs_of_workers(db: Any, *begun: tuple[str, str], **fields: Any) -> list[ticker.Task]:
    """Starts a run of each of these workers and boxes, all on one host."""
    tasks = [register(db, f"{n}", box=box, **fields)[0] for n, (_, box) in enumerate(begun)]
    for task, (worker, _) in zip(tasks, begun, strict=True):
        verdict = start(db, task, NOW, NOW, functions=["together"], worker=worker, host="web1")
        assert verdict["refusal"] is None
    return tasks


def test_two_runs_that_are_lost_at_the_same_time_on_a_living_host_are_failures(announced, environ, db, store):
    runs_of_workers(db, ("w1", "30s"), ("w2", "30s"))
    db.execute(
        "INSERT INTO ticker.tickers (id, host, pid, started_at, last_tick_at) VALUES (gen_random_uuid(), 'web1', 1, %s, %s)",
        [NOW - HOUR, NOW + HOUR],
    )
    assert store.end_overdue(NOW + HOUR, 10) == 2
    assert [(task.failures, task.failed) for task in ticker.list_tasks(db)] == [(1, 1)] * 2
    assert db.execute("SELECT what FROM ticker.events").fetchall() == []


def test_a_run_that_is_lost_while_others_begin_on_its_host_is_a_failure(announced, environ, db, store):
    tasks = runs_of_workers(db, ("w1", "30s"), ("w2", "50m"))
    db.execute("UPDATE ticker.runs SET started_at = started_at + interval '10 m' WHERE task_id = %s", [tasks[1].id])
    assert store.end_overdue(NOW + HOUR / 2, 10) == 1
    assert [(task.failures, task.failed) for task in ticker.list_tasks(db)] == [(1, 1), (0, 0)]


def test_runs_of_a_lost_host_are_no_failures_whenever_their_boxes_end_and_make_one_notice(
    announced, environ, db, store
):
    runs_of_workers(db, *((f"w{n}", f"{10 * n}m") for n in (1, 2, 3)))
    for minutes in (15, 25, 35):
        assert store.end_overdue(NOW + timedelta(minutes=minutes), 10) == 1
    assert [(task.last_outcome, task.failures, task.failed) for task in ticker.list_tasks(db)] == [("lost", 0, 0)] * 3
    [(words,)] = db.execute("SELECT words FROM ticker.events").fetchall()
    assert words == "host web1: 3 of its runs have no end, and the boxes and graces of 1 of them are over"


@pytest.mark.slow
def test_why_and_show_say_until_when_a_task_runs_alone_and_for_which_cause(announced, db):
    guilty, suspect = register(db, "guilty", "suspect")
    ended(db, [guilty], "killed")
    ended(db, [suspect], "interrupted", suspect_count=2)
    until = ticker.get(db, guilty).alone_until
    assert sentence("why.guilty_alone", until=re.compile(f".*{until:%H:%M:%S}.*?")).within(ticker.why(db, guilty).next)
    assert sentence("why.suspect_alone").within(ticker.why(db, suspect).next)
    shown, _ = command("list", "guilty")
    assert sentence("why.guilty_alone", until=re.compile(f".*{until:%H:%M:%S}.*?")).within(" ".join(shown.split()))


# ------------------------------------------------------------------------------------------------- pushed again


@pytest.mark.slow
def test_what_a_group_left_is_pushed_again_in_batches_except_what_runs_alone(announced, db, store, queue, redis):
    tasks = register(db, *"abcde")
    assert jobs_of_a_tick(db, store, queue, redis) == [["a", "b", "c", "d", "e"]]
    db.execute("UPDATE ticker.tasks SET alone_until = %s WHERE name = 'c'", [timing.LATEST])
    redis.flushdb()
    assert tick(store, queue).swept.repushed == 5
    assert tick(store, queue).swept.repushed == 0
    [together, single] = sorted(Queue("polling", connection=redis).get_jobs(), key=lambda job: -len(job.args))
    assert ({*together.args[::2]}, single.args[0]) == ({task.id for task in tasks if task.name != "c"}, tasks[2].id)
    noted = db.execute("SELECT DISTINCT batch_jobs ->> ticker.micros(waiting[1]) FROM ticker.tasks").fetchall()
    assert {*noted} == {(together.id,), (None,)}


@pytest.mark.slow
def test_a_job_that_died_is_pushed_again_under_the_same_id(announced, db, store, queue, redis):
    register(db, *"ab")
    jobs_of_a_tick(db, store, queue, redis)
    [before] = Queue("polling", connection=redis).get_jobs()
    Queue("polling", connection=redis).empty()
    before.save()
    before.set_status("failed")
    assert tick(store, queue).swept.repushed == 2
    [after] = Queue("polling", connection=redis).get_jobs()
    assert after.id == before.id


# ------------------------------------------------------------------------------------------------- attempted again


def attempts(play: Any) -> list[tuple[int, str]]:
    return [(run.attempt, str(run.outcome)) for run in play.runs()]


def ends_again(play: Any, seconds: float, outcome: str) -> None:
    """Starts the retry that a tick pushes at this time, and ends it in this way before the next tick."""
    play.at(seconds)
    play.tick()
    [taken] = play.take()
    assert taken.refusal is None
    play.end(taken, outcome)
    play.tick()


@pytest.mark.slow
@pytest.mark.parametrize("repeatable", [True, False])
def test_an_interrupted_run_of_a_repeatable_function_gets_one_second_attempt(repeatable, play):
    play.db.execute(
        "INSERT INTO ticker.functions (name, repeatable, announced_at) VALUES ('poll', %s, clock_timestamp())",
        [repeatable],
    )
    task = ticker.register(play.db, "poll", every="1m", box="10s", backoff="1s")
    play.run(0, "interrupted")
    if not repeatable:
        play.at(3)
        play.tick()
        assert play.take() == []
        return
    ends_again(play, 3, "interrupted")
    play.at(8)
    play.tick()
    assert play.take() == []
    assert attempts(play) == [(1, "interrupted"), (2, "interrupted")]
    assert (ticker.get(play.db, task).failures, play.events()) == (0, [])
    assert sentence("why.no_retry_left", attempt="2 of 2").within(play.runs()[-1].reason)


@pytest.mark.slow
def test_a_second_attempt_that_fails_counts_like_a_first_one(play):
    play.db.execute(
        "INSERT INTO ticker.functions (name, repeatable, announced_at) VALUES ('poll', true, clock_timestamp())"
    )
    task = ticker.register(play.db, "poll", every="1m", box="10s", backoff="1s")
    play.run(0, "interrupted")
    ends_again(play, 3, "failed")
    assert (ticker.get(play.db, task).failures, play.events()) == (1, ["failed"])


@pytest.mark.slow
@pytest.mark.parametrize(("first", "failures"), [("failed", 1), ("interrupted", 0)])
def test_a_failure_counts_even_if_the_last_attempt_is_interrupted(first, failures, play):
    task = ticker.register(play.db, "poll", every="1m", retries=2, backoff="1s")
    play.run(0, first)
    for seconds in (3, 6):
        ends_again(play, seconds, "interrupted")
    assert attempts(play) == [(1, first), (2, "interrupted"), (3, "interrupted")]
    assert (ticker.get(play.db, task).failures, play.events()) == (failures, ["failed"] * failures)


# ------------------------------------------------------------------------------------------------- a lost answer


def test_a_start_without_an_answer_is_interrupted_with_the_runs_of_its_process_and_is_no_suspect():
    flying, *begun = (OpenRun(n, str(uuid4()), n, 1e12, 10.0, n) for n in range(3))
    assert finish_.verdict(flying, [flying], "died of SIGKILL", 0.0).outcome == "lost"
    end = finish_.verdict(flying, [flying, *begun], "died of SIGKILL", 0.0)
    assert (end.outcome, end.reason, end.suspect_count) == ("interrupted", finish_.UNANSWERED, 0)


@pytest.fixture
def proxy(database_url: str, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(listen=tmp_path, server=server_of(database_url), kind="postgres") as proxy:
        yield proxy


def calls_through(proxy: Proxy, database_url: str, tasks: list[ticker.Task]) -> list[Call]:
    database = Database(proxy.through(database_url), "ticker")
    due = [task.next_run for task in tasks]
    return [
        Call(task.id, at, None, "j", "w", None, settings.from_environment(), database, pid=os.getpid())
        for task, at in zip(tasks, due, strict=True)
    ]


def planned_through(proxy: Proxy, database_url: str, db: Any, *deeds: str) -> list[Call]:
    tasks = register(db, *deeds)
    ids = [ticker.run_now(db, task)[0] for task in tasks]
    return [
        replace(call, occurrence=None, planned=run_id)
        for call, run_id in zip(calls_through(proxy, database_url, tasks), ids, strict=True)
    ]


def one_planned(calls: list[Call], db: Any) -> list[Call]:
    """The last call is for a manual run, whose start is requested after the others."""
    *others, last = calls
    return [*others, replace(last, occurrence=None, planned=ticker.run_now(db, last.task_id)[0])]


@pytest.mark.slow
def test_starts_whose_answer_is_lost_begin_all_the_same_in_their_first_time(
    announced, db, proxy, database_url, monkeypatch
):
    """One of three tasks is disabled, so its record is a drop."""
    monkeypatch.setitem(registry._functions, "together", None)
    tasks = register(db, *"abc")
    db.execute("UPDATE ticker.tasks SET enabled = false WHERE name = 'c'")
    calls, tokens = calls_through(proxy, database_url, tasks), [str(uuid4()) for _ in tasks]
    calls[0].database.open()
    proxy.swallow_commit()
    before, cut = limits.now(), list[float]()
    decide_all = start_.decide_all
    monkeypatch.setattr(
        start_, "decide_all", lambda *asked, **how: cut.append(limits.now()) or decide_all(*asked, **how)
    )
    began_a, began_b, paused = start_.ask_all(calls, tokens)
    assert isinstance(began_a, Call) and isinstance(began_b, Call) and began_a.start and began_b.start
    records = {run.task_id: run for run in ticker.list_runs(db)}
    assert [began_a.start.run_id, began_b.start.run_id] == [records[task.id].id for task in tasks[:2]]
    assert [began_a.start.now, began_b.start.now] == [records[task.id].started_at for task in tasks[:2]]
    assert (records[tasks[0].id].state, len(records)) == ("running", 3)
    assert before <= began_a.since < cut[1]
    assert str(paused).startswith("redelivered")
    assert proxy.summary()["swallowed"] == 1
    assert db.execute("SELECT DISTINCT task_id FROM ticker.events WHERE what = 'redelivered'").fetchall() == [
        (tasks[2].id,)
    ]
    for call, token in zip(calls[:2], tokens[:2], strict=True):
        assert call.database.finish(PendingEnd(call.task_id, 0, token, End(Outcome.SUCCEEDED)))


@pytest.mark.slow
def test_a_start_whose_statement_did_not_arrive_begins_at_the_second_request(
    announced, db, proxy, database_url, monkeypatch
):
    monkeypatch.setitem(registry._functions, "together", None)
    calls = calls_through(proxy, database_url, register(db, *"ab"))
    monkeypatch.setattr(start_, "decide_all", cut_before(proxy, start_.decide_all))
    answers = start_.ask_all(calls, [str(uuid4()) for _ in calls])
    assert all(isinstance(answer, Call) for answer in answers)
    assert {run.state for run in ticker.list_runs(db)} == {"running"}


def cut_before(proxy: Proxy, decide_all: Any) -> Any:
    """The first request finds that its connection has just been closed."""
    requests = []

    def decided(calls: Any, tokens: Any, *first: Any, **waits: bool) -> Any:
        requests.append(tokens)
        if len(requests) == 1:
            proxy.reset()
            raise DatabaseUnavailable("the connection was closed")
        return decide_all(calls, tokens, *first, **waits)

    return decided


def test_a_row_that_the_first_statement_still_holds_is_requested_again_with_the_same_token(
    announced, db, proxy, database_url, monkeypatch
):
    """The first row of each later answer says that the row is locked, once."""
    monkeypatch.setitem(registry._functions, "together", None)
    calls, tokens = calls_through(proxy, database_url, register(db, *"ab")), [str(uuid4()), str(uuid4())]
    calls[0].database.open()
    proxy.swallow_commit()
    requests, decide_all = list[list[str]](), start_.decide_all

    def decided(calls: Any, tokens: Any, *first: Any, **waits: bool) -> Any:
        requests.append([*tokens])
        for n, one in enumerate(decide_all(calls, tokens, *first, **waits)):
            is_locked = n == 0 and len(requests) == 2
            yield one._replace(row={**one.row, "refusal": "locked"}) if is_locked else one

    monkeypatch.setattr(start_, "decide_all", decided)
    assert all(isinstance(answer, Call) for answer in start_.ask_all(calls, tokens))
    assert requests[:2] == [tokens, tokens] and len(requests[2]) == 1 and requests[2][0] in tokens
    assert len(ticker.list_runs(db)) == 2


def test_limits_count_from_a_lost_answer_although_its_row_is_locked_for_longer(
    announced, db, proxy, database_url, monkeypatch
):
    """A row that was locked by another transaction, before the request whose answer was lost, does not count."""
    monkeypatch.setitem(registry._functions, "together", None)
    monkeypatch.setattr(start_, "STILL_EXECUTING", -1)
    [call] = calls_through(proxy, database_url, register(db, "a"))
    call.database.open()
    requested, execute = list[float](), call.database.execute

    def locked_at_first_and_third(name: str, **parameters: Any) -> Any:
        requested.append(limits.now())
        if len(requested) == 2:
            proxy.swallow_commit()
        [row] = execute(name, **parameters)
        is_locked = len(requested) in (1, 3)
        return [row | {"refusal": "locked", "has_begun": False} if is_locked else row]

    monkeypatch.setattr(call.database, "execute", locked_at_first_and_third)
    answer = start_.ask(call)
    assert isinstance(answer, Call) and len(requested) == 4
    assert requested[0] < answer.since < requested[1]


def test_what_began_too_long_ago_is_recorded_as_lost_and_does_not_begin(
    announced, db, proxy, database_url, monkeypatch
):
    monkeypatch.setitem(registry._functions, "together", None)
    monkeypatch.setattr(start_, "SLOWEST_ANSWER", 0.0)
    [call] = calls_through(proxy, database_url, register(db, "a"))
    call.database.open()
    proxy.swallow_commit()
    [lost] = start_.ask_all([call], [str(uuid4())])
    assert str(lost).startswith("lost: the start statement took")
    assert [run.outcome for run in ticker.list_runs(db)] == ["lost"]


def test_a_token_that_has_begun_gets_the_same_answer_and_writes_nothing(announced, environ, db):
    [task] = register(db, "a")
    token = str(uuid4())
    asked = {"token": token, "functions": ["together"], "pushed": False}
    before = start(db, task, task.next_run, NOW, **asked)
    rows = [db.execute(f"SELECT xmin::text, * FROM ticker.{table}").fetchall() for table in ("tasks", "runs")]
    again = start(db, task, task.next_run, NOW + timedelta(seconds=1), **asked)
    assert (before["has_begun"], again["has_begun"]) == (False, True)
    same = ("refusal", "run_id", "now", "box_ms", "cursor", "kwargs", "occurrence")
    assert [again[name] for name in same] == [before[name] for name in same]
    assert rows == [db.execute(f"SELECT xmin::text, * FROM ticker.{table}").fetchall() for table in ("tasks", "runs")]
    assert db.execute("SELECT FROM ticker.events WHERE what = 'redelivered'").fetchall() == []
    other = start(db, task, task.next_run, NOW, **{**asked, "token": str(uuid4())})
    assert other["refusal"] == "redelivered"
    assert finish(db, task, token, "succeeded", NOW + timedelta(seconds=2))
    assert start(db, task, task.next_run, NOW, **asked)["refusal"] == "redelivered"


@pytest.mark.parametrize("kind", ["piece", "manual"])
def test_the_token_of_a_planned_run_that_has_begun_gets_the_same_answer_and_writes_nothing(kind, environ, db):
    task = ticker.register(db, "poll", every="1h")
    if kind == "piece":
        handed_out(db, task, occurrence=task.next_run)
    else:
        ticker.run_now(db, task)
    run_id = next(run.id for run in ticker.list_runs(db) if run.kind == kind)
    token = str(uuid4())
    asked = {"token": token}
    before = start_planned(db, task, run_id, NOW + 2 * SECOND, **asked)
    rows = [db.execute(f"SELECT xmin::text, * FROM ticker.{table}").fetchall() for table in ("tasks", "runs")]
    again = start_planned(db, task, run_id, NOW + 9 * SECOND, **asked)
    assert (before["has_begun"], again["has_begun"]) == (False, True)
    same = ("refusal", "run_id", "now", "box_ms", "cursor", "kwargs", "occurrence", "run_kind")
    assert [again[name] for name in same] == [before[name] for name in same]
    assert rows == [db.execute(f"SELECT xmin::text, * FROM ticker.{table}").fetchall() for table in ("tasks", "runs")]
    assert db.execute("SELECT FROM ticker.events WHERE what = 'redelivered'").fetchall() == []
    other = start_planned(db, task, run_id, NOW, **{**asked, "token": str(uuid4())})
    assert other["refusal"] == "redelivered"
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'succeeded', ended_at = now() WHERE id = %s", [run_id]
    )
    assert start_planned(db, task, run_id, NOW, **asked)["refusal"] == "redelivered"


@pytest.mark.slow
def test_planned_runs_whose_answer_is_lost_begin_all_the_same(announced, db, proxy, database_url, monkeypatch):
    """The answer of the second of three planned runs is lost."""
    monkeypatch.setitem(registry._functions, "together", None)
    calls = planned_through(proxy, database_url, db, *"abc")
    execute, names, before = Database.execute, list[str](), limits.now()

    def swallowed(self: Database, name: str, /, **parameters: Any) -> Any:
        names.append(name)
        if names.count("start_planned") == 2 and names[-1] == "start_planned":
            proxy.swallow_commit()
        return execute(self, name, **parameters)

    monkeypatch.setattr(Database, "execute", swallowed)
    answers = start_.ask_all(calls, [str(uuid4()) for _ in calls])
    assert proxy.summary()["swallowed"] == 1
    assert [answer.start and answer.start.run_id for answer in answers if isinstance(answer, Call)] == [
        call.planned for call in calls
    ]
    assert names.count("start_planned") == 4
    since = [answer.since for answer in answers if isinstance(answer, Call)]
    assert before < since[0] < since[1] < since[2]


@pytest.fixture
def slow(announced: Any, environ: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What happens before each start statement, by its name: seconds pass, and then there may be an error, once."""
    monkeypatch.setitem(registry._functions, "together", None)
    execute, happens = Database.execute, dict[str, Any]()

    def slowly(self: Database, name: str, /, **parameters: Any) -> Any:
        seconds, *errors = happens.get(name, [0])
        frozen.tick(seconds)
        if errors:
            happens.pop(name)
            raise errors[0]
        return execute(self, name, **parameters)

    monkeypatch.setattr(Database, "execute", slowly)
    with freeze_time(NOW) as frozen:
        yield happens


@pytest.mark.slow
def test_each_planned_run_has_a_clock_of_its_own(slow, db, proxy, database_url):
    """Each statement takes 0.9 s."""
    calls = planned_through(proxy, database_url, db, *"abcd")
    slow["start_planned"] = [0.9]
    answers = start_.ask_all(calls, [str(uuid4()) for _ in calls])
    began = [answer.began for answer in answers if isinstance(answer, Call)]
    assert [round(later - began[0], 1) for later in began] == [0.0, 0.9, 1.8, 2.7]


@pytest.mark.slow
def test_what_has_begun_keeps_its_time_while_another_start_waits_for_a_row(slow, db, proxy, database_url):
    tasks = register(db, *"ab", box="20s")
    calls = one_planned(calls_through(proxy, database_url, tasks), db)
    slow["start_planned"] = [9, RowLocked(LOCKED)]
    before = clock.monotonic()
    began, later = start_.ask_all(calls, [str(uuid4()) for _ in calls])
    assert isinstance(began, Call) and isinstance(later, Call)
    assert began.began == before and later.began >= before + 9


@pytest.mark.slow
def test_what_has_begun_is_lost_if_its_box_ends_while_another_start_waits_for_a_row(slow, db, proxy, database_url):
    tasks = register(db, *"ab", box="5s")
    calls = one_planned(calls_through(proxy, database_url, tasks), db)
    slow["start_planned"] = [9, RowLocked(LOCKED)]
    lost, later = start_.ask_all(calls, [str(uuid4()) for _ in calls])
    assert (str(lost).partition(":")[0], type(later)) == ("lost", Call)
    assert {run.task_name: run.outcome for run in ticker.list_runs(db)} == {"a": "lost", "b": None}
