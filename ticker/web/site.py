"""Gives handlers the settings and the database, and hides the values that must not be shown."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.requests import Request

from ticker.errors import Unavailable
from ticker.read import explain, formatting, health, overview
from ticker.read.entries import JournalEntry
from ticker.read.journal import Drops
from ticker.read.pauses import list_pauses
from ticker.read.tasks import FullRun, RunRecord
from ticker.read.why import Why
from ticker.settings import Settings
from ticker.tasks.fields import Task
from ticker.tasks.pauses import Pause
from ticker.web.access import Access
from ticker.web.database import Database

HIDDEN = "hidden by TICKER_HIDE_ARGS"
OF_TASKS = ("kwargs", "cursor", "metadata")
OF_RUNS = ("item", "result", "output", "error_output", "traceback")
"""The fields that TICKER_HIDE_ARGS hides: the arguments of functions, and what they return, print and raise."""


@dataclass(frozen=True, slots=True)
class Site:
    """One application, as a request sees it. Methods named `..._data` return data for JSON; hidden values are null."""

    settings: Settings
    database: Database
    access: Access
    breaker: health.CircuitBreaker
    root: str = ""
    """The address under which the paths of a request begin."""

    def look(self) -> health.Health:
        """Returns the health. Does not wait for a server that has just kept another request waiting."""
        return health.look(self.settings, breaker=self.breaker)

    def pauses(self) -> list[Pause]:
        """Returns the pauses of many tasks for the banner of each screen. Returns none if PostgreSQL does not answer."""
        with suppress(Unavailable), self.database.reading() as db:
            return list_pauses(db)
        return []

    def task_data(self, db: Any, task: Task) -> dict[str, Any]:
        return self.tasks_data(db, [task])[0]

    def tasks_data(self, db: Any, tasks: Sequence[Task]) -> list[dict[str, Any]]:
        ends = overview.last_ends(db, tasks)
        if self.settings.hide_args:
            ends = {id_: replace(run, result=None) for id_, run in ends.items()}
        return [self._shown(formatting.task_data(task, ends), OF_TASKS) for task in tasks]

    def run_data(self, run: RunRecord) -> dict[str, Any]:
        return self._shown(formatting.run_data(run), OF_RUNS)

    def full_run_data(self, full: FullRun) -> dict[str, Any]:
        texts = {"output": full.output, "error_output": full.error_output}
        others = {"attempts": full.attempts, "made": full.pieces}
        return self._shown(formatting.run_data(full.run) | texts, OF_RUNS) | {
            name: [self.run_data(run) for run in runs] for name, runs in others.items()
        }

    def shown(self, full: FullRun) -> FullRun:
        """Returns the run for a screen, with hidden values empty."""
        if not self.settings.hide_args:
            return full
        bare = [replace(run, item=None, result=None, traceback="") for run in (full.run, *full.attempts, *full.pieces)]
        attempts = len(full.attempts) + 1
        return FullRun(bare[0], "", "", tuple(bare[1:attempts]), tuple(bare[attempts:]), full.next)

    def words(self, line: JournalEntry) -> str:
        """Returns the words of a line for a screen."""
        return without_piece(line.words, line.run) if self.settings.hide_args and line.run else line.words

    def line_data(self, line: JournalEntry) -> dict[str, Any]:
        data = formatting.line_data(line)
        if line.run is not None:
            data |= {"run": self.run_data(line.run), "words": self.words(line)}
        return data

    def drops_data(self, counted: Iterable[Drops]) -> list[dict[str, Any]]:
        return [
            {**formatting.plain_data(drops), "example": drops.example and self.line_data(drops.example)}
            for drops in counted
        ]

    def why_data(self, db: Any, why: Why) -> dict[str, Any]:
        return {
            "task_id": why.task_id, "task": None if why.task is None else self.task_data(db, why.task),
            "now": formatting.plain_data(why.now), "at": formatting.plain_data(why.at),
            "lines": [self.line_data(line) for line in why.lines], "then": list(why.then), "next": list(why.next),
        }  # fmt: skip

    def _shown(self, data: dict[str, Any], hidden: Iterable[str]) -> dict[str, Any]:
        return data | {name: None for name in hidden if name in data} if self.settings.hide_args else data


def without_piece(words: str, run: RunRecord) -> str:
    """Returns the words of a line, without the item of the piece that they name."""
    return words.replace(f"piece {explain.item(run)} of run", "a piece of run", 1)


def site(request: Request) -> Site:
    return replace(cast(Site, request.app.state.site), root=request.scope.get("root_path", ""))
