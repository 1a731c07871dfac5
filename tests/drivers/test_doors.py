"""`ticker` and `ticker.aio` have the same functions; each refuses the other's connections, in mypy and at run time."""

import asyncio
import inspect
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import ticker
from tests.doubles import NOW
from tests.drivers.doors import of_connection, of_driver, of_psycopg, of_psycopg2, of_session
from tests.factories import engine_on
from tests.harness import begun
from ticker import BadInput, aio
from ticker.db import sql

TYPED = """
import psycopg
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session, scoped_session

import ticker
import ticker.aio
from ticker import Task


def taken(a: Session, b: Connection, c: psycopg.Connection[object], d: scoped_session[Session]) -> list[Task]:
    ticker.edit(a, 1, every="1m", enabled=True)
    return [ticker.register(a, "poll", every="1m"), ticker.get(b, 1), ticker.get(c, 1), *ticker.list_tasks(d)]


async def awaited(a: AsyncSession, b: AsyncConnection, c: psycopg.AsyncConnection[object]) -> list[Task]:
    return [await ticker.aio.register(a, "poll", every="1m"), await ticker.aio.get(b, 1), await ticker.aio.get(c, 1)]


def refused(a: AsyncSession, b: AsyncConnection, c: psycopg.AsyncConnection[object], d: Session) -> None:
    ticker.register(a, "poll", every="1m")
    ticker.register(b, "poll", every="1m")
    ticker.register(c, "poll", every="1m")
    ticker.aio.register(d, "poll", every="1m")
    ticker.register(d, "poll", evry="1m")
    ticker.edit(d, 1, evry="1m")
"""


def test_both_doors_have_the_same_functions() -> None:
    functions = [name for name in ticker.__all__ if inspect.isfunction(getattr(ticker, name)) and name != "validate"]
    assert aio.__all__ == functions and dir(aio) == sorted(functions)
    for name in functions:
        here, there = getattr(ticker, name), getattr(aio, name)
        assert inspect.iscoroutinefunction(there) and there.__doc__ == here.__doc__
        assert list(inspect.signature(here).parameters) == list(inspect.signature(there).parameters)


@pytest.mark.slow
def test_a_connection_of_the_other_kind_and_a_misspelt_field_fail_in_mypy(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path / "typed.py")]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120).stdout
    lines = {int(line.split(":")[1]) for line in told.splitlines() if ": error:" in line}
    first = TYPED[: TYPED.index("def refused")].count("\n") + 2
    assert lines == {*range(first, first + 6)}, told


@pytest.mark.slow
def test_each_door_names_the_other(environ: dict[str, str], database_url: str) -> None:
    async def wrongly() -> None:
        async with AsyncSession(create_async_engine(of_driver("asyncpg", database_url), poolclass=NullPool)) as session:
            ticker.register(session, "poll", every="1m")  # type: ignore[arg-type]

    async def the_other_way() -> None:
        with engine_on(database_url).connect() as connection:
            await aio.register(connection, "poll", every="1m")  # type: ignore[arg-type]

    async def with_a_pool() -> None:
        async with asyncpg.create_pool(database_url, min_size=1) as pool:
            await aio.register(pool, "poll", every="1m")

    with pytest.raises(BadInput, match=r"ticker\.aio"):
        asyncio.run(wrongly())
    with pytest.raises(BadInput, match="asynchronous connection"):
        asyncio.run(the_other_way())
    with pytest.raises(BadInput, match="is a pool"):
        asyncio.run(with_a_pool())


@pytest.mark.parametrize(
    "opened",
    [of_psycopg, of_psycopg2, partial(of_session, "psycopg2"), partial(of_connection, "psycopg")],
    ids=range(4),
)
def test_a_checkpoint_joins_the_transaction_of_each_driver(
    opened: Any, environ: Any, db: Any, database_url: str
) -> None:
    task, token = ticker.register(db, "poll", every="1m"), uuid4()
    begun(db, task, NOW, NOW, str(token))
    for is_rolled_back, cursor in ((True, None), (False, {"uid": 7})):
        with suppress(KeyError), opened(database_url) as connection:
            execute = sql.on(connection, "ticker")
            assert execute("checkpoint", task_id=task.id, token=str(token), cursor='{"uid": 7}')
            assert execute("has_task", id=task.id)
            if is_rolled_back:
                raise KeyError
        assert ticker.get(db, task).cursor == cursor


def test_a_checkpoint_joins_the_transaction_of_an_async_session(environ: Any, db: Any, database_url: str) -> None:
    task, token = ticker.register(db, "poll", every="1m"), uuid4()
    begun(db, task, NOW, NOW, str(token))
    given = {"task_id": task.id, "token": str(token), "cursor": '{"uid": 7}'}

    async def store() -> None:
        engine = create_async_engine(of_driver("asyncpg", database_url), poolclass=NullPool)
        async with AsyncSession(engine) as session, session.begin():
            await session.run_sync(lambda sync: sql.on(sync, "ticker")("checkpoint", **given))

    asyncio.run(store())
    assert ticker.get(db, task).cursor == {"uid": 7}


@pytest.mark.slow
def test_an_error_of_the_database_is_the_drivers_own(environ: dict[str, str], db: Any, database_url: str) -> None:
    db.execute("DROP SCHEMA ticker CASCADE")

    async def register() -> None:
        connection = await asyncpg.connect(database_url)
        try:
            await aio.register(connection, "poll", every="1m")
        finally:
            await connection.close()

    with pytest.raises(asyncpg.exceptions.UndefinedTableError):
        asyncio.run(register())
    with pytest.raises(Exception, match="does not exist") as error, of_psycopg2(database_url) as connection:
        ticker.register(connection, "poll", every="1m")
    assert getattr(error.value, "pgcode", None) == "42P01"
