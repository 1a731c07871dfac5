"""A function that a worker does not know, tick by tick: its tasks wait, one is tried in each tick, and a start lets the others go."""

from datetime import timedelta

import psycopg
import pytest

import ticker
from tests.harness import WORKER, start_planned
from tests.plans import nodes, numbered
from ticker.engine.tick import TickOptions, tick
from ticker.read import overview

OLD, NEW = ["poll"], ["poll", "fetch"]
MINUTE = timedelta(minutes=1)

pytestmark = pytest.mark.slow


@pytest.fixture
def fleet(play, monkeypatch):
    """Workers that know these functions take the jobs."""
    return lambda functions: monkeypatch.setitem(WORKER, "functions", functions)


def turn(play, seconds, batch=1000):
    """A tick there, and then the workers. Returns what was refused, or began, by task."""
    play.at(seconds)
    tick(play.store, play.queue, play.now, TickOptions(batch=batch, period=30_000))
    return {taken.task_id: taken.refusal for taken in play.take()}


def test_a_single_time_that_an_old_worker_refuses_starts_in_a_new_one(play, fleet):
    task = ticker.register(play.db, "fetch", at=play.begin + timedelta(seconds=1))
    fleet(OLD)
    assert [turn(play, seconds) for seconds in (1, 31)] == [{task.id: "unknown_here"}] * 2
    task = ticker.get(play.db, task)
    assert (task.next_run, task.wait_reason, task.dropped) == (play.begin + timedelta(seconds=1), "unknown_here", 0)
    fleet(NEW)
    assert turn(play, 61) == {task.id: None}


def test_one_task_of_each_function_and_queue_is_tried_in_a_tick_and_a_start_lets_the_others_go(play, fleet):
    ids = [ticker.register(play.db, "fetch", name=str(n), every="1h").id for n in range(4)]
    other = ticker.register(play.db, "poll", every="1h").id
    fleet(OLD)
    assert turn(play, 0) == {other: None, **dict.fromkeys(ids, "unknown_here")}
    assert [*turn(play, 30).values()] == ["unknown_here"]
    assert turn(play, 31) == {}  # a tick that was woken tries no other
    fleet(NEW)
    [(tried, refusal)] = turn(play, 60).items()
    assert refusal is None
    ids.remove(tried)
    fleet(OLD)
    assert turn(play, 90) == dict.fromkeys(ids, "unknown_here")
    fleet(NEW)
    assert turn(play, 120) == dict.fromkeys(ids)  # an old worker next to a new one closes nothing


def test_after_ten_minutes_without_a_start_it_is_dropped_and_a_single_time_has_failed(play, fleet):
    once = ticker.register(play.db, "fetch", name="once", at=play.begin + timedelta(seconds=1))
    every = ticker.register(play.db, "fetch", name="every", every="1m")
    fleet(OLD)
    for seconds in (1, 300, 590):
        turn(play, seconds)
        assert play.runs() == []
    turn(play, 620)
    outcomes = {run.task_name: (run.outcome, run.reason) for run in play.runs()}
    assert outcomes["every"] == ("dropped", "unknown_function")
    assert outcomes["once"][0] == "failed"
    assert "'fetch'" in outcomes["once"][1]
    once, every = ticker.get(play.db, once), ticker.get(play.db, every)
    assert (once.next_run, once.last_outcome, once.failures, every.failures) == (None, "failed", 1, 0)
    assert ticker.list_tasks(play.db, state="failing") == [once]
    assert every.next_run > play.now
    play.tick()
    assert play.events() == ["unknown_function", "failed"]


def test_it_is_no_pause_of_a_person(play, fleet):
    tasks = [ticker.register(play.db, "fetch", name=str(n), every="1h") for n in range(3)]
    fleet(OLD)
    turn(play, 0)
    turn(play, 30)
    counts = overview.counts(play.db)
    assert (counts.paused, counts.unknown_function) == (0, 3)
    waiting = ticker.get(play.db, tasks[2])
    assert (waiting.pause, waiting.is_resuming, waiting.unknown_function) == (None, False, True)
    assert ticker.list_tasks(play.db, state="paused") == []
    assert ticker.list_pauses(play.db) == []
    assert play.events() == []
    turn(play, 91)
    play.tick()
    assert play.events() == ["unknown_function"]


def test_a_manual_run_is_tried_again_and_dropped_after_ten_minutes(play, fleet):
    task = ticker.register(play.db, "fetch", cron="0 0 1 1 *")
    [run_id] = ticker.run_now(play.db, task)
    fleet(OLD)
    assert turn(play, 0) == {task.id: "unknown_here"}
    assert turn(play, 29) == {}
    assert turn(play, 31) == {task.id: "unknown_here"}
    fleet(NEW)
    play.at(65)
    play.tick()
    fleet(OLD)
    play.at(610)
    assert start_planned(play.db, task, run_id, play.now)["refusal"] == "unknown_function"
    [run] = play.runs()
    assert (run.outcome, run.reason) == ("dropped", "unknown_function")


def test_an_edit_of_the_function_ends_the_wait(play, fleet):
    task = ticker.register(play.db, "fetch", every="1h")
    other = ticker.register(play.db, "fetch", name="other", every="1h")
    fleet(OLD)
    turn(play, 0)
    turn(play, 30)
    ticker.edit(play.db, other, function="poll")
    assert turn(play, 31) == {other.id: None}
    assert ticker.get(play.db, task).unknown_function


def test_what_people_have_paused_is_not_dropped_and_is_tried_after_the_pause(play, fleet):
    task = ticker.register(play.db, "fetch", at=play.begin + timedelta(seconds=1))
    fleet(OLD)
    turn(play, 1)
    turn(play, 31)
    ticker.pause_all(play.db, function="fetch", until=play.begin + 15 * MINUTE)
    assert (turn(play, 800), play.runs()) == ({}, [])
    assert turn(play, 931) == {task.id: "unknown_here"}
    assert [*turn(play, 1400).values()] == ["unknown_here"]
    turn(play, 1540)
    assert [run.outcome for run in play.runs()] == ["failed"]


def test_a_task_that_cannot_be_pushed_keeps_no_other_from_being_tried(play, fleet):
    paused, failing, free = (ticker.register(play.db, "fetch", name=name, every="1h", group=name) for name in "abc")
    fleet(OLD)
    turn(play, 0)
    turn(play, 31)
    play.db.execute("UPDATE ticker.tasks SET next_run = next_run + (id - %s) * interval '1 ms'", [paused.id])
    play.db.execute("UPDATE ticker.tasks SET push_after = now() + interval '1 hour' WHERE id = %s", [failing.id])
    ticker.pause_all(play.db, group="a")
    fleet(NEW)
    assert turn(play, 61) == {free.id: None}


def test_the_tasks_of_a_full_key_keep_no_other_from_being_tried(play, fleet):
    ticker.limit(play.db, "imap", concurrency=1)
    ids = [
        ticker.register(play.db, "fetch", name=str(n), every="1h", limits=["imap"] if n < 2 else []).id
        for n in range(4)
    ]
    fleet(OLD)
    turn(play, 0)
    turn(play, 31)
    play.db.execute("UPDATE ticker.tasks SET next_run = next_run + (id - %s) * interval '1 ms'", ids[:1])
    play.db.execute("UPDATE ticker.slots SET token = gen_random_uuid(), until = now() + interval '1 hour'")
    fleet(NEW)
    assert any(turn(play, seconds) for seconds in range(61, 590, 30))


def test_a_wait_for_which_nothing_waits_ends_so_that_later_work_is_tried(play, fleet):
    ticker.register(play.db, "fetch", name="first", at=play.begin + timedelta(seconds=1))
    fleet(OLD)
    for seconds in (1, 31, 300, 640):
        turn(play, seconds)
    later = ticker.register(play.db, "fetch", name="later", at=play.begin + timedelta(hours=2))
    assert turn(play, 7860) == {later.id: "unknown_here"}  # no ticker ran for eleven minutes
    assert turn(play, 7890) == {later.id: "unknown_here"}
    assert ticker.get(play.db, later).unknown_function
    assert len(play.runs()) == 1


def test_a_manual_run_waits_ten_minutes_of_its_own(play, fleet):
    tasks = [ticker.register(play.db, "fetch", name=name, every="1h") for name in "ab"]
    fleet(OLD)
    for seconds in (0, 31, 300, 590):
        turn(play, seconds)
    [run_id] = ticker.run_now(play.db, tasks[0])
    play.db.execute("UPDATE ticker.runs SET created_at = %s WHERE id = %s", [play.at(620), run_id])
    assert start_planned(play.db, tasks[0], run_id, play.now)["refusal"] == "unknown_here"
    for seconds in (650, 900, 1200):
        turn(play, seconds)  # the wait does not end: a manual run waits
    assert start_planned(play.db, tasks[0], run_id, play.at(1230))["refusal"] == "unknown_function"


def test_bad_rows_keep_no_other_from_being_dropped(play, fleet):
    bad, _ = (ticker.register(play.db, "fetch", name=name, every="1h") for name in ("bad", "good"))
    fleet(OLD)
    turn(play, 0)
    turn(play, 30)
    play.db.execute("UPDATE ticker.tasks SET next_run = next_run + (id - %s) * interval '1 ms'", [bad.id])
    play.db.execute(
        "UPDATE ticker.tasks SET kind = 'cron', expression = '0 0 30 2 *', every_ms = 0 WHERE id = %s", [bad.id]
    )
    turn(play, 700, batch=1)
    assert [run.task_name for run in play.runs() if run.reason == "unknown_function"] == ["good"]
    assert "never fires" in ticker.get(play.db, bad).push_error


def test_a_wait_from_ahead_begins_again_when_the_clock_was_set_back(play, fleet):
    ticker.register(play.db, "fetch", every="1h")
    fleet(OLD)
    turn(play, 0)
    play.db.execute("UPDATE ticker.pauses SET paused_at = paused_at + interval '1 day'")
    turn(play, 30)
    assert play.db.execute("SELECT paused_at FROM ticker.pauses").fetchall() == [(play.now,)]


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["claim_unknown", "probe"])
def test_a_tick_reads_no_more_of_the_tasks_that_wait_than_it_takes(play, statement):
    """3,000 of them wait. Counts rows, not time."""
    play.db.execute(
        "WITH p AS (INSERT INTO ticker.pauses (scope, value, of_queue, paused_at)"
        " VALUES ('unknown', 'fetch', 'polling', now() - interval '1 hour') RETURNING id)"
        " INSERT INTO ticker.tasks (name, function, kind, every_ms, tolerance_ms, box_ms, grace_ms, queue, next_run, pause_id)"
        " SELECT n::text, 'fetch', 'interval', 3600000, 5000, 30000, 1000, 'polling', now() - %s::interval + n * interval '1 ms', p.id"
        " FROM p, generate_series(1, 3000) n",
        ["20 minutes" if statement == "claim_unknown" else "1 minute"],
    )
    play.db.execute("ANALYZE ticker.tasks, ticker.pauses")
    text, names = numbered(statement)
    values = {"now": play.now, "limit": 100, "period_ms": 30_000}
    with play.db.transaction(force_rollback=True), psycopg.ClientCursor(play.db) as cursor:
        cursor.execute(f"PREPARE looked_at AS {text}")
        cursor.execute(
            f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE looked_at ({', '.join(['%s'] * len(names))})",
            [values[n] for n in names],
        )
        [[[found]]] = cursor.fetchall()
    read = [
        node["Actual Rows"] * node["Actual Loops"]
        for node in nodes(found["Plan"])
        if node.get("Relation Name") == "tasks"
    ]
    assert read and max(read) <= 100
