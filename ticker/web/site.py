"""Gives handlers the settings and the database, hides values that must not be shown, and turns answers into JSON."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

from starlette.requests import Request

from ticker.db.connections import Connection, Pool
from ticker.read import explain, formatting, health, overview
from ticker.read.entries import JournalEntry
from ticker.read.health import POSTGRESQL, CircuitBreaker, Health
from ticker.read.tasks import FullRun
from ticker.read.why import Why
from ticker.settings import Settings
from ticker.tasks.fields import Task
from ticker.web.access import Access

HIDDEN = "hidden by TICKER_HIDE_ARGS"
OF_TASKS = ("args", "kwargs", "cursor", "metadata")
OF_RUNS = ("item", "result", "output", "error_output", "traceback")
"""The fields that TICKER_HIDE_ARGS hides: the arguments of functions, and what they return, print and raise."""


class Database:
    """The database that DATABASE_URL names. Connects at the first request, but not while `breaker` knows that the
    database hangs.
    """

    def __init__(self, settings: Settings, breaker: CircuitBreaker) -> None:
        self._pool = Pool(settings.require_database(), name="ticker-web")
        self._breaker = breaker

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a connection that plans each statement for its own parameters, as most filters of a list are unset."""
        with self._breaker.asking(POSTGRESQL), self._pool.connection() as connection:
            connection.prepares_after = None
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields a connection within a transaction."""
        with self._breaker.asking(POSTGRESQL), self._pool.connection() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        self._pool.close()


@dataclass(frozen=True, slots=True)
class Site:
    """One application, as a request sees it.

    `root` is the address under which the paths of a request begin. `by` is the name under which a change is recorded.
    """

    settings: Settings
    database: Database
    access: Access
    breaker: CircuitBreaker
    root: str = ""
    by: str = ""

    @property
    def owners(self) -> Sequence[Any] | None:
        """The owners whose tasks the viewer may see; None means all."""
        return self.access.viewer.owners if self.access.viewer else None

    def look(self, *, counts_late: bool = True) -> Health:
        """Returns the health. Does not wait for a server that has just kept another request waiting."""
        return health.look(self.settings, breaker=self.breaker, counts_late=counts_late)

    def hide(self, value: Any) -> Any:
        """Returns the value, or a copy in which hidden values are None."""
        if not self.settings.hide_args:
            return value
        match value:
            case Mapping():
                return {name: self.hide(one) for name, one in value.items()}
            case list() | tuple():
                hidden = [self.hide(one) for one in value]
                return value._make(hidden) if hasattr(value, "_make") else hidden
        if not is_dataclass(value):
            return value
        secret = OF_TASKS if isinstance(value, Task) else OF_RUNS
        shown = {
            field.name: None if field.name in secret else self.hide(getattr(value, field.name))
            for field in fields(value)
        }
        if isinstance(value, JournalEntry) and value.run:
            piece = f"piece {explain.item(value.run)} of run"  # its item is hidden, too
            shown["words"] = value.words.replace(piece, "a piece of run", 1)
        return replace(value, **shown)

    def data(self, db: Any, value: Any) -> Any:
        """Returns an answer as JSON data, with the fields that are derived. Hidden values are null."""
        return self._data(db, self.hide(value))

    def _data(self, db: Any, value: Any) -> Any:
        match value:
            case Task():
                return self._tasks(db, [value])[0]
            case [Task(), *_]:
                return self._tasks(db, value)
            case Mapping():
                return {name: self._data(db, one) for name, one in value.items()}
            case FullRun():
                return formatting.full_data(value) | {"next": value.next and str(value.next)}
            case Why():
                return formatting.plain_data(value) | {"task": self._data(db, value.task)}
            case Health():
                return health.data(value)
        return formatting.plain_data(value)

    def _tasks(self, db: Any, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        ends = {id_: self.hide(run) for id_, run in overview.last_ends(db, tasks).items()}
        return [formatting.task_data(task, ends) for task in tasks]


def site(request: Request, by: str) -> Site:
    """Returns the application as this request sees it."""
    access: Access = request.scope["ticker.access"]
    author = access.viewer.name if access.viewer else by
    root = request.scope.get("root_path", "")
    return replace(cast(Site, request.app.state.site), access=access, root=root, by=author)
