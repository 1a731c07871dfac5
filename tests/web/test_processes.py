"""The screens that ask Redis: what they say where a server hangs or is away, who is silent, and who is one of many."""

import re
import socket
import threading
from contextlib import contextmanager
from html import unescape

import psycopg
import pytest

import ticker
from tests.factories import MINUTE, SECOND, a_need, ticked
from tests.harness import command
from tests.sentences import sentence
from tests.web.asking import text_of
from ticker.db import connections
from ticker.errors import Unavailable
from ticker.queue import inspect, rq
from ticker.read import health
from ticker.read.health import CircuitBreaker


class Silent:
    """A server that takes each connection and never says a word; it counts them."""

    def __init__(self, listening):
        self.url = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        self.asked = 0
        self._listening, self._taken = listening, []
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self):
        try:
            while True:
                self._taken.append(self._listening.accept()[0])
                self.asked += 1
        except OSError:
            for connection in self._taken:
                connection.close()


@contextmanager
def silent_server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Silent(listening)
        listening.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def hung(monkeypatch):
    monkeypatch.setattr(rq, "SOCKET_TIMEOUT", 0.2)
    monkeypatch.setattr(health, "LONG", 0.1)
    with silent_server() as found:
        yield found


def a_worker(redis, name="w", queues="polling", left=400, **fields):
    """As RQ writes it."""
    key = f"rq:worker:{name}"
    given = {
        "state": "idle",
        "hostname": "here",
        "pid": "7",
        "queues": queues,
        "last_heartbeat": "2026-03-01T09:00:00.0Z",
    }
    redis.hset(key, mapping=given | fields)
    redis.expire(key, left)
    redis.sadd("rq:workers", key)
    for queue in queues.split(","):
        redis.sadd(f"rq:workers:{queue}", key)


def test_a_queue_with_too_few_workers_has_a_warning_and_the_number_that_it_needs(serve, db, redis):
    ticker.register(db, "poll", every="1m")
    a_worker(redis)
    a_need(db, "polling", 5.2, 9)
    ticked(db, crews=[[["polling"], 4, 4]])
    page = text_of(serve().get("/processes"))
    assert sentence("workers.need", queue="polling", average="5.2", most=9, listen="4 listen").within(page)
    assert "All is well" not in page
    assert re.search(r"polling\s+0\s+0\s+1\s+9\b", page)


def test_without_a_ticker_it_says_after_which_tick_the_last_one_stopped(client, db):
    silent = sentence("health.no_ticker_start_one", remedy="ticker run")
    assert silent.within(told_of_tickers(client))
    ticked(db, ended=True)
    stopped = sentence("health.last_ticker_stopped", at=re.compile(r"([0-9-]{10} )?[0-9:]{8}"), remedy="ticker run")
    assert stopped.within(told_of_tickers(client)) and not silent.within(told_of_tickers(client))


def told_of_tickers(client):
    """What the section of tickers says, with the first letter and the end of a sentence as elsewhere."""
    told = text_of(client.get("/processes")).partition(" Tickers ")[2].partition(" Queues ")[0].strip()
    return (told[0].lower() + told[1:]).replace(". Start", "; start")


def test_pages_begin_with_why_ticks_fail(serve, db):
    ticked(db)
    db.execute("UPDATE ticker.tickers SET failure = 'it broke', failing_since = now() - interval '1 minute'")
    fails = sentence("health.ticks_fail", pid=7, host="here", span=re.compile(r"[\d ms]+"), error="it broke")
    page = text_of(serve().get("/")).replace("The ticks", "the ticks")
    assert fails.within(page) and page.index("it broke") < page.index("tasks ")
    assert fails.times(text_of(serve().get("/processes"))) == 2  # at the top, and next to the ticker


# ------------------------------------------------------------------------------------------------ servers that hang


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/processes", "/api/v1/stats"])
def test_a_redis_that_hangs_is_asked_once_and_not_again_for_the_next_request(path, serve, db, hung):
    client = serve(REDIS_URL=hung.url)
    assert sentence("errors.redis_timed_out", setting="REDIS_URL").within(client.get(path).text)
    assert re.search(r"Timeout reading from socket \(asked [\d.]+ s ago\)", client.get(path).text)
    client.get("/processes"), client.get("/")
    assert hung.asked == 1


@pytest.mark.slow
def test_a_postgresql_that_hangs_is_waited_for_once_and_not_again_by_another_screen(serve, db, hung, monkeypatch):
    monkeypatch.setattr(connections, "CONNECT_TIMEOUT", 1)
    client = serve(DATABASE_URL=hung.url.replace("redis://", "postgresql://u:p@") + "/d")
    assert client.get("/tasks").status_code == 503
    asked = hung.asked
    for path in ("/", "/tasks", "/runs", "/processes", "/readyz", "/api/v1/tasks", "/api/v1/stats"):
        assert sentence("errors.no_answer_error_asked", error=re.compile(r".*"), ago=re.compile(r"[\d.]+ s")).within(
            client.get(path).text
        ), path
    assert hung.asked == asked


@pytest.mark.slow
def test_a_silence_is_kept_by_its_application_alone_and_not_for_long(serve, db, hung, monkeypatch):
    serve(REDIS_URL=hung.url).get("/")
    monkeypatch.setattr(health, "KEPT", -1.0)
    other = serve()
    other.get("/"), other.get("/")
    assert hung.asked == 3


def test_a_server_that_refuses_at_once_is_asked_each_time():
    breaker, asked = CircuitBreaker(), []
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^no$"), breaker.asking("one"):
            asked.append(1)
            raise Unavailable("no")
    with breaker.asking("one"):
        asked.append(1)
    assert len(asked) == 3


@pytest.mark.parametrize("path", ["/processes", "/readyz"])
def test_without_postgresql_it_shows_what_redis_says(path, serve, redis, monkeypatch):
    a_worker(redis)
    client = serve(DATABASE_URL="postgresql://postgres@/x?host=/nowhere")
    answer = client.get(path)
    assert sentence("errors.database_unavailable", setting="DATABASE_URL").within(answer.text)
    if path == "/processes":
        assert answer.status_code == 200
        assert re.search(r"Last heartbeat Job here/7 polling idle", text_of(answer))
        assert "No ticker has" not in answer.text and "Redis answers." in answer.text
    else:
        assert answer.json()["redis"] == {"answers": True, "error": None}


def test_both_servers_are_named_where_both_are_away(serve, environ):
    client = serve(DATABASE_URL="postgresql://postgres@/x?host=/nowhere", REDIS_URL="unix:///nowhere")
    postgresql, redis = client.get("/readyz").json()["problems"]
    assert postgresql.startswith("PostgreSQL") and redis.startswith("Redis")


# -------------------------------------------------------------------------------------------------- silent, and many


def test_silent_tickers_and_workers_are_called_so(client, db, redis):
    ticked(db, SECOND)
    ticked(db, 5 * MINUTE)
    a_worker(redis, "lives")
    a_worker(redis, "stopped", left=30)
    said = text_of(client.get("/processes"))
    assert sentence("page.silent_ticker", pid=7, rest=re.compile(r"[^✖]*"), ago="5 min").within(said)
    assert said.count("silent for") == 1
    assert sentence("page.silent_worker", worker="here/7 polling idle", rest=re.compile(r"[^✖]*")).within(said)
    assert said.count("overdue") == 1


def test_of_many_it_shows_five_hundred_and_says_how_many_there_are(client, redis, monkeypatch):
    monkeypatch.setattr(inspect, "AT_MOST", 2)
    for number in range(3):
        a_worker(redis, f"w{number}", queues=f"q{number},all")
    redis.sadd("rq:workers", "rq:worker:killed")
    said = text_of(client.get("/processes"))
    assert sentence("page.first_workers", number=3, shown=2).within(said) and "w2" not in said
    assert re.search(r"all 0 0 3 q0 0 0 1", said)


def test_what_is_none_of_rqs_in_redis_is_passed_over(client, redis, environ):
    a_worker(redis, pid="x", last_heartbeat="yesterday", hostname=b"\xff")
    redis.sadd("rq:workers", b"rq:worker:\xff", "elsewhere", "rq:worker:text")
    redis.set("rq:worker:text", "x")
    redis.set(b"rq:worker:\xff", "x")
    redis.sadd("rq:queues", b"rq:queue:\xff", "elsewhere", "rq:queue:text", "rq:queue:polling")
    for key in ("rq:queue:text", "rq:failed:text", "rq:workers:text"):
        redis.set(key, "x")
    found = inspect.look(environ["REDIS_URL"])
    assert [(queue.name, queue.jobs, queue.failed, queue.workers) for queue in found.queues] == [
        ("polling", 0, 0, 1), ("text", 0, 0, 0),
    ]  # fmt: skip
    assert [(worker.name, worker.pid, worker.last_heard) for worker in found.workers] == [("w", None, None)]
    assert client.get("/processes").status_code == 200


# ------------------------------------------------------------------------------------------------------------- counts


@pytest.mark.slow
@pytest.mark.parametrize(("estimate", "words"), [(2_000_000, "about 2,000,000 tasks"), (-1, "1 tasks")])
def test_an_estimate_is_called_so(estimate, words, client, task, database_url):
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("UPDATE pg_class SET reltuples = %s WHERE oid = 'ticker.tasks'::regclass", [estimate])
        try:
            assert words in text_of(client.get("/"))
        finally:
            owner.execute("UPDATE pg_class SET reltuples = -1 WHERE oid = 'ticker.tasks'::regclass")


# ---------------------------------------------------------------------------------------------------------- what is lost


@pytest.mark.slow
def test_a_lost_job_is_the_cause_of_its_failure_on_the_page_and_on_the_terminal(client, play, db, redis):
    task = ticker.register(db, "poll", owner="mail_channels:5", every="1h")
    play.at(0)
    play.run(1, "succeeded")
    play.at(3601)
    play.tick()
    for key in redis.keys("rq:job:*"):
        redis.hset(key, "status", "failed")
    play.at(4300)
    play.tick()
    lost = ticker.get(db, task)
    assert (lost.failures, lost.last_outcome) == (1, "lost")
    reason = sentence("why.ended_before_its_start")
    page = client.get("/")
    [record] = [run for run in ticker.list_runs(db, task=task) if run.outcome == "lost"]
    failed = sentence("page.failed_now", task="poll of mail_channels:5", number=1, outcome="lost")
    assert failed.within(text_of(page)) and reason.within(unescape(text_of(page)))
    assert f'/runs/{record.id}">lost</a>' in page.text
    assert sentence("cli.top_in_a_row", number=1, outcome="lost").within(command("top", "--once")[0])
    assert reason.within(command("top", "--once")[0])
    assert "lost" in command("list")[0]
    db.execute("DELETE FROM ticker.runs")
    assert failed.within(text_of(client.get("/")))
    assert sentence("cli.top_in_a_row", number=1, outcome="lost").within(command("top", "--once")[0])
