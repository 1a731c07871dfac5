"""A queue that has as many jobs as it may have gets no more: the rest stays due, and everybody can see that."""

from threading import Event

import pytest

import ticker
from ticker import status
from ticker.errors import ConfigurationError
from ticker.loop import Beat
from ticker.settings import from_environment
from ticker.tick import tick


def test_a_full_queue_gets_no_more_and_the_rest_stays_due_for_the_next_tick(environ, db, store, queue, redis):
    for number in range(8):
        ticker.register(db, "poll", owner=f"mail:{number % 4}", name=f"{number}", every="1m")
    ticker.register(db, "other", every="1m", queue="reports")
    report = tick(store, queue, depths={"polling": 5, "empty": 3})
    assert (report.due.enqueued, report.left) == (6, {"polling": 3})
    assert redis.llen("rq:queue:polling") == 5 and redis.llen("rq:queue:reports") == 1
    assert tick(store, queue, depths={"polling": 5}).left == {"polling": 3}
    redis.ltrim("rq:queue:polling", 3, -1)
    assert tick(store, queue, depths={"polling": 5}).left == {}
    assert redis.llen("rq:queue:polling") == 5
    assert all(task.push_errors == 0 for task in ticker.list_tasks(db))


def test_when_room_is_short_no_owner_takes_all_of_it(environ, db, store, queue):
    for number in range(10):
        ticker.register(db, "poll", owner="mail:greedy", name=f"{number}", every="1m")
    modest = ticker.register(db, "poll", owner="mail:modest", every="1m")
    tick(store, queue, depths={"polling": 2})
    assert ticker.get(db, modest).waiting
    assert sum(bool(task.waiting) for task in ticker.list_tasks(db)) == 2


@pytest.mark.parametrize(
    "text", ["polling", "=5", "polling=0", "polling=-1", "polling=x", "polling=1e3", "a=1,b", "polling=9999999999"]
)
def test_a_depth_that_is_none_is_named(text):
    with pytest.raises(ConfigurationError, match=r"TICKER_QUEUE_DEPTH: .* is no queue and depth from 1"):
        from_environment({"TICKER_QUEUE_DEPTH": text})


def test_depths_are_read_by_queue():
    assert from_environment({}).queue_depth == {}
    found = from_environment({"TICKER_QUEUE_DEPTH": "polling=10000, a=b=5 ,"}).queue_depth
    assert found == {"polling": 10_000, "a=b": 5}


def test_the_tickers_line_and_its_heartbeat_say_what_is_left(environ, db, store, queue, caplog, monkeypatch):
    monkeypatch.setenv("TICKER_QUEUE_DEPTH", "polling=1")
    for number in range(3):
        ticker.register(db, "poll", name=f"{number}", every="1m")
    caplog.set_level("INFO")
    Beat(store, queue, from_environment(), Event())()
    assert any(" due=1 enqueued=1 errors=0 left=polling:2 took=" in line for line in caplog.messages)
    assert status.tickers(db)[0].last_report["left"] == {"polling": 2}
