"""Runs operations, which are written once for every driver, synchronous and asynchronous.

An operation is a generator: it yields statements, receives their rows, and returns its answer. It knows nothing about
connections.
"""

import inspect
import json
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, Protocol, TypeVar, get_args

from ticker import settings
from ticker.db import drivers
from ticker.db.drivers import Row
from ticker.errors import BadInput, TickerError

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
T_co = TypeVar("T_co", covariant=True)

JSON_COLUMNS = frozenset({"kwargs", "metadata", "registered", "cursor", "item", "result", "last_report"})
"""Statements of operations return these as text, because an application can set how its driver reads jsonb."""


class Query(NamedTuple):
    text: str
    parameters: Mapping[str, Any]
    denied: Callable[[str], TickerError] | None = None
    """Makes the error for a right that is missing, from PostgreSQL's own text."""


Steps = Generator[Query, list[Row], T]
Parts = Generator[Steps[Any], Any, T]
"""The transactions of an operation that commits more than once. It receives the answer of each, or its error."""


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    value: T


class Database(Protocol):
    """A connection of SQLAlchemy, Django, psycopg or psycopg2, or a Session. The `commit` of an asynchronous connection
    differs.
    """

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


class AsyncDatabase(Protocol):
    """An asynchronous connection of SQLAlchemy, asyncpg or psycopg, or an AsyncSession."""

    def close(self) -> Coroutine[Any, Any, None]: ...


class Operation(Protocol[P, T_co]):
    """A function of the public interface. Other operations can use its `steps`."""

    steps: Callable[P, Steps[Any]]

    def __call__(self, db: Database, *args: P.args, **kwargs: P.kwargs) -> T_co: ...


class AsyncOperation(Protocol[P, T_co]):
    """The same function in `ticker.aio`."""

    def __call__(self, db: AsyncDatabase, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T_co]: ...


def reads(steps: Callable[P, Steps[T]]) -> Operation[P, T]:
    """Returns a function whose first argument is a connection. Each statement may run in its own transaction."""
    return _operation(steps, writes=False)


def writes(steps: Callable[P, Steps[T]]) -> Operation[P, T]:
    """Returns a function whose first argument is a connection. Outside a transaction, it opens one for the call."""
    return _operation(steps, writes=True)


def commits(parts: Callable[P, Parts[T]]) -> Operation[P, T]:
    """Returns a function whose first argument is a connection outside a transaction. It commits each of the parts."""

    def call(db: Database, *args: P.args, **kwargs: P.kwargs) -> T:
        work = parts(*args, **kwargs)
        answer = _next(work)
        _require_outside(db)
        while not isinstance(answer, _Answer):
            try:
                of_part = run(db, answer, writes=True)
                db.commit()
            except Exception as error:
                with suppress(Exception):  # a broken connection has no transaction
                    db.rollback()
                answer = _next(work, error=error)
            else:
                answer = _next(work, of_part)
        return answer.value

    _present(call, parts, Database)
    vars(call).update(steps=parts, commits=True)
    return call  # type: ignore[return-value]


async def _commit_each(db: Any, work: Parts[T]) -> T:
    answer = _next(work)
    _require_outside(db)
    while not isinstance(answer, _Answer):
        try:
            of_part = await run_async(db, answer)
            if hasattr(db, "commit"):  # asyncpg has committed
                await db.commit()
        except Exception as error:
            with suppress(Exception):
                await db.rollback()
            answer = _next(work, error=error)
        else:
            answer = _next(work, of_part)
    return answer.value


def _require_outside(db: Any) -> None:
    if drivers.is_in_transaction(db):
        raise BadInput(
            "db", type(db).__name__, "is in a transaction, but this call commits each of its steps; commit first"
        )


def asynchronous(operation: Operation[P, T]) -> AsyncOperation[P, T]:
    """Returns the same function for asynchronous connections."""

    async def call(db: AsyncDatabase, *args: P.args, **kwargs: P.kwargs) -> T:
        own: Any = db() if hasattr(db, "registry") else db  # type: ignore[operator] # an async_scoped_session
        if hasattr(own, "run_sync"):  # SQLAlchemy's: a pending owner may have to be flushed
            return await own.run_sync(lambda sync: operation(sync, *args, **kwargs))  # type: ignore[no-any-return]
        if hasattr(operation, "commits"):
            parts: Parts[T] = operation.steps(*args, **kwargs)  # type: ignore[assignment] # those of `commits`
            return await _commit_each(own, parts)
        return await run_async(own, operation.steps(*args, **kwargs))

    _present(call, operation.steps, AsyncDatabase)
    return call


def run(db: Any, steps: Steps[T], *, writes: bool = False, about: Iterable[object] = ()) -> T:
    with settings.use(settings.current()):  # read once, not for each statement
        asked = _next(steps)  # bad input is refused before the connection is looked at
        driver = drivers.of(db, about)
        with drivers.explained(), driver.transaction(writes=writes):
            while isinstance(asked, Query):
                with drivers.explained(asked.denied):
                    rows = driver.fetch(asked.text, asked.parameters)
                asked = _next(steps, _read(rows))
        return asked.value


async def run_async(db: Any, steps: Steps[T]) -> T:
    with settings.use(settings.current()):
        asked = _next(steps)
        driver = drivers.of_async(db)
        with drivers.explained():
            async with driver.transaction():
                while isinstance(asked, Query):
                    with drivers.explained(asked.denied):
                        rows = await driver.fetch(asked.text, asked.parameters)
                    asked = _next(steps, _read(rows))
        return asked.value


def _next(steps: Generator[A, Any, T], answer: Any = None, *, error: Exception | None = None) -> A | _Answer[T]:
    try:
        return steps.send(answer) if error is None else steps.throw(error)
    except StopIteration as end:
        return _Answer(end.value)


def _operation(steps: Callable[P, Steps[T]], *, writes: bool) -> Operation[P, T]:
    def call(db: Database, *args: P.args, **kwargs: P.kwargs) -> T:
        return run(db, steps(*args, **kwargs), writes=writes, about=(*args, *kwargs.values()))

    _present(call, steps, Database)
    vars(call).update(steps=steps)
    return call  # type: ignore[return-value]


def _present(call: Callable[..., Any], steps: Callable[..., Any], database: type) -> None:
    """Gives a function the name and docstring of its steps, and their signature with a connection as its first
    parameter.
    """
    update_wrapper(call, steps)
    signature = inspect.signature(steps)
    db = inspect.Parameter("db", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=database)
    answer = get_args(signature.return_annotation)[-1]
    call.__annotations__ = {"db": database, **steps.__annotations__, "return": answer}
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[db, *signature.parameters.values()], return_annotation=answer
    )


def _read(rows: list[Row]) -> list[Row]:
    found = [name for name in rows[0] if name in JSON_COLUMNS] if rows else []
    return [{**row, **{name: _loaded(row[name]) for name in found}} for row in rows] if found else rows


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
