"""Callers whose role or server makes transactions stricter, read-only or short, and our processes under the same settings."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from threading import Event
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.conftest import admin
from tests.drivers.doors import DOORS, synchronous
from tests.rights import PASSWORD, with_user
from tests.running import until
from tests.sentences import Sentence, sentence
from tests.web.asking import HERE, TOKEN
from ticker import aio, owners
from ticker.db.connections import connect
from ticker.db.listener import Listener
from ticker.db.store import PostgresStore
from ticker.errors import DatabaseUnavailable, RowLocked, UnknownOwner
from ticker.web import application
from wrappers.pipeline.database import Database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

ALONE = [name for name in DOORS if "autocommit" in name or "Django" in name or name == "asyncpg"]
JOINED = [name for name in DOORS if name not in ALONE and "Connection" not in name and "scoped" not in name]
Call = tuple[Any, ...]


@pytest.fixture
def role(servers: Any, db: Any, database_url: str) -> Iterator[Callable[..., str]]:
    """Returns the URL of a superuser for whose sessions the given settings hold."""
    names: list[str] = []

    def create(**settings: str) -> str:
        names.append(f"test_role_{uuid4().hex[:8]}")
        admin(servers, f"CREATE ROLE {names[-1]} SUPERUSER LOGIN PASSWORD '{PASSWORD}'")
        for setting, value in settings.items():
            admin(servers, f"ALTER ROLE {names[-1]} SET {setting} = '{value}'")
        return with_user(database_url, names[-1])

    yield create
    for name in names:
        db.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", [name])
        admin(servers, f"DROP ROLE {name}")


def play(name: str, url: str, calls: Iterator[Call]) -> None:
    """Makes the calls on one connection, in one transaction unless the door is in autocommit."""
    opened: Any = DOORS[name].args[0]  # type: ignore[attr-defined]
    if DOORS[name].func is synchronous:  # type: ignore[attr-defined]
        with opened(url) as db:
            for function, *given in calls:
                getattr(ticker, function)(db, *given[:-1], **given[-1])
        return

    async def asynchronously() -> None:
        async with opened(url) as db:
            for function, *given in calls:
                await getattr(aio, function)(db, *given[:-1], **given[-1])

    asyncio.run(asynchronously())


def refused(name: str, url: str, calls: Iterator[Call], error: type[Exception], words: Sentence) -> None:
    with pytest.raises(error) as caught:
        play(name, url, calls)
    assert words == caught.value


@pytest.fixture
def followed(db: Any) -> None:
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY, enabled bool NOT NULL DEFAULT true)")
    db.execute("\n".join(owners.triggers("mail_channels", active_when="enabled")))
    db.execute("INSERT INTO mail_channels VALUES (1), (2)")


# ----------------------------------------------------------------------------------------------------------- isolation

STRICT = {"psycopg": "serializable"}  # the others: repeatable read, which the server implements in the same way
POLL: Call = ("register", "poll", {"owner": "mail_channels:1", "every": "1m"})


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
@pytest.mark.parametrize("name", ["psycopg", "psycopg2, autocommit", "AsyncSession, asyncpg"])
def test_operations_work_in_stricter_transactions(
    name: str, isolation: str, role: Any, followed: None, db: Any
) -> None:
    wanted = [{"function": "sum", "every": "1m"}]
    calls = [
        POLL,
        POLL,
        ("list_tasks", {}),
        ("reconcile", "mail_channels:2", wanted, {}),
        ("pause", {"owner": "mail_channels:1"}),
    ]
    play(name, role(default_transaction_isolation=isolation), iter(calls))
    assert [(task.name, task.owner_id, task.paused_by is None) for task in ticker.list_tasks(db)] == [
        ("poll", "1", False), ("sum", "2", True),
    ]  # fmt: skip


MEANWHILE = {
    "update": ("UPDATE ticker.tasks SET description = 'x'", {"every": "5m"}),
    "delete": ("DELETE FROM mail_channels", {"name": "other", "every": "1m"}),
    "register": (None, {"name": "new", "every": "1m"}),
}


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("name", JOINED)
def test_what_another_transaction_changed_meanwhile_is_explained(
    name: str, meanwhile: str, role: Any, followed: None, db: Any
) -> None:
    """The task was changed, its owner was deleted, or another process registered it, after the snapshot was taken."""
    ticker.register(db, *POLL[1:-1], **POLL[-1])
    url, (statement, given) = (
        role(default_transaction_isolation=STRICT.get(name, "repeatable read")),
        MEANWHILE[meanwhile],
    )
    again: Call = ("register", "poll", {"owner": "mail_channels:1", **given})

    def calls() -> Iterator[Call]:
        yield ("list_tasks", {})
        db.execute(statement) if statement else ticker.register(db, *again[1:-1], **again[-1])
        yield again

    error = "could not serialize access due to concurrent update"
    refused(name, url, calls(), RowLocked, sentence("errors.serialization_failure", error=error))
    if meanwhile == "delete":
        with pytest.raises(UnknownOwner):
            play(name, url, iter([again]))
    else:
        play(name, url, iter([again]))


@pytest.mark.parametrize("when", ["INITIALLY IMMEDIATE", "INITIALLY DEFERRED"])
@pytest.mark.parametrize("name", ALONE)
def test_a_serialization_failure_of_the_statement_or_its_commit_is_explained(
    name: str, when: str, role: Any, db: Any
) -> None:
    db.execute("CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'too late' USING ERRCODE = '40001';"
               f" END $$; CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON ticker.tasks DEFERRABLE {when} FOR EACH ROW EXECUTE FUNCTION fail()")  # fmt: skip
    words = sentence("errors.serialization_failure", error="too late")
    refused(name, role(), iter([("register", "poll", {"every": "1m"})]), RowLocked, words)
    assert ticker.list_tasks(db) == []


# ----------------------------------------------------------------------------------------------------------- read-only


@pytest.mark.parametrize("name", DOORS)
def test_a_read_only_transaction_reads_and_says_where_to_write(name: str, role: Any, db: Any) -> None:
    kept = ticker.register(db, "kept", every="1m")
    url = role(default_transaction_read_only="on")
    play(name, url, iter([("list_tasks", {}), ("get", kept, {}), ("register", "kept", {"every": "1m"})]))
    words = sentence(
        "errors.write_on_read_only", error="cannot execute SELECT FOR NO KEY UPDATE in a read-only transaction"
    )
    refused(name, url, iter([("register", "poll", {"every": "1m"})]), DatabaseUnavailable, words)


# ----------------------------------------------------------------------------------------------------------- time-outs


def gone(db: Any, url: str, but: int = 0) -> None:
    """Waits until the server has ended the sessions of the URL's role."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND pid <> %s"
    user = psycopg.conninfo.conninfo_to_dict(url)["user"]
    until(lambda: db.execute(asked, [user, but]).fetchone() == (0,), "the server ends the sessions")


TOLD = {
    "psycopg": "terminating connection due to idle", "psycopg2": "server closed the connection",
    "asyncpg": "connection was closed in the middle|connection is closed|terminating connection",
}  # fmt: skip


@pytest.mark.parametrize("name", [*JOINED, "psycopg, autocommit", "Django, psycopg", "Django, psycopg2", "asyncpg"])
def test_a_connection_that_the_server_ended_tells_its_drivers_error_and_nothing_is_written(
    name: str, role: Any, db: Any
) -> None:
    setting = "idle_session_timeout" if name in ALONE else "idle_in_transaction_session_timeout"
    url = role(**{setting: "1s"})

    def calls() -> Iterator[Call]:
        yield ("register", "first", {"every": "1m"})
        gone(db, url)
        yield ("register", "second", {"every": "1m"})

    driver = next(driver for driver in ("asyncpg", "psycopg2", "psycopg") if driver in name)
    with pytest.raises(Exception) as caught:
        play(name, url, calls())
    told = [caught.value]
    while deeper := told[-1].__context__ or told[-1].__cause__:
        told.append(deeper)
    assert any(words in str(one) for one in told for words in TOLD[driver].split("|"))
    assert [task.name for task in ticker.list_tasks(db)] == (["first"] if name in ALONE else [])
    play(name, url, iter([("register", "second", {"every": "1m"})]))


def test_our_statements_are_not_compiled(role: Any) -> None:
    """To compile one took 8 s on a busy host, for tables without statistics."""
    with closing(connect(role(jit="on"))) as ours, ours.transaction():
        assert ours.execute("SHOW jit").fetchone() == ("off",)


def test_our_transactions_have_a_time_out_of_their_own(role: Any, db: Any) -> None:
    url = role(idle_in_transaction_session_timeout="50ms")
    with closing(connect(url)) as ours, ours.transaction(), psycopg.connect(url) as other:
        other.execute("SELECT 1")
        gone(db, url, but=ours.info.backend_pid)
        assert ours.execute("SHOW idle_in_transaction_session_timeout").fetchone() == ("10s",)
        with suppress(psycopg.Error):
            other.rollback()


def test_no_process_of_ours_fails_where_the_server_ends_idle_sessions(
    role: Any, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = role(idle_session_timeout="500ms")
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("TICKER_WEB_TOKEN", TOKEN)
    with (
        closing(PostgresStore(url)) as store,
        closing(Database(url, "ticker")) as worker,
        TestClient(application(), base_url=HERE, headers={"Authorization": f"Bearer {TOKEN}"}) as page,
    ):
        for _ in range(3):
            assert store.now() and worker.execute("instant", now=None)
            assert page.get("/api/v1/tasks").status_code == 200
            gone(db, url)


def test_the_connection_that_waits_for_changes_is_not_ended(
    role: Any, db: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url, stopping = role(idle_session_timeout="500ms"), Event()
    listener = Listener(url, "ticker", stopping)
    listener.start()
    assert listener.heard.wait(20)
    listener.heard.clear()
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ticker listener' AND usename = %s"
    [[pid]] = db.execute(asked, [psycopg.conninfo.conninfo_to_dict(url)["user"]]).fetchall()
    with closing(psycopg.connect(url, autocommit=True)):
        gone(db, url, but=pid)
    db.execute("NOTIFY ticker_wake, 'ticker'")
    assert listener.heard.wait(20) and not caplog.records
    stopping.set()
    listener.join(20)
