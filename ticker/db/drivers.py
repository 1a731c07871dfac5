"""Runs statements on an application's connections: those of psycopg 3, psycopg2, asyncpg, SQLAlchemy or Django.

A connection is recognised by what it can do, so that a scoped_session works and no library has to be imported.
Parameters are written as %(name)s. Values come back as Python's own types, with times in UTC, whatever the connection's
rows look like.
"""

import inspect
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from threading import RLock
from typing import Any, Protocol, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from ticker.errors import BadInput, DatabaseUnavailable, RowLocked, TickerError, of_type

Row = Mapping[str, Any]

EXPLAINED: Mapping[str, Callable[[str], TickerError]] = {
    "40P01": lambda _: RowLocked(
        "deadlock: another transaction writes the same tasks in another order; nothing was written: roll back and repeat the "
        "transaction, and let every transaction write its tasks in the same order, such as by owner"
    ),
    "40001": lambda text: RowLocked(f"{text}; nothing was written: roll back and repeat the transaction"),
    "25006": lambda text: DatabaseUnavailable(
        f"{text}; connect to the primary, with transactions that are not read-only (default_transaction_read_only)"
    ),
}
"""Makes our errors from PostgreSQL's text, by SQLSTATE."""
IDLE = 0  # libpq's status of a connection outside a transaction
PATH = "pg_catalog, pg_temp"
"""The search_path of our statements: what other roles have created in a schema is not found."""
SCHEMAS = "pg_catalog.set_config('ticker.schemas', pg_catalog.current_schemas(false)::pg_catalog.text, true)"
"""Stores the schemas of the caller's search_path, in which `is_table` finds owners' tables."""
PIN = (
    f"SELECT {SCHEMAS}, pg_catalog.set_config('ticker.path', pg_catalog.current_setting('search_path'), true),"
    f" pg_catalog.set_config('search_path', '{PATH}', true)"
)
RESTORED = "pg_catalog.set_config('search_path', pg_catalog.current_setting('ticker.path'), true)"
RESTORE = f"SELECT {RESTORED} WHERE pg_catalog.current_setting('search_path') OPERATOR(pg_catalog.=) '{PATH}'"
AT_ONCE = {"stream_results": False, "yield_per": None}  # whatever the caller has set for queries of its own

_TYPES = (16, 20, 21, 23, 25, 701, 1043, 1184, 2950)  # bool, int8, int2, int4, text, float8, varchar, timestamptz, uuid
_PARAMETER = re.compile(r"%%|%\((\w+)\)s")
_LOCKS: WeakKeyDictionary[Any, RLock] = WeakKeyDictionary()
_TURNS: WeakKeyDictionary[Any, AbstractAsyncContextManager[Any]] = WeakKeyDictionary()  # for the tasks of an event loop


class Driver(Protocol):
    def transaction(self, *, writes: bool) -> AbstractContextManager[Any]:
        """Returns a context for statements: a transaction, unless the connection is in one, or will begin one.

        After it, the caller's search_path is as it was. On our own connection, statements that only read are a
        transaction each.
        """

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        """Runs a statement inside `transaction`, under our search_path, and returns its rows."""


class AsyncDriver(Protocol):
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...
    async def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]: ...


def of(db: Any, about: Iterable[object] = ()) -> Driver:
    """Returns the driver of a synchronous connection for one operation. Raises BadInput for anything else.

    `about` are the operation's arguments. A Session with several databases chooses one by the mapped objects among
    them.
    """
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
    if hasattr(db, "run"):
        return _Own(db)
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
    """Raises an error that says what to do, instead of a driver's error. `denied` makes that error if a right is
    missing.
    """
    try:
        yield
    except Exception as error:
        state, text = answer_of(error)
        if explain := denied if state == "42501" else EXPLAINED.get(state):  # insufficient_privilege
            raise explain(text) from error
        raise


def answer_of(error: BaseException) -> tuple[str, str]:
    """Returns the SQLSTATE of PostgreSQL's answer, or an empty string if there was none, and the first line of its
    text.
    """
    origin: Any = error
    while inner := getattr(origin, "orig", None) or origin.__cause__:  # of SQLAlchemy; of Django and asyncpg
        origin = inner
    state = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None) or ""
    return state, str(origin).partition("\n")[0]


def _bound(session: Any, about: Iterable[Any]) -> Any:
    """Returns the connection by which a Session writes the table of the first mapped object or class in `about`."""
    alchemy = sys.modules["sqlalchemy"]  # never imported here: an application with a Session has loaded it
    mapper = next((one.__mapper__ for one in about if hasattr(one, "__mapper__")), None)
    table = mapper.primary_key[0].table if mapper else alchemy.table("tasks", schema="ticker")
    try:
        return session.connection(bind_arguments={"mapper": mapper, "clause": alchemy.update(table)})
    except alchemy.exc.UnboundExecutionError as error:
        raise BadInput(
            "db",
            None,
            f"{of_type(session)} has no engine for ticker's tables; pass a connection: session.connection("
            "bind_arguments={'mapper': MailChannel}), with a class that is mapped to the same database",
        ) from error


def _is_asynchronous(db: Any) -> bool:
    is_asyncpg = hasattr(db, "is_in_transaction")  # whose pool hands out proxies with ordinary methods
    return is_asyncpg or inspect.iscoroutinefunction(getattr(db, "execute", None))


@dataclass(frozen=True)
class _Own:
    """Our own connection, whose transactions have our settings."""

    connection: Any

    def transaction(self, *, writes: bool) -> AbstractContextManager[None]:
        return _in_turn(self.connection, self.connection.transaction) if writes else nullcontext()

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        numbers, names = numbered(text)
        return _in_utc_of(self.connection, self.connection.run(numbers, [parameters[name] for name in names]))


class _Caller:
    """A caller's connection.

    Our search_path is set before the first statement, and again after a statement that has restored the caller's.
    """

    _send: Callable[[str, Mapping[str, Any]], list[Row]]

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._is_pinned = False

    def transaction(self, *, writes: bool) -> AbstractContextManager[Any]:
        return _in_turn(self.connection, self._begun, self._joined)

    def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        if not self._is_pinned:
            self._is_pinned = True  # even if this is interrupted
            self._set(PIN)
        rows = self._send(text, parameters)
        self._is_pinned = not (rows and "restored" in rows[0])
        return rows

    def _set(self, path: str) -> None:
        """Sets the search_path. With `_send`, a `register` that changes nothing would take over 10 % longer."""
        self.connection.cursor().execute(path)

    @contextmanager
    def _begun(self) -> Iterator[None]:
        self._send("BEGIN", {})
        try:
            yield
        except BaseException:
            with suppress(Exception):  # a broken connection has no transaction; the caller gets the first error
                self._send("ROLLBACK", {})
            raise
        self._send("COMMIT", {})

    @contextmanager
    def _joined(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            with suppress(Exception):  # after an error of PostgreSQL, the caller's rollback restores the path
                self._restore()
            raise
        self._restore()

    def _restore(self) -> None:
        if self._is_pinned:
            self._set(RESTORE)


class _SQLAlchemy(_Caller):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection.connection.dbapi_connection)
        self._connection = connection
        self._driver = connection.dialect.driver
        if self._driver not in ("psycopg", "psycopg_async", "psycopg2", "asyncpg"):
            raise BadInput(
                "db",
                self._driver,
                "is not a supported driver: use psycopg, psycopg2 or asyncpg, as in postgresql+psycopg://",
            )

    def transaction(self, *, writes: bool) -> AbstractContextManager[Any]:
        return self._begun() if _is_alone(self.connection) else self._joined()

    def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        if self._driver == "asyncpg":
            numbers, names = numbered(text)
            result = self._connection.exec_driver_sql(numbers, tuple(parameters[name] for name in names), AT_ONCE)
        else:
            result = self._connection.exec_driver_sql(text, dict(parameters), AT_ONCE)
        return in_utc(result.mappings()) if result.returns_rows else []

    def _set(self, path: str) -> None:
        try:
            super()._set(path)
        except Exception:
            self._send(path, {})  # raises SQLAlchemy's own error, and its pool knows that the connection is broken


class _Psycopg(_Caller):
    @contextmanager
    def _begun(self) -> Iterator[None]:
        with self.connection.transaction():
            yield

    def _set(self, path: str) -> None:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        Cursor(self.connection, row_factory=tuple_row).execute(path)  # whatever the application has set for its own

    def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        from psycopg import RawCursor
        from psycopg.rows import dict_row

        connection = self.connection
        numbers, names = numbered(text)
        values = [parameters[name] for name in names]
        with RawCursor(connection, row_factory=dict_row) as cursor:
            _read_plainly(cursor)
            cursor.execute(numbers, values, binary=not reads_iso(connection))
            if connection.pgconn.pipeline_status:
                with connection.pipeline() as pipeline:
                    pipeline.sync()
            return _in_utc_of(connection, cursor if _has_rows(cursor) else ())


class _Psycopg2(_Caller):
    def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        from psycopg2.extensions import cursor as plain  # users may have set another class for their rows

        with self.connection.cursor(cursor_factory=plain) as cursor:
            _read_plainly_by_psycopg2(cursor)
            cursor.execute(*((text, parameters) if parameters else (text.replace("%%", "%"),)))
            names = [column.name for column in cursor.description or ()]
            return in_utc(dict(zip(names, row, strict=True)) for row in cursor.fetchall()) if names else []


class _Django(_Caller):
    """Runs statements as Django does: with Django's errors, and never in a transaction that has to be rolled back."""

    def __init__(self, wrapper: Any) -> None:
        wrapper.ensure_connection()
        super().__init__(wrapper.connection)
        self._wrapper, self._driver = wrapper, cast(_Caller, of(wrapper.connection))

    def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        self._wrapper.validate_no_broken_transaction()
        with self._wrapper.wrap_database_errors:
            return self._driver._send(text, parameters)

    def _set(self, path: str) -> None:
        with self._wrapper.wrap_database_errors:
            super()._set(path)


class _AsyncCaller:
    """Does for asynchronous connections what `_Caller` does."""

    _send: Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, list[Row]]]

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._is_pinned = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self.connection.transaction() if (is_alone := _is_alone(self.connection)) else nullcontext():
            try:
                yield
            except BaseException:
                with suppress(Exception):
                    await self._restore()
                raise
            if not is_alone:
                await self._restore()

    async def _restore(self) -> None:
        if self._is_pinned:
            await self._send(RESTORE, {})

    async def fetch(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        if not self._is_pinned:
            self._is_pinned = True
            await self._send(PIN, {})
        rows = await self._send(text, parameters)
        self._is_pinned = not (rows and "restored" in rows[0])
        return rows


class _Asyncpg(_AsyncCaller):
    async def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
        numbers, names = numbered(text)
        return in_utc(await self.connection.fetch(numbers, *(parameters[name] for name in names)))


class _AsyncPsycopg(_AsyncCaller):
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        from asyncio import Lock  # a run without coroutines does not load it

        async with _TURNS.setdefault(self.connection, Lock()), super().transaction():
            yield

    async def _send(self, text: str, parameters: Mapping[str, Any]) -> list[Row]:
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


def _is_alone(connection: Any) -> bool:
    """Returns whether a connection of a driver, or SQLAlchemy's adapter of one, is in autocommit mode and outside a
    transaction.
    """
    return bool(getattr(connection, "autocommit", True)) and _is_idle(connection)  # asyncpg has no other mode


def is_in_transaction(db: Any) -> bool:
    """Returns whether a caller's connection, or a Session, has begun a transaction."""
    if hasattr(db, "in_transaction"):
        return bool(db.in_transaction())
    return bool(db.in_atomic_block) if hasattr(db, "ensure_connection") else not _is_idle(db)


def _is_idle(connection: Any) -> bool:
    own = getattr(connection, "driver_connection", connection)
    if hasattr(own, "is_in_transaction"):
        return not own.is_in_transaction()
    return bool((own.pgconn.transaction_status if hasattr(own, "pgconn") else own.get_transaction_status()) == IDLE)


@contextmanager
def _in_turn(
    connection: Any,
    begin: Callable[[], AbstractContextManager[Any]],
    join: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[None]:
    """Begins a transaction unless the connection is in one, or will begin one.

    Threads that share a connection take turns: one must not join the transaction of another.
    """
    with _LOCKS.setdefault(connection, RLock()), begin() if _is_alone(connection) else join():
        yield


def _read_plainly(cursor: Any) -> None:
    """Makes a psycopg cursor read the types in our statements as psycopg does, whatever the application has registered."""
    given = cursor.connection.adapters
    for type_, format_, plain in _loaders_of_psycopg():
        if plain is not given.get_loader(type_, format_):
            cursor.adapters.register_loader(type_, plain)


@cache
def _loaders_of_psycopg() -> Sequence[tuple[int, Any, Any]]:
    from psycopg import adapters
    from psycopg.pq import Format

    found = [(type_, at, adapters.get_loader(type_, at)) for type_ in _TYPES for at in (Format.TEXT, Format.BINARY)]
    return [(type_, format_, loader) for type_, format_, loader in found if loader]


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

    psycopg does the same. If a statement has over 4,096 characters, it does so in every call: a sixth of what a start
    takes.
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
