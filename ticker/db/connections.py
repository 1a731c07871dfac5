"""Opens connections to PostgreSQL with a limit on every wait, lends them, and translates its errors into ours."""

import errno
import os
import re
import select
import socket
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from ticker import clock, settings
from ticker.db.drivers import PATH, SCHEMAS, reads_iso
from ticker.errors import ConfigurationError, DatabaseUnavailable, RowLocked, symptom

CONNECT_TIMEOUT = 5  # seconds, for each host of the URL
ANSWER_TIMEOUT = 15.0  # seconds; the server's own timeouts end a statement after 5, if it lives
OLDEST_POSTGRESQL = 15
OLDEST_LIBPQ = 140_000  # the first with pipelines
BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"  # checks a WHERE again after the lock; stricter levels raise
COMMIT = b"COMMIT"
PREPARED_AT_MOST = 200  # prepared statements per connection
PLANNED_AGAIN = {10**n for n in range(1, 7)}
"""At these uses, a statement is prepared anew: a plan that was made while the tables were empty may read them whole. Not
behind a pooler, which gives prepared statements names of its own, and does not know DEALLOCATE.
"""
Query = tuple[Any, ...]
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
    "jit": "off",  # for estimates of a table without statistics, a busy host compiles for longer than `statement_timeout`
    "search_path": PATH,
    "ticker.path": PATH,  # to which an operation restores it
}
"""The settings of each of our transactions, whatever is set for the role, the database or a pooler's session."""
ONE_PLAN = {"plan_cache_mode": "force_generic_plan"}
"""The setting for a single plan per statement. The ticker's plans do not depend on parameters, and to plan `claim_due` takes as
long as to run it.
"""

BY_INDEX = {"enable_seqscan": "off"}
"""The setting of all processes but the ticker. A plan may be made while the tables are empty, and used when they are large. A
count stops at a limit, of which the planner knows nothing: it would read a million tasks instead of an index.
"""

NO_WRITES = "PostgreSQL (DATABASE_URL) accepts no writes: it is a standby, or default_transaction_read_only is on"
POOL_SIZE = "behind a pooler, the pool may be too small (PgBouncer: default_pool_size)"


def _set_up(settings: Mapping[str, str]) -> bytes:
    calls = (f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items())
    return f"SELECT {SCHEMAS}, {', '.join(calls)}".encode()


class Connection(psycopg.Connection[Any]):
    """A connection that keeps no state in its session, so a pooler may give every transaction a different session.

    It gives up on a server that accepts a statement but never answers, such as a stopped process on a running host.
    """

    has_pooler: bool | None = None
    """Whether the session belongs to a pooler in front of PostgreSQL; None until a first statement is answered."""
    set_up = b""
    """The statement that applies our settings to a transaction."""
    prepares_after: int | None = None
    """How often a statement runs before it is prepared; None means never."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._uses: Counter[tuple[Any, ...]] = Counter()
        self._names: dict[tuple[Any, ...], bytes] = {}
        self._prepared_ever = 0

    @contextmanager
    def transaction(self, *, force_rollback: bool = False) -> Iterator[Any]:  # type: ignore[override]
        """Overrides psycopg's method: the outermost transaction is READ COMMITTED, with our settings."""
        if self._is_in_transaction:
            with super().transaction(force_rollback=force_rollback) as savepoint:
                yield savepoint
            return
        try:
            self.execute(BEGIN + b"; " + self.set_up)
            yield
            self.rollback() if force_rollback else self.commit()
        except BaseException:
            self._leave()
            raise

    def run(self, text: str, values: Sequence[Any]) -> list[dict[str, Any]]:
        """Runs a statement with the parameters $1, $2 ... and returns its rows.

        Outside `transaction`, the statement is its own transaction with our settings. Everything is sent at once, so
        that a process that is stopped in between leaves no row locked.
        """
        is_alone = not self._is_in_transaction
        adapted = Transformer(self)
        dumped = adapted.dump_sequence(values, [PyFormat.AUTO] * len(values))
        before: list[Query] = [(BEGIN,), (self.set_up,)] if is_alone else []
        after: list[Query] = [(COMMIT,)] if is_alone else []
        try:
            self.pgconn.enter_pipeline_mode()
            own = sum(
                self._send(*query) for query in [*before, (text.encode(), dumped, adapted.types, adapted.formats)]
            )
            for query in after:
                self._send(*query)
            self.pgconn.pipeline_sync()
            answers = self.wait(_answers(self.pgconn))
            self.pgconn.exit_pipeline_mode()
        except BaseException:
            self.close()
            raise
        if refused := next((answer for answer in answers if answer.status == ExecStatus.FATAL_ERROR), None):
            self._names.clear()  # statements after the error were not prepared
            if is_alone:
                self._leave()
            raise error_from_result(refused)
        return _rows(adapted, answers[own - 1])

    def _send(
        self,
        query: bytes,
        values: list[Any] | None = None,  # psycopg 3.2.1 takes only lists
        types: Sequence[int] = (),
        formats: list[Format] | None = None,
    ) -> int:
        """Queues a statement. Returns how many answers it gets."""
        key = query, *types
        self._uses[key] += 1
        name, wanted = self._names.get(key), Format.TEXT if reads_iso(self) else Format.BINARY
        if name is not None and not (values and self._uses[key] in PLANNED_AGAIN and self.has_pooler is False):
            self.pgconn.send_query_prepared(name, values, formats, wanted)
            return 1
        if (
            self.prepares_after is None
            or self._uses[key] <= self.prepares_after
            or (name is None and len(self._names) == PREPARED_AT_MOST)
        ):
            self.pgconn.send_query_params(query, values, types, formats, wanted)
            return 1
        if name is not None:
            self.pgconn.send_query_params(b"DEALLOCATE " + name, None)
        self._prepared_ever += 1
        new = self._names[key] = b"ticker_%d" % self._prepared_ever
        self.pgconn.send_prepare(new, query, types)
        self.pgconn.send_query_prepared(new, values, formats, wanted)
        return 2 if name is None else 3

    @property
    def is_alive(self) -> bool:
        """Whether the connection is open without unread messages. Such a message usually announces the connection's
        end.
        """
        if self.closed:
            return False
        unasked = select.poll()
        unasked.register(self.fileno(), select.POLLIN)
        return not unasked.poll(0)

    @property
    def _is_in_transaction(self) -> bool:
        return self.info.transaction_status != TransactionStatus.IDLE

    def _leave(self) -> None:
        """Rolls back after an error. Closes a connection that was interrupted in a statement."""
        if self.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            with suppress(psycopg.Error):
                self.rollback()
        elif self._is_in_transaction:
            self.close()

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._patiently(gen), *args, **kwargs)

    def _patiently(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """Runs psycopg's steps. Repeats them every 0.1 s, with nothing ready, until the answer arrives or the time is
        up.
        """
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


def _answers(pgconn: PGconn) -> Generator[Any, Any, list[PGresult]]:
    """Sends the queued statements and reads all answers, in psycopg's steps."""
    yield from generators.send(pgconn)
    answers: list[PGresult] = []
    while (answer := (yield from generators.fetch(pgconn))) is None or answer.status != ExecStatus.PIPELINE_SYNC:
        if answer is not None:
            answers.append(answer)
    return answers


def _rows(adapted: Any, answer: PGresult) -> list[dict[str, Any]]:
    if not answer.nfields:
        return []
    names = [(answer.fname(column) or b"").decode() for column in range(answer.nfields)]
    adapted.set_pgresult(answer)
    return [dict(zip(names, values, strict=True)) for values in adapted.load_rows(0, answer.ntuples, tuple)]


def parameters(url: str) -> dict[str, Any]:
    """Returns the parameters for libpq: those of the URL, and our limits for waits for which it has none."""
    limits = {
        "connect_timeout": CONNECT_TIMEOUT,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": 10_000,
    }
    return limits | conninfo_to_dict(url) | {"client_encoding": "utf8"}


def connect(
    url: str,
    *,
    name: str = "ticker",
    planned_once: bool = False,
    variable: str = "DATABASE_URL",
    plans: Mapping[str, str] = BY_INDEX,
) -> Connection:
    """Returns an autocommit connection with a limit on every wait.

    Outside `transaction()`, each statement is its own transaction.

    With `planned_once`, PostgreSQL makes one plan for all parameters on first use, and again at `PLANNED_AGAIN`. That
    suits connections that repeat few statements and gain nothing from plans for particular parameters. `plans` are other
    settings of the planner. `variable` names the URL in a ConfigurationError.
    """
    if psycopg.pq.version() < OLDEST_LIBPQ:
        raise ConfigurationError(
            f"psycopg uses libpq {psycopg.pq.version() // 10_000} here, but libpq {OLDEST_LIBPQ // 10_000} or newer is needed: "
            'pip install "psycopg[binary]"'
        )
    try:
        connection = Connection.connect(
            autocommit=True, prepare_threshold=None, **parameters(url) | {"application_name": name}
        )
    except (psycopg.ProgrammingError, UnicodeError):  # whose text quotes the URL, and with it the password
        raise ConfigurationError(
            f"{variable} cannot be read; write special characters in the user name and the password as %XX"
        ) from None
    pid = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    connection.has_pooler = pid != (connection.info.backend_pid,)  # a pooler invents one
    connection.set_up = _set_up(
        SETTINGS
        | {**plans}
        | (ONE_PLAN if planned_once else {})
        | ({"transaction_timeout": "0"} if connection.info.server_version >= 170_000 else {})
    )
    mode = settings.current().prepared_statements
    if mode == "on" or (mode == "auto" and not connection.has_pooler):
        connection.prepares_after = 0 if planned_once else 5
    return connection


@contextmanager
def translated(variable: str = "DATABASE_URL") -> Iterator[None]:
    """Translates psycopg's errors into ours, each in one sentence."""
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InvalidSchemaName) as error:
        raise ConfigurationError(
            f"the tables do not match this release: {first_line(error)}; run: ticker db upgrade"
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(f"the user of DATABASE_URL lacks a right: {first_line(error)}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailable(NO_WRITES) from error
    except psycopg.errors.DiskFull as error:
        raise DatabaseUnavailable(
            f"PostgreSQL ({variable}) has no space left: {first_line(error)}; free some on its disk"
        ) from error
    except psycopg.errors.LockNotAvailable as error:
        raise RowLocked("a row is locked by another transaction, and has been for longer than 2 s") from error
    except psycopg.errors.QueryCanceled as error:
        raise DatabaseUnavailable(f"PostgreSQL ({variable}) has stopped a statement: {first_line(error)}") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        if re.search("session is read-only|server is in hot standby mode", str(error)):  # at target_session_attrs
            raise DatabaseUnavailable(NO_WRITES) from error
        answered = error.sqlstate is not None or "FATAL:" in str(error)  # errors at the start have no SQLSTATE
        did = "answers with an error" if answered else symptom(first_line(error))
        raise DatabaseUnavailable(f"PostgreSQL ({variable}) {did}: {first_line(error)}") from error
    except OSError as error:  # psycopg opens another file descriptor to wait for the server
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        raise DatabaseUnavailable(f"PostgreSQL ({variable}) cannot be reached: {error}") from error


class Pool:
    """A pool of connections, each of which is opened when it is first needed."""

    def __init__(self, url: str, *, name: str = "ticker", plans: Mapping[str, str] = BY_INDEX) -> None:
        self._url = url
        self._name = name
        self._plans = plans
        self._spare: list[Connection] = []
        self._since: dict[Connection, float] = {}

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lends a connection. Closes it if it broke or was interrupted. Raises the errors that `translated` raises."""
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
        """Returns the seconds for which the longest-used connection has been in use; 0.0 if none is."""
        return max((clock.monotonic() - since for since in [*self._since.values()]), default=0.0)

    def interrupt(self) -> None:
        """Ends all waits for a hanging server, as if the network had failed. It is called from another thread."""
        for connection in [*self._since]:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
                wire.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        while self._spare:
            self._spare.pop().close()

    def _taken(self) -> Connection:
        with suppress(IndexError):  # another thread may have taken the last one
            while True:
                if (connection := self._spare.pop()).is_alive:  # unless the server has ended it
                    return connection
                connection.close()
        return connect(self._url, name=self._name, plans=self._plans)


def is_answer(error: Exception) -> bool:
    """Returns whether PostgreSQL itself reported the error, such as a lock, or a statement that took too long."""
    return getattr(error.__cause__, "sqlstate", None) is not None


def refuses_writes(error: Exception) -> bool:
    """Returns whether PostgreSQL reported that it accepts no writes, as a standby does. Nothing was written."""
    return isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction)


def first_line(error: BaseException) -> str:
    """Returns an error's own text on one line, without the hints after it."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].strip().rstrip(".")
