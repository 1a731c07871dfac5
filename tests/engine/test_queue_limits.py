"""A queue that has as many jobs as it may have gets no more: the rest stays due, and everybody can see that."""

import re
from datetime import timedelta
from threading import Event

import pytest
from click.testing import CliRunner

import ticker
from tests.harness import handed_out
from tests.sentences import sentence
from ticker.cli import main
from ticker.daemon.tick_job import TickJob
from ticker.engine.jobs import micros
from ticker.engine.tick import TickOptions, tick
from ticker.errors import ConfigurationError
from ticker.read import tasks as read_tasks
from ticker.settings import from_environment


@pytest.mark.slow
def test_a_full_queue_gets_no_more_and_the_rest_stays_due_for_the_next_tick(environ, db, store, queue, redis):
    for number in range(8):
        ticker.register(db, "poll", owner=f"mail:{number % 4}", name=f"{number}", every="1m")
    ticker.register(db, "other", every="1m", queue="reports")
    report = tick(store, queue, options=TickOptions(depths={"polling": 5, "empty": 3}))
    assert (report.due.enqueued, report.left) == (6, {"polling": 3})
    assert redis.llen("rq:queue:polling") == 5 and redis.llen("rq:queue:reports") == 1
    assert tick(store, queue, options=TickOptions(depths={"polling": 5})).left == {"polling": 3}
    redis.ltrim("rq:queue:polling", 3, -1)
    assert tick(store, queue, options=TickOptions(depths={"polling": 5})).left == {}
    assert redis.llen("rq:queue:polling") == 5
    assert all(task.push_errors == 0 for task in ticker.list_tasks(db))


@pytest.mark.slow
def test_tasks_with_limits_also_stay_due_in_a_full_queue(environ, db, store, queue):
    for number in range(8):
        ticker.register(db, "poll", name=f"{number}", every="1m", limits=["imap"])
    assert tick(store, queue, options=TickOptions(depths={"polling": 4})).left == {"polling": 4}


@pytest.mark.parametrize("limits", [[], ["imap"]])
def test_a_single_time_that_would_overlap_takes_no_room(limits, environ, db, store, queue):
    once = ticker.register(db, "poll", name="once", at=store.now() + timedelta(hours=1), overlap="skip", limits=limits)
    ticker.run_now(db, once)
    tick(store, queue)
    other = ticker.register(db, "poll", name="other", every="1m", limits=limits)
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 minute' WHERE id = %s", [once.id])
    turns = iter(range(20))
    report = tick(store, queue, options=TickOptions(depths={"polling": 2}, stop=lambda: next(turns, None) is None))
    assert (report.due.enqueued, report.left) == (1, {})
    assert [ticker.get(db, task).waiting for task in (once, other)] == [(), (other.next_run,)]


@pytest.mark.slow
def test_when_room_is_short_no_owner_takes_all_of_it(environ, db, store, queue):
    for number in range(10):
        ticker.register(db, "poll", owner="mail:greedy", name=f"{number}", every="1m")
    modest = ticker.register(db, "poll", owner="mail:modest", every="1m")
    tick(store, queue, options=TickOptions(depths={"polling": 2}))
    assert ticker.get(db, modest).waiting
    assert sum(bool(task.waiting) for task in ticker.list_tasks(db)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("depths", [{}, {"polling": 400}])
def test_owners_take_turns_within_one_claim_with_or_without_a_limit(environ, db, store, queue, redis, depths):
    greedy = [
        ticker.register(db, "poll", owner="mail:greedy", name=f"{n}", every="1m", priority=n // 19) for n in range(20)
    ]
    modest = ticker.register(db, "poll", owner="mail:modest", every="1m")
    elsewhere = ticker.register(db, "poll", owner="mail:modest", name="elsewhere", every="1m", queue="reports")
    tick(store, queue, options=TickOptions(depths=depths))
    pushed = [int(job.split(b"-t")[1].split(b"-")[0]) for job in redis.lrange("rq:queue:polling", 0, -1)]
    assert pushed == [greedy[19].id, modest.id, *(task.id for task in greedy[:19])]
    assert ticker.get(db, elsewhere).waiting


@pytest.mark.slow
def test_beyond_one_claim_the_oldest_go_first(environ, db, store, queue, redis):
    greedy = [ticker.register(db, "poll", owner="mail:greedy", name=f"{n}", every="1m") for n in range(5)]
    modest = ticker.register(db, "poll", owner="mail:modest", every="1m")
    tick(store, queue, options=TickOptions(batch=3))
    pushed = [int(job.split(b"-t")[1].split(b"-")[0]) for job in redis.lrange("rq:queue:polling", 0, -1)]
    assert pushed == [*(task.id for task in greedy[:4]), modest.id, greedy[4].id]


@pytest.mark.parametrize(
    "text", ["polling", "=5", "polling=0", "polling=-1", "polling=x", "polling=1e3", "a=1,b", "polling=9999999999"]
)
def test_a_depth_that_is_none_is_named(text):
    with pytest.raises(
        ConfigurationError,
        check=sentence(
            "errors.no_queue_and_depth", setting="TICKER_QUEUE_DEPTH", value=re.compile(r".*"), least=1
        ).within,
    ):
        from_environment({"TICKER_QUEUE_DEPTH": text})


def test_depths_are_read_by_queue():
    assert from_environment({}).queue_depth == {}
    found = from_environment({"TICKER_QUEUE_DEPTH": "polling=10000, a=b=5 ,"}).queue_depth
    assert found == {"polling": 10_000, "a=b": 5}


@pytest.mark.slow
def test_the_tickers_line_and_its_heartbeat_say_what_is_left(environ, db, store, queue, caplog, monkeypatch):
    monkeypatch.setenv("TICKER_QUEUE_DEPTH", "polling=1")
    for number in range(3):
        ticker.register(db, "poll", name=f"{number}", every="1m")
    caplog.set_level("INFO")
    TickJob(store, queue, from_environment(), Event())()
    assert any(" due=1 enqueued=1 errors=0 left=polling:2 took=" in line for line in caplog.messages)
    assert read_tasks.tickers(db)[0].last_report["left"] == {"polling": 2}


def length(redis) -> int:
    return redis.llen("rq:queue:polling")


@pytest.mark.slow
def test_a_tick_by_hand_keeps_to_the_limit(environ, db, redis, monkeypatch):
    monkeypatch.setenv("TICKER_QUEUE_DEPTH", "polling=3")
    for number in range(8):
        ticker.register(db, "poll", name=f"{number}", every="1m")
    assert CliRunner().invoke(main, ["tick"]).exit_code == 0
    assert length(redis) == 3


@pytest.mark.slow
def test_runs_by_hand_keep_to_the_limit_and_go_before_nothing_that_is_due(environ, db, store, queue, redis):
    tasks = [ticker.register(db, "poll", name=f"{number}", every="1m") for number in range(8)]
    for task in tasks:
        ticker.run_now(db, task)
    report = tick(store, queue, options=TickOptions(depths={"polling": 6}))
    assert (length(redis), report.due.enqueued, report.planned.enqueued) == (6, 3, 3)
    assert tick(store, queue, options=TickOptions(depths={"polling": 6})).enqueued == 0


@pytest.mark.slow
def test_pieces_keep_to_the_limit_and_come_in_turn_and_a_retry_of_another_task_before_them(
    environ, db, store, queue, redis
):
    """So that a run in many pieces keeps nobody else waiting."""
    long, short, other = (ticker.register(db, "poll", name=name, every="1m", first=store.now()) for name in "abc")
    handed_out(db, long, *map(str, range(300)), occurrence=store.now(), now=store.now())
    handed_out(db, short, *map(str, range(300)), occurrence=store.now(), now=store.now())
    for task in (long, short, other):
        ticker.edit(db, task, starts="2100-01-01T00:00:00Z")
    ticker.run_now(db, other)
    assert tick(store, queue, options=TickOptions(depths={"polling": 9})).planned.enqueued == length(redis) == 9
    pushed = db.execute(
        "SELECT task_id, kind, count(*) FROM ticker.runs WHERE state = 'pushed' GROUP BY 1, 2"
    ).fetchall()
    assert set(pushed) == {(long.id, "piece", 4), (short.id, "piece", 4), (other.id, "manual", 1)}
    redis.ltrim("rq:queue:polling", 2, -1)
    assert tick(store, queue, options=TickOptions(depths={"polling": 9})).planned.enqueued == 2


@pytest.mark.slow
def test_jobs_that_redis_lost_come_again_only_as_there_is_room(environ, db, store, queue, redis):
    for number in range(8):
        ticker.register(db, "poll", name=f"{number}", every="1h")
    tick(store, queue)
    redis.flushdb()
    reports = [tick(store, queue, options=TickOptions(depths={"polling": 5})) for _ in range(2)]
    assert [report.swept.repushed for report in reports] == [5, 0] and length(redis) == 5
    redis.ltrim("rq:queue:polling", 2, -1)
    assert length(redis) == 3


@pytest.mark.slow
def test_a_job_that_redis_lost_comes_again_though_more_is_due_at_each_tick_than_there_is_room_for(
    environ, db, store, queue, redis
):
    daily = ticker.register(db, "poll", name="daily", every="1d")
    tick(store, queue, options=TickOptions(depths={"polling": 2}))
    redis.flushdb()
    for number in range(3):
        ticker.register(db, "poll", name=f"{number}", every="1m")
    report = tick(store, queue, options=TickOptions(depths={"polling": 2}))
    assert (report.swept.repushed, report.due.enqueued, report.left) == (1, 1, {"polling": 2})
    assert redis.lindex("rq:queue:polling", 0).decode().endswith(f"-t{daily.id}-{micros(daily.next_run)}")


@pytest.mark.slow
def test_a_ticker_that_is_to_stop_leaves_lost_jobs_to_the_next_pass(environ, db, store, queue, redis):
    for number in range(6):
        ticker.register(db, "poll", name=f"{number}", every="1h")
    tick(store, queue)
    redis.flushdb()
    assert tick(store, queue, options=TickOptions(batch=2, stop=lambda: True)).swept.repushed == 2
    assert tick(store, queue, options=TickOptions(batch=2)).swept.repushed == 4
