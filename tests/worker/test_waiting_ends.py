"""Ends that cannot be written wait in the worker, which goes on; RQ has forgotten their jobs by then."""

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest

import ticker
from tests.running import ASKED_UNDER_A_LOCK, Ticking, stock_worker, until, working
from tests.sentences import sentence
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.errors import DatabaseUnavailable, RowLocked
from ticker.model import Outcome
from ticker.tasks.fields import Task
from wrappers.pipeline import waiting_ends
from wrappers.pipeline.database import Database
from wrappers.pipeline.waiting_ends import WaitingEnds, record
from wrappers.sandbox import limits
from wrappers.sandbox.handoff import End, PendingEnd

# --------------------------------------------------------------------------------------------------- the buffer

LOCKED = RowLocked("a row is locked")


class Tables:
    """Takes ends, or raises what stands in their way."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.asked = 0
        self.trouble: dict[int | None, Exception] = {}
        self.outcome = "lost"

    def finish(self, left: PendingEnd) -> bool:
        self.asked += 1
        if error := self.trouble.get(left.task_id) or self.trouble.get(None):
            raise error
        self.written.append(left.task_id)
        return True

    def outcome_of(self, run_id: int, token: str) -> str | None:
        return self.outcome


AWAY = DatabaseUnavailable("it is away")


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> WaitingEnds:
    monkeypatch.setattr(waiting_ends, "FIRST_PAUSE", 0.0)
    return WaitingEnds()


@pytest.fixture
def long_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the pause after a first failure longer than any test."""
    monkeypatch.setattr(waiting_ends, "FIRST_PAUSE", 60.0)


def end(task_id: int, output: str = "", at: float | None = None, run_id: int | None = None) -> bytes:
    said = End(Outcome.SUCCEEDED, output=output, at=limits.now() if at is None else at)
    return PendingEnd(task_id, task_id if run_id is None else run_id, str(uuid4()), said).packed()


def test_an_end_is_written_at_once_and_what_cannot_be_waits(tables, ends):
    ends.take(tables, end(1))
    tables.trouble = {None: AWAY}
    ends.take(tables, end(2))
    assert (tables.written, len(ends), ends.is_delayed) == ([1], 1, True)
    tables.trouble = {}
    ends.write(tables)
    assert (tables.written, len(ends), ends.is_delayed) == ([1, 2], 0, False)


def test_an_end_that_is_being_written_for_the_first_time_is_not_delayed(tables, ends, monkeypatch):
    """Otherwise a worker would be unready for a moment at the end of each run."""
    seen = []
    monkeypatch.setattr(tables, "finish", lambda *_, **__: seen.append((len(ends), ends.is_delayed)) or True)
    ends.take(tables, end(1))
    assert seen == [(1, False)]


def test_a_server_that_is_away_is_not_asked_for_each_end_and_never_without_a_pause(tables, ends, long_pause):
    tables.trouble = {None: AWAY}
    for number in range(10):
        ends.take(tables, end(number))
        ends.write(tables)
    assert (tables.asked, len(ends)) == (1, 10)


def test_the_answer_to_a_start_proves_that_the_server_is_back(tables, ends, long_pause):
    tables.trouble = {None: AWAY}
    ends.take(tables, end(1))
    tables.trouble = {}
    ends.server_answered()
    ends.take(tables, end(2))
    assert tables.written == [2]


def test_before_a_start_the_ends_that_wait_are_tried_whatever_the_pause(tables, ends, long_pause):
    tables.trouble = {None: AWAY}
    ends.take(tables, end(1))
    tables.trouble = {}
    ends.write(tables)
    assert tables.written == []
    ends.write_of(tables, {2})
    assert tables.asked == 1
    ends.write_of(tables, {1})
    assert tables.written == [1]


def test_an_answered_start_leaves_a_locked_row_its_pause(tables, ends, long_pause):
    tables.trouble = {1: LOCKED}
    ends.take(tables, end(1))
    ends.server_answered()
    ends.write(tables)
    assert tables.asked == 1


def test_the_last_tries_pass_a_locked_row(tables, ends):
    tables.trouble = {None: AWAY}
    for number in (1, 2, 3):
        ends.take(tables, end(number))
    tables.trouble = {1: LOCKED}
    ends.drain(tables, limits.now())
    assert tables.written == [2, 3]


def test_a_locked_row_keeps_no_other_end_waiting(tables, ends, long_pause):
    tables.trouble = {1: LOCKED}
    ends.take(tables, end(1))
    ends.take(tables, end(2))
    assert (tables.written, len(ends)) == ([2], 1)


def test_an_end_that_fails_comes_behind_the_others(tables, ends):
    tables.trouble = {None: AWAY}
    for number in (1, 2, 3):
        ends.take(tables, end(number))
    tables.trouble = {1: LOCKED}
    while tables.written != [2, 3]:
        ends.write(tables)
    assert len(ends) == 1


def test_when_the_buffer_is_full_the_oldest_goes_with_a_warning_that_names_it(tables, ends, monkeypatch, caplog):
    monkeypatch.setattr(waiting_ends, "AT_MOST", 3000)
    tables.trouble = {None: AWAY}
    for number in (1, 2, 3):
        ends.take(tables, end(number, "x" * 1000, at=float(number)))
    assert len(ends) == 2
    warnings = [line for line in caplog.messages if "gave up" in line]
    assert len(warnings) == 1 and "task=1 (succeeded)" in warnings[0]
    tables.trouble = {}
    ends.write(tables)
    assert sorted(tables.written) == [2, 3]


@pytest.mark.parametrize(("run_id", "event"), [(7, "hold lost"), (0, "no start")])
def test_a_hold_is_lost_only_where_a_start_was_answered(run_id, event, tables, ends, monkeypatch, caplog):
    monkeypatch.setattr(tables, "finish", lambda *_, **__: False)
    ends.take(tables, end(1, run_id=run_id))
    [warning] = caplog.messages
    assert warning.startswith(f"{event} task=1")


@pytest.mark.parametrize(
    ("recorded", "level", "event"), [("succeeded", "INFO", "end already recorded"), ("lost", "WARNING", "hold lost")]
)
def test_an_end_that_changed_nothing_is_a_warning_only_where_the_record_says_something_else(
    recorded, level, event, tables, ends, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setattr(tables, "finish", lambda *_, **__: False)
    tables.outcome = recorded
    ends.take(tables, end(1, run_id=7))
    [line] = caplog.records
    assert (line.levelname, line.getMessage().startswith(f"{event} task=1 run=7: ")) == (level, True)


@pytest.mark.parametrize(("outcome", "wakes"), [(None, 1), ("lost", 0)])
def test_an_end_whose_answer_was_lost_wakes_the_tickers_if_it_is_recorded(outcome, wakes, play, environ, monkeypatch):
    """Its pieces were recorded by the first attempt, whose answer never came."""
    monkeypatch.setenv("TICKER_WAKE", "on")
    ticker.register(play.db, "poll", every="1h")
    play.tick()
    [taken] = play.take()
    left = PendingEnd(taken.task_id, taken.run_id, taken.token, End(Outcome.SUCCEEDED, pieces='["a"]', made=0))
    asked = []
    with closing(Database.from_environment()) as database:
        assert record(database, left)
        if outcome:
            play.db.execute(
                "UPDATE ticker.runs SET state = 'ended', outcome = %s, ended_at = started_at WHERE id = %s",
                [outcome, taken.run_id],
            )
        execute = database.execute
        monkeypatch.setattr(
            database, "execute", lambda name, **values: (asked.append(name), execute(name, **values))[1]
        )
        assert not record(database, left)
    assert asked.count("wake_up") == wakes


def test_an_end_whose_writing_was_interrupted_waits_once(tables, ends):
    tables.trouble = {None: AWAY}
    text = end(1)
    ends.take(tables, text)
    ends.take(tables, text)
    assert len(ends) == 1


def test_the_last_tries_end_in_time_and_name_what_they_give_up(tables, ends, caplog):
    tables.trouble = {None: AWAY}
    ends.take(tables, end(1))
    ends.drain(tables, limits.now())
    assert len(ends) == 0
    assert sentence("logs.end_given_up", task=1, outcome="succeeded").within(caplog.text)


# --------------------------------------------------------------------------------------------------- real workers

WAITS = """
import os, time
from pathlib import Path
from wrappers import task

def wait_for(name, folder=Path(os.environ["FOLDER"])):
    (folder / "began").touch()
    while not (folder / name).exists():
        time.sleep(0.01)

@task("waits")
def waits():
    wait_for("go")
    return "done"

@task("waits.for.pieces")
class Waits:
    def generate(self):
        wait_for("go")
        yield from "ab"

    def process(self, piece):
        return piece
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def task(environ, db, store, queue) -> Task:
    """An hourly task whose job is in the queue, and whose run waits until `ends_under` lets it continue."""
    made = ticker.register(db, "waits", every="1h")
    tick(store, queue)
    return made


@contextmanager
def at_work(folder, *arguments: str, patch: str = WAITS) -> Iterator["subprocess.Popen[str]"]:
    """A worker whose run has begun."""
    with working(*arguments, patch=patch) as process:
        until((folder / "began").exists, "the run")
        yield process


@contextmanager
def ends_under(lock: str, environ, folder) -> Iterator[None]:
    """The run returns while another transaction holds a lock, which it releases at the end of the block."""
    with connect(environ["DATABASE_URL"]) as holder, holder.transaction():
        holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        holder.execute(lock)
        (folder / "go").touch()
        yield


def says(process: "subprocess.Popen[str]", pattern: str) -> None:
    """Reads the output of a process up to a matching line."""
    assert any(re.search(pattern, line) for line in process.stdout), pattern


ITS_ROW = "SELECT FROM ticker.tasks WHERE function LIKE 'waits%' FOR UPDATE"


def outcomes(db) -> dict[str, str | None]:
    return {run.task_name: run.outcome for run in ticker.list_runs(db)}


@pytest.mark.promise("S14")
def test_a_locked_row_holds_up_no_other_job_and_its_end_is_that_of_the_run(
    traced, environ, folder, db, store, queue, redis, task
):
    with at_work(folder):
        with ends_under(ITS_ROW, environ, folder):
            ticker.register(db, "plain", every="1h")
            tick(store, queue)
            until(lambda: outcomes(db).get("plain") == "succeeded", "the other one")
            until(lambda: not redis.keys("rq:job:*"), "RQ has forgotten both jobs")
            freed_at = store.now()
        until(lambda: outcomes(db)["waits"] == "succeeded", "its end")
    [run] = [run for run in ticker.list_runs(db) if run.task_name == "waits"]
    assert run.ended_at < freed_at
    assert (run.result, ticker.get(db, task).last_success_at) == ("done", run.ended_at)


@pytest.mark.slow
def test_an_end_that_waits_is_not_tried_between_the_start_of_another_run_and_its_horse(
    traced, environ, folder, db, store, queue
):
    """The row is asked for again in that moment, which took 2 s of a box of 1 s."""
    ticker.register(db, "waits", every="1h")
    other = ticker.register(db, "plain", every="1h", box="1s")
    ticker.pause(db, other, by="me")
    tick(store, queue)
    eager = "from wrappers.pipeline import waiting_ends as waiting; waiting.LONGEST_PAUSE = 0.0\n"
    with at_work(folder, patch=eager + WAITS), ends_under(ITS_ROW, environ, folder):
        until(lambda: db.execute(ASKED_UNDER_A_LOCK).fetchone(), "its end waits")
        ticker.run_now(db, other)
        tick(store, queue)
        until(lambda: outcomes(db).get("plain"), "the other one")
    assert outcomes(db)["plain"] == "succeeded"


@pytest.mark.slow
def test_a_table_that_is_locked_until_the_hold_is_over_makes_no_run_lost(environ, folder, db, store, queue):
    task = ticker.register(db, "waits", every="1h", box="5s", retries=2)
    tick(store, queue)
    with at_work(folder):
        over_at = ticker.get(db, task).running_until
        with ends_under("LOCK TABLE ticker.runs IN EXCLUSIVE MODE", environ, folder):
            until(lambda: store.now() > over_at, "the end of its hold")
        until(lambda: outcomes(db)["waits"], "its end")
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.ended_at < over_at) == ("succeeded", True)


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_still_tries_the_ends_that_wait(environ, folder, db, task):
    with at_work(folder) as process:
        with ends_under(ITS_ROW, environ, folder):
            says(process, sentence("logs.end_not_recorded").pattern)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert outcomes(db) == {"waits": "succeeded"}


@pytest.mark.slow
def test_a_worker_that_is_told_to_stop_gives_them_up_in_time(environ, folder, db, task):
    impatient = f"from wrappers.rq import worker; worker.LAST_WORD = 1.0\n{WAITS}"
    with at_work(folder, patch=impatient) as process, ends_under(ITS_ROW, environ, folder):
        says(process, sentence("logs.end_not_recorded").pattern)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert sentence("logs.end_given_up", task=task.id, outcome="succeeded").within(rest)


@pytest.mark.slow
def test_a_worker_that_ends_with_its_queue_stays_until_its_ends_are_written(environ, folder, db, task):
    with at_work(folder, "--burst") as process:
        with ends_under(ITS_ROW, environ, folder):
            says(process, "done, quitting")
        assert process.wait(60) == 0
    assert outcomes(db) == {"waits": "succeeded"}


@pytest.mark.slow
def test_pieces_that_could_not_be_recorded_are_made_while_the_run_still_holds_its_task(
    environ, folder, db, store, queue
):
    ticker.register(db, "waits.for.pieces", every="1h")
    tick(store, queue)
    with at_work(folder) as process:
        with ends_under(ITS_ROW, environ, folder):
            says(process, sentence("logs.end_not_recorded").pattern)
        until(lambda: ticker.list_runs(db)[-1].state == "processing", "the pieces")
    assert db.execute("SELECT count(*) FROM ticker.runs WHERE kind = 'piece'").fetchone() == (2,)


@pytest.mark.slow
def test_a_stock_workers_horse_writes_the_true_end_of_its_run(environ, folder, db, store, task):
    with ThreadPoolExecutor() as pool:
        done = pool.submit(stock_worker, patch=WAITS)
        until((folder / "began").exists, "the run")
        with ends_under(ITS_ROW, environ, folder):
            until(lambda: db.execute(ASKED_UNDER_A_LOCK).fetchone(), "the end waits")
            asked_at = store.now()
            stalled = timedelta(seconds=1)  # a write this late on a busy machine still tells the two apart
            until(lambda: store.now() > asked_at + stalled, "a wait that is longer than a write takes")
        done.result()
    [run] = ticker.list_runs(db)
    assert (run.outcome, run.ended_at < asked_at + stalled) == ("succeeded", True)


@pytest.mark.slow
def test_postgresql_away_for_longer_than_the_box_costs_no_run_and_makes_none_twice(own_servers, folder, monkeypatch):
    postgres, _ = own_servers
    monkeypatch.setenv("TICKER_TICK", "1s")
    with connect(postgres.url) as db:
        ticker.register(db, "waits", every="60s", box="6s", retries=2, backoff="1s")
    with Ticking() as process, at_work(folder):
        postgres.kill()
        (folder / "go").touch()
        over_at = time.monotonic() + 8  # its box, its grace, and one second that a tick leaves
        process.says("tick failed: PostgreSQL")
        until(lambda: time.monotonic() > over_at, "the end of its hold")
        postgres.start()
        with connect(postgres.url) as db:
            [run] = until(lambda: [run for run in ticker.list_runs(db) if run.state == "ended"], "an end")
            assert (run.outcome, run.attempt, run.result) == ("succeeded", 1, "done")
            assert run.ended_at - run.started_at < timedelta(seconds=6)
            seen = len(process.lines)
            process.says("tick due=0", after=seen)
            assert len(ticker.list_runs(db)) == 1
            assert ticker.list_tasks(db)[0].failures == 0


@pytest.mark.slow
def test_the_worker_corrects_what_a_tick_without_a_rhythm_has_declared_lost(environ, folder, db, store, queue):
    task = ticker.register(db, "waits", every="3s", box="1s", retries=2, backoff="1s")
    tick(store, queue)
    away = "from wrappers.pipeline import database, waiting_ends as waiting\nfrom ticker.errors import DatabaseUnavailable\nfinish = database.Database.finish\ndef late(self, *end, **texts):\n    if not Path(os.environ['FOLDER'], 'back').exists(): raise DatabaseUnavailable('it is away')\n    return finish(self, *end, **texts)\ndatabase.Database.finish = late\n"
    (folder / "go").touch()
    with working(patch=WAITS + away):
        until(lambda: ticker.list_runs(db), "the run")
        ticker.pause(db, task, by="me")  # no retry, and no next occurrence, starts meanwhile
        until(lambda: store.end_overdue(None, 100), "the sweep")
        assert ticker.list_runs(db)[0].outcome == "lost"
        (folder / "back").touch()
        until(lambda: ticker.list_runs(db)[0].outcome == "succeeded", "its end")
    [what] = db.execute("SELECT what FROM ticker.events WHERE what <> 'paused'").fetchall()
    assert what == ("end_recorded_late",)
