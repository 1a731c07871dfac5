"""Jobs that ended before their start: a newer occurrence replaces them, which is no failure; events count them. What a worker
refuses because of its settings goes back once, and has then failed for that cause."""

import os
import re
import threading
from contextlib import closing
from subprocess import CalledProcessError

import psycopg
import pytest
from rq.job import Job

import ticker
from tests.harness import QUEUE, events
from tests.notify.stage import Kept, Played
from tests.running import stock_worker
from tests.sentences import sentence
from ticker.db import sql
from ticker.engine import jobs
from ticker.errors import ConfigurationError
from ticker.notify.outbox import Outbox
from wrappers import entry

NOT_SET = sentence("errors.is_not_set", setting="DATABASE_URL")

UNSET = "DATABASE_URL is not set"


def die(play, refusal=""):
    """The jobs that wait end in RQ's hands, before they could ask for their starts. Returns how many there were."""
    count = 0
    while id_ := play.redis.lpop(QUEUE):
        job = Job.fetch(id_.decode(), connection=play.redis)
        if refusal:
            entry.note_refusal(job, ConfigurationError(refusal))
        job.set_status("failed")
        count += 1
    return count


@pytest.mark.slow
def test_a_job_that_died_before_its_start_is_expired_if_a_newer_occurrence_waits(play):
    tasks = [ticker.register(play.db, "poll", name=str(n), every="1m") for n in range(3)]
    for minute in range(5):
        play.at(60 * minute)
        play.tick()
        die(play)
    assert {(run.outcome, run.reason) for run in play.runs()} == {("dropped", "expired")}
    assert [ticker.get(play.db, task).failures for task in tasks] == [0, 0, 0]
    counted = events(play.db, "what, function, count, told")
    assert counted == [("expired", "poll", 3, told) for told in (True, True, False, True)][: len(counted)]
    assert len(counted) >= 3


@pytest.mark.slow
def test_a_start_of_the_function_between_them_ends_the_row(play):
    ticker.register(play.db, "poll", every="1m")
    for minute in range(3):
        play.at(60 * minute)
        play.tick()
        die(play)
    play.db.execute(
        "INSERT INTO ticker.minutes SELECT date_trunc('minute', %s::timestamptz), 'poll', 'polling', 'succeeded', '', 'scheduled',"
        " 1, 1, 0, 0, '{}', '{}'", [play.now],
    )  # fmt: skip
    play.at(180)
    play.tick()
    assert all(told for (told,) in events(play.db, "told"))


def test_a_function_of_many_tasks_is_counted_once_a_minute(play):
    tasks = [ticker.register(play.db, "poll", name=str(n), every="1m") for n in range(2)]
    for seconds in (0, 1, 70):
        sql.on(play.db, "ticker")("note_expired", ids=[task.id for task in tasks], words="why", now=play.at(seconds))
    assert sum(count for (count,) in events(play.db, "count")) == 6
    assert len(events(play.db, "id")) in (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "why"),
    [((), NOT_SET), (("--worker-class", "rq.SimpleWorker"), sentence("errors.worker_does_not_fork"))],
    ids=["forks", "does not fork"],
)
def test_what_a_worker_without_settings_refuses_goes_back_once_and_names_one_cause(play, monkeypatch, options, why):
    for function in ("poll", "fetch"):
        ticker.register(play.db, function, every="1h")
    [manual] = ticker.run_now(play.db, ticker.register(play.db, "plain", cron="0 0 1 1 *"))
    monkeypatch.delenv("DATABASE_URL")
    repushed = []
    for seconds in (0, 30, 60, 90):
        play.at(seconds)
        repushed.append(play.tick().swept.repushed)
        stock_worker(*options, "polling")
    assert repushed == [0, 3, 0, 0]
    runs = play.runs()
    assert {(run.task_name, run.outcome, why.within(run.reason)) for run in runs} == {
        (name, "lost", True) for name in ("poll", "fetch", "plain")
    }
    assert manual in [run.id for run in runs]
    [(cause,)] = play.db.execute("SELECT DISTINCT cause FROM ticker.tasks WHERE function <> 'plain'").fetchall()
    assert why.within(cause) and "host *" in cause


@pytest.mark.slow
def test_our_worker_class_takes_no_job_without_settings(play, monkeypatch):
    ticker.register(play.db, "poll", every="1m")
    play.tick()
    monkeypatch.delenv("DATABASE_URL")
    with pytest.raises(CalledProcessError) as ended:
        stock_worker("--worker-class", "wrappers.Worker", "polling")
    assert NOT_SET.within(ended.value.stderr)
    assert play.redis.llen(QUEUE) == 1


def test_a_worker_with_settings_runs_what_another_has_refused_once(play):
    task = ticker.register(play.db, "poll", every="1h")
    play.tick()
    assert die(play, UNSET) == 1
    play.at(30)
    play.tick()
    [taken] = play.take()
    assert (taken.task_id, taken.refusal, play.runs()[0].state) == (task.id, None, "running")


def test_what_is_refused_again_is_lost(play):
    ticker.register(play.db, "poll", every="1h")
    found = []
    for seconds in (0, 30, 60, 90):
        play.at(seconds)
        play.tick()
        found.append((die(play, UNSET), [run.outcome for run in play.runs()]))
    assert found == [(1, []), (1, []), (0, ["lost"]), (0, ["lost"])]


def test_a_refused_occurrence_whose_successor_waits_has_failed_for_its_cause(play):
    """The successor is what goes back. No event counts the function: the cause has its notice."""
    task = ticker.register(play.db, "poll", every="1m")
    for minute in range(4):
        play.at(60 * minute)
        play.tick()
        assert die(play, UNSET) == 1
    assert {(run.outcome, "DATABASE_URL" in run.reason) for run in play.runs()} == {("lost", True)}
    assert (ticker.get(play.db, task).failures, play.events()) == (3, ["failed"])


@pytest.mark.slow
def test_all_tasks_that_a_worker_refuses_are_one_notice_of_the_cause(play, database_url):
    for n in range(12):
        ticker.register(play.db, f"poll.{n % 3}", name=str(n), every=f"{1 + n % 2}m")
    kept = Kept()
    with closing(Outbox(database_url, "ticker", ["kept"])) as outbox:
        notifier = Played(kept, ["kept"], outbox, threading.Event())
        for seconds in range(0, 300, 30):
            play.at(seconds)
            play.tick()
            die(play, UNSET)
            notifier.round(play.now)
    [notice] = kept.got
    assert (notice.what, UNSET in notice.digest.cause) == ("failed", True)


def test_what_is_refused_during_a_pause_waits_for_its_end(play):
    task = ticker.register(play.db, "poll", every="1h")
    for seconds in (0, 30):
        play.at(seconds)
        play.tick()
        die(play, UNSET)
    ticker.pause(play.db, task)
    play.at(60)
    play.tick()
    assert (play.runs(), ticker.get(play.db, task).waiting) == ([], ())


IMPATIENT = """
from wrappers.pipeline import database, foreign_jobs, start
database.LOCKED_AT_MOST = foreign_jobs.PATIENCE = start.PATIENCE = 0
"""
AWAY = f'{IMPATIENT}import os; os.environ["DATABASE_URL"] = "postgresql:///none?host=/nothing/there"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("patch", "batch", "why"), [(IMPATIENT, 1, "locked"), (AWAY, 2, "does not answer")], ids=["locked", "away"]
)
def test_an_outage_of_the_database_is_not_blamed_on_a_worker(play, database_url, patch, why, batch):
    play.db.execute("INSERT INTO ticker.functions (name, batch) VALUES ('poll', %s)", [batch])
    ticker.register_many(play.db, [{"function": "poll", "name": str(n), "every": "1h"} for n in range(batch)])
    play.tick()
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM ticker.tasks FOR UPDATE")
        stock_worker(patch=patch)
    [job_id] = [key.decode()[7:] for key in play.redis.scan_iter("rq:job:*") if not key.endswith(b":refused")]
    [(times, reason)] = play.queue.refusals([job_id])
    host = os.uname().nodename
    assert (times, sentence("why.ended_on_its_host", host=host, error=re.compile(f".*{why}.*")) == reason) == (0, True)
    play.at(30)
    assert play.tick().swept.repushed == batch
    [worker] = play.redis.scan_iter("rq:worker:*")
    assert (play.redis.hexists(worker, "birth"), play.redis.hget(worker, jobs.REFUSES)) == (True, None)
