"""Connections to PostgreSQL whose every wait is bounded, and its errors as ours."""

import os
import socket
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ticker import clock, settings
from ticker.errors import ConfigurationError, DatabaseUnavailable, RowLocked

CONNECT_TIMEOUT = 5  # seconds
ANSWER_TIMEOUT = 15.0  # seconds; the server's own time-outs end a statement after 5, if it lives
OLDEST_POSTGRESQL = 15
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"  # re-checks a WHERE after the lock; stricter levels raise
SESSION = "SELECT pg_backend_pid(), current_setting('default_transaction_isolation')"
SETTINGS = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "10s",
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
}
"""The settings of each of our transactions, whatever is set for the role, the database or a pooler's session."""

POOL_SIZE = "behind a pooler, the pool may be too small (PgBouncer: default_pool_size)"


def _set_up(settings: Mapping[str, str]) -> bytes:
    calls = (f"set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {', '.join(calls)}".encode()


class Connection(psycopg.Connection[Any]):
    """A connection that keeps no state in its session, so a pooler may give each transaction a different session.

    Gives up on a server that takes a statement and never answers: a stopped process, whose host still acknowledges.
    """

    has_pooler: bool | None = None
    """Whether its session belongs to a pooler between us and PostgreSQL; None until the first statement is answered."""
    begins_itself = False
    """Whether a transaction without BEGIN is certain to be READ COMMITTED, because no other client uses the session."""
    set_up = _set_up(SETTINGS)

    @contextmanager
    def transaction(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Overrides psycopg's method: the outermost transaction is READ COMMITTED and has our settings, after one round trip."""
        if self.info.transaction_status != TransactionStatus.IDLE:
            with super().transaction(*args, **kwargs) as savepoint:
                yield savepoint
            return
        with self._ending():
            self.execute(BEGIN + b"; " + self.set_up, prepare=False)
            yield
            self.commit()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Sends the block's statement as a separate transaction with our settings, in one round trip.

        The result can be read after the block. Inside a transaction, the statement is sent as it is.
        """
        if self.info.transaction_status != TransactionStatus.IDLE:
            yield
            return
        with self._ending(), self.pipeline():  # without BEGIN, what is sent until its end is one transaction, too
            if not self.begins_itself:
                self.execute(BEGIN)
            self.execute(self.set_up)
            yield
            if not self.begins_itself:
                self.execute(b"COMMIT")

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Rolls back after an error. Closes a connection that was interrupted during a statement."""
        try:
            yield
        except BaseException:
            status = self.info.transaction_status
            if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with suppress(psycopg.Error):
                    self.rollback()
            elif status != TransactionStatus.IDLE:
                self.close()
            raise

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._patiently(gen), *args, **kwargs)

    def _patiently(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """psycopg's steps; it goes through them once more every 0.1 s, with nothing ready, while nothing comes."""
        give_up_at = clock.monotonic() + ANSWER_TIMEOUT
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and clock.monotonic() > give_up_at:
                    self.close()
                    raise psycopg.OperationalError(self._no_answer())
                wanted = steps.send(ready)
        except StopIteration as end:
            return end.value

    def _no_answer(self) -> str:
        sentence = f"no answer to a statement within {ANSWER_TIMEOUT:g} s"
        return sentence if self.has_pooler is False else f"{sentence}; {POOL_SIZE}"


def connect(url: str, *, name: str = "ticker", planned_once: bool = False) -> Connection:
    """Returns an autocommit connection on which every wait is bounded: outside `transaction()`, each statement is one transaction.

    `planned_once`: PostgreSQL plans each statement when it first comes, and not five more times, where a connection sees
    few of each and none gains by a plan for its very parameters.
    """
    try:
        connection = Connection.connect(
            url,
            autocommit=True,
            client_encoding="utf8",
            connect_timeout=CONNECT_TIMEOUT,
            application_name=name,
            prepare_threshold=None,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=2,
            tcp_user_timeout=10_000,
        )
    except (psycopg.ProgrammingError, UnicodeError):  # whose text quotes the URL, and with it the password
        raise ConfigurationError(
            "DATABASE_URL cannot be read; write special characters in the name and the password as %XX"
        ) from None
    pid, isolation = connection.execute(SESSION, prepare=False).fetchone() or (None, None)
    connection.has_pooler = pid != connection.info.backend_pid  # a pooler makes one up
    connection.begins_itself = isolation == "read committed" and not connection.has_pooler
    if planned_once:
        connection.set_up = _set_up(SETTINGS | {"plan_cache_mode": "force_generic_plan"})
    if settings.current().prepared_statements == "on" or not connection.has_pooler:
        connection.prepare_threshold = 0 if planned_once else 5
    return connection


@contextmanager
def translated() -> Iterator[None]:
    """psycopg's errors as ours, each in one sentence."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName) as error:
        raise ConfigurationError(f"the tables do not fit: {first_line(error)}; run: ticker db upgrade") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(f"the user of DATABASE_URL lacks a right: {first_line(error)}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailable(
            "PostgreSQL (DATABASE_URL) takes no writes: a standby, or default_transaction_read_only"
        ) from error
    except psycopg.errors.LockNotAvailable as error:
        raise RowLocked("a row is locked by another transaction for longer than 2 s") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable(f"PostgreSQL (DATABASE_URL) does not answer: {first_line(error)}") from error


def is_answer(error: Exception) -> bool:
    """Whether PostgreSQL itself said so: of a lock, or of a statement that took too long."""
    return getattr(error.__cause__, "sqlstate", None) is not None


def first_line(error: BaseException) -> str:
    """An error's own words, on one line and without the hints that follow."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().rstrip(".")


class Pool:
    """Connections that are used again, each by one thread at a time. The first is opened when it is first asked for."""

    def __init__(self, url: str, *, name: str = "ticker") -> None:
        self._url = url
        self._name = name
        self._spare: list[psycopg.Connection[Any]] = []
        self._since: dict[psycopg.Connection[Any], float] = {}

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """One that broke, or was interrupted, is thrown away. Raises what `translated` names."""
        with translated():
            connection = self._taken()
            self._since[connection] = clock.monotonic()
            try:
                yield connection
            except (psycopg.Error, KeyboardInterrupt):
                connection.close()
                raise
            finally:
                del self._since[connection]
                if not connection.closed:
                    self._spare.append(connection)

    def waited(self) -> float:
        """Seconds since the connection that has been in use for longest was taken; 0.0 when none is."""
        return max((clock.monotonic() - since for since in [*self._since.values()]), default=0.0)

    def interrupt(self) -> None:
        """From another thread: ends all waits for a server that hangs, as if the network had broken."""
        for connection in [*self._since]:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        while self._spare:
            self._spare.pop().close()

    def _taken(self) -> psycopg.Connection[Any]:
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                if not (connection := self._spare.pop()).closed:
                    return connection
        return connect(self._url, name=self._name)
