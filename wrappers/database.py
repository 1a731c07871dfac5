"""A connection to PostgreSQL, opened when it is first needed: the worker's, a horse's own, or lent to it; never of two at once."""

import logging
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ticker import clock, settings, sql
from ticker.connections import connect, first_line, translated
from ticker.task import Outcome

log = logging.getLogger("ticker.run")

NO_TEXTS: dict[str, str | None] = {"result": None, "traceback": "", "output": "", "error_output": ""}


class Database:
    """Runs named statements, each a transaction of its own; connects late, and again after an error."""

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    @classmethod
    def from_environment(cls) -> "Database":
        found = settings.from_environment()
        return cls(found.require_database(), found.schema)

    def open(self) -> None:
        """Connects, so that a deadline that is read next does not count it. DatabaseUnavailable."""
        if self._connection is not None and not _is_alive(self._connection):
            self.close()
        if self._connection is None:
            with translated():
                self._connection = connect(self._url, name="ticker-run", planned_once=True)

    def execute(self, name: str, /, **parameters: Any) -> list[sql.Row]:
        """One statement; a connection that an error or a signal interrupted is thrown away."""
        self.open()
        try:
            with translated():
                return sql.on(self._connection, self.schema)(name, **parameters)
        except BaseException:
            self.close()
            raise

    def finish(
        self, task_id: int, token: str, outcome: Outcome, *, reason: str, result: str | None = None,
        traceback: str = "", output: str = "", error_output: str = "",
    ) -> bool:  # fmt: skip
        """Ends the run of this token; False where it does not hold its task any more, and nothing was written.

        What the tables refuse of its texts is left out: a run without an end would be worse.
        """
        end = {"task_id": task_id, "token": token, "outcome": outcome, "reason": reason, "now": clock.now()}
        texts = {"result": result, "traceback": traceback, "output": output, "error_output": error_output}
        try:
            return bool(self.execute("finish", **end, **texts))
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            log.warning("the texts of a run of task=%s cannot be stored: %s", task_id, first_line(error))
            return bool(self.execute("finish", **end, **NO_TEXTS))

    def hand_out(
        self, task_id: int, token: str, pieces: str, made: int = 0, *, output: str = "", error_output: str = ""
    ) -> bool:
        """Records the last pieces of work, a JSON array, after `made` others: the run of this token waits for all; as `finish`."""
        handed_out = self.execute(
            "generated", task_id=task_id, token=token, items=pieces, made=made, output=output, error_output=error_output,
            now=clock.now(),
        )  # fmt: skip
        return bool(handed_out)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """A fork in the block takes the connection with it: behind the block it is the child's alone, and the server hears
        nothing of this process letting go. Where there is no child, it is lost."""
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            yield
        finally:
            if self._connection is not None and not self._connection.closed:
                os.dup2(nothing, self._connection.fileno(), inheritable=False)
            os.close(nothing)
            self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _is_alive(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has said nothing since: unasked, it speaks when it ends a connection, and hardly else."""
    if connection.closed:
        return False
    unasked = select.poll()
    unasked.register(connection.fileno(), select.POLLIN)
    return not unasked.poll(0)
