"""What a process checks before it works, and how long it waits for a server that never answers."""

import logging
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from redis import Redis

from tests.refusals import SECRET, not_startable, refused
from tests.running import ROOT
from tests.sentences import Sentence, sentence
from ticker import embedded, migrations
from ticker.db import checks as db_checks
from ticker.db.checks import Facts
from ticker.db.connections import connect
from ticker.queue import inspect, rq
from ticker.settings import Settings

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]

HOUR = timedelta(hours=1)
FACTS = Facts(18, "UTF8", False, False, datetime(2026, 3, 1, tzinfo=UTC), True, True)


# ------------------------------------------------------------------------------------------------------- PostgreSQL


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_cannot_store_every_text_is_refused(
    encoding: str, new_database: Callable[[str], str], redis_url: str
) -> None:
    url = new_database(f"TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
    told = not_startable(Settings(url, redis_url))
    assert told == sentence("errors.encoding", setting="DATABASE_URL", encoding=encoding, remedy="ENCODING 'UTF8'")


def test_a_database_that_takes_no_writes_is_refused(db: Db, settings: Settings) -> None:
    db.execute(f'ALTER DATABASE "{db.info.dbname}" SET default_transaction_read_only = on')
    assert sentence("errors.read_only", setting="DATABASE_URL").begins(not_startable(settings))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (FACTS._replace(version=14), sentence("errors.old_postgresql", setting="DATABASE_URL", version=14, needed=15)),
        (FACTS._replace(is_standby=True, is_read_only=True),
         sentence("errors.standby", setting="DATABASE_URL")),
    ],
)  # fmt: skip
def test_a_server_that_is_too_old_or_a_standby_is_refused(facts: Facts, said: Sentence) -> None:
    db_checks.check_server(FACTS)
    assert refused(lambda: db_checks.check_server(facts)) == said


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_texts_travel_as_utf8_whatever_the_environment_says(
    encoding: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    with connect(database_url) as db:
        assert db.execute("SELECT %s", ["łódź"]).fetchone() == ("łódź",)


# ------------------------------------------------------------------------------------------------------------ tables


def test_the_newest_revision_is_the_one_that_alembic_finds() -> None:
    assert db_checks.revisions()[-1] == migrations.newest()


def test_older_tables_are_to_be_upgraded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    [*_, newest] = db_checks.revisions()
    monkeypatch.setattr(db_checks, "revisions", lambda: [newest, "9998"])
    assert not_startable(settings) == (
        sentence("errors.old_tables", schema="'ticker'", revision=newest, needed=9998, remedy="ticker db upgrade")
    )


@pytest.mark.parametrize("change", ["DELETE FROM ticker.ticker_version", "DROP TABLE ticker.ticker_version"])
def test_tables_without_a_revision_are_to_be_upgraded(change: str, db: Db, settings: Settings) -> None:
    db.execute(change)
    assert sentence("errors.at_no_revision").within(not_startable(settings))


@contextmanager
def user_with(db: Db, *grants: str) -> Iterator[str]:
    """A user that may do no more than this; its name and password."""
    role = f"weak_{uuid4().hex[:12]}"
    db.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
    try:
        for grant in grants:
            db.execute(f"GRANT {grant} TO {role}")
        yield role
    finally:
        db.execute(f"DROP OWNED BY {role}")
        db.execute(f"DROP ROLE {role}")


ENOUGH = (
    "USAGE ON SCHEMA ticker", "SELECT ON ticker.ticker_version", "SELECT, UPDATE ON ticker.tasks",
    "SELECT, INSERT, UPDATE ON ticker.runs", "INSERT ON ticker.events",
    "SELECT, UPDATE ON ticker.limited_keys", "SELECT, INSERT, UPDATE ON ticker.slots", "SELECT ON ticker.pauses", "SELECT ON ticker.installation",
)  # fmt: skip


@pytest.mark.parametrize(
    ("grants", "said"),
    [
        ((), sentence("db.permission_denied", thing="schema ticker")),
        (ENOUGH[:1], sentence("db.permission_denied", thing="table ticker_version")),
        (ENOUGH[:2], sentence("errors.right_is_missing", right="SELECT ticker.tasks")),
        (
            (*ENOUGH[:2], "SELECT ON ticker.tasks"),
            sentence("errors.right_is_missing_so_far", right="UPDATE ticker.tasks"),
        ),
        (
            (*ENOUGH[:3], "SELECT, UPDATE ON ticker.runs"),
            sentence("errors.right_is_missing_so_far", right="INSERT ticker.runs"),
        ),
        (ENOUGH[:4], sentence("errors.right_is_missing_so_far", right="INSERT ticker.events")),
        (ENOUGH[:5], sentence("errors.right_is_missing", right="SELECT ticker.limited_keys")),
        (ENOUGH[:6], sentence("errors.right_is_missing", right="SELECT ticker.slots")),
        (ENOUGH[:7], sentence("errors.right_is_missing", right="SELECT ticker.pauses")),
        (ENOUGH[:8], sentence("db.permission_denied", thing="table installation")),
    ],
)
def test_a_right_that_is_missing_is_named(grants: tuple[str, ...], said: Sentence, db: Db, settings: Settings) -> None:
    with user_with(db, *grants) as role:
        url = re.sub("//([^@/]*@)?", f"//{role}:{role}@", settings.database_url, count=1)
        assert said.within(not_startable(Settings(url, settings.redis_url)))


def test_a_user_with_no_more_than_the_rights_that_are_needed_may_start(db: Db, settings: Settings) -> None:
    with user_with(db, *ENOUGH) as role:
        url = re.sub("//([^@/]*@)?", f"//{role}:{role}@", settings.database_url, count=1)
        inspect.check(Settings(url, settings.redis_url))


def test_the_check_loads_neither_alembic_nor_sqlalchemy(environ: dict[str, str]) -> None:
    asked = "import sys; from ticker import settings; from ticker.queue import inspect; inspect.check(settings.from_environment()); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not {"alembic", "sqlalchemy"} & set(done.stdout.split())


# ------------------------------------------------------------------------------------------------------------- clocks


@pytest.mark.parametrize("ahead", [timedelta(days=-366), -HOUR * 1.1, HOUR * 1.1, timedelta(days=3660)])
def test_clocks_that_are_hours_apart_are_refused(ahead: timedelta) -> None:
    told = refused(lambda: db_checks.check_clock(ahead, timedelta()))
    way, host = "behind" if ahead > timedelta() else "ahead of", socket.gethostname()
    assert sentence("errors.clocks_differ", host=host, span=re.compile(r"\w+"), way=way, limit="1h") == told


@pytest.mark.parametrize("ahead", [timedelta(seconds=-6), timedelta(seconds=6), HOUR])
def test_clocks_that_are_seconds_apart_are_warned_of(ahead: timedelta) -> None:
    assert socket.gethostname() in db_checks.check_clock(ahead, timedelta())


def test_what_the_question_itself_took_is_no_difference() -> None:
    assert db_checks.check_clock(timedelta(seconds=9), timedelta(seconds=10)) == ""


def test_a_start_logs_the_warning(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(db_checks.clock, "python_utc", lambda: datetime.now(UTC) - timedelta(minutes=10))
    inspect.check(settings)
    [record] = caplog.records
    assert record.levelno == logging.WARNING and socket.gethostname() in record.getMessage()


def test_the_hosts_clock_is_compared_with_the_databases(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_checks.clock, "python_utc", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    told, host = not_startable(settings), socket.gethostname()
    assert sentence("errors.clocks_differ", host=host, span=re.compile(r"\w+"), way="behind", limit="1h") == told


# -------------------------------------------------------------------------------------------------------------- Redis


@pytest.fixture
def valkey() -> Iterator[embedded.Valkey]:
    with embedded.valkey() as server:
        yield server


def test_a_replica_is_refused(valkey: embedded.Valkey, database_url: str) -> None:
    with Redis.from_url(valkey.url) as redis:
        redis.replicaof("127.0.0.1", 1)
    told = not_startable(Settings(database_url, valkey.url))
    assert told == sentence("errors.replica", setting="REDIS_URL")


def test_a_password_that_is_missing_or_wrong_is_one_sentence_without_it(
    valkey: embedded.Valkey, database_url: str
) -> None:
    with Redis.from_url(valkey.url) as redis:
        redis.config_set("requirepass", SECRET)
    assert "REDIS_URL" in not_startable(Settings(database_url, valkey.url))
    wrong = valkey.url.replace("unix://", f"unix://:{SECRET}x@")
    assert "invalid username-password pair" in not_startable(Settings(database_url, wrong))


def test_a_user_without_the_right_to_ask_is_one_sentence_that_names_the_command(
    valkey: embedded.Valkey, database_url: str
) -> None:
    with Redis.from_url(valkey.url) as redis:
        redis.acl_setuser("weak", enabled=True, passwords=[f"+{SECRET}"], commands=["+@all", "-info"], keys=["*"])
    told = not_startable(Settings(database_url, valkey.url.replace("unix://", f"unix://weak:{SECRET}@")))
    assert sentence(
        "errors.redis_refuses_command", setting="REDIS_URL", error=re.compile(r".*"), command="'info'"
    ).begins(told)


GOOD = {"redis_version": "7.2.4", "role": "master", "maxmemory_policy": "noeviction", "cluster_enabled": 0}


@pytest.mark.parametrize("version", ["6.2.0", "7.0", "10.0.1", "unstable", ""])
def test_a_redis_of_6_2_or_newer_is_taken(version: str) -> None:
    rq.check_server({**GOOD, "redis_version": version})


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({"redis_version": "6.0.16"}, sentence("errors.old_redis", setting="REDIS_URL", version="6.0.16", needed="6.2")),
        ({"redis_version": "5.0.7"}, sentence("errors.old_redis", setting="REDIS_URL", version="5.0.7", needed="6.2")),
        ({"cluster_enabled": 1}, sentence("errors.redis_cluster", setting="REDIS_URL")),
        ({"role": "slave"}, sentence("errors.replica", setting="REDIS_URL")),
        ({"maxmemory_policy": "volatile-ttl"},
         sentence("errors.policy", setting="REDIS_URL", policy="volatile-ttl", remedy="noeviction")),
    ],
)  # fmt: skip
def test_a_redis_that_is_not_fit_for_jobs_is_refused(info: dict[str, Any], said: Sentence) -> None:
    assert refused(lambda: rq.check_server({**GOOD, **info})) == said


def test_a_valkey_of_any_version_is_taken() -> None:
    rq.check_server({**GOOD, "redis_version": "1.0", "server_name": "valkey"})
