"""The rights that docs/operations/security.md names are enough for each process, and do not allow what they should not."""

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError
from rq import Queue
from rq.job import Job

import ticker
from tests.conftest import admin
from tests.factories import create_trace
from tests.rights import PASSWORD, block, with_user
from tests.running import ROOT, stock_worker, until
from ticker import owners
from ticker.daemon import needs, prune, traces
from ticker.db import checks
from ticker.db.connections import connect
from ticker.db.sql import statements
from ticker.db.store import PostgresStore
from ticker.engine.ports import RunAtWork
from ticker.errors import QueueUnavailable
from ticker.queue import inspect
from ticker.queue.rq import RedisQueue
from ticker.read import health
from ticker.settings import Settings, from_environment
from ticker.tasks.owner_types import guard_name
from wrappers.pipeline import foreign_jobs


@pytest.fixture
def redis_users(redis: Redis) -> Iterator[dict[str, str]]:
    """Users of Redis as the document makes them, by their names there; the worker's for the queues polling and reports."""
    users = {name: f"test-{name}-{uuid4().hex[:8]}" for name in ("ticker", "worker", "page")}
    of_queues = [line for line in block("redis").splitlines() if "polling" in line]
    for line in [*block("redis").splitlines(), *(line.replace("polling", "reports") for line in of_queues)]:
        command = line.replace("PASSWORD", PASSWORD).split()
        redis.execute_command("ACL", "SETUSER", users[command[2]], *command[3:])
    yield users
    redis.acl_deluser(*users.values())


@pytest.fixture
def visitor(servers: Any, db: psycopg.Connection[Any]) -> Iterator[str]:
    """A role of PostgreSQL that may look into the schema, and nothing more."""
    role = f"test_visitor_{uuid4().hex[:8]}"
    admin(servers, f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    db.execute(f"GRANT USAGE ON SCHEMA ticker TO {role}")
    yield role
    db.execute(f"DROP OWNED BY {role}")
    admin(servers, f"DROP ROLE {role}")


def process(*command: str, **environ: str) -> str:
    """The output of one of our commands, which ends well."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def refused(redis: Redis, users: dict[str, str]) -> list[str]:
    """The commands and keys that Redis has refused to these users, but for one that redis-py can do without."""
    entries = [entry for entry in redis.acl_log() if entry["username"] in users.values()]
    return [entry["object"] for entry in entries if entry["object"] != "client|setinfo"]


def prepared(db: psycopg.Connection[Any]) -> None:
    create_trace(db)
    db.execute("GRANT INSERT ON trace TO public")
    for function in ("plain", "fails", "crashes"):
        ticker.register(db, function, every="1h", queue="reports" if function == "crashes" else "polling")


@pytest.mark.slow
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
    log = process("wrappers", "--tasks", "tests.sample_tasks", "--burst", *options, "polling", **worker)
    log += process("wrappers", "--tasks", "tests.sample_tasks", "--burst", *options, "polling", "reports", **worker)
    assert {(run.task_name, run.outcome) for run in ticker.list_runs(db)} == {
        ("plain", "succeeded"), ("fails", "failed"), ("crashes", "killed"),
    }  # fmt: skip
    assert "job=bad" in log and redis.exists("ticker:refused", "ticker:poison:bad", "ticker:forged:bad") == 2
    assert refused(redis, redis_users) == []


def test_the_users_of_a_worker_and_a_ticker_may_put_foreign_jobs_aside_and_count_them(
    environ, redis, redis_users, monkeypatch
):
    redis.acl_log_reset()
    monkeypatch.setattr(foreign_jobs, "_others", {"other123"})
    redis.rpush("rq:queue:polling:intermediate", "other123-r1")
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["worker"])) as as_worker:
        assert foreign_jobs.put_back(
            as_worker, Queue("polling", connection=as_worker), Job("other123-r1", as_worker), set(), None
        )
    assert not redis.exists("rq:queue:polling:intermediate")
    assert RedisQueue.from_url(with_user(os.environ["REDIS_URL"], redis_users["ticker"])).put_aside() == 1
    assert refused(redis, redis_users) == []


def test_the_user_of_a_ticker_may_ask_a_worker_to_stop_a_run(environ, redis, redis_users):
    redis.acl_log_reset()
    RedisQueue.from_url(with_user(os.environ["REDIS_URL"], redis_users["ticker"])).stop([RunAtWork("w1", "token")])
    assert refused(redis, redis_users) == []


FUNCTIONS = """
import os, signal
from wrappers import task
from wrappers.__main__ import main

@task("many", batch=4)
def many(run):
    pass

@task("ends.its.worker")
def ends_its_worker():
    os.kill(os.getppid(), signal.SIGTERM)

main()
"""


def with_work_for_maintenance(redis: Redis) -> list[Job]:
    """Jobs of another application, the last one taken by a worker that died; poison; and what RQ's maintenance removes."""
    of_others = Queue("polling", connection=redis)
    jobs = [of_others.enqueue_call("math.sqrt", (number,)) for number in (4, -1, 9)]
    redis.rpoplpush("rq:queue:polling", "rq:queue:polling:intermediate")
    redis.hset("rq:job:bad", "created_at", "yesterday")
    redis.rpush("rq:queue:polling", "bad")
    redis.hset("rq:job:begun", "status", b"\xff")
    redis.zadd("rq:wip:polling", {"begun:1": 1})
    redis.zadd("rq:finished:polling", {"old": 1})
    redis.sadd("rq:groups", "gone")
    redis.sadd("rq:group:gone", "gone")
    redis.sadd("rq:workers", "rq:worker:dead")
    redis.sadd("rq:workers:polling", "rq:worker:dead")
    return jobs


def ended(db: psycopg.Connection[Any]) -> list[str]:
    return sorted(str(run.outcome) for run in ticker.list_runs(db) if run.outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "queues"), [([], ["polling"]), (["--hardened"], ["polling"]), ([], ["polling", "reports"])],
    ids=["one queue", "hardened", "two queues"],
)  # fmt: skip
def test_the_user_of_a_worker_may_do_all_that_a_worker_does_until_sigterm(
    options, queues, environ, db, redis, redis_users
):
    """It waits for jobs, runs batches, keeps jobs, does RQ's maintenance, and puts poison aside."""
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('many', 4, clock_timestamp())")
    prepared(db)
    for n in range(4):
        ticker.register(db, "many", name=f"many {n}", every="1h")
    environ = os.environ | {"TICKER_SIGNING_KEY": "a key of enough length", "TICKER_RESULT_TTL": "60"}
    as_ticker = environ | {"REDIS_URL": with_user(os.environ["REDIS_URL"], redis_users["ticker"])}
    as_worker = environ | {"REDIS_URL": with_user(os.environ["REDIS_URL"], redis_users["worker"])}
    process("ticker", "tick", **as_ticker)
    jobs = with_work_for_maintenance(redis)
    redis.acl_log_reset()
    expected = ["failed", *(["killed"] if "reports" in queues else []), *["succeeded"] * 5]
    command = [sys.executable, "-c", FUNCTIONS, *options, "--tasks", "tests.sample_tasks", *queues]
    with subprocess.Popen(command, cwd=ROOT, env=as_worker) as worker:
        try:
            until(
                lambda: refused(redis, redis_users) or (ended(db) == expected and not redis.exists("rq:job:bad")),
                "the worker has run its jobs, and put the last one aside",
            )
            ticker.register(db, "ends.its.worker", every="1h")
            process("ticker", "tick", **as_ticker)
            assert worker.wait(60) == 0
        finally:
            worker.kill()
    assert refused(redis, redis_users) == []
    assert ended(db) == [*expected, "succeeded"]
    assert not redis.exists("rq:wip:polling", "rq:job:begun", "rq:groups", "rq:workers")
    finished = redis.zrange("rq:finished:polling", 0, -1)
    assert b"old" not in finished and len(finished) >= 3
    if options:
        assert redis.hget("ticker:refused", "forged") == b"5"
        assert redis.exists(*(f"ticker:forged:{name}" for name in ("bad", "begun", *(job.id for job in jobs)))) == 5
    else:
        assert redis.hget("ticker:refused", "poison") == b"2"
        assert redis.exists(f"rq:queue:polling:intermediate:first_seen:{jobs[2].id}")
        assert jobs[0].return_value() == 2.0 and jobs[1].get_status() == "failed"


@pytest.mark.slow
def test_the_user_of_a_worker_suffices_for_a_stock_worker(environ, db, redis, redis_users, monkeypatch):
    prepared(db)
    process("ticker", "tick")
    monkeypatch.setenv("REDIS_URL", with_user(os.environ["REDIS_URL"], redis_users["worker"]))
    redis.acl_log_reset()
    stock_worker("polling")
    stock_worker("polling", "reports")
    assert ended(db) == ["failed", "succeeded"]
    assert refused(redis, redis_users) == []


def test_the_user_of_a_worker_cannot_reach_the_queues_that_are_not_its_own(environ, redis, redis_users):
    redis.rpush("rq:queue:other", "x")
    redis.rpush("rq:queue:polling", "x")
    redis.hset("rq:job:x", "data", "x")
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["worker"])) as as_worker:
        for command in (
            "LMOVE rq:queue:polling rq:queue:other LEFT LEFT", "LMOVE rq:queue:other rq:queue:polling LEFT LEFT",
            "BLMOVE rq:queue:polling rq:queue:other LEFT LEFT 1", "RENAME rq:queue:polling rq:queue:other",
            "RENAME rq:job:x rq:queue:other", "RENAME rq:queue:other rq:queue:polling", "RPUSH rq:queue:other x",
            "LPOP rq:queue:other", "LREM rq:queue:other 1 x", "DEL rq:queue:other", "UNLINK rq:queue:other",
            "SADD rq:queues rq:queue:other", "ZADD rq:scheduled:other 1 x", "ZADD rq:deferred:other 1 x",
            "LMOVE rq:queue:polling rq:queue:other:intermediate LEFT LEFT", "SET ticker:queue:other x",
        ):  # fmt: skip
            with pytest.raises(NoPermissionError):
                as_worker.execute_command(*command.split())
            with pytest.raises(ResponseError, match="ACL"):
                as_worker.eval("return redis.call(unpack(ARGV))", 0, *command.split())
    assert redis.lrange("rq:queue:other", 0, -1) == redis.lrange("rq:queue:polling", 0, -1) == [b"x"]


def test_the_commands_of_redis_suffice_for_the_page_and_one_that_is_missing_is_told(environ, redis, redis_users):
    redis.acl_log_reset()
    redis.sadd("rq:workers", "rq:worker:w")
    redis.hset("rq:worker:w", mapping={"state": "idle", "queues": "polling"})
    redis.sadd("rq:queues", "rq:queue:lonely")
    redis.rpush("rq:queue:lonely", "x")
    url = with_user(os.environ["REDIS_URL"], redis_users["page"])
    assert [queue.name for queue in inspect.look(url).queues] == ["lonely", "polling"]
    assert health.look(replace(from_environment(), redis_url=url)).redis_error == ""
    assert refused(redis, redis_users) == []
    with pytest.raises(QueueUnavailable, match="permission"):
        inspect.look(with_user(os.environ["REDIS_URL"], redis_users["ticker"]))


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
            "HGETALL rq:job:x",
        ):
            with pytest.raises(NoPermissionError):
                as_page.execute_command(*command.split())
    with Redis.from_url(with_user(os.environ["REDIS_URL"], redis_users["worker"])) as as_worker:
        for command in ("FLUSHALL", "RPUSH rq:queue:x y", "LPUSH rq:queue:x y", "GET elsewhere"):
            with pytest.raises(NoPermissionError):
                as_worker.execute_command(*command.split())
        with pytest.raises(ResponseError, match="ACL"):
            as_worker.eval("return redis.call('RPUSH', 'rq:queue:x', 'y')", 0)


@pytest.mark.slow
def test_the_rights_in_postgresql_suffice_for_each_process(environ, db, redis, roles):
    create_trace(db)
    db.execute("GRANT INSERT ON trace TO public")
    url = os.environ["DATABASE_URL"]
    with connect(with_user(url, roles["application"])) as application:
        for function in ("resumes", "fails", "crashes"):
            ticker.register(application, function, every="1h", limits=["host", function])
        ticker.limit(application, "host", concurrency=5)
        ticker.limit(application, "*", rate="100/1s")
        ticker.unlimit(application, "*")
        task = ticker.register(application, "plain", every="2h")
        ticker.register(application, "plain", every="1h")
        ticker.pause(application, task, by="me", reason="test")
        ticker.resume(application, task)
        ticker.stop(application, *ticker.run_now(application, task))
        ticker.unregister(application, ticker.register(application, "unheard.of", every="1h"))
        assert len(ticker.list_tasks(application)) == 4
    process("ticker", "tick", DATABASE_URL=with_user(url, roles["ticker"]))
    process(
        "wrappers", "--tasks", "tests.sample_tasks", "--burst", "polling", DATABASE_URL=with_user(url, roles["worker"])
    )
    process("ticker", "tick", DATABASE_URL=with_user(url, roles["ticker"]))
    assert {(run.task_name, run.outcome) for run in ticker.list_runs(db) if run.kind == "scheduled"} >= {
        ("resumes", "succeeded"), ("fails", "failed"), ("crashes", "killed"),
    }  # fmt: skip
    assert [run.reason for run in ticker.list_runs(db) if run.kind == "manual"] == ["stopped"]


@pytest.mark.slow
def test_the_rights_in_postgresql_allow_no_more(environ, roles):
    too_much = [
        ("ticker", "INSERT INTO ticker.tasks (name) VALUES ('x')"), ("worker", "INSERT INTO ticker.tasks (name) VALUES ('x')"),
        ("worker", "UPDATE ticker.pauses SET resumed_at = clock_timestamp()"),
        ("worker", "INSERT INTO ticker.pauses (scope, value) VALUES ('function', 'x')"),
        ("application", "UPDATE ticker.runs SET reason = 'x'"), ("page", "UPDATE ticker.runs SET reason = 'x'"),
        ("viewer", "DELETE FROM ticker.tasks"),
    ]  # fmt: skip
    with connect(with_user(os.environ["DATABASE_URL"], roles["application"])) as connection:
        ticker.pause_all(connection)
    for name, statement in too_much:
        with connect(with_user(os.environ["DATABASE_URL"], roles[name])) as connection:
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute("TRUNCATE ticker.runs")


@pytest.fixture
def statements_of_a_worker() -> dict[str, str]:
    """The statements that the package `wrappers` executes, by name, and the functions that a start calls only if it must."""
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "wrappers").rglob("*.py"))
    names = {"installation", *re.findall(r"execute\(\s*\"([a-z_]+)\"", sources)}
    assert names >= {
        "start",
        "start_planned",
        "checkpoint",
        "finish",
        "finish_late",
        "add_pieces",
        "generated",
        "announce",
    }
    calls = {
        "take_slots": "SELECT ticker.take_slots('{}', NULL, NULL, now(), NULL, NULL)",
        "knows": "SELECT ticker.note_worker('poll', 'polling', true, '', now(), '1 s')",
        "does not know": "SELECT ticker.note_worker('poll', 'polling', false, '', now(), '1 s')",
    }
    return {name: statements("ticker")[name] for name in names} | calls


def refused_to(role: str, db: psycopg.Connection[Any], statements: dict[str, str]) -> Iterator[str]:
    """The names of the statements that this role may not execute. PostgreSQL checks its rights even where no row is found."""
    for name, statement in statements.items():
        with db.transaction(force_rollback=True):
            db.execute(f"SET LOCAL ROLE {role}")
            try:
                db.execute(statement, defaultdict(lambda: None))  # type: ignore[arg-type]
            except errors.InsufficientPrivilege:
                yield name


def columns_that_may_be_updated(role: str, db: psycopg.Connection[Any]) -> set[tuple[str, str]]:
    return set(
        db.execute(
            "SELECT relname, attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
            " WHERE relnamespace = 'ticker'::regnamespace AND relkind = 'r' AND attnum > 0 AND NOT attisdropped"
            " AND has_column_privilege(%s, c.oid, attnum, 'UPDATE')",
            [role],
        ).fetchall()
    )


@pytest.mark.slow
def test_a_worker_may_update_the_columns_that_its_statements_write_and_no_others(db, roles, statements_of_a_worker):
    worker = roles["worker"]
    assert list(refused_to(worker, db, statements_of_a_worker)) == []
    allowed = columns_that_may_be_updated(worker, db)
    assert {table for table, _ in allowed} == {"tasks", "runs", "functions", "slots", "limited_keys", "pauses"}
    for table, column in sorted(allowed):
        with db.transaction(force_rollback=True):
            db.execute(f"REVOKE UPDATE ({column}) ON ticker.{table} FROM {worker}")
            assert any(refused_to(worker, db, statements_of_a_worker)), f"no statement writes {table}.{column}"


@pytest.mark.slow
def test_a_worker_may_not_change_what_a_task_is(database_url, roles):
    columns = {
        "tasks": "id function kwargs queue name owner_type owner_id kind every_ms tolerance_ms box_ms grace_ms enabled"
        " owner_active paused_by retries metadata submitter",
        "runs": "id task_id kind occurrence item parent_id", "events": "words", "installation": "id",
    }  # fmt: skip
    with connect(with_user(database_url, roles["worker"])) as connection:
        for table, names in columns.items():
            for column in names.split():
                with pytest.raises(errors.InsufficientPrivilege):
                    connection.execute(f"UPDATE ticker.{table} SET {column} = DEFAULT")


@pytest.mark.slow
def test_an_application_finds_out_whether_an_owner_exists_that_it_may_not_read(db, database_url, roles):
    """docs/operations/security.md says so."""
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, enabled boolean)")
    db.execute("\n".join(owners.triggers("channels", active_when="enabled")))
    db.execute("INSERT INTO channels VALUES (1, true), (2, false)")
    with connect(with_user(database_url, roles["application"])) as application:
        with pytest.raises(errors.InsufficientPrivilege):
            application.execute("SELECT FROM channels")
        found = [ticker.register(application, "poll", every="1m", owner=f"channels:{id_}") for id_ in (1, 2)]
        assert [task.owner_active for task in found] == [True, False]
        with pytest.raises(ticker.UnknownOwner):
            ticker.register(application, "poll", every="1m", owner="channels:3")


@pytest.mark.slow
def test_the_tickers_role_may_delete_old_records(db, database_url, roles):
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, outcome, ended_at, created_at)"
        " VALUES (9, 'manual', 'ended', 'succeeded', '2020-01-01Z', '2020-01-01Z');"
        " INSERT INTO ticker.events (at, task_id, what, told) VALUES ('2020-01-01Z', 9, 'failed', true)"
    )
    store = PostgresStore(with_user(database_url, roles["ticker"]))
    ticker.register(db, "poll", every="1m")
    pruned = sum(prune.lap(store, Settings()), prune.Pruned())
    assert needs.measure(store, Settings())
    assert store.execute("claim_ends", now=None, late=traces.LATE, step=traces.STEP)
    store.sample(str(uuid4()), store.now(), {"polling": 1}, [])
    assert list(checks.missing_rights(db, "ticker", checks.RIGHTS_OF_TICKER)) == []
    store.close()
    assert (pruned.successes, pruned.events) == (1, 1)


# ------------------------------------------------------------------------------------ functions with their owner's rights


@pytest.fixture
def definers(db: psycopg.Connection[Any]) -> list[str]:
    """The names of the SECURITY DEFINER functions in the schema: those of the migrations, and those of an owner's table."""
    db.execute("CREATE TABLE channels (id int PRIMARY KEY, enabled boolean)")
    db.execute("\n".join(owners.triggers("channels", active_when="enabled")))
    found = db.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'ticker'::regnamespace AND prosecdef")
    return sorted(name for (name,) in found)


@pytest.mark.slow
def test_no_role_can_hang_a_function_of_the_schema_on_its_own_table(database_url, definers, visitor):
    assert definers == [
        "apply_limit", "guard_owner", "leave_pause", "limit_keys", "note_change", "note_deletion", "note_edit", "note_pause", "note_waits_again",
        *(f"owner_{event}_channels" for event in ("added", "changed", "deleted")), guard_name("channels"), "owner_truncated_channels", "use_keys",
    ]  # fmt: skip
    with connect(with_user(database_url, visitor)) as connection:
        connection.execute("CREATE TEMPORARY TABLE tasks (id bigint, enabled boolean)")
        with pytest.raises(errors.InsufficientPrivilege, match=r"limit_keys$"):  # not a trigger's
            connection.execute("SELECT ticker.limit_keys('{imap}')")
        for name in {*definers} - {"limit_keys", guard_name("channels")}:
            with pytest.raises(errors.InsufficientPrivilege, match=rf"{name}$"):
                connection.execute(
                    f"CREATE TRIGGER x BEFORE UPDATE ON tasks FOR EACH ROW EXECUTE FUNCTION ticker.{name}()"
                )


@pytest.mark.slow
def test_every_function_with_its_owners_rights_sets_its_search_path(db, definers):
    found = db.execute(
        "SELECT proname FROM pg_proc WHERE 'search_path=pg_catalog, pg_temp' = ANY (proconfig) AND prosecdef"
    )
    assert {name for (name,) in found} >= set(definers)
