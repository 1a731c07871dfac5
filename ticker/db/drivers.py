"""Runs statements on an application's connections: those of psycopg 3, psycopg2, asyncpg, SQLAlchemy or Django.

A connection is recognised by what it can do, so that a scoped_session works and no library has to be imported. Parameters
are written as %(name)s. Values come back as Python's own types, with times in UTC, whatever the connection's rows look like.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from threading import RLock
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakKeyDictionary

from ticker.errors import BadInput, DatabaseUnavailable, RowLocked, TickerError

Row = Mapping[str, Any]

EXPLAINED: Mapping[str, Callable[[str], TickerError]] = {
    "40P01": lambda _: RowLocked(
        "deadlock: another transaction writes the same tasks in another order; nothing was written: roll back and repeat the "
        "transaction, and let every transaction write its tasks in the same order, such as by owner"
    ),
    "40001": lambda text: RowLocked(f"{text}; nothing was written: roll back and repeat the transaction"),
    "25006": lambda text: DatabaseUnavailable(
        f"{text}; connect to the primary, as a role that may write there (default_transaction_read_only)"
    ),
}
"""Makes our errors from PostgreSQL's text, by SQLSTATE."""
IDLE = 0  # libpq's status of a connection outside a transaction
AT_ONCE = {"stream_results": False, "yield_per": None}  # whatever the caller has set for queries of its own

_TYPES = (16, 20, 21, 23, 25, 701, 1043, 1184, 2950)  # bool, int8, int2, int4, text, float8, varchar, timestamptz, uuid
_PARAMETER = re.compile(r"%%|%\((\w+)\)s")
_LOCKS: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()


class Driver(Protocol):
    def transaction(self) -> AbstractContextManager[Any]:
        """Returns a context for several statements: a transaction, unless the connection is in one, or will begin one."""

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Runs a statement inside the connection's transaction and returns its rows."""


class AsyncDriver(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    async def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]: ...


def of(db: Any, about: Iterable[object] = ()) -> Driver:
    """Returns the driver of a synchronous connection. A Session may choose it `about` mapped objects. Raises BadInput for others."""
    if _is_asynchronous(db):
        raise BadInput(
            "db",
            db,
            "is asynchronous; use ticker.aio (await ticker.aio.register(...)) or the connection that run_sync passes",
        )
    if hasattr(db, "exec_driver_sql"):
        return _SQLAlchemy(db)
    if hasattr(db, "flush") and hasattr(db, "connection"):
        return _SQLAlchemy(_bound(db, about))
    if hasattr(db, "pgconn"):
        return _Psycopg(db)
    if hasattr(db, "get_transaction_status"):
        return _Psycopg2(db)
    if hasattr(db, "ensure_connection"):
        return _Django(db)
    raise BadInput(
        "db", db, "is not a connection: pass one from SQLAlchemy (or a Session), Django, psycopg or psycopg2"
    )


def of_async(db: Any) -> AsyncDriver:
    """Returns the driver of an asyncpg connection, or of psycopg's AsyncConnection. Raises BadInput for anything else."""
    if not _is_asynchronous(db):
        raise BadInput(
            "db",
            db,
            "is not an asynchronous connection: pass one from SQLAlchemy (or an AsyncSession), asyncpg or psycopg",
        )
    if hasattr(db, "is_in_transaction"):
        return _Asyncpg(db)
    if hasattr(db, "pgconn"):
        return _AsyncPsycopg(db)
    raise BadInput(
        "db", db, "is a pool, or unknown: pass a connection from SQLAlchemy (or an AsyncSession), asyncpg or psycopg"
    )


@contextmanager
def explained(denied: Callable[[str], TickerError] | None = None) -> Iterator[None]:
    """Raises an error that says what to do, instead of a driver's error. `denied` makes it if a right is missing."""
    try:
        yield
    except Exception as error:
        origin: Any = error
        while inner := getattr(origin, "orig", None) or origin.__cause__:  # of SQLAlchemy; of Django and asyncpg
            origin = inner
        state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None) or ""
        if explain := denied if state == "42501" else EXPLAINED.get(state):  # insufficient_privilege
            raise explain(str(origin).partition("\n")[0]) from error
        raise


def _bound(session: Any, about: Iterable[Any]) -> Any:
    """Returns the connection by which a Session writes the table of the first mapped object or class in `about`."""
    alchemy = sys.modules["sqlalchemy"]  # never imported here: an application with a Session has loaded it
    mapper = next((one.__mapper__ for one in about if hasattr(one, "__mapper__")), None)
    table = mapper.primary_key[0].table if mapper else alchemy.table("tasks", schema="ticker")
    try:
        return session.connection(bind_arguments={"mapper": mapper, "clause": alchemy.update(table)})
    except alchemy.exc.UnboundExecutionError as error:
        raise BadInput(
            "db", type(session).__name__, "has no engine for ticker's tables; pass a connection: session.connection("
            "bind_arguments={'mapper': MailChannel}), with a class that is mapped to the same database",
        ) from error  # fmt: skip


def _is_asynchronous(db: Any) -> bool:
    is_asyncpg = hasattr(db, "is_in_transaction")  # whose pool hands out proxies with ordinary methods
    return is_asyncpg or inspect.iscoroutinefunction(getattr(db, "execute", None))


class _SQLAlchemy:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._driver = connection.dialect.driver
        if self._driver not in ("psycopg", "psycopg_async", "psycopg2", "asyncpg"):
            raise BadInput(
                "db",
                self._driver,
                "is not a supported driver: use psycopg, psycopg2 or asyncpg, as in postgresql+psycopg://",
            )

    def transaction(self) -> AbstractContextManager[Any]:
        return _begun(self) if _is_alone(self._connection.connection.dbapi_connection) else nullcontext()

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        if self._driver == "asyncpg":
            numbers, names = numbered(text)
            result = self._connection.exec_driver_sql(numbers, tuple(parameters[name] for name in names), AT_ONCE)
        else:
            result = self._connection.exec_driver_sql(text, dict(parameters), AT_ONCE)
        return in_utc(result.mappings()) if result.returns_rows else []


@dataclass(frozen=True)
class _Psycopg:
    connection: Any

    def transaction(self) -> AbstractContextManager[None]:
        return _alone_or_joined(self.connection, self.connection.transaction)

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        from psycopg import RawCursor
        from psycopg.rows import dict_row

        connection = self.connection
        numbers, names = numbered(text)
        values = [parameters[name] for name in names]
        if hasattr(connection, "run"):  # ours: outside a transaction, each statement is one
            return _in_utc_of(connection, connection.run(numbers, values))
        with RawCursor(connection, row_factory=dict_row) as cursor:
            _read_plainly(cursor)
            cursor.execute(numbers, values, binary=not reads_iso(connection))
            if connection.pgconn.pipeline_status:
                with connection.pipeline() as pipeline:
                    pipeline.sync()
            return _in_utc_of(connection, cursor if _has_rows(cursor) else ())


@dataclass(frozen=True)
class _Psycopg2:
    connection: Any

    def transaction(self) -> AbstractContextManager[None]:
        return _alone_or_joined(self.connection, partial(_begun, self))

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        from psycopg2.extensions import cursor as plain  # users may have set another class for their rows

        with self.connection.cursor(cursor_factory=plain) as cursor:
            _read_plainly_by_psycopg2(cursor)
            cursor.execute(*((text, parameters) if parameters else (text.replace("%%", "%"),)))
            names = [column.name for column in cursor.description or ()]
            return in_utc(dict(zip(names, row, strict=True)) for row in cursor.fetchall()) if names else []


@dataclass(frozen=True)
class _Asyncpg:
    connection: Any

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        is_alone = not self.connection.is_in_transaction()
        return self.connection.transaction() if is_alone else nullcontext()

    async def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        numbers, names = numbered(text)
        return in_utc(await self.connection.fetch(numbers, *(parameters[name] for name in names)))


@dataclass(frozen=True)
class _AsyncPsycopg:
    connection: Any

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self.connection.transaction() if _is_alone(self.connection) else nullcontext()

    async def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        from psycopg import AsyncRawCursor
        from psycopg.rows import dict_row

        numbers, names = numbered(text)
        connection = self.connection
        async with AsyncRawCursor(connection, row_factory=dict_row) as cursor:
            _read_plainly(cursor)
            await cursor.execute(numbers, [parameters[name] for name in names], binary=not reads_iso(connection))
            if connection.pgconn.pipeline_status:
                async with connection.pipeline() as pipeline:
                    await pipeline.sync()
            return _in_utc_of(connection, await cursor.fetchall() if _has_rows(cursor) else ())


class _Django:
    """Runs statements as Django does: with Django's errors, and never in a transaction that has to be rolled back."""

    def __init__(self, wrapper: Any) -> None:
        wrapper.ensure_connection()
        self._wrapper, self._driver = wrapper, of(wrapper.connection)

    def transaction(self) -> AbstractContextManager[Any]:
        return self._driver.transaction()

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        self._wrapper.validate_no_broken_transaction()
        with self._wrapper.wrap_database_errors:
            return self._driver.fetch(text, parameters)


def _is_alone(connection: Any) -> bool:
    """Returns whether a connection of a driver, or SQLAlchemy's adapter of one, is in autocommit mode and outside a transaction."""
    if not connection.autocommit:
        return False
    own = getattr(connection, "driver_connection", connection)
    if hasattr(own, "is_in_transaction"):
        return not own.is_in_transaction()
    return bool((own.pgconn.transaction_status if hasattr(own, "pgconn") else own.get_transaction_status()) == IDLE)


@contextmanager
def _alone_or_joined(connection: Any, begin: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Begins a transaction unless the connection is in one, or will begin one.

    Threads that share a connection take turns: one must not join the transaction of another.
    """
    with _LOCKS.setdefault(connection, RLock()), begin() if _is_alone(connection) else nullcontext():
        yield


@contextmanager
def _begun(driver: Driver) -> Iterator[None]:
    driver.fetch("BEGIN", {})
    try:
        yield
    except BaseException:
        with suppress(Exception):  # a broken connection has no transaction; the caller gets the first error
            driver.fetch("ROLLBACK", {})
        raise
    driver.fetch("COMMIT", {})


def _read_plainly(cursor: Any) -> None:
    """Makes a psycopg cursor read the types in our statements as psycopg does, whatever the application has registered."""
    from psycopg import adapters
    from psycopg.pq import Format

    given = cursor.connection.adapters
    for type_ in _TYPES:
        for format_ in (Format.TEXT, Format.BINARY):
            plain = adapters.get_loader(type_, format_)
            if plain is not None and plain is not given.get_loader(type_, format_):
                cursor.adapters.register_loader(type_, plain)


def _read_plainly_by_psycopg2(cursor: Any) -> None:
    """Does for a psycopg2 cursor what `_read_plainly` does for psycopg."""
    from psycopg2 import extensions

    for type_ in _types_of_psycopg2():
        extensions.register_type(type_, cursor)


@cache
def _types_of_psycopg2() -> Sequence[Any]:
    from psycopg2 import extensions

    uuid = extensions.new_type((2950,), "UUID", lambda text, _: text and UUID(text))
    return uuid, extensions.PYDATETIMETZ, extensions.PYDATETIMETZARRAY


@cache
def numbered(text: str) -> tuple[str, Sequence[str]]:
    """Returns a statement with PostgreSQL's own $1, $2 ... for its parameters, and their names in that order.

    psycopg does the same. If a statement has over 4,096 characters, it does so in every call: a sixth of what a start takes.
    """
    names = list(dict.fromkeys(filter(None, _PARAMETER.findall(text))))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}" if found[1] else "%", text), names


def reads_iso(connection: Any) -> bool:
    """Returns whether the session writes times in the ISO format, the only one that psycopg can read from text."""
    return (connection.pgconn.parameter_status(b"DateStyle") or b"ISO").startswith(b"ISO")


def _has_rows(cursor: Any) -> bool:
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0  # `description` would describe each column


def _in_utc_of(connection: Any, rows: Iterable[Row]) -> list[Row]:
    return list(rows) if connection.pgconn.parameter_status(b"TimeZone") in (b"UTC", b"Etc/UTC") else in_utc(rows)


def in_utc(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Returns the rows with times in UTC. In the session's zone, sums across a clock change would be an hour off."""
    return [{name: _time_in_utc(value) for name, value in row.items()} for row in rows]


def _time_in_utc(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, list) and value and isinstance(value[0], datetime):
        return [time.astimezone(UTC) for time in value]
    return value
