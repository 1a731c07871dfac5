"""Whose tables these are: a copied or restored database is refused until somebody adopts it, and jobs never meet."""

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict
from redis import Redis
from rq import Queue
from rq.exceptions import DequeueTimeout
from rq.job import Job

import ticker
from tests.conftest import admin, copy_of
from tests.doubles import INSTALLATION
from tests.factories import create_trace
from tests.harness import Played
from tests.refusals import not_startable
from tests.running import stock_worker, work
from tests.sentences import Sentence, sentence
from ticker import clock, migrations
from ticker.cli import main
from ticker.daemon.tick_job import TickJob
from ticker.db import installation, sql
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.embedded import Servers, programs
from ticker.engine.tick import tick
from ticker.errors import ConfigurationError
from ticker.queue import inspect, rq
from ticker.queue.rq import RedisQueue
from ticker.read import health
from ticker.settings import Settings
from wrappers.pipeline import foreign_jobs
from wrappers.rq import corrupt_jobs

Db = psycopg.Connection[Any]

SENTENCE = sentence(
    "errors.tables_of_another_installation", adopt="ticker db adopt", restored="ticker db adopt --resume"
)
OTHER = "other123"


@pytest.fixture
def copied(servers: Servers, database_url: str, new_database: Callable[[str], str]) -> Callable[[], str]:
    """Copies the test's database as it is now, and returns the URL of the copy. Ends all sessions in the database."""

    def copy() -> str:
        source = conninfo_to_dict(database_url)["dbname"]
        admin(
            servers,
            f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{source}' AND pid <> pg_backend_pid()",
        )
        return new_database(f'TEMPLATE "{source}"')

    return copy


@pytest.fixture
def foreign(db: Db) -> None:
    """These tables are a copy: their mark is that of another database."""
    db.execute("UPDATE ticker.installation SET database_oid = 1")


@pytest.fixture
def other(servers: Servers, template: str) -> Iterator[str]:
    """The URL of another installation's database."""
    url = copy_of(servers, template, name := f"{template}_other")
    with connect(url) as connection:
        connection.execute("UPDATE ticker.installation SET id = %s", [OTHER])
    yield url
    admin(servers, f'DROP DATABASE "{name}" WITH (FORCE)')


def adopt(db: Db, *, resume: bool = False, environment: str = "", force: bool = True) -> installation.Adopted:
    """Adopts the tables, by default also right after a tick or a run of the test."""
    return installation.adopt(db, "ticker", environment, resume=resume, force=force)


def pauses(db: Db) -> list[tuple[str, str, str, datetime | None]]:
    return [(pause.scope, pause.by, pause.reason, pause.until) for pause in ticker.list_pauses(db)]


ADOPTED = sentence("errors.adopted_reason", at=re.compile(r".*Z"), installation="test1234")


def here(db: Db) -> installation.Installation:
    return installation.read(sql.on(db, "ticker"))


# ------------------------------------------------------------------------------------------------------------ the mark


@pytest.mark.slow
def test_an_upgrade_marks_the_tables_once(db: Db, database_url: str, settings: Settings) -> None:
    inspect.check(settings)
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    migrations.upgrade(database_url)
    assert not_startable(settings) == SENTENCE


@pytest.mark.slow
def test_the_ddl_alone_marks_the_tables_too(db: Db) -> None:
    db.execute(migrations.ddl("second"))
    found = installation.read(sql.on(db, "second"))
    assert found.is_here and re.fullmatch("[a-z0-9]{8}", found.id)


@pytest.mark.slow
def test_every_installation_has_an_id_of_its_own(db: Db) -> None:
    ids = set()
    for schema in ("one", "two", "three"):
        db.execute(migrations.ddl(schema))
        ids.add(installation.read(sql.on(db, schema)).id)
    assert len(ids) == 3


@pytest.mark.slow
def test_there_is_one_row(db: Db) -> None:
    for row in ("(true, 1, 1)", "(false, 1, 1)"):
        with pytest.raises(psycopg.IntegrityError):
            db.execute(f"INSERT INTO ticker.installation (single, database_oid, marker_oid) VALUES {row}")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_copied_database_is_refused(copied: Callable[[], str], settings: Settings, redis_url: str) -> None:
    inspect.check(settings)
    assert not_startable(Settings(copied(), redis_url)) == SENTENCE


@pytest.mark.slow
def test_a_dump_that_is_restored_is_refused(
    servers: Servers, db: Db, database_url: str, redis_url: str, template: str
) -> None:
    """In the same database under the same name, too: the table that carries the mark is another one."""
    ticker.register(db, "poll", every="1m")
    bin_ = programs.postgres_programs(os.environ)
    dump = subprocess.run([bin_ / "pg_dump", database_url], capture_output=True, timeout=60, check=True)
    db.execute("DROP SCHEMA ticker CASCADE")
    subprocess.run([bin_ / "psql", "-q", "-v", "ON_ERROR_STOP=1", database_url], input=dump.stdout, capture_output=True,
                   timeout=60, check=True)  # fmt: skip
    assert not_startable(Settings(database_url, redis_url)) == SENTENCE
    adopt(db)
    inspect.check(Settings(database_url, redis_url))


@pytest.mark.slow
@pytest.mark.parametrize("column", ["system_identifier", "database_oid", "marker_oid"])
def test_each_part_of_the_mark_counts(column: str, db: Db, settings: Settings) -> None:
    db.execute(f"UPDATE ticker.installation SET {column} = 1")  # type: ignore[arg-type]
    assert not_startable(settings) == SENTENCE


@pytest.mark.slow
def test_tables_without_a_mark_are_refused_and_can_be_adopted(db: Db, settings: Settings) -> None:
    db.execute("DELETE FROM ticker.installation")
    assert not_startable(settings) == SENTENCE
    adopt(db)
    inspect.check(settings)


@pytest.mark.slow
def test_a_role_that_may_not_ask_for_the_identifier_goes_by_the_two_oids(db: Db) -> None:
    """As on a server whose administrator has revoked it."""
    role = f"weak_{uuid4().hex[:12]}"
    db.execute(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA ticker TO {role}; GRANT SELECT ON ticker.installation TO {role}"
    )  # type: ignore[arg-type]
    db.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    try:
        db.execute(f"SET ROLE {role}")  # type: ignore[arg-type]
        assert here(db).is_here
        db.execute("RESET ROLE; UPDATE ticker.installation SET database_oid = 1")
        db.execute(f"SET ROLE {role}")  # type: ignore[arg-type]
        assert not here(db).is_here
    finally:
        db.execute("RESET ROLE; GRANT EXECUTE ON FUNCTION pg_control_system() TO PUBLIC")
        db.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stored", "said", "words"),
    [
        ("production", "staging", sentence("errors.other_environment", stored="'production'", given="'staging'")),
        ("", "staging", sentence("errors.no_environment", given="'staging'")),
        ("production", "", None),
        ("production", "production", None),
    ],
)  # fmt: skip
def test_an_environment_that_is_set_must_be_the_one_of_the_tables(
    stored: str, said: str, words: Sentence | None, db: Db, database_url: str, redis_url: str
) -> None:
    db.execute("UPDATE ticker.installation SET environment = %s", [stored])
    settings = Settings(database_url, redis_url, environment=said)
    if words is None:
        inspect.check(settings)
        return
    told = not_startable(settings)
    assert words.within(told) and '"ticker db adopt"' in told
    adopt(db, environment=said)
    inspect.check(settings)
    assert here(db).environment == said


@pytest.mark.slow
def test_the_environment_is_stored_when_the_tables_are_marked(
    db: Db, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKER_ENVIRONMENT", "production")
    db.execute(migrations.ddl("second"))
    assert installation.read(sql.on(db, "second")).environment == "production"


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run"], ["tick"]])
def test_a_ticker_ends_with_78_on_the_tables_of_another(
    command: list[str], foreign: None, environ: dict[str, str]
) -> None:
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.stderr[:7], done.stderr[7:-1]) == (78, "error: ", SENTENCE)


@pytest.mark.slow
def test_a_worker_ends_with_78_on_the_tables_of_another(foreign: None, environ: dict[str, str]) -> None:
    with pytest.raises(subprocess.CalledProcessError) as error:
        work()
    assert (error.value.returncode, error.value.stderr[:7], error.value.stderr[7:-1]) == (78, "error: ", SENTENCE)


@pytest.mark.slow
def test_a_ticker_that_runs_on_pushes_nothing_once_the_tables_are_anothers(
    db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis
) -> None:
    ticker.register(db, "poll", every="1m")
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    with pytest.raises(ConfigurationError, check=sentence("errors.tables_of_another").within):
        tick(store, queue)
    assert not redis.exists("rq:queue:polling")


@pytest.mark.slow
def test_health_and_check_say_it(foreign: None, settings: Settings, environ: dict[str, str]) -> None:
    assert SENTENCE.within(health.look(settings).problems)
    done = CliRunner().invoke(main, ["db", "upgrade", "--check"])
    assert done.exit_code == 1 and SENTENCE.within(done.stdout)


# ------------------------------------------------------------------------------------------------------------- adopted


@pytest.mark.slow
def test_nothing_is_adopted_that_is_ours_already(db: Db, environ: dict[str, str]) -> None:
    ticker.register(db, "poll", every="1m")
    done = CliRunner().invoke(main, ["db", "adopt"])
    assert done.exit_code == 78
    assert done.stderr == sentence("cli.nothing_to_adopt", installation="test1234")
    assert ticker.list_tasks(db)[0].paused_by is None and here(db).id == INSTALLATION


@pytest.mark.slow
def test_what_is_adopted_rests_under_a_new_id(db: Db, foreign: None, settings: Settings, play: Played) -> None:
    ticker.register(db, "poll", every="1m")
    found = adopt(db)
    assert (found.former, here(db).is_here) == (INSTALLATION, True)
    assert found.id == here(db).id != INSTALLATION
    inspect.check(settings)
    [pause] = pauses(db)
    assert pause == ("all", "adopt", ADOPTED, None)
    ticker.register(db, "poll", name="new", every="1m")
    assert play.tick().enqueued == 0
    event = db.execute("SELECT task_id, task_name, by, words FROM ticker.events WHERE what = 'adopted'").fetchall()
    assert event == [(0, "", "adopt", sentence("why.adopted", installation="test1234"))]


def test_one_call_resumes_all_that_adopt_paused_and_nothing_else(db: Db, foreign: None, play: Played) -> None:
    ticker.register(db, "poll", name="mine", every="1m")
    ticker.pause(db, ticker.register(db, "poll", name="theirs", every="1m").id, by="anna", reason="a holiday")
    ticker.pause_all(db, function="reports", by="anna")
    adopt(db)
    assert play.tick().enqueued == 0
    ticker.resume_all(db)
    assert play.tick().enqueued == 1
    mine, theirs = ticker.list_tasks(db)
    assert (mine.paused_by, theirs.paused_by, theirs.paused_reason) == (None, "anna", "a holiday")
    assert pauses(db) == [("function", "anna", "", None)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends_in", "found"),
    [
        (None, ("all", "anna", "an upgrade", None)),
        (60, ("all", "anna", "an upgrade", None)),
        (0, ("all", "adopt", ADOPTED, None)),
    ],
    ids=["without an end", "with an end", "over"],
)
def test_a_pause_of_all_tasks_remains_but_does_not_end_by_itself(
    ends_in: int | None, found: tuple[Any, ...], db: Db, foreign: None, play: Played
) -> None:
    ticker.register(db, "poll", every="1m")
    until = None if ends_in is None else play.now + timedelta(seconds=ends_in)
    ticker.pause_all(db, by="anna", reason="an upgrade", until=until and until + timedelta(seconds=1))
    play.at(1)
    adopt(db)
    assert pauses(db) == [found]
    play.at(120)
    assert play.tick().enqueued == 0


@pytest.mark.slow
def test_a_restored_production_is_not_paused(db: Db, foreign: None) -> None:
    adopt(db, resume=True)
    assert pauses(db) == []
    assert db.execute("SELECT words FROM ticker.events").fetchall() == [
        (sentence("why.adopted_and_resumed", installation="test1234"),)
    ]


@pytest.mark.slow
def test_jobs_of_an_adopted_installation_have_the_new_id(
    db: Db, foreign: None, store: PostgresStore, queue: RedisQueue, redis: Redis
) -> None:
    task = ticker.register(db, "poll", every="1m")
    found = adopt(db, resume=True)
    assert tick(store, queue).enqueued == 1
    [job_id] = Queue("polling", connection=redis).get_job_ids()
    assert job_id == f"{found.id}-t{task.id}-{round(task.next_run.timestamp() * 1_000_000)}"


@pytest.mark.slow
def test_after_a_restore_of_the_same_production_what_waited_is_due_again_and_nothing_rests(play: Played) -> None:
    """Its jobs are gone with the other installation's Redis, and their ids are of no use."""
    task = ticker.register(play.db, "poll", every="1m")
    play.tick()
    [waited] = play.task().waiting
    play.db.execute("UPDATE ticker.installation SET database_oid = 1")
    assert adopt(play.db, resume=True).dropped == 0
    assert (play.task().waiting, play.task().next_run, play.task().paused_by) == ((), waited, None)
    play.redis.flushdb()
    assert play.tick().enqueued == 1
    [taken] = play.take()
    assert (taken.refusal, [run.occurrence for run in play.runs()], task.id) == (None, [waited], taken.task_id)


@pytest.mark.slow
def test_each_waiting_occurrence_that_goes_leaves_one_record(play: Played) -> None:
    ticker.register(play.db, "poll", every="1m")
    for seconds in (0, 60):
        play.at(seconds)
        play.tick()
    *older, newest = play.task().waiting
    play.db.execute("UPDATE ticker.installation SET database_oid = 1")
    assert adopt(play.db).dropped == 1
    assert [(run.occurrence, run.outcome, run.reason) for run in play.runs()] == [
        (o, "dropped", "adopted") for o in older
    ]
    assert (play.task().waiting, play.task().next_run, play.task().dropped) == ((), newest, 1)


@pytest.mark.slow
@pytest.mark.parametrize("resume", [False, True])
def test_what_ran_is_lost_and_its_hold_is_over(resume: bool, play: Played) -> None:
    ticker.register(play.db, "poll", every="1m")
    play.tick()
    play.take()
    play.db.execute("UPDATE ticker.installation SET database_oid = 1")
    assert adopt(play.db, resume=resume).lost == 1
    [run] = play.runs()
    assert (run.outcome, run.reason) == (
        "lost",
        sentence("why.worker_of_another_installation", installation=INSTALLATION),
    )
    assert (play.task().running_until, play.column("run_token"), play.task().last_outcome) == (None, None, "lost")
    assert play.column("(SELECT bool_or(follow_up) FROM ticker.runs)") is resume


@pytest.mark.slow
@pytest.mark.parametrize(("resume", "outcome"), [(False, "dropped"), (True, None)])
def test_a_run_that_was_asked_for_by_hand_starts_in_a_restored_production_alone(
    resume: bool, outcome: str | None, play: Played
) -> None:
    """A manual run starts while its task is paused, too."""
    task = ticker.register(play.db, "poll", every="1m")
    play.run(0, "succeeded")
    ticker.run_now(play.db, task)
    play.tick()
    play.db.execute("UPDATE ticker.installation SET database_oid = 1")
    play.redis.flushdb()
    adopt(play.db, resume=resume)
    *_, run = play.runs()
    assert (run.kind, run.outcome) == ("manual", outcome)
    play.tick()
    assert [taken.kind for taken in play.take()] == ["manual"] * resume


def test_somebody_elses_notices_are_not_sent(db: Db, foreign: None) -> None:
    db.execute("INSERT INTO ticker.events (task_id, what) VALUES (1, 'failed')")
    db.execute("INSERT INTO ticker.notices (event_id, channel) VALUES (1, 'mail')")
    adopt(db)
    assert db.execute("SELECT count(*) FROM ticker.notices").fetchone() == (0,)
    assert db.execute("SELECT told FROM ticker.events WHERE what = 'failed'").fetchone() == (True,)


def test_a_call_that_was_interrupted_is_repeated(play: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --force, too: what the first call has ended is no sign of life."""
    for number in range(5):
        ticker.register(play.db, "poll", name=f"{number}", every="1m")
    play.tick()
    play.take()
    play.at(100)
    play.db.execute("UPDATE ticker.installation SET database_oid = 1")
    monkeypatch.setattr(installation, "ROWS_AT_A_TIME", 2)
    play.db.execute(
        "ALTER TABLE ticker.tasks ADD CONSTRAINT stop CHECK (name <> '4' OR run_token IS NOT NULL) NOT VALID"
    )
    with pytest.raises(psycopg.IntegrityError):
        adopt(play.db, force=False)
    assert not here(play.db).is_here and pauses(play.db) == []
    play.db.execute("ALTER TABLE ticker.tasks DROP CONSTRAINT stop")
    adopt(play.db, force=False)
    assert here(play.db).is_here and [pause[1] for pause in pauses(play.db)] == ["adopt"]


TICKED = (
    "INSERT INTO ticker.tickers (id, host, pid, started_at, last_tick_at, last_report)"
    " SELECT gen_random_uuid(), '', 1, at, at, '{report}' FROM (SELECT clock_timestamp() - interval '{ago} s' AS at) a"
)
ANNOUNCED = "INSERT INTO ticker.functions (name, announced_at) VALUES ('poll', clock_timestamp() - interval '{ago} s')"
RAN = (
    "INSERT INTO ticker.runs (task_id, task_name, function, kind, state, outcome, started_at, ended_at, until, token, created_at)"
    " SELECT 1, '', '', 'manual', {end}, clock_timestamp(), gen_random_uuid(), '2000-01-01' FROM"
    " (SELECT clock_timestamp() - interval '{ago} s' AS at) a"
)
AT_WORK = RAN.replace("clock_timestamp(), gen_random_uuid()", "at + interval '900 s', gen_random_uuid()")
RUNNING, SUCCEEDED = "'running', NULL, at, NULL::timestamptz", "'ended', 'succeeded', '2000-01-01', at"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("done", "sign", "least", "span"),
    [
        (TICKED.format(ago=15, report="{}"), "a ticker was at work", 15, 90),
        (TICKED.format(ago=600, report='{"tick_ms": 300000}'), "a ticker was at work", 600, 900),
        (ANNOUNCED.format(ago=20), "a worker started", 20, 90),
        (RAN.format(ago=30, end=RUNNING), "a run started", 30, 90),
        (AT_WORK.format(ago=300, end=RUNNING), "a run started", 300, 900),
        (RAN.format(ago=40, end=SUCCEEDED), "a run ended", 40, 90),
    ],
    ids=["ticker", "slow ticker", "worker", "running", "at work", "ended"],
)
@pytest.mark.parametrize("options", [[], ["--resume"]], ids=["copy", "restore"])
def test_a_live_production_is_not_adopted_without_force(
    options: list[str],
    done: str,
    sign: str,
    least: int,
    span: int,
    db: Db,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TICKER_ENVIRONMENT", "staging")
    db.execute("UPDATE ticker.installation SET environment = 'production'")
    db.execute(done)  # type: ignore[arg-type]
    refused = CliRunner().invoke(main, ["db", "adopt", *options])
    assert refused.exit_code == 78
    told = sentence(
        "errors.in_use", sign=sign, ago=re.compile(r"\d+"), wait=re.compile(r"\d+"), installation="test1234"
    )
    assert refused.stderr[7:-1] == told
    ago, wait = map(int, re.findall(r"(\d+) s\b", refused.stderr))
    assert (ago + wait, least <= ago < least + 60) == (span, True)
    assert (here(db).id, pauses(db)) == (INSTALLATION, [])
    assert CliRunner().invoke(main, ["db", "adopt", "--force", *options]).exit_code == 0
    assert here(db).id != INSTALLATION


@pytest.mark.slow
@pytest.mark.parametrize(
    "done",
    [
        TICKED.format(ago=91, report="{}"),
        TICKED.format(ago=0, report='{"ended": true}'),
        ANNOUNCED.format(ago=91),
        RAN.format(ago=91, end=RUNNING),
        RAN.format(ago=91, end=SUCCEEDED),
    ],
    ids=["ticker", "ticker that was stopped", "worker", "running", "ended"],
)
def test_an_old_dump_is_adopted_without_a_wait(done: str, db: Db, foreign: None) -> None:
    db.execute(done)  # type: ignore[arg-type]
    adopt(db, force=False)
    assert here(db).is_here


@pytest.mark.slow
def test_adopt_says_what_it_did_and_how_to_go_on(db: Db, foreign: None, environ: dict[str, str]) -> None:
    ticker.register(db, "poll", every="1m")
    done = CliRunner().invoke(main, ["db", "adopt"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        sentence("cli.adopted", old="test1234", new=here(db).id, lost="0 runs", dropped="0 waiting"),
        sentence("cli.adopted_remedy", command="ticker resume --all"),
    ]
    assert CliRunner().invoke(main, ["resume", "--all"]).exit_code == 0
    assert pauses(db) == []


# -------------------------------------------------------------------------------------------------------------- leases


@pytest.mark.slow
def test_a_ticker_leases_the_queues_of_its_tasks(db: Db, environ: dict[str, str], redis: Redis) -> None:
    ticker.register(db, "poll", every="1m", first=datetime(2100, 1, 1, tzinfo=UTC), queue="yearly")
    assert CliRunner().invoke(main, ["tick"]).exit_code == 0
    assert redis.get("ticker:queue:yearly") == INSTALLATION.encode()
    assert 290 < redis.ttl("ticker:queue:yearly") <= 300


@pytest.mark.slow
@pytest.mark.parametrize("command", [["run"], ["tick"]])
def test_a_ticker_does_not_start_on_a_queue_that_another_has(
    command: list[str], db: Db, environ: dict[str, str], redis: Redis
) -> None:
    ticker.register(db, "poll", every="1m")
    redis.set("ticker:queue:polling", OTHER)
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, done.stderr) == (
        78,
        (sentence("cli.error_leased", queue="polling", other="other123", span="5 minutes")),
    )


@pytest.mark.slow
def test_a_worker_does_not_start_on_a_queue_that_another_has(environ: dict[str, str], redis: Redis) -> None:
    redis.set("ticker:queue:polling", OTHER)
    with pytest.raises(subprocess.CalledProcessError) as error:
        work("polling")
    assert error.value.returncode == 78 and sentence("errors.leased", queue="polling").within(error.value.stderr)
    work("another")


@pytest.mark.slow
def test_a_ticker_that_meets_such_a_queue_later_warns_once_and_goes_on(
    db: Db, store: PostgresStore, queue: RedisQueue, redis: Redis, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    beat = TickJob(store, queue, settings, threading.Event())
    ticker.register(db, "poll", every="1m")
    redis.set("ticker:queue:polling", OTHER)
    for _ in range(3):
        beat()
    assert sum(sentence("errors.leased", queue="polling").within(message) for message in caplog.messages) == 1
    assert (beat.failures, redis.llen("rq:queue:polling"), redis.get("ticker:queue:polling")) == (0, 1, OTHER.encode())


def test_a_lease_is_never_taken_from_another_but_by_who_was_it(queue: RedisQueue, redis: Redis) -> None:
    redis.set("ticker:queue:a", OTHER, ex=10)
    assert queue.lease(INSTALLATION, ["a", "b"]) == {"a": OTHER}
    assert (redis.get("ticker:queue:a"), redis.get("ticker:queue:b")) == (OTHER.encode(), INSTALLATION.encode())
    assert redis.ttl("ticker:queue:a") <= 10
    assert queue.lease(INSTALLATION, ["a", "b"], formerly=OTHER) == {}
    assert redis.get("ticker:queue:a") == INSTALLATION.encode()


@pytest.mark.slow
def test_a_queue_that_is_pushed_to_is_leased(queue: RedisQueue, store: PostgresStore, db: Db, redis: Redis) -> None:
    ticker.register(db, "poll", every="1m", queue="new")
    tick(store, queue)
    queue.lease(store.installation)
    assert redis.get("ticker:queue:new") == INSTALLATION.encode()


def test_a_restored_production_takes_its_own_leases_over(db: Db, environ: dict[str, str], redis: Redis) -> None:
    ticker.register(db, "poll", every="1m")
    redis.set("ticker:queue:polling", INSTALLATION)
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    assert CliRunner().invoke(main, ["db", "adopt", "--resume"]).exit_code == 0
    assert redis.get("ticker:queue:polling") == here(db).id.encode()


def test_health_says_that_another_has_a_queue_of_ours(db: Db, settings: Settings, redis: Redis) -> None:
    ticker.register(db, "poll", every="1m")
    for name in ("polling", "theirs"):
        redis.sadd("rq:queues", f"rq:queue:{name}")
        redis.set(f"ticker:queue:{name}", OTHER)
    found = health.look(settings)
    assert found.leased == {"polling": OTHER} == health.data(found)["leased"]
    assert rq.leased("polling", OTHER) in found.problems


# ------------------------------------------------------------------------------------------------------- foreign jobs


UNCHECKED = "from ticker.queue import inspect\ninspect.check_redis = lambda *_: None\n"
"""The worker was there before the other installation leased its queue."""


@pytest.fixture
def theirs(db: Db, store: PostgresStore, queue: RedisQueue) -> str:
    """A job of this installation, which has leased the queue, waits; its id."""
    ticker.register(db, "plain", every="1m", kwargs={"channel_id": 1})
    create_trace(db)
    tick(store, queue)
    queue.lease(INSTALLATION)
    [job_id] = queue._connection.lrange("rq:queue:polling", 0, -1)  # type: ignore[misc,union-attr]
    return str(job_id.decode())


def records(url: str) -> list[tuple[str, str]]:
    with connect(url) as connection:
        return [(run.outcome or "", run.reason) for run in ticker.list_runs(connection)]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--hardened",)], ids=["ours", "hardened"])
@pytest.mark.parametrize("queues", [("polling",), ("first", "polling")], ids=["one queue", "two"])
def test_a_worker_puts_a_job_of_another_installation_back(
    options: tuple[str, ...], queues: tuple[str, ...], theirs: str, other: str, database_url: str, redis: Redis,
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str],
) -> None:  # fmt: skip
    """It never runs or drops it, and the worker of its own installation finds it."""
    monkeypatch.setenv("DATABASE_URL", other)
    if options:
        monkeypatch.setenv("TICKER_SIGNING_KEY", "a key of the other installation")
    done = work(*options, *queues, patch=UNCHECKED)
    assert (records(other), records(database_url)) == ([], [])
    assert redis.lrange("rq:queue:polling", 0, -1) == [theirs.encode()]
    assert not redis.exists("rq:queue:polling:intermediate", "ticker:refused")
    assert sentence("logs.foreign_job", job=theirs, its=INSTALLATION, ours=OTHER).times(done.stdout) == 1
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.delenv("TICKER_SIGNING_KEY", raising=False)
    work()
    assert records(database_url) == [("succeeded", "")]


@pytest.mark.slow
def test_no_id_of_a_foreign_job_stays_in_rqs_list_of_what_was_taken(
    theirs: str, other: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", other)
    redis.rpush("rq:queue:polling", f"{theirs}:junk")  # RQ reads an id as far as the colon
    work(patch=UNCHECKED)
    assert not redis.exists("rq:queue:polling:intermediate")


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, foreign_jobs.AT_ONCE], ids=["one", "more than it puts back at once"])
def test_a_worker_finds_its_own_jobs_behind_those_of_another(
    more: int,
    theirs: str,
    other: str,
    queue: RedisQueue,
    redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
    environ: dict[str, str],
) -> None:
    for number in range(more):
        redis.rpush("rq:queue:polling", stranger := theirs.replace("-t", f"-t{number + 2}"))
        redis.copy(f"rq:job:{theirs}", f"rq:job:{stranger}")
    with connect(other) as connection:
        ticker.register(connection, "plain", every="1m", kwargs={"channel_id": 2})
        create_trace(connection)
    store = PostgresStore(other)
    tick(store, queue)
    store.close()
    monkeypatch.setenv("DATABASE_URL", other)
    work(patch=UNCHECKED)
    assert records(other) == [("succeeded", "")]
    assert redis.llen("rq:queue:polling") == 1 + more


@pytest.mark.slow
def test_jobs_that_are_no_tickers_run_as_ever(other: str, redis: Redis, monkeypatch: pytest.MonkeyPatch,
                                              environ: dict[str, str]) -> None:  # fmt: skip
    job = Queue("polling", connection=redis).enqueue_call("platform.node", result_ttl=60)
    monkeypatch.setenv("DATABASE_URL", other)
    work()
    assert Job.fetch(job.id, connection=redis).is_finished


@pytest.mark.promise("S13")
def test_a_stock_worker_refuses_a_job_of_another_installation_without_a_record(
    theirs: str, other: str, database_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", other)
    stock_worker()
    result = Job.fetch(theirs, connection=redis).latest_result()
    assert result is not None and sentence("errors.foreign_job", job=theirs, its=INSTALLATION).within(
        str(result.exc_string)
    )
    assert (records(other), records(database_url)) == ([], [])


@pytest.mark.slow
def test_a_stock_worker_runs_nothing_on_copied_tables(
    theirs: str, db: Db, database_url: str, redis: Redis, environ: dict[str, str]
) -> None:
    db.execute("UPDATE ticker.installation SET database_oid = 1")
    stock_worker()
    result = Job.fetch(theirs, connection=redis).latest_result()
    assert result is not None and SENTENCE.within(result.exc_string)
    assert records(database_url) == []


@pytest.mark.slow
def test_a_worker_rests_when_it_meets_nothing_but_jobs_of_others(
    theirs: str, other: str, redis: Redis, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """Once for each round through the queue; and RQ beats and looks at its signals then."""
    rests: list[float] = []
    monkeypatch.setenv("DATABASE_URL", other)
    monkeypatch.setattr(foreign_jobs.time, "sleep", rests.append)
    monkeypatch.setattr(foreign_jobs, "_own", "")
    monkeypatch.setattr(foreign_jobs, "_others", set())
    queues = [corrupt_jobs.Queue("polling", connection=redis, job_class=corrupt_jobs.Job)]
    with pytest.raises(DequeueTimeout):
        corrupt_jobs.Queue.dequeue_any(queues, 1, redis, job_class=corrupt_jobs.Job)
    assert rests == [foreign_jobs.PAUSE]


@pytest.fixture
def pops(other: str, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> list[str]:
    """The pops of a worker of the other installation that waits for jobs; it may not sleep."""
    popped: list[str] = []
    real = corrupt_jobs.Queue.lmove

    def lmove(connection: Redis, queue_key: str, timeout: int | None) -> Any:
        popped.append(queue_key)
        return real(connection, queue_key, timeout)

    monkeypatch.setenv("DATABASE_URL", other)
    monkeypatch.setattr(foreign_jobs, "_own", "")
    monkeypatch.setattr(foreign_jobs, "_others", set())
    monkeypatch.setattr(foreign_jobs.time, "sleep", lambda seconds: pytest.fail("it pauses") if seconds else None)
    monkeypatch.setattr(corrupt_jobs.Queue, "lmove", lmove)
    return popped


def taken(redis: Redis) -> str:
    """The job that such a worker takes next. It beats between its attempts."""
    queues = [corrupt_jobs.Queue("polling", connection=redis, job_class=corrupt_jobs.Job)]
    while True:
        with suppress(DequeueTimeout):
            found = corrupt_jobs.Queue.dequeue_any(queues, 1, redis, job_class=corrupt_jobs.Job)
            assert found is not None
            return str(found[0].id)


@pytest.mark.slow
def test_jobs_of_an_installation_without_a_lease_are_met_once(
    theirs: str, pops: list[str], redis: Redis, settings: Settings
) -> None:
    """3,000 of them kept a job of ours waiting for more than 25 s, because each was put back again and again."""
    redis.delete("ticker:queue:polling")
    with redis.pipeline() as calls:
        for number in range(3_000):
            stranger = theirs.replace("-t", f"-t{number + 2}")
            calls.copy(f"rq:job:{theirs}", f"rq:job:{stranger}")
            calls.rpush("rq:queue:polling", stranger)
        calls.execute()
    own = Queue("polling", connection=redis).enqueue_call("platform.node")
    assert taken(redis) == own.id
    assert len(pops) == 3_002
    assert redis.lrange("rq:queue:polling", 0, -1) == []
    assert redis.lrange("rq:queue:polling:intermediate", 0, -1) == [own.id.encode()]
    assert redis.zcard("ticker:foreign") == RedisQueue.from_settings(settings).put_aside() == 3_001
    assert 3_500 < redis.ttl("ticker:foreign") <= 3_600 and 3_500 < redis.ttl(f"rq:job:{theirs}") <= 3_600


@pytest.mark.slow
def test_the_jobs_that_are_put_aside_are_bounded_in_number_and_time(
    theirs: str, pops: list[str], redis: Redis, settings: Settings
) -> None:
    redis.delete("ticker:queue:polling")
    now = clock.python_utc().timestamp()
    redis.zadd("ticker:foreign", {f"young {number}": now - 60 + number / 1000 for number in range(10_000)})
    redis.zadd("ticker:foreign", {f"old {number}": now - 3_601 for number in range(10)})
    assert RedisQueue.from_settings(settings).put_aside() == 10_000
    own = Queue("polling", connection=redis).enqueue_call("platform.node")
    assert taken(redis) == own.id
    assert redis.zcard("ticker:foreign") == 10_000
    assert redis.zscore("ticker:foreign", theirs) and redis.zscore("ticker:foreign", "young 0") is None


@pytest.mark.slow
def test_a_job_of_unknown_tables_is_put_back_without_a_lease_too(
    theirs: str, pops: list[str], redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be one of ours."""
    redis.delete("ticker:queue:polling")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@/name?host=/nowhere")
    own = Queue("polling", connection=redis).enqueue_call("platform.node")
    assert taken(redis) == own.id
    assert redis.lrange("rq:queue:polling", 0, -1) == [theirs.encode()] and not redis.exists("ticker:foreign")


@pytest.mark.slow
def test_a_ticker_pushes_a_job_again_that_was_put_aside(
    theirs: str, pops: list[str], store: PostgresStore, queue: RedisQueue, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.delete("ticker:queue:polling")
    own = Queue("polling", connection=redis).enqueue_call("platform.node")
    assert taken(redis) == own.id
    tick(store, queue)
    redis.hset(f"rq:job:{theirs}", "astray_since", int(clock.python_utc().timestamp()) - 11)
    tick(store, queue)
    assert redis.lrange("rq:queue:polling", 0, -1) == [theirs.encode()]
