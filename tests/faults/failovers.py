"""The kinds of faults that need pairs of servers: one takes the place of the other, or they lose sight of each other."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any, LiteralString

import psycopg

from tests import sentinels
from tests.faults import journal
from tests.faults.kinds import kind, server_frozen
from tests.faults.stage import Stage
from tests.faults.topology import Databases, Redises
from tests.standbys import APART

STEP = 0.2  # seconds: how long the lag of a replica is looked at before it grows

# ---------------------------------------------------------------------------------------------------- PostgreSQL


@kind("postgres", 0.5, 4, "postgres_down", ha=True)
def standby_promoted(stage: Stage, draw: Random) -> Iterator[str]:
    """The primary is killed. Its commits had waited for the standby: nothing is lost."""
    servers = _databases(stage)
    servers.await_in_step()
    servers.kill()
    yield "postgres"
    servers.promote()
    servers.rejoin(rewind=draw.random() < 0.5)


@kind("postgres", 0.5, 3, ha=True)
def lagging_standby_promoted(stage: Stage, draw: Random) -> Iterator[str]:
    """Nobody waits for the standby, and it lags when the primary is killed: what it lacks has never been. One history ends when
    the primary is gone, and the other one has a gap: neither has an outage besides."""
    servers = _databases(stage)
    servers.await_in_step()
    with ExitStack() as held:
        held.enter_context(servers.behind())
        time.sleep(draw.uniform(0.3, 5))
        held.enter_context(stage.edits.lock)
        servers.kill()
        stopped = time.monotonic()
        dumped = servers.last_change()
        held.close()  # the primary is gone: the standby stays as it is
    yield f"postgres, {stopped - dumped:.3f} s of changes lost"
    with stage.edits.lock:
        running = _numbers(servers.standby.url, "SELECT id FROM ticker.runs WHERE state = 'running'")
        at = time.monotonic()
        servers.promote()
        with servers.old_primary(port=APART) as url:
            journal.export(url, stage.folder / f"database-{stage.edits.restores}.jsonl")
            ends = _numbers(url, "SELECT id FROM ticker.runs WHERE id = ANY(%s) AND state = 'ended'", running)
            clock = time.time() - time.monotonic() + dumped
            runs = _numbers(url, "SELECT id FROM ticker.runs WHERE started_at > to_timestamp(%s)", clock)
        stage.journal.write("failed_over", at=at, dumped=dumped, stopped=stopped, ends=ends, runs=runs)
        stage.edits.restores += 1
        servers.rejoin(rewind=draw.random() < 0.5)


@kind("postgres", 0, 0.5, "postgres_down", ha=True)
def postgres_switched_over(stage: Stage, draw: Random) -> Iterator[str]:
    """The primary is stopped in good order, the standby is promoted."""
    servers = _databases(stage)
    servers.await_in_step()
    servers.stop("fast")
    yield "postgres"
    servers.promote()
    servers.rejoin(rewind=draw.random() < 0.5)


@kind("postgres", 1, 6, "postgres_down", ha=True)
def old_primary_returns(stage: Stage, draw: Random) -> Iterator[str]:
    """After a promotion, the old primary comes back to its address, as one that only reads: nobody may write to it."""
    servers = _databases(stage)
    servers.await_in_step()
    back = ExitStack()
    servers.kill()
    servers.promote()
    url = back.enter_context(servers.old_primary("--default_transaction_read_only=on"))
    before = _written(url)
    yield "postgres"
    if written := _written(url) - before:
        stage.broken.append(f"{written} changes were written to an old primary that came back")
    back.close()
    servers.rejoin(rewind=draw.random() < 0.5)


@kind("postgres", 1, 8, "postgres_down", ha=True)
def standby_frozen(stage: Stage, draw: Random) -> Iterator[str]:
    """Commits wait for it."""
    servers = _databases(stage)
    yield from server_frozen("standby", servers.standby.pid)


@kind("postgres", 2, 10, ha=True)
def standby_lags(stage: Stage, draw: Random) -> Iterator[str]:
    """Nobody waits for it, and it catches up."""
    servers = _databases(stage)
    lag = ExitStack()
    lag.enter_context(servers.behind())
    yield "standby"
    lag.close()
    servers.await_in_step()
    servers.synchronous(True)


# --------------------------------------------------------------------------------------------------------- Redis


@kind("redis", 0.1, 3, "redis_down", ha=True)
def redis_promoted_without_last_writes(stage: Stage, draw: Random) -> Iterator[str]:
    """The replica is refused by its primary for a while, and then promoted."""
    servers = _redises(stage)
    servers.await_in_step()
    replica, primary = servers.watched.client(servers.replica), servers.watched.client(servers.primary)
    replica.config_set("masteruser", "nobody")
    replica.config_set("masterauth", "x")
    primary.execute_command("CLIENT", "KILL", "TYPE", "replica")
    time.sleep(STEP + draw.uniform(0.3, 3))
    lost = servers.lacks()
    servers.kill()
    yield f"redis, {lost} bytes of commands lost"
    replica.config_set("masteruser", "")
    replica.config_set("masterauth", "")
    servers.start()


@kind("redis", 0, 1, "redis_down", ha=True)
def redis_switched_over(stage: Stage, draw: Random) -> Iterator[str]:
    servers = _redises(stage)
    servers.await_in_step()
    before = servers.primary
    servers.watched.client(draw.choice(sentinels.SENTINELS)).execute_command("SENTINEL", "FAILOVER", sentinels.SERVICE)
    yield f"redis, {before} was the primary"
    servers.start()


@kind("sentinels", 1, 8, ha=True)
def sentinel_killed(stage: Stage, draw: Random) -> Iterator[str]:
    name = draw.choice(sentinels.SENTINELS)
    _redises(stage).watched.kill(name)
    yield name
    _redises(stage).watched.nodes[name].start()


# ----------------------------------------------------------------------------------------------------- in common


def _databases(stage: Stage) -> Databases:
    assert isinstance(stage.postgres, Databases)
    return stage.postgres


def _redises(stage: Stage) -> Redises:
    assert isinstance(stage.valkey, Redises)
    return stage.valkey


def _written(url: str) -> int:
    return _numbers(url, "SELECT coalesce(max(seq), 0) FROM audit.changes")[0]


def _numbers(url: str, query: LiteralString, *values: Any) -> list[int]:
    with psycopg.connect(url, application_name="harness") as db:
        return [number for (number,) in db.execute(query, values)]
