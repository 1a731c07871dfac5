"""Operations in, beside and outside transactions of the caller, on connections that are shared, broken or set up oddly."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg2
import pytest
from psycopg.adapt import Loader
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import ticker
from tests.drivers.doors import of_django, of_driver, of_psycopg2_in_autocommit, wrapper_of_django
from ticker import aio, owners


@contextmanager
def autocommit(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.mark.slow
@pytest.mark.parametrize("opened", [autocommit, of_psycopg2_in_autocommit])
def test_threads_that_share_a_connection_do_not_share_a_transaction(
    opened: Callable[[str], Any], environ: Any, db: Any, database_url: str
) -> None:
    """Of 24 registrations, half are of an owner that does not exist: each of the others stays."""
    db.execute("CREATE TABLE mail_channels (id int PRIMARY KEY)")
    db.execute("\n".join(owners.triggers("mail_channels")))
    returned: list[str] = []

    def register(thread: int) -> None:
        for number in range(3):
            try:
                owner = "mail_channels:9" if (thread + number) % 2 else None
                returned.append(
                    ticker.register(shared, "poll", name=f"{thread}-{number}", every="1m", owner=owner).name
                )
            except ticker.UnknownOwner:
                pass

    with opened(database_url) as shared:
        threads = [threading.Thread(target=register, args=[thread]) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(returned) == 12 and sorted(task.name for task in ticker.list_tasks(db)) == sorted(returned)


@pytest.mark.slow
def test_an_operation_in_a_pipeline_reads_its_answers(environ: Any, db: Any, database_url: str) -> None:
    with psycopg.connect(database_url) as connection, connection.pipeline():
        task = ticker.register(connection, "poll", every="1m", kwargs={"a": 1})
        assert ticker.list_tasks(connection) == [task]

    async def read() -> Any:
        async with await psycopg.AsyncConnection.connect(database_url) as connection, connection.pipeline():
            return await aio.list_tasks(connection)

    assert asyncio.run(read()) == ticker.list_tasks(db) == [task]


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_transaction_that_the_caller_has_begun_in_autocommit_stays_his(
    driver: str, environ: Any, db: Any, database_url: str
) -> None:
    engine = create_engine(of_driver(driver, database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        ticker.register(connection, "poll", every="1m")
        connection.exec_driver_sql("ROLLBACK")
    assert ticker.list_tasks(db) == []


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_results_that_the_caller_streams_are_his_own(driver: str, environ: Any, db: Any, database_url: str) -> None:
    engine = create_engine(of_driver(driver, database_url), poolclass=NullPool)
    with engine.connect().execution_options(stream_results=True, yield_per=10) as connection:
        task = ticker.register(connection, "poll", every="1m")
        assert ticker.get(connection, task) == task


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "error"), [("psycopg", psycopg.OperationalError), ("psycopg2", psycopg2.OperationalError)]
)
def test_a_connection_that_breaks_tells_its_own_error(
    driver: str, error: type[Exception], environ: Any, db: Any, database_url: str
) -> None:
    engine = create_engine(of_driver(driver, database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        [pid] = connection.exec_driver_sql("SELECT pg_backend_pid()").one()
        db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        with pytest.raises(Exception, match=r"terminat|closed") as caught:
            ticker.register(connection, "poll", every="1m")
    assert isinstance(getattr(caught.value, "orig", caught.value), error)


@pytest.mark.slow
def test_a_timeout_is_a_timeout(environ: Any, db: Any, database_url: str) -> None:
    async def register() -> None:
        engine = create_async_engine(
            of_driver("asyncpg", database_url), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        async with engine.connect() as connection, asyncio.timeout(0.3):
            await aio.register(connection, "poll", every="1m")

    with db.transaction():
        db.execute("LOCK TABLE ticker.tasks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TimeoutError):
            asyncio.run(register())
    assert ticker.list_tasks(db) == []


class Naive(Loader):
    def load(self, data: Any) -> Any:
        return "nine o'clock"


def test_values_are_plain_whatever_the_connection_loads(environ: Any, db: Any, database_url: str) -> None:
    with psycopg.connect(database_url, options="-c timezone=UTC") as connection:
        for type_ in ("timestamptz", "text", "uuid", "int8", "bool"):
            connection.adapters.register_loader(type_, Naive)
        task = ticker.register(connection, "poll", cron="0 9 * * *")
        assert ticker.get(connection, task) == task
    assert ticker.get(db, task) == task


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_djangos_connection_is_replaced_when_it_breaks(driver: str, environ: Any, db: Any, database_url: str) -> None:
    wrapper_of_django(driver)
    from django.db.utils import OperationalError

    with of_django(driver, database_url) as connection:
        connection.settings_dict["CONN_MAX_AGE"] = connection.close_at = None
        task = ticker.register(connection, "poll", every="1m")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [pid] = cursor.fetchone()
        db.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        with pytest.raises(OperationalError):
            ticker.get(connection, task)
        connection.close_if_unusable_or_obsolete()  # as Django does between requests
        assert ticker.get(connection, task) == task


def test_a_new_owner_of_an_async_session_is_not_flushed_elsewhere(environ: Any, db: Any, database_url: str) -> None:
    class Base(DeclarativeBase): ...

    class Channel(Base):
        __tablename__ = "channels"
        id: Mapped[int] = mapped_column(primary_key=True)

    async def register() -> None:
        engine = create_async_engine(of_driver("asyncpg", database_url), poolclass=NullPool)
        opened = psycopg.AsyncConnection.connect(database_url)
        async with AsyncSession(engine) as session, await opened as connection:
            session.add(owner := Channel())
            await aio.register(connection, "poll", every="1m", owner=owner)

    with pytest.raises(ticker.BadInput, match="AsyncSession"):
        asyncio.run(register())
