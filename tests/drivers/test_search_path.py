"""Nothing that another role has planted in a schema of the caller's search_path runs, and the path is as it was afterwards."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import ticker
from tests.conftest import connect
from tests.drivers import doors
from tests.drivers.doors import DOORS, Door, of_driver
from tests.rights import with_user
from tests.running import ROOT
from ticker import aio
from ticker.db import sql
from ticker.db.drivers import PATH
from ticker.db.store import PostgresStore
from ticker.engine.tick import tick
from wrappers.pipeline.database import Database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("environ")]

PLANTED = """
CREATE TABLE public.loot (role text, operator text);
GRANT INSERT ON public.loot TO public;
CREATE FUNCTION public.spy(ticker.ticker_named, ticker.ticker_named) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN
    INSERT INTO public.loot VALUES (current_user, '='); RETURN $1::text OPERATOR(pg_catalog.=) $2::text; END $f$;
CREATE OPERATOR public.= (FUNCTION = public.spy, LEFTARG = ticker.ticker_named, RIGHTARG = ticker.ticker_named);
CREATE FUNCTION public.spy(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $f$ BEGIN
    INSERT INTO public.loot VALUES (current_user, '*'); RETURN $1::float8 OPERATOR(pg_catalog.*) $2; END $f$;
CREATE OPERATOR public.* (FUNCTION = public.spy, LEFTARG = bigint, RIGHTARG = interval);
"""


@pytest.fixture
def loot(roles: dict[str, str], db: Any, database_url: str) -> Iterator[Callable[[], list[Any]]]:
    """The role `worker`, which may create objects in `public`, plants operators on our types there."""
    db.execute(f"GRANT CREATE ON SCHEMA public TO {roles['worker']}")
    with psycopg.connect(with_user(database_url, roles["worker"]), autocommit=True) as worker:
        worker.execute(PLANTED)
    db.execute("SELECT FROM ticker.tasks WHERE name = 'x' AND every_ms * interval '1 ms' > '1 s'")  # the trap works
    task = ticker.register(db, "poll", name="trap", every="1m")
    db.execute("SELECT FROM ticker.tasks WHERE name = 'trap' AND every_ms * interval '1 ms' > '1 s'")
    ticker.unregister(db, task)
    assert {operator for _, operator in db.execute("SELECT * FROM public.loot")} == {"=", "*"}
    db.execute("DELETE FROM public.loot")
    yield lambda: db.execute("SELECT DISTINCT * FROM public.loot").fetchall()  # type: ignore[no-any-return]


def test_no_process_of_ours_runs_what_a_worker_has_planted(
    loot: Any, roles: dict[str, str], db: Any, database_url: str, queue: Any
) -> None:
    task = ticker.register(db, "poll", every="1m", retries=1, owner="feeds:1")
    store = PostgresStore(with_user(database_url, roles["ticker"]))
    assert tick(store, queue).enqueued == 1
    store.close()
    with connect(with_user(database_url, roles["page"])) as page:
        ticker.edit(page, task, every="5m", by="page")
        ticker.why(page, task)
        ticker.list_tasks(page, state="late")
        with page.transaction():
            ticker.list_owners(page)
            ticker.register(page, "poll", every="1m", retries=1, owner="feeds:1")
            assert path(page) == PATH
            sql.on(page, "ticker")("types_of_owners")
    worker = Database(with_user(database_url, roles["ticker"]), "ticker")
    worker.execute("has_task", id=task.id)
    worker.close()
    assert loot() == []


def operate(door: Door) -> None:
    task = door("register", "poll", every="1m", owner="feeds:1")
    door("register", "poll", every="1m", owner="feeds:1")
    door("register", "poll", every="2m", cron=None, owner="feeds:1", by="anna")
    door("reconcile", "feeds:1", [{"function": "poll", "every": "2m"}, {"function": "sum", "cron": "0 9 * * *"}])
    door("edit", task, every="5m", by="anna")
    door("pause", task, by="anna")
    door("resume", task)
    door("run_now", task)
    door("list_tasks", owner="feeds:1", state="late")
    door("why", task)
    door("list_owners")
    door("unregister", owner="feeds:1")


@pytest.mark.parametrize("name", DOORS)
def test_no_operation_on_a_callers_connection_runs_what_a_worker_has_planted(
    name: str, loot: Any, roles: dict[str, str], database_url: str
) -> None:
    operate(DOORS[name](with_user(database_url, roles["application"])))
    assert loot() == []


def path(db: Any) -> str:
    query = "SELECT current_setting('search_path')"
    if hasattr(db, "connection") and hasattr(db, "flush"):
        db = db.connection()
    if hasattr(db, "exec_driver_sql"):
        return str(db.exec_driver_sql(query).scalar_one())
    with db.cursor() as cursor:
        cursor.execute(query)
        [row] = cursor.fetchall()
        return str(row["current_setting"] if isinstance(row, dict) else row[0])


def execute(db: Any, statement: str) -> None:
    if hasattr(db, "connection") and hasattr(db, "flush"):
        db = db.connection()
    if hasattr(db, "exec_driver_sql"):
        db.exec_driver_sql(statement)
        return
    with db.cursor() as cursor:
        cursor.execute(statement)


SYNCHRONOUS = {
    "psycopg": doors.of_psycopg,
    "psycopg, autocommit": doors.of_psycopg_in_autocommit,
    "psycopg2": doors.of_psycopg2,
    "psycopg2, autocommit": doors.of_psycopg2_in_autocommit,
    **{f"Session, {driver}": partial(doors.of_session, driver) for driver in ("psycopg", "psycopg2")},
    **{f"Connection, {driver}": partial(doors.of_connection, driver) for driver in ("psycopg", "psycopg2")},
    **{f"autocommit, {driver}": partial(doors.of_connection_in_autocommit, driver) for driver in ("psycopg", "psycopg2")},
    **{f"Django, {driver}": partial(doors.of_django, driver) for driver in ("psycopg", "psycopg2")},
}  # fmt: skip
ODD_PATH = '"it\'s", "a\\b", "$user", public'


def in_all_ways(call: Callable[..., Any]) -> Iterator[Any]:
    """Operations that succeed and fail, by our own errors and by PostgreSQL's. Yields what they leave, if it is awaited."""
    yield call("register", "poll", every="1m", cron=None)
    yield call("register", "poll", every="1m")
    yield call("register", "poll", every="2m")
    yield call("list_tasks", owner="feeds:1")
    yield call("pause", "poll")
    yield call("edit", "poll", every="1s", box="1h", tolerance="2h")
    yield call("edit", "nothing", every="1m")
    yield call("get", "nothing")


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_the_path_is_as_it_was(name: str, database_url: str) -> None:
    with SYNCHRONOUS[name](database_url) as db:
        for before in ("public, pg_catalog", PATH, '""', ODD_PATH):
            quoted = before.replace("'", "''")
            execute(db, f"SELECT set_config('search_path', E'{quoted}', false)".replace("\\", "\\\\"))
            before = path(db)
            for done in in_all_ways(partial(attempt, db)):
                assert path(db) == before, done
            sql.on(db, "ticker")("has_task", id=1)  # as a checkpoint in a session
            assert path(db) == before


def attempt(db: Any, name: str, *args: Any, **kwargs: Any) -> str:
    try:
        getattr(ticker, name)(db, *args, **kwargs)
    except (ticker.BadInput, ticker.UnknownTask) as error:
        return f"{name}: {error}"
    return name


@pytest.mark.parametrize("name", SYNCHRONOUS)
def test_the_path_is_as_it_was_before_an_error_of_postgresql(name: str, db: Any, database_url: str) -> None:
    with SYNCHRONOUS[name](database_url) as caller:
        execute(caller, "BEGIN" if "autocommit" in name or "Django" in name else "SELECT 1")
        execute(caller, "SET LOCAL search_path = crm, public; SAVEPOINT here; SET LOCAL statement_timeout = '200ms'")
        with db.transaction():
            db.execute("LOCK TABLE ticker.tasks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Exception, match="timeout"):
                ticker.register(caller, "poll", every="1m")
        execute(caller, "ROLLBACK TO here")
        assert path(caller) == "crm, public"
        ticker.register(caller, "poll", every="1m")
        execute(caller, "RELEASE here")
        assert path(caller) == "crm, public"
        execute(caller, "COMMIT" if "autocommit" in name or "Django" in name else "SELECT 1")
    assert len(ticker.list_tasks(db)) == 1


def test_the_path_is_as_it_was_in_a_pipeline(database_url: str) -> None:
    for autocommit in (True, False):
        with psycopg.connect(database_url, autocommit=autocommit) as db, db.pipeline():
            db.execute("SET search_path = crm, public")
            for done in in_all_ways(partial(attempt, db)):
                assert path(db) == "crm, public", done


async def path_async(db: Any) -> str:
    query = "SELECT current_setting('search_path')"
    if hasattr(db, "run_sync"):
        return str(await db.run_sync(path))
    if hasattr(db, "fetchval"):
        return str(await db.fetchval(query))
    return str((await (await db.execute(query)).fetchone())[0])


ASYNCHRONOUS = {
    "asyncpg": doors.of_asyncpg,
    "asyncpg, in a transaction": doors.of_asyncpg_with_codecs,
    "psycopg": doors.of_async_psycopg,
    "psycopg, autocommit": doors.of_async_psycopg_in_autocommit,
    **{f"AsyncSession, {driver}": partial(doors.of_async_session, driver) for driver in ("asyncpg", "psycopg")},
    **{f"AsyncConnection, {driver}": partial(doors.of_async_connection, driver) for driver in ("asyncpg", "psycopg")},
}


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_the_path_is_as_it_was_on_an_asynchronous_connection(name: str, db: Any, database_url: str) -> None:
    async def attempt(caller: Any, name: str, *args: Any, **kwargs: Any) -> str:
        try:
            await getattr(aio, name)(caller, *args, **kwargs)
        except (ticker.BadInput, ticker.UnknownTask) as error:
            return f"{name}: {error}"
        return name

    async def go() -> None:
        async with ASYNCHRONOUS[name](database_url) as caller:
            if hasattr(caller, "run_sync"):
                await caller.run_sync(lambda sync: execute(sync, "SET search_path = crm, public"))
            else:
                await caller.execute("SET search_path = crm, public")
            for done in in_all_ways(partial(attempt, caller)):
                assert (await done) and await path_async(caller) == "crm, public"

    asyncio.run(go())


@pytest.mark.parametrize("name", ["asyncpg, in a transaction", "psycopg"])
def test_tasks_that_share_a_connection_leave_the_path_as_it_was(name: str, database_url: str) -> None:
    async def go() -> None:
        async with ASYNCHRONOUS[name](database_url) as caller:
            await caller.execute("SET LOCAL search_path = crm, public")
            await asyncio.gather(*(aio.list_tasks(caller) for _ in range(5)), return_exceptions=True)
            assert await path_async(caller) == "crm, public"

    asyncio.run(go())


@pytest.mark.parametrize("name", ["asyncpg, in a transaction", "psycopg"])
def test_the_path_is_as_it_was_after_a_task_that_was_cancelled(name: str, db: Any, database_url: str) -> None:
    async def go() -> None:
        async with ASYNCHRONOUS[name](database_url) as caller:
            await caller.execute("SET LOCAL search_path = crm, public")
            await caller.execute("SAVEPOINT here")
            for yields in range(12):
                task = asyncio.ensure_future(aio.list_tasks(caller))
                for _ in range(yields):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await caller.execute("ROLLBACK TO here") if yields % 2 else None
                try:
                    found = await path_async(caller)
                except Exception as error:
                    assert getattr(error, "sqlstate", "") == "25P02", error  # the transaction is aborted
                    await caller.execute("ROLLBACK TO here")
                    found = await path_async(caller)
                assert found == "crm, public", yields

    asyncio.run(go())


class Base(DeclarativeBase): ...


class Channel(Base):
    """Its table is found through the search_path alone."""

    __tablename__ = "channels"
    id: Mapped[int] = mapped_column(primary_key=True)


OPERATIONS = {
    "register": {"function": "poll", "every": "1m"},
    "reconcile": {"wanted": []},
    "edit": {"task": "poll", "every": "2m"},
    "pause": {"until": datetime(2099, 1, 1, tzinfo=UTC)},
    "why": {"task": "poll"},
    "get": {"task": "poll"},
    "unregister": {}, "resume": {}, "run_now": {}, "list_tasks": {}, "list_runs": {}, "journal": {},
}  # fmt: skip


def test_each_operation_that_takes_an_owner_is_tested() -> None:
    takers = {name for name in aio.__all__ if "owner" in inspect.signature(getattr(ticker, name)).parameters}
    assert takers == OPERATIONS.keys()


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("options", [{}, {"schema_translate_map": {None: "crm"}}], ids=["path", "schema_translate_map"])
def test_a_pending_owner_is_flushed_under_its_own_path(
    name: str, options: dict[str, Any], db: Any, database_url: str
) -> None:
    db.execute("CREATE SCHEMA crm; CREATE TABLE crm.channels (id serial PRIMARY KEY)")
    engine = create_engine(of_driver("psycopg", database_url), poolclass=NullPool, execution_options=options)
    with Session(engine) as session, session.begin_nested():
        before = "public" if options else "crm, public"
        execute(session, f"SET LOCAL search_path = {before}")
        session.add(owner := Channel())
        with suppress(ticker.UnknownTask):
            getattr(ticker, name)(session, owner=owner, **OPERATIONS[name])
        assert owner.id and path(session) == before
        session.add(Channel())
        session.flush()


def test_a_pending_owner_of_an_async_session_is_flushed_under_its_own_path(db: Any, database_url: str) -> None:
    db.execute("CREATE SCHEMA crm; CREATE TABLE crm.channels (id serial PRIMARY KEY)")

    async def go() -> None:
        async with AsyncSession(create_async_engine(of_driver("asyncpg", database_url), poolclass=NullPool)) as session:
            await session.run_sync(lambda sync: execute(sync, "SET LOCAL search_path = crm, public"))
            session.add(owner := Channel())
            task = await aio.register(session, "poll", every="1m", owner=owner)
            assert (await path_async(session), task.owner_id) == ("crm, public", str(owner.id))

    asyncio.run(go())


def test_a_table_in_the_callers_path_is_an_owners_table(db: Any, database_url: str) -> None:
    db.execute("CREATE SCHEMA crm; CREATE TABLE crm.channels (id int PRIMARY KEY)")
    for name, before, words in (("a", "crm", "a table that"), ("b", "public", "not the name")):
        with psycopg.connect(database_url, options=f"-c search_path={before}") as caller:
            [warning] = ticker.register(caller, "poll", name=name, every="1m", owner="channels:1").warnings
            assert words in warning
            caller.rollback()
    ticker.register(db, "poll", every="1m", owner="channels:1")
    for before, found in (("crm", [True]), ("public", [False])):
        with connect(f"{database_url}{'&' if '?' in database_url else '?'}options=-csearch_path%3D{before}") as ours:
            assert [row["is_table"] for row in sql.on(ours, "ticker")("types_of_owners")] == found


OF_TENANTS = """
import os
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

at = conninfo_to_dict(os.environ["DATABASE_URL"])
names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
given = {key: at.get(name, "") for key, name in names.items()}
settings.configure(
    USE_TZ=True, DATABASES={"default": {"ENGINE": "django_tenants.postgresql_backend", **given}},
    INSTALLED_APPS=["django.contrib.contenttypes"], TENANT_LIMIT_SET_CALLS=True,
)
django.setup()
from django.db import connection, transaction
import ticker

def path():
    return connection.connection.execute("SELECT current_setting('search_path')").fetchone()[0]

connection.set_schema("crm")
for atomic in (False, True):
    with transaction.atomic() if atomic else connection.cursor() as cursor:
        (cursor or connection.cursor()).execute("SELECT 1")
        before = path()
        ticker.register(connection, "poll", name=f"{atomic}", every="1m")
        ticker.list_tasks(connection)
        print(before == path(), before)
"""


def test_the_path_that_django_tenants_sets_stays(environ: dict[str, str]) -> None:
    pytest.importorskip("django_tenants")
    command = [sys.executable, "-c", OF_TENANTS]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environ, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["True crm, public"] * 2, done.stderr


def test_the_rows_that_an_application_makes_of_its_answers_are_its_own_matter(database_url: str) -> None:
    def strict(cursor: psycopg.Cursor[Any]) -> Any:
        raise AssertionError("no statement of the application was sent")

    with psycopg.connect(database_url, row_factory=strict) as connection:
        assert ticker.register(connection, "poll", every="1m").function == "poll"
