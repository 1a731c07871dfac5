"""What both kinds of tables answer, so that a history cannot tell which one it plays on."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from tests.doubles import NOWHERE, RunRow, TaskRow, Uptime
from tests.slots import Limit
from ticker.engine.ports import Queue
from ticker.model import Outcome


@dataclass(frozen=True, slots=True)
class Job:
    """One job as a worker takes it: `run_id` for a planned run, `occurrence` for a scheduled one."""

    id: str
    task_id: int
    occurrence: datetime | None
    run_id: int | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the start statement answered. No `refusal`: the run began. Durations in milliseconds."""

    refusal: str | None
    run_id: int | None
    function: str | None = None
    every_ms: int | None = None
    tolerance_ms: int | None = None
    box_ms: int | None = None
    grace_ms: int | None = None
    limits: tuple[str, ...] = ()


class Tables(Protocol):
    """What an application, a worker and an onlooker do with the tables and the queue.

    `now` is an argument everywhere. Whatever writes raises RowLocked while an open batch holds the row.
    """

    queue: Queue
    retries: int  # of tasks with limits; the double knows none

    def another_store(self) -> Any:
        """What one more ticker has: the same tables, a sweep of its own."""

    def heartbeat(self, ticker_id: str, at: datetime, now: datetime) -> None: ...

    def register(self, now: datetime, name: str, *, first: datetime | None = None, **said: Any) -> int: ...

    def edit(self, now: datetime, task_id: int, **changes: Any) -> None: ...

    def pause(self, now: datetime, task_id: int, until: datetime | None) -> None: ...

    def resume(self, now: datetime, task_id: int) -> None: ...

    def delete(self, now: datetime, task_id: int) -> None: ...

    def run_now(self, now: datetime, task_id: int, once_within: float | None = None) -> int: ...

    def stop(self, now: datetime, task_id: int) -> None:
        """Asks to stop the runs of a task that have not ended."""

    def limit(self, now: datetime, key: str, limit: Limit) -> None: ...

    def pause_all(self, now: datetime, scope: str, value: str, until: datetime | None) -> int:
        """Pauses many tasks. Returns the id of the row."""

    def resume_all(self, now: datetime, scope: str, value: str) -> None: ...

    def start(self, now: datetime, job: Job, token: str, here: Uptime = NOWHERE) -> Verdict: ...

    def finish(
        self, now: datetime, task_id: int, token: str, outcome: Outcome, reason: str = "", *, alone: bool = False
    ) -> bool: ...

    def checkpoint(self, task_id: int, token: str, value: Any) -> bool: ...

    def again(self, now: datetime, task_id: int, token: str, after: float) -> datetime | None:
        """A run asks when its task is due again; None: nothing was changed."""

    def close_key(self, now: datetime, key: str, for_: timedelta, run_id: int | None) -> None: ...

    def take(self) -> Job | None:
        """The next job of the queue, now in a worker's hands; None: none waits."""

    def end_job(self, job_id: str, *, failed: bool = False) -> None:
        """What RQ does behind a job: it goes, or stays for a while as failed."""

    def drop_from_list(self) -> str | None:
        """A worker died between the pop and its first word: the job's hash says queued, and no list has it."""

    def bring_forward(self, job_id: str) -> None:
        """The next `take` finds this one; it must be in the list."""

    def wipe(self) -> None:
        """Redis is empty."""

    def task_rows(self) -> list[TaskRow]: ...

    def run_rows(self) -> list[RunRow]: ...
