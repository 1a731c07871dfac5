"""An end that comes after the sweep has declared its run lost: it becomes the record, unless a later run has started."""

import json
import math
import threading
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

import ticker
from tests.harness import Taken
from tests.sentences import sentence
from ticker import clock
from ticker.daemon.tick_job import TickJob
from ticker.db import sql
from ticker.db.connections import connect
from ticker.db.store import PostgresStore, patience
from ticker.errors import DatabaseUnavailable

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)
LOST_AT = 18.0  # seconds: B = 15 s, g = 1 s, and what a tick leaves the worker


def register(play, **fields):
    return ticker.register(play.db, "poll", every="1m", box="15s", **{"retries": 3, "backoff": "1s", **fields})


def lost(play, seconds=0.0) -> Taken:
    """A run that starts there, and is declared lost."""
    play.at(seconds)
    play.tick()
    [taken] = play.take()
    play.at(seconds + LOST_AT)
    assert play.tick().swept.overdue == 1
    return taken


def end_late(play, taken: Taken, outcome="succeeded", age=0.0, **texts) -> bool:
    texts = {"reason": "", "result": None, "traceback": "", "output": "", "error_output": "", **texts}
    return bool(sql.on(play.db, "ticker")(
        "finish_late", task_id=taken.task_id, run_id=taken.run_id, token=taken.token, outcome=outcome, age=age, pid=None,
        now=play.now, **texts,
    ))  # fmt: skip


def first(play):
    return play.runs()[0]


def test_what_the_sweep_declares_lost_keeps_its_token_and_claims_no_more_than_that_no_end_was_recorded(play):
    register(play)
    taken = lost(play)
    token = play.db.execute("SELECT token::text FROM ticker.runs WHERE id = %s", [taken.run_id]).fetchone()[0]
    until = (play.begin + 16 * SECOND).strftime("%H:%M:%S")
    assert (token, first(play).outcome) == (taken.token, "lost")
    assert first(play).reason == sentence("why.no_end_recorded_until", until=until)


def test_a_late_success_becomes_the_record_with_its_true_end_and_takes_the_failure_back(play):
    register(play, retries=0)
    taken = lost(play)
    assert (play.task().failures, play.events()) == (1, ["failed"])
    assert end_late(play, taken, age=15, result="7", output="done")
    run, task, ended = first(play), play.task(), play.begin + 3 * SECOND
    assert (run.outcome, run.reason, run.result, run.ended_at) == ("succeeded", "", 7, ended)
    assert (task.failures, task.last_outcome) == (0, "succeeded")
    assert (task.last_success_at, task.last_ended_at) == (ended, ended)
    assert (play.column("succeeded"), play.column("failed")) == (1, 0)
    play.tick()
    assert play.events() == ["failed", "end_recorded_late", "recovered"]
    words = play.db.execute("SELECT words FROM ticker.events WHERE what = 'end_recorded_late'").fetchone()[0]
    at = [f"{play.begin + n * SECOND:%Y-%m-%d %H:%M:%S} UTC" for n in (3, 18)]
    assert words == sentence("why.end_recorded_late", ended=at[0], recorded=at[1])
    assert any(words in line.words for line in ticker.why(play.db, task.id).lines)


def test_a_late_success_whose_failure_nobody_was_told_of_tells_no_recovery(play):
    register(play)
    taken = lost(play)  # a retry is planned: it is no failure yet
    assert end_late(play, taken)
    play.tick()
    assert play.events() == ["end_recorded_late"]


@pytest.mark.parametrize("is_pushed", [False, True], ids=["planned", "pushed"])
def test_a_late_success_cancels_the_retry_that_has_not_started(play, is_pushed):
    register(play)
    taken = lost(play)
    if is_pushed:
        play.at(20)
        play.tick()
    assert end_late(play, taken)
    play.at(25)
    play.tick()
    assert [again.refusal for again in play.take()] == (["redelivered"] if is_pushed else [])
    assert [run.outcome for run in play.runs()[:2]] == ["succeeded", "dropped"]
    assert (first(play).retried, play.task().failures) == (False, 0)


def test_a_late_end_changes_nothing_once_the_retry_has_started(play):
    register(play)
    taken = lost(play)
    play.at(20)
    play.tick()
    [again] = play.take()
    assert not end_late(play, taken)
    assert play.end(again, "succeeded")
    assert not end_late(play, taken)
    assert [run.outcome for run in play.runs()] == ["lost", "succeeded"]


def test_a_late_end_changes_nothing_once_the_next_occurrence_has_started(play):
    register(play, retries=0)
    taken = lost(play)
    play.at(60)
    play.tick()
    [later] = play.take()
    assert later.refusal is None
    assert not end_late(play, taken)
    assert (first(play).outcome, play.events()) == ("lost", ["failed"])


def test_a_late_end_changes_nothing_where_a_later_run_waits_for_its_pieces(play):
    register(play, retries=0)
    taken = lost(play)
    play.at(60)
    play.tick()
    [later] = play.take()
    sql.on(play.db, "ticker")(
        "generated",
        task_id=later.task_id,
        token=later.token,
        items="[1]",
        made=0,
        output="",
        error_output="",
        pid=None,
        now=play.now,
    )
    assert not end_late(play, taken)


def test_a_late_failure_replaces_what_was_lost_and_is_counted_once(play):
    register(play, retries=0)
    taken = lost(play)
    assert end_late(play, taken, "failed", reason="OSError: no route", traceback="...")
    play.tick()
    assert (first(play).outcome, first(play).reason) == ("failed", "OSError: no route")
    assert (play.task().failures, play.column("failed"), play.column("succeeded")) == (1, 1, 0)
    assert play.events() == ["failed", "end_recorded_late"]


def test_the_retry_of_a_late_failure_stays(play):
    register(play)
    taken = lost(play)
    assert end_late(play, taken, "failed", reason="OSError: no route")
    play.at(20)
    play.tick()
    [again] = play.take()
    assert (again.attempt, again.refusal) == (2, None)


def test_an_end_is_recorded_late_once(play):
    register(play)
    taken = lost(play)
    assert end_late(play, taken, "failed")
    assert not end_late(play, taken)


def test_another_token_records_no_late_end(play):
    register(play)
    taken = lost(play)
    assert not end_late(play, replace(taken, token=str(uuid4())))


def test_a_late_success_ends_the_pause_that_its_failure_caused(play):
    register(play, retries=0, pause_after=1)
    taken = lost(play)
    assert play.task().paused_by == "ticker"
    assert end_late(play, taken)
    play.tick()
    assert (play.task().paused_by, play.task().failures) == (None, 0)
    assert play.events() == ["auto_paused", "failed", "end_recorded_late", "resumed", "recovered"]


def test_a_late_success_leaves_a_pause_by_hand(play):
    task = register(play, retries=0)
    taken = lost(play)
    ticker.pause(play.db, task, by="me")
    assert end_late(play, taken)
    play.tick()
    assert play.task().paused_by == "me"


def test_a_late_success_takes_the_longer_interval_back(play):
    register(play, retries=0, stretch="1h")
    taken = lost(play)
    assert play.column("stretched_ms") == 120_000
    assert end_late(play, taken)
    play.tick()
    assert (play.column("stretched_ms"), play.task().next_run) == (None, play.begin + 60 * SECOND)


def test_the_late_end_of_a_deleted_task_is_recorded(play):
    task = register(play)
    taken = lost(play)
    play.db.execute("DELETE FROM ticker.tasks WHERE id = %s", [task.id])
    assert end_late(play, taken)
    assert first(play).outcome == "succeeded"


def pieces(play, *items) -> list[Taken]:
    """A run in pieces, and their starts."""
    play.tick()
    [run] = play.take()
    sql.on(play.db, "ticker")(
        "generated",
        task_id=run.task_id,
        token=run.token,
        items=json.dumps(items),
        made=0,
        output="",
        error_output="",
        pid=None,
        now=play.now,
    )
    play.tick()
    return play.take()


def test_the_late_end_of_a_piece_cancels_its_next_attempt_and_completes_its_run(play):
    register(play)
    one, two = pieces(play, "one", "two")
    play.end(two, "succeeded")
    play.at(LOST_AT)
    assert play.tick().swept.overdue == 1
    assert end_late(play, one)
    play.tick()
    assert (first(play).outcome, play.task().last_outcome) == ("succeeded", "succeeded")


def test_the_late_end_of_a_piece_changes_nothing_once_its_next_attempt_has_started(play):
    register(play)
    one, two = pieces(play, "one", "two")
    play.end(two, "succeeded")
    play.at(LOST_AT)
    play.tick()
    play.at(20)
    play.tick()
    assert [again.attempt for again in play.take()] == [2]
    assert not end_late(play, one)


# ------------------------------------------------------------------------------ what the sweep cannot have seen

BEAT = 1000  # milliseconds


@pytest.fixture
def overdue(environ, db):
    """A run whose box and grace were over a minute ago."""
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, occurrence, state, token, started_at, until) VALUES (7, 'scheduled',"
        " clock_timestamp(), 'running', gen_random_uuid(), clock_timestamp() - interval '2 min',"
        " clock_timestamp() - interval '1 min')"
    )


def beats(store, db, *, ticked_ago, watching_for):
    """Another ticker's heartbeat, so many seconds ago, after so many seconds without a gap."""
    store.heartbeat(str(uuid4()), "h", 1, store.now() - ticked_ago * SECOND, {}, BEAT)
    db.execute(
        "UPDATE ticker.tickers SET last_report = jsonb_build_object('watching_since',"
        " extract(epoch FROM clock_timestamp()) - %s)", [watching_for],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ticked_ago", "watching_for", "ended"),
    [(1, 60, 1), (1, 9, 0), (11, 60, 0), (60, 3600, 0)],
    ids=["without a gap", "not yet for ten seconds", "over ten seconds ago", "long ago"],
)
def test_after_all_tickers_were_away_the_sweep_waits_before_it_declares_runs_lost(
    overdue, db, store, ticked_ago, watching_for, ended
):
    beats(store, db, ticked_ago=ticked_ago, watching_for=watching_for)
    assert store.end_overdue(None, 100, BEAT) == ended


def test_the_first_ticker_of_all_waits(overdue, store):
    assert store.end_overdue(None, 100, BEAT) == 0


def test_a_pass_without_a_rhythm_declares_runs_lost_at_once(overdue, store):
    assert store.end_overdue(None, 100) == 1


def test_a_ticker_that_found_the_tables_away_waits_though_it_has_ticked_for_long(overdue, environ, db, store):
    beats(store, db, ticked_ago=1, watching_for=60)
    with connect(environ["DATABASE_URL"]) as other, other.transaction():
        other.execute("LOCK TABLE ticker.tickers")
        with pytest.raises(DatabaseUnavailable):
            store.end_overdue(None, 100, BEAT)
    assert store.end_overdue(None, 100, BEAT) == 0
    store.heartbeat(str(uuid4()), "h", 1, store.now(), {}, BEAT)
    own = "SELECT max((last_report->>'watching_since')::float8) > extract(epoch FROM clock_timestamp()) - 5 FROM ticker.tickers"
    assert db.execute(own).fetchone() == (True,)


def test_a_ticker_that_takes_over_from_another_goes_on_where_that_one_watched(overdue, database_url, db, store):
    beats(store, db, ticked_ago=3, watching_for=60)
    new = PostgresStore(database_url)
    new.heartbeat(str(uuid4()), "h", 2, new.now(), {}, BEAT)
    assert new.end_overdue(None, 100, BEAT) == 1
    new.close()


@pytest.mark.parametrize("since_the_last", [math.inf, 5.0], ids=["a start", "after passes that failed slowly"])
def test_a_pass_of_a_ticker_that_comes_later_than_its_rhythm_waits_too(overdue, store, queue, settings, since_the_last):
    beat = TickJob(store, queue, replace(settings, tick_ms=BEAT), threading.Event())
    beat._last_pass = clock.monotonic() - since_the_last
    beat()
    assert not beat.failures
    assert store.end_overdue(None, 100) == 1  # what the pass left


def test_the_sweep_waits_for_two_ticks_and_ten_seconds_at_least():
    assert [patience(beat) for beat in (1000, 5000, 30_000)] == [10, 10, 60]


def test_a_heartbeat_that_a_hand_has_spoilt_stops_no_sweep(overdue, db, store):
    beats(store, db, ticked_ago=1, watching_for=60)
    db.execute("UPDATE ticker.tickers SET last_report = '{\"watching_since\": \"x\"}', started_at = 'epoch'")
    assert store.end_overdue(None, 100, BEAT) == 1
