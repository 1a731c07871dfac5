"""A manual run during a run: it is never lost, starts after the run at work, and further calls join it (L8)."""

from datetime import timedelta
from itertools import pairwise

import pytest

import ticker
from tests.factories import ticked
from tests.running import Ticking, until, working
from tests.sentences import sentence
from ticker.model import Reason

FUNCTIONS = """
import os, psycopg, ticker
from tests.running import until
from tests.sample_tasks import trace
from wrappers import task

def count(what):
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        return db.execute("SELECT count(*) FROM trace WHERE what = %s", [what]).fetchone()[0]

@task("held")
def held():
    trace("began")
    until(lambda: count("end") >= count("began"), "an end")

@task("asks")
def asks():
    asked()

@task("asks.in_thread", batch=2, concurrency=2)
def asks_in_a_thread():
    asked()

@task("asks.on_loop", batch=2, concurrency=2)
async def asks_on_the_loop():
    asked()

def asked():
    with psycopg.connect(os.environ["DATABASE_URL"]) as db:
        for name in ("itself", "another"):
            trace(name, ticker.run_now(db, name))
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def task(play):
    return ticker.register(play.db, "poll", every="1m", retries=1, backoff="1s")


def begins(play):
    """The scheduled run starts at 0 s."""
    play.at(0)
    play.tick()
    [started] = play.take()
    return started


@pytest.mark.slow
@pytest.mark.promise("L8")
def test_what_is_asked_for_during_a_run_starts_after_it_five_times_of_five(traced, db, redis, monkeypatch):
    monkeypatch.setenv("TICKER_WAKE", "on")
    task = ticker.register(db, "held", every="1h", box="10m")
    with Ticking("--tick", "1h"), working(patch=FUNCTIONS), working(patch=FUNCTIONS):
        for number in range(1, 7):
            until(lambda number=number: len(traced("began")) == number, f"run {number}")
            if number < 6:
                [asked] = ticker.run_now(db, task)
                assert ticker.run_now(db, task) == ticker.run_now(db, task, once_within="1s") == [asked]
            assert redis.llen("rq:queue:polling") == 0
            db.execute("INSERT INTO trace (what) VALUES ('end')")
        until(lambda: ticker.get(db, task).running_until is None, "the last end")
    runs = ticker.list_runs(db)[::-1]
    assert [(run.kind, run.outcome) for run in runs] == [("scheduled", "succeeded")] + [("manual", "succeeded")] * 5
    assert all(earlier.ended_at <= later.started_at for earlier, later in pairwise(runs))
    waited = [later.pushed_at - earlier.ended_at for earlier, later in pairwise(runs)]
    assert max(waited) < timedelta(seconds=10), waited  # on an idle machine, 1 s


def test_a_manual_run_whose_job_meets_the_run_at_work_goes_back_until_its_end(play, task):
    play.at(0)
    play.tick()
    [run_id] = ticker.run_now(play.db, task)
    play.tick()
    at_work, meets = play.take()
    assert (at_work.kind, meets.refusal) == ("scheduled", Reason.STILL_RUNNING)
    waits = ticker.get_run(play.db, run_id).run
    assert (waits.state, waits.outcome, waits.reason, waits.pushed_at) == ("planned", None, Reason.STILL_RUNNING, None)
    play.at(10)
    assert play.tick().planned.due == 0
    assert ticker.run_now(play.db, task) == [run_id]
    play.end(at_work, "succeeded")
    play.tick()
    [started] = play.take()
    assert (started.run_id, started.refusal, play.task().dropped) == (run_id, None, 0)


def test_it_is_pushed_once_the_hold_of_a_run_without_an_end_is_over(play, task):
    at_work = begins(play)
    [run_id] = ticker.run_now(play.db, task)
    play.at(at_work.box.total_seconds())
    assert play.tick().planned.due == 0
    play.at(at_work.box.total_seconds() + 1)
    assert play.tick().planned.enqueued == 1
    assert [taken.run_id for taken in play.take()] == [run_id]


def test_a_retry_that_meets_a_manual_run_starts_after_it(play, task):
    play.run(0)
    ticker.run_now(play.db, task)
    play.at(3)
    play.tick()
    by_hand, meets = play.take()
    assert (by_hand.refusal, meets.kind, meets.refusal) == (None, "retry", Reason.STILL_RUNNING)
    play.end(by_hand, "succeeded")
    play.tick()
    [retry] = play.take()
    assert (retry.run_id, retry.refusal) == (meets.run_id, None)


@pytest.mark.parametrize("kind", ["cron", "calendar", "at"])
@pytest.mark.parametrize("ends", [True, False], ids=["after-its-end", "after-its-hold"])
def test_a_time_that_meets_a_manual_run_is_not_lost_and_starts_after_it(kind, ends, play):
    by_hand, time = at_a_time(play, kind)
    meets, waits = play.take()[0], play.task()
    assert (meets.refusal, waits.next_run, waits.wait_reason) == (Reason.STILL_RUNNING, time, Reason.STILL_RUNNING)
    play.now += timedelta(seconds=1)
    assert (play.tick().due.due, play.task().dropped) == (0, 0)
    ticked(play.db)
    assert sentence("why.due_after_the_run_at_work").ends(ticker.why(play.db, waits).next[-1])
    if ends:
        play.end(by_hand, "succeeded")
    else:
        play.now = waits.running_until
    play.tick()
    [started] = play.take()
    run = ticker.get_run(play.db, started.run_id).run
    assert (started.refusal, run.kind, run.occurrence, play.task().wait_reason) == (None, "scheduled", time, None)
    play.end(started, "succeeded")
    assert [run.outcome for run in play.runs() if run.kind == "scheduled"] == ["succeeded"]


def test_only_the_newest_time_waits_for_the_run_at_work(play):
    by_hand, time = at_a_time(play, "cron")
    play.put(next_run=time + timedelta(seconds=1), waiting=[time])
    play.now += timedelta(seconds=1)
    assert [taken.refusal for taken in play.take()] == [Reason.SUPERSEDED]
    play.end(by_hand, "succeeded")
    play.tick()
    assert [taken.refusal for taken in play.take()] == [None]


def at_a_time(play, kind):
    """A time of the task comes while a manual run of it is at work, and is pushed, because another worker is idle."""
    schedules = {"cron": "* * * * *", "calendar": "*:*", "at": play.begin + timedelta(seconds=10)}
    time = ticker.register(play.db, "poll", **{kind: schedules[kind]}, box="20s").next_run
    play.now = time - timedelta(seconds=1)
    ticker.run_now(play.db, "poll")
    play.tick()
    [by_hand] = play.take()
    play.now = time
    assert play.tick().due.enqueued == 1
    return by_hand, time


def test_a_plain_call_joins_and_brings_forward_a_run_that_keeps_away_from_the_last_one(play, task):
    play.db.execute("UPDATE ticker.tasks SET next_run = next_run + interval '1 h'")
    ticker.run_now(play.db, task)
    play.tick()
    play.end(*play.take(), "succeeded")
    [later] = ticker.run_now(play.db, task, once_within="10m")
    assert ticker.get_run(play.db, later).run.due_at == play.now + timedelta(minutes=10)
    assert ticker.run_now(play.db, task) == [later]
    assert ticker.get_run(play.db, later).run.due_at == play.now


@pytest.mark.slow
@pytest.mark.parametrize("function", ["asks", "asks.in_thread", "asks.on_loop"])
def test_a_run_that_asks_for_its_own_task_keeps_the_spacing(function, traced, db, store):
    own = ticker.register(db, function, name="itself", every="10m", tolerance="1m")
    other = ticker.register(db, function, name="another", every="10m", first=store.now() + timedelta(hours=1))
    with Ticking(), working(patch=FUNCTIONS):
        until(lambda: traced("another"), "the calls")
        until(lambda: ticker.get(db, own).running_until is None, "the end")
    [run] = [run for run in ticker.list_runs(db) if run.task_id == own.id and run.kind == "scheduled"]
    asked = ticker.get_run(db, traced("itself")[0][0]).run
    assert (asked.due_at, asked.reason) == (run.started_at + timedelta(minutes=9), Reason.TOO_EARLY)
    also = ticker.get_run(db, traced("another")[0][0]).run
    assert also.due_at < run.started_at + timedelta(minutes=1) and also.task_id == other.id
