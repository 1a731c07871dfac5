"""The proxy carries everything unchanged, does each fault that it is told, and writes down what was pushed."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis, RedisError, ResponseError, exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.faults import push_record
from tests.faults.address import server_of
from tests.faults.proxy import Proxy
from tests.faults.push_record import PushedJob
from tests.running import ROOT, until
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine import jobs as engine_jobs
from ticker.engine.jobs import BATCH_ENTRY, JobSpec
from ticker.errors import DatabaseUnavailable, QueueUnavailable
from ticker.model import DueTask
from ticker.queue import bulk
from ticker.queue.rq import RedisQueue

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
ONE = "00000000-0000-0000-0000-000000000001"
SHORT = 0.15  # seconds that a client waits for an answer that does not come
LONG = 30.0  # seconds that nothing here takes
PROMPT = 5.0  # seconds: what is not LONG, on a loaded machine

Client = Callable[..., Redis]


def due(task_id: int, queue: str = "polling", function: str = "mail.fetch") -> JobSpec:
    return engine_jobs.for_occurrence(
        "faults12", DueTask(task_id, NOW, queue, function, every_ms=60_000, box_ms=30_000, grace_ms=1000)
    )


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "redis.jsonl"


@pytest.fixture
def proxy(redis_url: str, tmp_path: Path, record: Path) -> Iterator[Proxy]:
    with Proxy(listen=tmp_path / "redis", server=server_of(redis_url), kind="redis", record=record) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy, redis_url: str) -> Iterator[Client]:
    """Makes clients of Redis that go through the proxy and never try a second time."""
    made = []

    def make(**options: Any) -> Redis:
        made.append(Redis.from_url(proxy.through(redis_url), retry=Retry(NoBackoff(), 0), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def works(client: Redis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


def impatient(client: Client) -> Redis:
    """Is connected, and waits only a SHORT time for answers: connecting may take longer on a loaded machine."""
    through = client(socket_timeout=SHORT)
    until(lambda: works(through), "connected")
    return through


@pytest.fixture
def postgres(database_url: str, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(listen=tmp_path, server=server_of(database_url), kind="postgres") as proxy:
        yield proxy


@pytest.fixture
def through(postgres: Proxy, database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection in autocommit that goes through the proxy."""
    with connect(postgres.through(database_url)) as connection:
        connection.execute("CREATE TABLE seen (id int)")
        yield connection


def seen(db: psycopg.Connection[Any]) -> list[int]:
    return [row[0] for row in db.execute("SELECT id FROM seen ORDER BY id")]


def pushes(record: Path, count: int) -> list[dict[str, Any]]:
    """Waits until so many push events are written; without their times, which lie in the last minute."""

    def written() -> list[dict[str, Any]] | None:
        events = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        return events if len(events) >= count else None

    events = until(written, f"{count} push events")
    assert all(time.monotonic() - 60 < event.pop("at") < time.monotonic() for event in events)
    assert all(event.pop("event") == "push" for event in events)
    return events


def pushed(job: JobSpec, answer: str | None, delivered: bool) -> dict[str, Any]:
    id_ = job.job_id
    return {"job": id_, "carrier": id_, "answer": answer, "delivered": delivered, "description": job.description}


def taken(record: Path, count: int) -> list[str | None]:
    """Waits until so many jobs were taken."""

    def written() -> list[str | None] | None:
        events = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
        jobs = [event["job"] for event in events if event["event"] == "take"]
        return jobs if len(jobs) >= count else None

    return until(written, f"{count} jobs taken")


# ------------------------------------------------------------------------------------------------- Redis, untouched


@pytest.mark.parametrize("protocol", [2, 3])
def test_all_kinds_of_answers_come_through(client: Client, redis_url: str, protocol: int) -> None:
    through, direct = client(protocol=protocol), Redis.from_url(redis_url, protocol=protocol)
    big = bytes(range(256)) * 8192
    through.set("big", big)
    through.hset("hash", mapping={"a": "1", "b": "\r\n"})
    through.zadd("sorted", {"x": 1.5, "y": -3})
    assert through.get("big") == direct.get("big") == big
    assert (through.get("none"), through.lrange("none", 0, -1)) == (None, [])
    assert through.hgetall("hash") == {b"a": b"1", b"b": b"\r\n"}
    assert through.zrange("sorted", 0, -1, withscores=True) == direct.zrange("sorted", 0, -1, withscores=True)
    assert through.info("server")["run_id"] == direct.info("server")["run_id"]
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        through.lpush("hash", "x")
    direct.close()


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("transaction", [True, False])
def test_pipelines_come_through_in_order(client: Client, protocol: int, transaction: bool) -> None:
    with client(protocol=protocol).pipeline(transaction=transaction) as pipeline:
        for number in range(500):
            pipeline.rpush("list", number)
        pipeline.hget("list", "x")
        pipeline.lrange("list", 0, -1)
        answers = pipeline.execute(raise_on_error=False)
    assert answers[:500] == list(range(1, 501))
    assert isinstance(answers[500], ResponseError)
    assert answers[501] == [str(number).encode() for number in range(500)]


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_blocking_pop_waits_and_gets_what_comes(client: Client, proxy: Proxy, redis: Redis, protocol: int) -> None:
    with ThreadPoolExecutor() as pool:
        popped = pool.submit(client(protocol=protocol).blpop, ["list"], LONG)
        until(lambda: proxy.summary()["commands"].get("BLPOP"), "the pop is sent")
        redis.rpush("list", "x")
        assert popped.result(PROMPT) == ([b"list", b"x"] if protocol == 3 else (b"list", b"x"))


@pytest.mark.parametrize("protocol", [2, 3])
def test_published_messages_come_through(client: Client, redis: Redis, protocol: int) -> None:
    with client(protocol=protocol).pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("one", "two")
        until(lambda: channel.get_message(timeout=0.01) is None and redis.publish("two", "a") == 1, "subscribed")
        redis.publish("one", "b")
        assert [until(channel.get_message, "a message")["data"] for _ in range(2)] == [b"a", b"b"]


def test_fifty_clients_at_once_each_get_their_own_answers(client: Client, proxy: Proxy) -> None:
    def count(number: int) -> list[int]:
        own = client()
        return [own.incr(f"counter {number}") for _ in range(20)]

    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(count, range(50))) == [list(range(1, 21))] * 50
    assert proxy.summary()["commands"]["INCRBY"] == 1000


# ------------------------------------------------------------------------------------------------------ push events


def test_a_batch_is_recorded_by_what_it_carries_each_with_its_installation(record: Path) -> None:
    args = (1, 1_790_000_000_000_000, 2, 1_790_000_000_000_001)
    batch = JobSpec("a1b2c3d4-b" + 24 * "0", "polling", args, 60, 60, "poll x 2", BATCH_ENTRY)
    jobs = push_record.pushed_jobs([b"EVALSHA", b"sha", b"0", *map(bulk.as_stored, bulk.arguments([batch], {}))])
    assert jobs == [
        PushedJob(batch.job_id, ("a1b2c3d4-t1-1790000000000000", "a1b2c3d4-t2-1790000000000001"), "poll x 2")
    ]


@pytest.mark.parametrize("protocol", [2, 3])
def test_what_a_worker_takes_is_recorded(client: Client, redis: Redis, record: Path, protocol: int) -> None:
    through = client(protocol=protocol)
    redis.rpush("rq:queue:polling", "t1-1", "t1-2", "t1-3")
    assert through.lpop("rq:queue:none") is None
    through.blpop(["rq:queue:none", "rq:queue:polling"], 1)
    through.lpop("rq:queue:polling")
    through.lmove("rq:queue:polling", "rq:queue:taken")
    assert taken(record, 3) == ["t1-1", "t1-2", "t1-3"]


def test_a_worker_whose_connection_ends_may_have_been_given_any_job(client: Client, proxy: Proxy, record: Path) -> None:
    through = client()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(through.blpop, ["rq:queue:polling"], 30)
        until(lambda: proxy.summary()["commands"].get("BLPOP") or None, "a worker waits")
        proxy.reset()
        with pytest.raises(RedisError):
            waiting.result(PROMPT)
    assert taken(record, 1) == [None]


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_pushed_job_is_recorded_with_its_answer(
    client: Client, redis: Redis, record: Path, protocol: int
) -> None:
    redis.set("rq:queue:odd", "no list")
    jobs = [due(1), due(2, queue="odd"), due(3, function="Zoë 📬")]
    queue = RedisQueue(client(protocol=protocol))
    queue.push(jobs[:1])
    receipts = queue.push(jobs)
    answers: list[str | None] = ["held", receipts[1].error, "stored"]
    assert "WRONGTYPE" in receipts[1].error
    events = [event for event in pushes(record, 4) if "NOSCRIPT" not in event["answer"]]  # the server learns it first
    assert events == [
        pushed(due(1), "stored", True),
        *[pushed(*pair, True) for pair in zip(jobs, answers, strict=True)],
    ]


def test_a_swallowed_push_is_stored_and_recorded_as_not_delivered(
    client: Client, proxy: Proxy, redis: Redis, record: Path
) -> None:
    queue = RedisQueue(client())
    queue.push([due(1)])
    proxy.swallow_answer(matching=b"EVALSHA")
    with pytest.raises(QueueUnavailable):
        queue.push([due(2), due(3)])
    assert redis.llen("rq:queue:polling") == 3
    assert [receipt.held for receipt in queue.push([due(2)])] == [True]
    events = [event for event in pushes(record, 4) if "NOSCRIPT" not in event["answer"]]
    assert events[1:3] == [pushed(due(2), "stored", False), pushed(due(3), "stored", False)]
    assert proxy.summary()["swallowed"] == 1


def test_the_answer_to_another_command_answers_no_push() -> None:
    assert push_record.answers_to([], b"*2\r\n$6\r\nqueued\r\n$0\r\n\r\n") == []


def test_a_push_that_vanished_is_recorded_without_an_answer(
    client: Client, proxy: Proxy, redis: Redis, record: Path
) -> None:
    RedisQueue(redis).push([due(1)])  # the server knows the script now
    through = impatient(client)
    proxy.cut("to_server")
    with pytest.raises(QueueUnavailable):
        RedisQueue(through).push([due(2)])
    proxy.join()
    assert pushes(record, 1) == [pushed(due(2), None, False)]
    assert redis.llen("rq:queue:polling") == 1


def test_a_push_whose_answer_vanished_is_recorded_as_stored(
    client: Client, proxy: Proxy, redis: Redis, record: Path
) -> None:
    RedisQueue(redis).push([due(1)])
    through = impatient(client)
    proxy.cut("to_client")
    with pytest.raises(QueueUnavailable):
        RedisQueue(through).push([due(2)])
    assert pushes(record, 1) == [pushed(due(2), "stored", False)]
    assert redis.llen("rq:queue:polling") == 2


def test_a_delayed_push_arrives_though_its_client_gave_up(
    client: Client, proxy: Proxy, redis: Redis, record: Path
) -> None:
    RedisQueue(redis).push([due(1)])
    through = impatient(client)
    proxy.delay(LONG)
    with pytest.raises(QueueUnavailable):
        RedisQueue(through).push([due(2)])
    assert redis.llen("rq:queue:polling") == 1
    proxy.heal()
    assert pushes(record, 1) == [pushed(due(2), "stored", False)]
    assert redis.llen("rq:queue:polling") == 2


# ----------------------------------------------------------------------------------------------- answers of its own


def test_only_the_nth_matching_answer_is_swallowed(client: Client, proxy: Proxy, redis: Redis) -> None:
    through = client()
    proxy.swallow_answer(3, matching=b"INCR")
    assert [through.incr("n"), through.ping(), through.incr("n")] == [1, True, 2]
    with pytest.raises(exceptions.ConnectionError):
        through.incr("n")
    assert redis.get("n") == b"3"
    assert through.incr("n") == 4


def test_an_error_comes_instead_and_the_command_does_not_reach_the_server(
    client: Client, proxy: Proxy, redis: Redis
) -> None:
    through = client()
    through.set("a", 1)
    proxy.answer_instead(b"OOM command not allowed when used memory > 'maxmemory'.", matching=b"SET", count=2)
    with through.pipeline(transaction=False) as pipeline:
        answers = pipeline.get("a").set("a", 2).get("a").set("a", 3).set("a", 4).execute(raise_on_error=False)
    assert [str(answer)[:15] for answer in answers] == ["b'1'", "command not all", "b'1'", "command not all", "True"]
    assert redis.get("a") == b"4"


def test_a_transaction_with_a_refused_command_does_nothing(client: Client, proxy: Proxy, redis: Redis) -> None:
    through = client()
    proxy.answer_instead(b"READONLY You can't write against a read only replica.", matching=b"RPUSH")
    with pytest.raises(RedisError), through.pipeline() as pipeline:
        pipeline.incr("a").rpush("list", 1).incr("a").execute()
    assert redis.keys() == []
    with through.pipeline() as pipeline:
        assert pipeline.incr("a").rpush("list", 1).execute() == [1, 1]


def test_a_server_that_seems_to_load_refuses_everything(client: Client, proxy: Proxy) -> None:
    proxy.answer_instead(b"LOADING Redis is loading the dataset in memory", count=1_000_000)
    through = client()
    for call in (through.ping, lambda: through.get("a"), lambda: through.pipeline().incr("a").execute()):
        with pytest.raises(RedisError):
            call()
    proxy.heal()
    assert through.ping()


# -------------------------------------------------------------------------------------------------- what networks do


def test_connections_that_lost_nothing_outlive_a_cut(client: Client, proxy: Proxy) -> None:
    through, waiting = client(), client()
    number = through.client_id()
    with ThreadPoolExecutor() as pool:
        popped = pool.submit(waiting.blpop, ["list"], LONG)
        until(lambda: proxy.summary()["commands"].get("BLPOP"), "the pop is sent")
        proxy.cut()
        proxy.join()
        through.rpush("list", "x")
        assert popped.result(PROMPT)
    assert through.client_id() == number


def test_a_client_that_waits_in_a_cut_is_reset_when_it_ends(client: Client, proxy: Proxy) -> None:
    through = client()
    through.ping()
    proxy.cut()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(through.ping)
        until(lambda: proxy.summary()["commands"]["PING"] == 2, "the ping is sent")
        proxy.join()
        assert isinstance(answer.exception(PROMPT), exceptions.ConnectionError)


def test_faults_may_be_for_new_connections_only(client: Client, proxy: Proxy) -> None:
    old = client()
    old.ping()
    proxy.cut(only_new=True)
    assert old.ping()
    with pytest.raises(exceptions.TimeoutError):
        client(socket_timeout=SHORT).ping()
    proxy.heal()
    assert client().ping()


def test_a_delay_goes_both_ways_and_its_end_lets_all_go_at_once(client: Client, proxy: Proxy) -> None:
    through = client()
    through.ping()
    proxy.delay(0.03, jitter=0.01)
    begin = time.monotonic()
    through.ping()
    assert 0.06 <= time.monotonic() - begin < PROMPT
    proxy.delay(LONG)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(through.echo, "x")
        until(lambda: proxy.summary()["commands"].get("ECHO"), "the command is sent")
        proxy.heal()
        assert answer.result(PROMPT) == b"x"


def test_jitter_never_changes_the_order(client: Client, proxy: Proxy) -> None:
    proxy.delay(0, jitter=0.005)
    through = client()
    assert [through.incr("n") for _ in range(20)] == list(range(1, 21))
    with through.pipeline(transaction=False) as pipeline:
        assert [pipeline.echo(str(number)) and number for number in range(200)] == [
            int(echo) for echo in pipeline.execute()
        ]


def test_a_flapping_network_fails_and_works_again_and_again(client: Client, proxy: Proxy) -> None:
    through = client(socket_timeout=0.05)

    proxy.flap(0.06)
    for _ in range(2):
        until(lambda: not works(through), "a cut")
        until(lambda: works(through), "joined")
    proxy.heal()
    until(lambda: works(through), "joined for good")


def test_refused_connections_leave_the_others_alone(client: Client, proxy: Proxy) -> None:
    old, new = client(), client()
    old.ping()
    proxy.refuse()
    assert old.ping()
    with pytest.raises(exceptions.ConnectionError, match="refused"):
        new.ping()
    proxy.heal()
    assert new.ping()


def test_a_reset_ends_what_is_there_and_nothing_else(client: Client, proxy: Proxy) -> None:
    through, waiting = client(), client()
    with ThreadPoolExecutor() as pool:
        popped = pool.submit(waiting.blpop, ["list"], LONG)
        until(lambda: proxy.summary()["commands"].get("BLPOP"), "the pop is sent")
        proxy.reset()
        assert isinstance(popped.exception(PROMPT), exceptions.ConnectionError)
    assert through.ping()


def test_a_server_that_is_not_there_is_an_error_of_the_connection(tmp_path: Path) -> None:
    with (
        Proxy(listen=tmp_path / "redis", server=tmp_path / "none", kind="redis") as proxy,
        Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as through,
        pytest.raises(exceptions.ConnectionError),
    ):
        through.ping()


# ------------------------------------------------------------------------------------------------------- PostgreSQL


def test_statements_of_all_kinds_come_through(
    through: psycopg.Connection[Any], postgres: Proxy, db: psycopg.Connection[Any]
) -> None:
    with through.transaction(), through.cursor() as cursor:
        cursor.executemany("INSERT INTO public.seen VALUES (%s)", [(number,) for number in range(10)])
        with cursor.copy("COPY public.seen FROM STDIN") as copy:
            copy.write_row([10])
    with through.pipeline():
        rows = [through.execute("SELECT %s::int", [number]) for number in range(20)]
    assert [row.fetchone() for row in rows] == [(number,) for number in range(20)]
    with pytest.raises(psycopg.errors.DivisionByZero):
        through.execute("SELECT 1 / 0")
    assert seen(through) == list(range(11))
    assert len(through.execute("SELECT repeat('x', 1000) FROM generate_series(1, 3000)").fetchall()) == 3000
    through.execute("LISTEN news")
    db.execute("NOTIFY news, 'x'")
    assert [notice.payload for notice in through.notifies(timeout=PROMPT, stop_after=1)] == ["x"]
    assert postgres.summary()["commands"]["COMMIT"] == 1


def test_a_swallowed_commit_is_committed_and_its_client_does_not_know(
    through: psycopg.Connection[Any], postgres: Proxy, db: psycopg.Connection[Any]
) -> None:
    postgres.swallow_commit()
    with pytest.raises(psycopg.OperationalError), through.transaction():
        through.execute("INSERT INTO public.seen VALUES (1)")
    assert seen(db) == [1]
    with connect(postgres.url.replace("/postgres?", f"/{db.info.dbname}?")) as again, again.transaction():
        again.execute("INSERT INTO public.seen VALUES (2)")
    assert seen(db) == [1, 2]


def test_the_stores_commit_can_be_swallowed_several_times(
    postgres: Proxy, database_url: str, db: psycopg.Connection[Any]
) -> None:
    store = PostgresStore(postgres.through(database_url))

    def committed() -> None:
        with store.transaction() as execute:
            execute("heartbeat", id=ONE, host="host", pid=1, now=NOW, report="{}")

    postgres.swallow_commit(2)
    for _ in range(2):
        with pytest.raises(DatabaseUnavailable):
            committed()
    assert db.execute("SELECT count(*) FROM ticker.tickers").fetchone() == (1,)
    committed()
    store.close()


@pytest.mark.parametrize("before", [0, 8])  # psycopg prepares what was run five times, and sends only its name then
def test_the_answer_to_a_matching_statement_is_swallowed(
    through: psycopg.Connection[Any], postgres: Proxy, db: psycopg.Connection[Any], before: int
) -> None:
    for number in range(before):
        through.execute("INSERT INTO public.seen VALUES (%s)", [number])
    postgres.swallow_answer(matching=b"INTO public.seen")
    through.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        through.execute("INSERT INTO public.seen VALUES (%s)", [100])
    assert seen(db) == [*range(before), 100]


def test_a_server_does_not_learn_that_its_client_is_gone_while_the_network_is_cut(
    through: psycopg.Connection[Any], postgres: Proxy, db: psycopg.Connection[Any]
) -> None:
    def locks() -> int:
        row = db.execute("SELECT count(*) FROM pg_locks WHERE relation = 'seen'::regclass AND pid <> pg_backend_pid()")
        return row.fetchone()[0]  # type: ignore[index]

    through.execute("BEGIN")
    through.execute("LOCK TABLE seen")
    postgres.cut()
    through.close()
    until(lambda: any(link.has_lost for link in list(postgres.links)), "the deregister is lost")
    assert locks() == 1
    postgres.heal()
    until(lambda: locks() == 0, "the lock is gone with the connection")


def test_connections_are_cut_off_before_they_are_made(postgres: Proxy, database_url: str) -> None:
    postgres.cut("to_client")
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(psycopg.connect, postgres.through(database_url))
        until(lambda: postgres.links, "the connection is accepted")
        postgres.heal()
        assert isinstance(connecting.exception(PROMPT), psycopg.OperationalError)
    postgres.refuse()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(postgres.through(database_url))


# ------------------------------------------------------------------------------------------------ the proxy itself


def test_it_listens_on_tcp_and_on_a_socket_and_says_where(database_url: str, tmp_path: Path) -> None:
    listen = ["tcp:127.0.0.1:0", f"unix:{tmp_path}"]
    with Proxy(listen=listen, server=server_of(database_url), kind="postgres") as proxy:
        assert proxy.addresses[0].port > 0
        for address in (proxy.addresses, proxy.addresses[::-1]):
            proxy.addresses = list(address)
            with psycopg.connect(proxy.through(database_url)) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            proxy.refuse()
            with pytest.raises(psycopg.OperationalError, match="refused"):
                psycopg.connect(proxy.through(database_url))
            proxy.heal()


def test_nothing_is_left_when_it_is_closed(redis_url: str, tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files(), threading.active_count()
    with Proxy(listen=tmp_path / "redis", server=server_of(redis_url), kind="redis") as proxy:
        through = Redis.from_url(proxy.through(redis_url))
        through.ping()
        proxy.cut()
        proxy.flap(0.01)
        assert (open_files(), threading.active_count()) > before
    through.close()
    assert (open_files(), threading.active_count()) == before
    assert list(tmp_path.iterdir()) == []


def test_what_one_kind_cannot_do_is_refused(proxy: Proxy, postgres: Proxy) -> None:
    with pytest.raises(ValueError, match="postgres"):
        proxy.swallow_commit()
    with pytest.raises(ValueError, match="redis"):
        postgres.answer_instead(b"OOM")


def test_as_a_process_it_takes_the_same_calls_from_its_standard_input(redis_url: str, tmp_path: Path) -> None:
    command = ["--listen", "tcp:127.0.0.1:0", "--server", server_of(redis_url), "--kind", "redis"]
    record = tmp_path / "redis.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.proxy", *command, "--record", str(record)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout

        def told(**call: Any) -> Any:
            process.stdin.write(json.dumps(call) + "\n")  # type: ignore[union-attr]
            return json.loads(process.stdout.readline())  # type: ignore[union-attr]

        port = json.loads(process.stdout.readline())["listening"][0].rpartition(":")[2]
        with Redis(port=int(port), retry=Retry(NoBackoff(), 0)) as through:
            assert told(do="answer_instead", error="OOM no", matching="INCR") == {
                "done": "answer_instead",
                "result": None,
            }
            with pytest.raises(RedisError, match="no"):
                through.incr("n")
            assert told(do="summary")["result"]["answered_instead"] == 1
            assert "is not one of" in told(do="close")["failed"]
            assert "JSONDecodeError" in json.loads(_line(process, "{"))["failed"]
            RedisQueue(through).push([due(1)])
        process.stdin.close()
        assert process.wait(PROMPT) == 0
    assert pushes(record, 1)[-1] == pushed(due(1), "stored", True)


def _line(process: "subprocess.Popen[str]", line: str) -> str:
    assert process.stdin and process.stdout
    process.stdin.write(line + "\n")
    return process.stdout.readline()
