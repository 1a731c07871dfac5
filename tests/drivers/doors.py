"""The functions of `ticker` through every driver that applications use: each call on a connection of its own, committed.

door = DOORS["asyncpg"](url)
task = door("register", "poll", every="1m")
door("get", task.id)
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session

import ticker
from ticker import aio

Door = Callable[..., Any]
ZONE = "Pacific/Chatham"  # of each session: a value that keeps it is not in UTC


def synchronous(opened: Callable[[str], AbstractContextManager[Any]], url: str) -> Door:
    def door(name: str, /, *args: Any, **kwargs: Any) -> Any:
        with opened(url) as db:
            return getattr(ticker, name)(db, *args, **kwargs)

    return door


def asynchronous(opened: Callable[[str], AbstractAsyncContextManager[Any]], url: str) -> Door:
    async def call(name: str, /, *args: Any, **kwargs: Any) -> Any:
        async with opened(url) as db:
            return await getattr(aio, name)(db, *args, **kwargs)

    return lambda *args, **kwargs: asyncio.run(call(*args, **kwargs))


# ------------------------------------------------------------------------------------------------------- synchronous


@contextmanager
def of_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url, options=f"-c timezone={ZONE}") as connection:
        yield connection


class Odd(Loader):
    """Loads jsonb as nobody expects it."""

    def load(self, data: Any) -> Any:
        return bytes(data)


@contextmanager
def of_psycopg_in_autocommit(url: str) -> Iterator[Any]:
    """With its own rows, and its own reading of jsonb."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row, options=f"-c timezone={ZONE}") as connection:
        connection.adapters.register_loader("jsonb", Odd)
        yield connection


@contextmanager
def of_psycopg2(url: str) -> Iterator[Any]:
    connection = psycopg2.connect(url, options=f"-c timezone={ZONE}")
    try:
        with connection:  # commits, or rolls back
            yield connection
    finally:
        connection.close()


@contextmanager
def of_psycopg2_in_autocommit(url: str) -> Iterator[Any]:
    """With its own rows, and its own reading of jsonb."""
    connection = psycopg2.connect(url, cursor_factory=psycopg2.extras.RealDictCursor)
    connection.autocommit = True
    psycopg2.extras.register_default_jsonb(connection, loads=lambda text: text.encode())
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def of_session(driver: str, url: str) -> Iterator[Any]:
    with Session(create_engine(of_driver(driver, url), poolclass=NullPool)) as session, session.begin():
        yield session


@contextmanager
def of_connection(driver: str, url: str) -> Iterator[Any]:
    with create_engine(of_driver(driver, url), poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def of_connection_in_autocommit(driver: str, url: str) -> Iterator[Any]:
    engine = create_engine(of_driver(driver, url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection


@cache
def wrapper_of_django(driver: str) -> Any:
    """Django's class of connections with that driver. It takes psycopg 3 if it can import it."""
    from django.conf import settings

    if not settings.configured:
        settings.configure(USE_TZ=True)
    for name in [name for name in sys.modules if name.startswith("django.db.backends.postgresql")]:
        del sys.modules[name]
    if driver == "psycopg2":
        sys.modules["psycopg"] = None  # type: ignore[assignment]
    try:
        found = import_module("django.db.backends.postgresql.base").DatabaseWrapper
    finally:
        sys.modules["psycopg"] = psycopg
    assert found.Database.__name__ == driver
    return found


@contextmanager
def of_django(driver: str, url: str) -> Iterator[Any]:
    """In autocommit, as Django's connections are outside `atomic`."""
    at = conninfo_to_dict(url)
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    settings = {"OPTIONS": {}, "TIME_ZONE": ZONE, "AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False}
    connection = wrapper_of_django(driver)(settings | {key: at.get(name, "") for key, name in names.items()})
    try:
        yield connection
    finally:
        connection.close()


# ------------------------------------------------------------------------------------------------------ asynchronous


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def of_asyncpg_with_codecs(url: str) -> AsyncIterator[Any]:
    """In a transaction, from a pool, with a reading and a writing of its own for JSON."""
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1, init=set_codecs) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


async def set_codecs(connection: Any) -> None:
    for type_ in ("json", "jsonb"):
        await connection.set_type_codec(type_, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")


@asynccontextmanager
async def of_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, options=f"-c timezone={ZONE}") as connection:
        yield connection


@asynccontextmanager
async def of_async_psycopg_in_autocommit(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        yield connection


@asynccontextmanager
async def of_async_session(driver: str, url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(of_driver(driver, url), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def of_async_scoped_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(of_driver("asyncpg", url), poolclass=NullPool)
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=asyncio.current_task)
    async with session.begin():
        yield session
    await session.remove()


@asynccontextmanager
async def of_async_connection(driver: str, url: str) -> AsyncIterator[Any]:
    async with create_async_engine(of_driver(driver, url), poolclass=NullPool).begin() as connection:
        yield connection


def of_driver(driver: str, url: str) -> str:
    """SQLAlchemy's asyncpg takes the folder of a Unix socket as a parameter, as libpq does."""
    return url.replace("postgresql://", f"postgresql+{driver}://", 1)


DOORS: dict[str, Callable[[str], Door]] = {
    "psycopg": partial(synchronous, of_psycopg),
    "psycopg, autocommit": partial(synchronous, of_psycopg_in_autocommit),
    "psycopg2": partial(synchronous, of_psycopg2),
    "psycopg2, autocommit": partial(synchronous, of_psycopg2_in_autocommit),
    "Session, psycopg": partial(synchronous, partial(of_session, "psycopg")),
    "Session, psycopg2": partial(synchronous, partial(of_session, "psycopg2")),
    "Connection, psycopg": partial(synchronous, partial(of_connection, "psycopg")),
    "Connection, psycopg2": partial(synchronous, partial(of_connection, "psycopg2")),
    "Connection, psycopg, autocommit": partial(synchronous, partial(of_connection_in_autocommit, "psycopg")),
    "Connection, psycopg2, autocommit": partial(synchronous, partial(of_connection_in_autocommit, "psycopg2")),
    "Django, psycopg": partial(synchronous, partial(of_django, "psycopg")),
    "Django, psycopg2": partial(synchronous, partial(of_django, "psycopg2")),
    "asyncpg": partial(asynchronous, of_asyncpg),
    "asyncpg, codecs": partial(asynchronous, of_asyncpg_with_codecs),
    "async psycopg": partial(asynchronous, of_async_psycopg),
    "async psycopg, autocommit": partial(asynchronous, of_async_psycopg_in_autocommit),
    "AsyncSession, asyncpg": partial(asynchronous, partial(of_async_session, "asyncpg")),
    "AsyncSession, psycopg": partial(asynchronous, partial(of_async_session, "psycopg")),
    "async_scoped_session, asyncpg": partial(asynchronous, of_async_scoped_session),
    "AsyncConnection, asyncpg": partial(asynchronous, partial(of_async_connection, "asyncpg")),
    "AsyncConnection, psycopg": partial(asynchronous, partial(of_async_connection, "psycopg")),
}
