"""What befalls a worker between a job's start and its horse, and while its horse leaves an end."""

import re
import signal
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest
from rq import Queue
from rq import Worker as RqWorker
from rq.command import send_stop_job_command
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry

import ticker
from tests.running import ASKED_UNDER_A_LOCK, is_alive, until, work, working
from tests.sentences import sentence
from ticker.db.connections import connect
from ticker.engine import jobs
from ticker.engine.sweep import job_of
from ticker.engine.tick import tick
from ticker.model import WaitingTask
from wrappers.pipeline import payload
from wrappers.pipeline.database import Database
from wrappers.rq import prepared_start


def runs(db):
    return [(run.task_name, run.outcome) for run in reversed(ticker.list_runs(db))]


def ended(db):
    return [(run.task_name, run.outcome) for run in reversed(ticker.list_runs(db)) if run.state == "ended"]


@pytest.mark.slow
def test_a_sigterm_while_the_start_is_asked_ends_the_worker_behind_the_job(
    traced, db, store, queue, redis, database_url
):
    task = ticker.register(db, "plain", every="1d")
    tick(store, queue)
    with connect(database_url) as other, ExitStack() as started:
        with other.transaction():
            other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            process = started.enter_context(working())
            until(lambda: db.execute(ASKED_UNDER_A_LOCK).fetchone(), "the start waits")
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert runs(db) == [("plain", "succeeded")]
    assert FailedJobRegistry("polling", connection=redis).get_job_ids() == []


SWALLOWS_THE_STOP = """
from contextlib import suppress
from rq.exceptions import StopRequested
from wrappers.rq.worker import Worker

shutdown = Worker._shutdown

def swallowed(worker):
    with suppress(StopRequested):
        shutdown(worker)
    print("swallowed", flush=True)

Worker._shutdown = swallowed
"""


@pytest.mark.slow
def test_a_worker_ends_although_a_library_has_swallowed_the_request_to_stop(traced, db, store, queue):
    ticker.register(db, "plain", every="1d")
    with working(patch=SWALLOWS_THE_STOP) as process:
        assert any("registries" in line for line in process.stdout)  # RQ has its signal handlers by then
        process.terminate()
        assert any("swallowed" in line for line in process.stdout)
        tick(store, queue)
        assert process.wait(60) == 0


@pytest.mark.slow
def test_a_job_that_is_stopped_before_it_has_a_process_gets_none_and_the_worker_lives(
    traced, db, store, queue, redis, database_url
):
    task = ticker.register(db, "plain", every="1d")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).job_ids
    job = Job.fetch(job_id, connection=redis)
    noted = "import rq.command as c; h = c.handle_stop_job_command; c.handle_stop_job_command = lambda w, p: (h(w, p), w.connection.set('heard', 1))"
    with connect(database_url) as other, working(patch=noted) as process:
        with other.transaction():
            other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [task.id])
            until(lambda: job.get_status() == JobStatus.STARTED, "the start waits")
            send_stop_job_command(redis, job_id)
            until(lambda: redis.get("heard"), "the worker has heard it")
        until(lambda: ended(db), "its end")
        ticker.register(db, "plain", name="next", every="1d")
        tick(store, queue)
        until(lambda: ("next", "succeeded") in ended(db), "the next one")
        assert process.poll() is None
    assert runs(db) == [("plain", "lost"), ("next", "succeeded")]
    assert job.get_status() in (JobStatus.STOPPED, JobStatus.FAILED)


@pytest.mark.slow
def test_after_a_start_that_waited_and_was_dropped_the_worker_is_idle_in_redis(
    traced, db, store, queue, redis, database_url
):
    task = ticker.register(db, "plain", every="1d")
    tick(store, queue)
    [job_id] = Queue("polling", connection=redis).job_ids
    job = Job.fetch(job_id, connection=redis)
    with connect(database_url) as other, working() as process:
        with other.transaction():
            other.execute("UPDATE ticker.tasks SET enabled = false WHERE id = %s", [task.id])
            until(lambda: job.get_status() == JobStatus.STARTED, "the start waits")
        until(lambda: ended(db) == [("plain", "dropped")], "the drop")
        [worker] = RqWorker.all(connection=redis)
        until(lambda: redis.hget(worker.key, "state") == b"idle", "an idle worker")
        assert process.poll() is None


@pytest.mark.slow
def test_a_connection_that_the_server_has_ended_costs_no_run(traced, db, store, queue):
    ticker.register(db, "plain", every="1d")
    tick(store, queue)
    with working() as process:
        until(lambda: ended(db) == [("plain", "succeeded")], "the first run")
        db.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'ticker-run'")
        ticker.run_now(
            db, ticker.register(db, "plain", name="by hand", every="1d", first=datetime.now(UTC) + timedelta(hours=1))
        )
        ticker.register(db, "plain", name="next", every="1d")
        tick(store, queue)
        until(lambda: len(ended(db)) == 3, "both of them")
        process.terminate()
        process.wait(60)
    assert Counter(runs(db)) == {("plain", "succeeded"): 1, ("by hand", "succeeded"): 1, ("next", "succeeded"): 1}


@pytest.mark.slow
def test_a_dead_connection_is_seen_before_it_is_used(environ, db):
    database = Database.from_environment()
    database.open()
    db.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'ticker-run'")
    assert database.execute("instant", now=None)
    database.close()


ALONE = "import os; from wrappers.sandbox import handoff as ends; ends.os.getppid = lambda: 1\n"  # as if the worker had died
DEAF = (
    "from contextlib import nullcontext; from wrappers.sandbox import handoff as ends; ends.listening = nullcontext\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("patch", [ALONE, DEAF], ids=["worker dead", "worker busy"])
def test_a_horse_that_nobody_minds_does_all_by_itself(traced, db, store, queue, redis, patch):
    ticker.register(db, "plain", every="1d")
    tick(store, queue)
    told = "from wrappers.pipeline import finish as endings; w = endings.write; endings.write = lambda *a, **k: (print('written by', 'horse' if os.environ.get('HORSE') else 'worker', flush=True), w(*a, **k))[1]\n"
    horse = "import os; from wrappers.rq.worker import Worker; m = Worker.main_work_horse; Worker.main_work_horse = lambda s, j, q: (os.environ.update(HORSE='1'), m(s, j, q))\n"
    assert "written by horse" in work(patch=patch + horse + told).stdout
    assert runs(db) == [("plain", "succeeded")]
    assert redis.keys("rq:job:*") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "patch",
    [
        "import os\ndef fork(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = fork",
        "from wrappers.rq.worker import Worker\ndef _begin(self, job): raise MemoryError\nWorker._begin = _begin",
    ],
    ids=["no process", "no memory"],
)
def test_a_start_whose_job_gets_no_process_is_lost_at_once(traced, db, store, queue, patch):
    ticker.register(db, "plain", every="1h", box="10m")
    tick(store, queue)
    with working("--burst", patch=patch) as process:
        process.wait(60)
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.reason) == (
        "lost", sentence("why.function_did_not_begin"),
    )  # fmt: skip
    assert ticker.list_tasks(db)[0].running_until is None


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["fork", "setpgrp"])
def test_a_second_sigterm_right_after_the_fork_kills_the_horse(traced, db, store, queue, moment):
    """Between the fork and RQ's record of the process, and before the process leads its own group."""
    ticker.register(db, "swallows", every="1h", box="10m")
    tick(store, queue)
    patch = f"""
import os, signal, time
from datetime import timedelta
from rq.utils import now
from wrappers.rq.worker import Worker
fork, setpgrp, fork_work_horse = os.fork, os.setpgrp, Worker.fork_work_horse
def stop():
    os.kill(os.getpid(), signal.SIGTERM)
def forked():
    horse = fork()
    if horse and {moment!r} == "fork":
        print("horse", horse, flush=True)
        stop()
    return horse
def leads_late():
    time.sleep(2)
    setpgrp()
def take(self, job, queue):
    self._shutdown_requested_date = now() - timedelta(minutes=1)
    signal.signal(signal.SIGTERM, self.request_force_stop)
    os.fork = forked
    if {moment!r} == "setpgrp":
        os.setpgrp = leads_late
    fork_work_horse(self, job, queue)
    print("horse", self.horse_pid, flush=True)
    stop()
Worker.fork_work_horse = take
"""
    with working("--burst", patch=patch) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    [run] = ticker.list_runs(db)
    assert run.outcome == "killed"
    assert not is_alive(int(re.search(r"horse (\d+)", output)[1]))


@pytest.mark.slow
def test_a_cold_shutdown_ends_though_the_connection_is_in_use(traced, db, store, queue):
    """RQ asks for its horse once more, from the handler of the second signal, in the midst of the worker's own statement."""
    ticker.register(db, "plain", every="1h", box="10m")
    tick(store, queue)
    patch = """
import os, signal
from wrappers.pipeline import finish as endings; from wrappers.sandbox import shared_state as page
from wrappers.pipeline.database import Database
from wrappers.rq import prepared_start
finish, sent = Database.finish, []
def finish_slowly(self, *args, **fields):
    if page.horse() and not sent:
        sent.append(True)
        with self._connection.lock:  # as a statement of it does that has no answer yet
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
    return finish(self, *args, **fields)
Database.finish = finish_slowly
"""
    with working("--burst", patch=patch) as process:
        process.wait(60)
    assert runs(db) == [("plain", "succeeded")]


def test_a_foreign_job_of_any_size_is_not_taken_apart(monkeypatch):
    class Foreign:
        id, data = "x", b"\x80" * 50_000
        _success_callback_name = _failure_callback_name = _stopped_callback_name = None

    monkeypatch.setattr(payload, "call", lambda *_: pytest.fail("it was read"))
    assert prepared_start.call_of(Foreign()) is None


def test_each_waiting_occurrence_is_asked_for_by_its_own_job():
    older, newer = (jobs.instant(1_000_000_000_000_000 + n * 3_000_000) for n in (0, 1))
    task = WaitingTask(1, (older, newer), "polling", "f", 3000, 1000, 500, {str(jobs.micros(older)): "b1"})
    assert [job_of("here1234", task, due) for due in task.occurrences()] == [
        "b1",
        jobs.job_id("here1234", 1, newer),
    ]
