"""The rights that docs/security.md names are enough for each process, and do not allow what they should not."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

import ticker
from tests.conftest import admin
from tests.running import ROOT
from ticker import attendance, health, prune
from ticker.connections import connect
from ticker.errors import QueueUnavailable
from ticker.settings import Settings, from_environment
from ticker.store import PostgresStore

SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
PASSWORD = "not-a-secret"


def block(language: str) -> str:
    [found] = re.findall(rf"```{language}\n(.*?)```", SECURITY, flags=re.DOTALL)
    return str(found)


def with_user(url: str, user: str) -> str:
    """The same server, as another user."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{user}:{PASSWORD}@{parts.netloc.rpartition('@')[2]}"))


@pytest.fixture
def redis_users(redis: Redis) -> Iterator[dict[str, str]]:
    """Users of Redis as the document makes them, by their names there."""
    users = {name: f"test-{name}-{uuid4().hex[:8]}" for name in ("ticker", "worker", "page")}
    for line in block("redis").splitlines():
        command = line.replace("PASSWORD", PASSWORD).split()
        redis.execute_command("ACL", "SETUSER", users[command[2]], *command[3:])
    yield users
    redis.acl_deluser(*users.values())


@pytest.fixture
def roles(servers: Any, db: psycopg.Connection[Any]) -> Iterator[dict[str, str]]:
    """Roles of PostgreSQL as the document makes them, by their names there."""
    roles = {name: f"test_{name}_{uuid4().hex[:8]}" for name in ("ticker", "worker", "application", "page", "viewer")}
    for role in roles.values():
        admin(servers, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    for statement in filter(str.strip, block("sql").split(";")):
        rights, _, to = statement.partition(" TO ")
        db.execute(f"{rights} TO {', '.join(roles[name.strip()] for name in to.split(','))}")
    yield roles
    for role in roles.values():
        db.execute(f"DROP OWNED BY {role}")
        admin(servers, f"DROP ROLE {role}")


def process(*command: str, **environ: str) -> str:
    """The output of one of our commands, which ends well."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def refused(redis: Redis, users: dict[str, str]) -> list[tuple[str, str]]:
    """What Redis has refused to these users."""
    return [(entry["username"], entry["object"]) for entry in redis.acl_log() if entry["username"] in users.values()]


def prepared(db: psycopg.Connection[Any]) -> None:
    db.execute("CREATE TABLE trace (what text, value jsonb, pid int)")
    db.execute("GRANT INSERT ON trace TO public")
    for function in ("plain", "fails", "crashes"):
        ticker.register(db, function, every="1h", queue="reports" if function == "crashes" else "polling")


@pytest.mark.parametrize("hardened", [True, False], ids=["hardened", "as ever"])
def test_the_commands_of_redis_suffice_for_the_ticker_and_the_worker(hardened, environ, db, redis, redis_users):
    prepared(db)
    redis.acl_log_reset()
    redis.script_flush()
    environ = {"TICKER_SIGNING_KEY": "a key of enough length"}
    process("ticker", "tick", REDIS_URL=with_user(os.environ["REDIS_URL"], redis_users["ticker"]), **environ)
    redis.hset("rq:job:bad", "created_at", "yesterday")
    redis.rpush("rq:queue:polling", "bad")
    options = ["--hardened"] if hardened else []
    worker = environ | {"REDIS_URL": with_user(os.environ["REDIS_URL"], redis_users["worker"])}
    log = process("wrappers", "--tasks", "tests.polls", "--burst", *options, "polling", **worker)
    log += process("wrappers", "--tasks", "tests.polls", "--burst", *options, "polling", "reports", **worker)
    assert {(run.task_name, run.outcome) for run in ticker.list_runs(db)} == {
        ("plain", "succeeded"), ("fails", "failed"), ("crashes", "killed"),
    }  # fmt: skip
    assert "job=bad" in log and redis.exists("ticker:refused", "ticker:poison:bad", "ticker:forged:bad") == 2
    assert [what for _, what in refused(redis, redis_users) if what != "client|setinfo"] == []


def test_the_commands_of_redis_suffice_for_the_page_and_one_that_is_missing_is_told(environ, redis, redis_users):
    redis.acl_log_reset()
    redis.sadd("rq:workers", "rq:worker:w")
    redis.hset("rq:worker:w", mapping={"state": "idle", "queues": "polling"})
    redis.sadd("rq:queues", "rq:queue:lonely")
    redis.rpush("rq:queue:lonely", "x")
    url = with_user(os.environ["REDIS_URL"], redis_users["page"])
    assert [queue.name for queue in attendance.look(url).queues] == ["lonely", "polling"]
    assert health.look(replace(from_environment(), redis_url=url)).redis_error == ""
    assert [what for _, what in refused(redis, redis_users) if what != "client|setinfo"] == []
    with pytest.raises(QueueUnavailable, match="permission"):
        attendance.look(with_user(os.environ["REDIS_URL"], redis_users["ticker"]))


def test_the_commands_of_redis_allow_no_more(environ, redis_users):
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["ticker"])) as as_ticker:
        for command in ("FLUSHALL", "KEYS *", "GET rq:x", "CONFIG GET *", "HGETALL rq:job:x", "RPUSH elsewhere x"):
            with pytest.raises(NoPermissionError):
                as_ticker.execute_command(*command.split())
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["page"])) as as_page:
        for command in (
            "KEYS *",
            "RPUSH rq:queue:x y",
            "HSET rq:job:x a b",
            "SREM rq:workers x",
            "DEL rq:x",
            "HGETALL x",
        ):
            with pytest.raises(NoPermissionError):
                as_page.execute_command(*command.split())
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["worker"])) as as_worker:
        for command in ("FLUSHALL", "RPUSH rq:queue:x y", "LPUSH rq:queue:x y", "GET elsewhere"):
            with pytest.raises(NoPermissionError):
                as_worker.execute_command(*command.split())
        with pytest.raises(ResponseError, match="ACL"):
            as_worker.eval("return redis.call('RPUSH', 'rq:queue:x', 'y')", 0)


def test_the_rights_in_postgresql_suffice_for_each_process(environ, db, redis, roles):
    db.execute("CREATE TABLE trace (what text, value jsonb, pid int)")
    db.execute("GRANT INSERT ON trace TO public")
    url = os.environ["DATABASE_URL"]
    with connect(with_user(url, roles["application"])) as application:
        for function in ("resumes", "fails", "crashes"):
            ticker.register(application, function, every="1h")
        task = ticker.register(application, "plain", every="2h")
        ticker.register(application, "plain", every="1h")
        ticker.pause(application, task, by="me", reason="test")
        ticker.resume(application, task)
        ticker.run_now(application, task)
        ticker.unregister(application, ticker.register(application, "unheard.of", every="1h"))
        assert len(ticker.list_tasks(application)) == 4
    process("ticker", "tick", DATABASE_URL=with_user(url, roles["ticker"]))
    process("wrappers", "--tasks", "tests.polls", "--burst", "polling", DATABASE_URL=with_user(url, roles["worker"]))
    process("ticker", "tick", DATABASE_URL=with_user(url, roles["ticker"]))
    assert {(run.task_name, run.outcome) for run in ticker.list_runs(db) if run.kind == "scheduled"} >= {
        ("resumes", "succeeded"), ("fails", "failed"), ("crashes", "killed"),
    }  # fmt: skip


def test_the_rights_in_postgresql_allow_no_more(environ, roles):
    too_much = {
        "ticker": "INSERT INTO ticker.tasks (name) VALUES ('x')", "worker": "INSERT INTO ticker.tasks (name) VALUES ('x')",
        "application": "UPDATE ticker.runs SET reason = 'x'", "page": "UPDATE ticker.runs SET reason = 'x'",
        "viewer": "DELETE FROM ticker.tasks",
    }  # fmt: skip
    for name, statement in too_much.items():
        with connect(with_user(os.environ["DATABASE_URL"], roles[name])) as connection:
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute("TRUNCATE ticker.runs")


def test_the_tickers_role_may_delete_old_records(db, database_url, roles):
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, outcome, ended_at, created_at)"
        " VALUES (9, 'manual', 'ended', 'succeeded', '2020-01-01Z', '2020-01-01Z');"
        " INSERT INTO ticker.events (at, task_id, what, told) VALUES ('2020-01-01Z', 9, 'failed', true)"
    )
    store = PostgresStore(with_user(database_url, roles["ticker"]))
    pruned = sum(prune.lap(store, Settings()), prune.Pruned())
    store.close()
    assert (pruned.successes, pruned.events) == (1, 1)
