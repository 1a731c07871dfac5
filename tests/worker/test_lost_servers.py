"""A worker whose Redis or PostgreSQL vanishes, or takes no writes for a while, waits and then works."""

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from rq import Worker as RqWorker
from rq.exceptions import StopRequested
from rq.registry import FailedJobRegistry
from rq.suspension import suspend

import ticker
from tests.faults.address import server_of
from tests.faults.proxy import Proxy
from tests.running import until, working
from tests.worker import grouped
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.embedded import Servers
from ticker.engine.tick import tick
from ticker.queue import rq
from wrappers.rq import between_jobs
from wrappers.rq import worker as ours


@pytest.fixture
def proxy(servers: Servers, redis_url: str) -> Any:
    """A way to Redis over TCP that may be cut."""
    with Proxy(listen="tcp:127.0.0.1:0", server=server_of(redis_url), kind="redis") as proxy:
        yield proxy


def keepalive(connection: Any) -> list[int]:
    wire = connection._sock
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    return [wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)] + [
        wire.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names
    ]


def of_pool(client: Any) -> list[int]:
    client.ping()
    return keepalive(client.connection_pool.get_connection())


def test_our_connections_to_redis_over_tcp_are_kept_alive(proxy: Proxy) -> None:
    with closing(rq.connect(proxy.url)) as client:
        assert of_pool(client) == [1, 10, 5, 2]
    with closing(Redis.from_url(proxy.url)) as client:
        assert of_pool(ours.Worker(["polling"], connection=client).connection) == [1, 10, 5, 2]


@pytest.mark.parametrize("url", ["rediss://h/0", "unix:///tmp/socket?db=3"])
def test_only_tcp_has_keepalive(url: str) -> None:
    with closing(rq.connect(url)) as client:
        kwargs = client.connection_pool.connection_kwargs
    assert kwargs.get("socket_keepalive", False) is url.startswith("rediss")


@pytest.mark.parametrize(("wanted", "waits", "answers"), [(420, 60, 70), (None, 60, 70), (30, 15, 25)])
def test_a_worker_waits_a_minute_for_a_job_and_little_more_for_an_answer(
    redis: Redis, wanted: int | None, waits: int, answers: int
) -> None:
    worker = ours.Worker(["polling"], connection=redis, worker_ttl=wanted)
    assert (worker.dequeue_timeout, worker.connection_timeout) == (waits, answers)
    assert worker.connection.connection_pool.connection_kwargs["socket_timeout"] >= answers
    worker.register_birth()
    assert redis.ttl(worker.key) == waits + 75, "RQ's list forgets a silent worker"


def test_redis_hears_a_heartbeat_and_a_state_once_and_again_if_it_forgot_the_worker(redis: Redis) -> None:
    worker = ours.Worker(["polling"], connection=redis)
    worker.register_birth()
    worker.heartbeat()
    worker.set_state("idle")
    redis.hset(worker.key, mapping={"last_heartbeat": "kept", "state": "kept"})
    redis.expire(worker.key, 10)
    worker.heartbeat()
    worker.set_state("idle")
    assert redis.hmget(worker.key, "last_heartbeat", "state") == [b"kept", b"kept"]
    worker.heartbeat(61, redis)
    worker.heartbeat()
    assert redis.ttl(worker.key) == 135, "a time shorter than the wait for a job is made longer at once"
    worker.heartbeat(600)
    assert redis.ttl(worker.key) == 600, "a longer time is written at once"
    redis.flushdb()
    worker._beat_at -= between_jobs.BEAT
    worker.heartbeat(600)
    worker.set_state("idle")
    assert redis.hget(worker.key, "birth")
    assert redis.hget(worker.key, "state") == b"idle"


def test_a_busy_worker_is_known_again_within_a_second_after_redis_forgot_it(redis: Redis, monkeypatch: Any) -> None:
    """RQ's start of a job is a heartbeat, too, but writes nothing else."""
    worker, at = ours.Worker(["polling"], connection=redis), [1000.0]
    monkeypatch.setattr("ticker.clock.monotonic", lambda: at[0])
    worker.register_birth()
    worker.heartbeat()
    redis.flushdb()
    for _ in range(6):
        at[0] += 0.2
        worker.check_for_suspension(burst=False)
        worker.heartbeat(90, redis)
        worker.heartbeat()
    assert [one.name for one in RqWorker.all(redis)] == [worker.name]
    assert redis.hget(worker.key, "birth")


def test_a_worker_asks_once_a_second_whether_it_is_suspended(redis: Redis) -> None:
    worker = ours.Worker(["polling"], connection=redis)
    worker.check_for_suspension(burst=True)
    suspend(redis)
    worker.check_for_suspension(burst=True)
    worker._asked_at -= between_jobs.BEAT
    with pytest.raises(StopRequested):
        worker.check_for_suspension(burst=True)


LONG = """
import time
from wrappers import task

@task("long")
def long(run):
    time.sleep(15)
"""


@pytest.mark.slow
def test_a_worker_is_known_again_during_the_run_in_which_redis_was_emptied(
    environ: Any, db: Any, store: Any, queue: Any, redis: Redis
) -> None:
    """RQ writes the hash of its worker anew, but not the list of workers."""
    running = "SELECT count(*) FROM ticker.runs WHERE state = 'running'"
    with working("--job-monitoring-interval", "1", patch=LONG):
        ticker.register(db, "long", every="1h")
        tick(store, queue)
        until(lambda: db.execute(running).fetchone() == (1,), "the run")
        redis.flushdb()
        until(lambda: RqWorker.count(redis) == 1, "the worker in RQ's list")
        assert db.execute(running).fetchone() == (1,)


@pytest.mark.slow
def test_a_worker_whose_connections_vanish_takes_the_next_job(
    traced: Callable[[str], list[Any]],
    db: Any,
    store: Any,
    queue: Any,
    redis: Redis,
    redis_url: str,
    proxy: Proxy,
    monkeypatch: Any,
) -> None:
    monkeypatch.setenv("REDIS_URL", proxy.through(redis_url))
    short = "from wrappers.rq import between_jobs, worker; between_jobs.TTL = 16; worker.Worker.connection_timeout = 2"
    with working(patch=short):
        until(lambda: [one.get_state() for one in RqWorker.all(redis)] == ["idle"], "an idle worker")
        proxy.vanish()
        before = proxy.summary()["connections"]
        until(lambda: proxy.summary()["connections"] > before, "a new connection; Redis no longer serves the old one")
        ticker.register(db, "plain", every="1d")
        tick(store, queue)
        until(lambda: traced("plain"), "the run")


@pytest.mark.slow
def test_an_idle_worker_waits_while_its_redis_is_a_replica(own_servers: Any) -> None:
    postgres, valkey = own_servers
    with (
        closing(connect(postgres.url)) as db,
        closing(PostgresStore(postgres.url)) as store,
        closing(Redis.from_url(valkey.url)) as redis,
        working() as process,
    ):
        ticker.register(db, "exhausts", every="1d", box="1s")
        until(lambda: [one.get_state() for one in RqWorker.all(redis)] == ["idle"], "an idle worker")
        redis.replicaof("127.0.0.1", 1)
        assert any("refuses its calls" in line for line in process.stdout or ())
        redis.replicaof("NO", "ONE")
        tick(store, rq.RedisQueue(redis))
        until(lambda: [run.outcome for run in ticker.list_runs(db)] == ["partial"], "the run")
        assert process.poll() is None


@pytest.mark.slow
@pytest.mark.parametrize("function", ["alone", "together"])
def test_a_start_waits_while_postgresql_takes_no_writes_and_no_job_is_lost(
    environ: object, db: Any, store: Any, queue: Any, redis: Redis, monkeypatch: Any, tmp_path: Path, function: str
) -> None:
    alone = '@task("alone")\ndef alone(deed): return deed\n'
    (tmp_path / "standby_tasks.py").write_text(grouped.FUNCTIONS + alone)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GROUP_FOLDER", str(tmp_path))
    tick(store, queue)  # connects; the setting below applies to new sessions
    name = db.info.dbname
    with working("--tasks", "standby_tasks", patch="from wrappers.pipeline import start; start.PAUSE = 0.1") as process:
        assert any("registries" in line for line in process.stdout or ())
        db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only TO on')
        grouped.register(db, function, "returns", kwargs={"number": 1} if function == "together" else {})
        tick(store, queue)
        assert any("accepts no writes" in line for line in process.stdout or ())
        assert not FailedJobRegistry("polling", connection=redis).get_job_ids()
        db.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only TO off')
        until(lambda: grouped.outcomes(db) == {"0 returns": "succeeded"}, "the run")
    assert len(ticker.list_runs(db)) == 1
