"""The kinds of faults: each a context manager that does something to the stage, and undoes it when its block ends.

Two faults of one domain never overlap; faults of different domains do. A fault yields the
name of what it hit. What it may do beyond a delay stands in `effects`, for those who judge the history. Kinds of the domain `cable` need hosts of their own (`hosts.py`).
Kinds of the domain LIMITS need tasks with limits (`--limits`).
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import psycopg
from redis.exceptions import RedisError

from tests.faults import keys, wide
from tests.faults.client import wait_for
from tests.faults.groups import CROWD, DEEDS
from tests.faults.restore import can_adopt, copy_database, restore
from tests.faults.stage import Process, Stage, children_of
from ticker.errors import TickerError

ALONE, LIMITS = "alone", "limits"
SHARE = 1 / 6
IN_MID_RUN = 5.0  # seconds that a fault waits for a long run to be under way
Act = Callable[[Stage, Random], AbstractContextManager[str]]


@dataclass(frozen=True)
class Kind:
    """`least` and `most` are seconds; both 0 for what happens in an instant. The domain ALONE has a storm for itself, once
    in a run, for SHARE of the run's length within these bounds. `calm`: the shortest calm after its storm.
    `ha`: it needs pairs of servers (`--topology ha`)."""

    name: str
    domain: str
    least: float
    most: float
    effects: tuple[str, ...]
    act: Act
    calm: float = 0.0
    ha: bool = False


KINDS: dict[str, Kind] = {}
LONG_RUN = "SELECT id FROM ticker.runs WHERE state = 'running' AND function = 'poll.lasts'"
GROUP = (
    "SELECT pid FROM ticker.runs WHERE state = 'running' AND function = ANY (%s) AND pid IS NOT NULL"
    " GROUP BY pid HAVING count(*) > %s LIMIT 1"
)
MANY, TURN = 20, 45.0  # active runs of the large group; seconds in which it has so many at least once
LONG_CALM = 115.0  # seconds: long enough for L7 and, after it, two intervals of the crowd


def kind(
    domain: str, least: float = 0.0, most: float = 0.0, *effects: str, calm: float = 0.0, ha: bool = False
) -> Callable[[Callable[[Stage, Random], Iterator[str]]], Act]:
    def register(body: Callable[[Stage, Random], Iterator[str]]) -> Act:
        act = contextmanager(body)
        KINDS[body.__name__] = Kind(body.__name__, domain, least, most, effects, act, calm, ha)
        return act

    return register


# ------------------------------------------------------------------------------------------------------- tickers


@kind("tickers")
def ticker_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield _sent(draw.choice(stage.tickers), signal.SIGKILL)


@kind("tickers")
def ticker_terminated(stage: Stage, draw: Random) -> Iterator[str]:
    yield _sent(draw.choice(stage.tickers), signal.SIGTERM)


@kind("tickers", 1, 7)
def ticker_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    process = draw.choice(stage.tickers)
    yield from _frozen(process, [process.pid])


@kind("tickers", 3, 12, "no_tickers")
def all_tickers_down(stage: Stage, draw: Random) -> Iterator[str]:
    with ExitStack() as down:
        for process in stage.tickers:
            down.enter_context(process.down())
        yield "all tickers"


@kind("tickers", 2, 4)
def five_tickers_start_at_once(stage: Stage, draw: Random) -> Iterator[str]:
    more = [stage.another_ticker(f"ticker-more-{number}") for number in range(5)]
    for process in more:
        process.look()
    yield "five more tickers"
    for process in more:
        with process.down():
            process.send(signal.SIGKILL)
            process.look()


# --------------------------------------------------------------------------------------------------------- Redis


@kind("redis", 0.1, 4, "wipe", "redis_down")
def redis_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _without_redis(stage)


@kind("redis", 0.1, 3, "wipe", "redis_down")
def redis_killed_in_mid_group(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _without_redis(stage, f"redis, {'in' if _some_group(stage, draw) else 'not in'} a group")


@kind("redis", 1, 8, "redis_down")
def redis_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.redis_lock:
        pid = stage.valkey.pid
    os.kill(pid, signal.SIGSTOP)
    yield "redis"
    os.kill(pid, signal.SIGCONT)
    with stage.redis_lock:
        stage.valkey.start()


@kind("redis", 0, 0, "wipe")
def redis_flushed(stage: Stage, draw: Random) -> Iterator[str]:
    stage.journal.write("wipe")
    with stage.redis() as redis:
        redis.flushall()
    stage.journal.write("wipe")
    yield "redis"


@kind("redis", 1, 5, "redis_down")
def redis_full(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.redis() as redis:
        redis.config_set("maxmemory", 1)
        yield "redis"
        redis.config_set("maxmemory", 0)


@kind("redis", 0.5, 1.5, "wipe")
def redis_evicts(stage: Stage, draw: Random) -> Iterator[str]:
    """Somebody sets an eviction policy while we run: any key may go."""
    stage.journal.write("wipe")
    with stage.redis() as redis:
        used = int(redis.info("memory")["used_memory"])
        redis.config_set("maxmemory-policy", "allkeys-random")
        redis.config_set("maxmemory", max(used - 20_000, 1))
        yield "redis"
        redis.config_set("maxmemory", 0)
        redis.config_set("maxmemory-policy", "noeviction")
    stage.journal.write("wipe")


@kind("redis")
def redis_connections_killed(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.redis() as redis:
        redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    yield "redis"


@kind("wire", 1, 4)
def redis_answers_by_errors(stage: Stage, draw: Random) -> Iterator[str]:
    """As while it loads its data, after a failover to a replica, or with another password."""
    host = draw.choice([stage.hosts["host-a"], stage.hosts["host-b"]])
    error = draw.choice([
        b"LOADING Redis is loading the dataset in memory", b"READONLY You can't write against a read only replica.",
        b"OOM command not allowed when used memory > 'maxmemory'.", b"NOAUTH Authentication required.",
    ])  # fmt: skip
    host.redis.answer_instead(error=error, matching=b"EVALSHA", count=1_000_000)
    yield f"{host.name}: {error.decode().split()[0]}"
    host.redis.heal()


@kind("wire", 0.5, 2)
def push_answer_lost(stage: Stage, draw: Random) -> Iterator[str]:
    host = draw.choice([stage.hosts["host-a"], stage.hosts["host-b"]])
    host.redis.swallow_answer(nth=draw.randint(1, 2), matching=b"EVALSHA")
    yield host.name


@kind("wire", 0.5, 2)
def worker_answer_lost(stage: Stage, draw: Random) -> Iterator[str]:
    host = draw.choice([stage.hosts["host-c"], stage.hosts["host-d"]])
    host.redis.swallow_answer(nth=draw.randint(1, 40), matching=None)
    yield host.name


# ---------------------------------------------------------------------------------------------------- PostgreSQL


@kind("postgres", 0.1, 3, "postgres_down")
def postgres_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _without_postgres(stage)


@kind("postgres", 7, 12, "postgres_down")
def postgres_away_in_mid_run(stage: Stage, draw: Random) -> Iterator[str]:
    """For longer than the box of a run that is under way: its end has to wait in its worker."""
    with stage.database() as db:
        found = wait_for(lambda: db.execute(LONG_RUN).fetchone() is not None, IN_MID_RUN)
    yield from _without_postgres(stage, f"postgres, {'in' if found else 'not in'} a long run")


@kind("postgres", 0.1, 3, "postgres_down")
def postgres_killed_in_mid_group(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _without_postgres(stage, f"postgres, {'in' if _some_group(stage, draw) else 'not in'} a group")


@kind("postgres", 0, 1, "postgres_down")
def postgres_restarted(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.postgres_lock:
        stage.postgres.stop(draw.choice(["fast", "immediate"]))
    yield "postgres"
    with stage.postgres_lock:
        stage.postgres.start()


@kind("postgres", 1, 8, "postgres_down")
def postgres_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.postgres_lock:
        pid = stage.postgres.pid
    yield from server_frozen("postgres", pid)


def server_frozen(name: str, pid: int) -> Iterator[str]:
    stopped = [pid, *children_of(pid)]
    for process in stopped:
        signalled(process, signal.SIGSTOP)
    yield name
    for process in reversed(stopped):
        signalled(process, signal.SIGCONT)


@kind("postgres")
def postgres_backends_terminated(stage: Stage, draw: Random) -> Iterator[str]:
    with stage.database() as db:
        db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND application_name <> 'harness'"
        )
    yield "postgres"


@kind("postgres", 1, 3, "postgres_down")
def postgres_connections_exhausted(stage: Stage, draw: Random) -> Iterator[str]:
    with ExitStack() as held:
        with suppress(psycopg.OperationalError):
            for _ in range(200):
                held.enter_context(stage.database())
        yield "postgres"


@kind("locks", 1, 5)
def row_locked(stage: Stage, draw: Random) -> Iterator[str]:
    """An administrator's transaction, left open on some rows."""
    with stage.database() as db, db.transaction():
        rows = db.execute(
            "SELECT id FROM ticker.tasks WHERE id %% 7 = %s FOR UPDATE SKIP LOCKED", [draw.randrange(7)]
        ).fetchall()
        yield f"{len(rows)} rows"


@kind("locks", 0.5, 3, "postgres_down")
def table_locked(stage: Stage, draw: Random) -> Iterator[str]:
    """As by a migration."""
    with stage.database() as db, db.transaction():
        db.execute("SET LOCAL lock_timeout = '2s'")
        with suppress(psycopg.errors.LockNotAvailable), db.transaction():
            db.execute("LOCK TABLE ticker.tasks IN ACCESS EXCLUSIVE MODE")
        yield "tasks"


@kind("locks", 3, 20)
def snapshot_held(stage: Stage, draw: Random) -> Iterator[str]:
    """A forgotten transaction: nothing can be cleaned up behind it."""
    with stage.database() as db, db.transaction():
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        db.execute("SELECT count(*) FROM ticker.tasks")
        yield "postgres"


@kind("wire", 0.5, 3)
def commit_answer_lost(stage: Stage, draw: Random) -> Iterator[str]:
    host = draw.choice([stage.hosts["host-a"], stage.hosts["host-b"]])
    host.postgres.swallow_commit(draw.randint(1, 2))
    yield host.name


@kind("wire", 0.5, 3)
def start_answer_lost(stage: Stage, draw: Random) -> Iterator[str]:
    """The run was admitted, and its worker does not learn it."""
    host = draw.choice([stage.hosts["host-c"], stage.hosts["host-d"]])
    host.postgres.swallow_answer(matching=b"judged AS MATERIALIZED")
    yield host.name


# ------------------------------------------------------------------------------------------------------- workers


@kind("workers")
def worker_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield _kill_level(draw.choice(stage.workers), 0)


@kind("workers")
def keeper_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield _sent(draw.choice(stage.workers), signal.SIGKILL)


@kind("workers")
def horse_killed(stage: Stage, draw: Random) -> Iterator[str]:
    yield _kill_level(_busy(stage, draw), 1)


@kind("workers")
def group_hit(stage: Stage, draw: Random) -> Iterator[str]:
    """Kills a process with several active runs, as when memory runs out. Or kills its worker, or tells the worker to end."""
    group = _some_group(stage, draw)
    process = next((one for one in stage.workers if group in one.level(1)), None) or _busy(stage, draw)
    horse, worker = 1, 0
    match draw.choice(["horse", "worker", "terminate"]):
        case "horse":
            yield _kill_level(process, horse)
        case "worker":
            yield _kill_level(process, worker)
        case _:
            yield _sent(process, signal.SIGTERM)


@kind(ALONE, calm=LONG_CALM)
def crowd_killed(stage: Stage, draw: Random) -> Iterator[str]:
    """Kills the process of the large group: each of its active runs is a suspect."""
    process, active = _of_the_crowd(stage)
    yield f"{_kill_level(process, 1)}, {active} active runs"


@kind(ALONE, calm=LONG_CALM)
def crowd_lost(stage: Stage, draw: Random) -> Iterator[str]:
    """Kills the worker of the large group, its supervisor and its process, as when their host dies."""
    process, active = _of_the_crowd(stage)
    for pid in (process.pid, *process.level(0), *process.level(1)):
        process.send(signal.SIGKILL, pid)
    yield f"{process.name}, {active} active runs"


@kind("workers")
def worker_terminated(stage: Stage, draw: Random) -> Iterator[str]:
    yield _sent(draw.choice(stage.workers), signal.SIGTERM)


@kind("workers", 1, 6)
def worker_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    process = draw.choice(stage.workers)
    yield from _frozen(process, process.level(0))


@kind("workers", 1, 6)
def keeper_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    """Nothing is killed for it meanwhile, and no signal is passed on."""
    process = draw.choice(stage.workers)
    yield from _frozen(process, [process.pid])


@kind("workers", 1, 6)
def horse_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    process = _busy(stage, draw)
    yield from _frozen(process, process.level(1))


@kind("workers", 3, 12, "no_workers")
def all_workers_down(stage: Stage, draw: Random) -> Iterator[str]:
    """Terminated, as by a deploy; those that do not go in time are killed at the end of the run."""
    with ExitStack() as down:
        for process in stage.workers:
            down.enter_context(process.down(signal.SIGTERM))
        yield "all workers"


@kind("workers", 4, 9, "no_workers")
def deleted_while_jobs_wait(stage: Stage, draw: Random) -> Iterator[str]:
    """No worker takes what is pushed, and the client registers and deletes tasks and owners, and does nothing else."""
    with ExitStack() as down:
        for process in stage.workers:
            down.enter_context(process.down(signal.SIGTERM))
        stage.edits.deleting.set()
        down.callback(stage.edits.deleting.clear)
        yield "all workers"


@kind(ALONE, 10, 300, "no_workers")
def backlog(stage: Stage, draw: Random) -> Iterator[str]:
    """Singles and batches pile up, until the workers come back."""
    with ExitStack() as down:
        for process in stage.workers:
            down.enter_context(process.down(signal.SIGTERM))
        yield "all workers"


@kind("workers")
def poison_job(stage: Stage, draw: Random) -> Iterator[str]:
    """A job whose hash nobody can read, in front of all others."""
    name = f"poison-{draw.randrange(10**9)}"
    bad: dict[str, bytes] = draw.choice([
        {"data": b"\x00not zlib", "created_at": b"2026-01-01T00:00:00.000000Z", "origin": b"polling"},
        {"data": b"", "created_at": b"the day after tomorrow", "status": b"queued"},
        {"status": b"\xff\xfe", "timeout": b"soon"},
    ])  # fmt: skip
    with stage.redis() as redis:
        redis.hset(f"rq:job:{name}", mapping=bad)  # type: ignore[arg-type]
        redis.lpush("rq:queue:polling", name)
    yield name


# ------------------------------------------------------------------------------------------------------- networks


@kind("wire", 1, 6)
def network_slow(stage: Stage, draw: Random) -> Iterator[str]:
    hosts = draw.sample(sorted(stage.hosts), draw.randint(1, 3))
    for name in hosts:
        for proxy in stage.hosts[name].proxies:
            proxy.delay(draw.uniform(0.002, 0.05), draw.uniform(0, 0.05))
    yield ", ".join(hosts)
    _heal(stage, hosts)


@kind("wire", 1, 7)
def one_direction_cut(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sorted(stage.hosts))
    proxy, direction = draw.choice(stage.hosts[name].proxies), draw.choice(["to_server", "to_client"])
    proxy.cut(direction)
    yield f"{name} {proxy.kind} {direction}"
    _heal(stage, [name])


@kind("wire", 1, 10)
def host_cut_off(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sorted(stage.hosts))
    for proxy in stage.hosts[name].proxies:
        proxy.cut("both")
    yield name
    _heal(stage, [name])


@kind("cable", 1, 10)
def cable_pulled(stage: Stage, draw: Random) -> Iterator[str]:
    """Nothing arrives, nothing is refused, and no connection ends: the host is out of the world."""
    host = stage.hosts[draw.choice(sorted(stage.hosts))]
    assert host.cable
    host.cable.pull()
    yield host.name
    host.cable.plug()


@kind("wire", 2, 6)
def network_flaps(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sorted(stage.hosts))
    for proxy in stage.hosts[name].proxies:
        proxy.flap(draw.uniform(0.1, 0.6))
    yield name
    _heal(stage, [name])


@kind("wire", 1, 4)
def connections_refused(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sorted(stage.hosts))
    proxy = draw.choice(stage.hosts[name].proxies)
    proxy.refuse()
    proxy.reset()
    yield f"{name} {proxy.kind}"
    _heal(stage, [name])


@kind("wire")
def connections_reset(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sorted(stage.hosts))
    for proxy in stage.hosts[name].proxies:
        proxy.reset()
    yield name


# --------------------------------------------------------------------------------------------------------- limits


@kind(LIMITS, 2, 12)
def limit_lowered(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _changed(stage, draw, keys.LOWERED)


@kind(LIMITS, 2, 12)
def limit_raised(stage: Stage, draw: Random) -> Iterator[str]:
    yield from _changed(stage, draw, keys.RAISED)


# --------------------------------------------------------------------------------------------------------- pauses


@kind("pauses", 1, 5)
def all_paused(stage: Stage, draw: Random) -> Iterator[str]:
    yield from wide.paused(stage, wide.ALL)


@kind("pauses", 1, 8)
def many_paused(stage: Stage, draw: Random) -> Iterator[str]:
    yield from wide.paused(stage, draw.choice(wide.SCOPES))


@kind("pauses", 1, 8)
def pause_ends_by_itself(stage: Stage, draw: Random) -> Iterator[str]:
    yield from wide.paused(stage, draw.choice((wide.ALL, *wide.SCOPES)), draw.uniform(0.5, 4))


@kind(LIMITS, 1, 8)
def limit_paused(stage: Stage, draw: Random) -> Iterator[str]:
    yield from wide.paused(stage, draw.choice(wide.OF_LIMITS))


# ------------------------------------------------------------------------------------------------------- restores


@kind(ALONE, 8, 8, "postgres_down", "no_tickers", "no_workers")
def older_dump_restored(stage: Stage, draw: Random) -> Iterator[str]:
    """The database of some seconds ago comes back, while Redis keeps the jobs of what was since; then what docs say."""
    if not can_adopt(stage):
        yield "skipped: there is no `ticker db adopt` yet"
        return
    copied = copy_database(stage)
    yield "postgres"
    restore(stage, copied)


# ------------------------------------------------------------------------------------------------------- in common


def _sent(process: Process, number: signal.Signals) -> str:
    process.send(number)
    return process.name


def _frozen(process: Process, pids: list[int]) -> Iterator[str]:
    """Those very processes, also when the supervisor has started others meanwhile."""
    for pid in pids:
        process.send(signal.SIGSTOP, pid)
    yield process.name
    for pid in pids:
        process.send(signal.SIGCONT, pid)


def signalled(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _kill_level(process: Process, level: int) -> str:
    """Level 0 below the keeper is the worker, level 1 its horse."""
    for pid in process.level(level):
        process.send(signal.SIGKILL, pid)
    return process.name


def _busy(stage: Stage, draw: Random) -> Process:
    """A worker that has a horse just now, if one is found within half a second."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        if busy := [process for process in stage.workers if len(process.below()) > 1]:
            return draw.choice(busy)
    return draw.choice(stage.workers)


def _some_group(stage: Stage, draw: Random) -> int:
    """Returns the process of a small group or of the crowd."""
    return _group(stage, draw.choice([[*DEEDS], [CROWD]]), 2, IN_MID_RUN)


def _group(stage: Stage, functions: list[str], more_than: int, patience: float) -> int:
    """Returns a process that has more active runs than that, or 0 if none is found in time."""
    found: list[int] = []

    def search(db: psycopg.Connection[Any]) -> bool:
        found[:] = [pid for (pid,) in db.execute(GROUP, [functions, more_than])]
        return bool(found)

    with stage.database() as db:
        wait_for(lambda: search(db), patience, pause=0.02)
    return next(iter(found), 0)


def _of_the_crowd(stage: Stage) -> tuple[Process, int]:
    """Returns the worker whose process has most of the crowd's active runs, and their number."""
    group = _group(stage, [CROWD], MANY, TURN)
    with stage.database() as db:
        row = db.execute("SELECT count(*) FROM ticker.runs WHERE state = 'running' AND pid = %s", [group]).fetchone()
    return next((one for one in stage.workers if group in one.level(1)), stage.workers[-1]), row[0] if row else 0


def _without_postgres(stage: Stage, target: str = "postgres") -> Iterator[str]:
    with stage.postgres_lock:
        stage.postgres.kill()
    yield target
    with stage.postgres_lock:
        stage.postgres.start()


def _without_redis(stage: Stage, target: str = "redis") -> Iterator[str]:
    """It comes back empty, if it is alone; otherwise its replica takes its place."""
    if stage.wipes:
        stage.journal.write("wipe")
    with stage.redis_lock:
        stage.valkey.kill()
    yield target
    with stage.redis_lock:
        stage.valkey.start()
    if stage.wipes:
        stage.journal.write("wipe")


def _changed(stage: Stage, draw: Random, to: Mapping[str, keys.Limit]) -> Iterator[str]:
    key = draw.choice(sorted(to))
    keys.change(stage, key, to[key])
    yield key
    keys.change(stage, key, keys.LIMITS[key])


def _heal(stage: Stage, hosts: list[str]) -> None:
    for name in hosts:
        stage.hosts[name].heal()


EXPECTED = (psycopg.Error, RedisError, TickerError)
"""What a fault itself may meet, when another one has just taken away the server that it wanted to use, or made it wait."""
