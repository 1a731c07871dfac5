"""Runs the statements of one batch of a tick, in one transaction."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any

from ticker.db import sql
from ticker.engine.ports import Settled
from ticker.model import Alarm, DueTask, Ended, Health, Kind, Note, Outcome, PlannedRun, Reason, RunKind, WaitingTask


class PostgresBatch:
    """The statements of one batch, in one transaction. `swept` holds the progress of the sweep."""

    def __init__(self, execute: sql.Execute, swept: dict[str, int]) -> None:
        self._execute = execute
        self._swept = swept
        self._has_more = False

    def claim_due(self, now: datetime, look_ahead: int, limit: int, without: Collection[str] = ()) -> Sequence[DueTask]:
        rows = self._execute("claim_due", now=now, look_ahead=look_ahead, limit=limit, without=list(without))
        return [_due(row) for row in rows]

    def claim_in_turn(self, now: datetime, look_ahead: int, queue: str, limit: int) -> Sequence[DueTask]:
        rows = self._execute("claim_in_turn", now=now, look_ahead=look_ahead, queue=queue, limit=limit)
        return [_due(row) for row in rows]

    def claim_chosen(self, now: datetime, look_ahead: int, ids: Sequence[int]) -> Sequence[DueTask]:
        return [_due(row) for row in self._execute("claim_chosen", now=now, look_ahead=look_ahead, ids=_array(ids))]

    def advance(self, tasks: Sequence[tuple[DueTask, datetime | None, str | None]]) -> None:
        if tasks:
            self._execute(
                "advance",
                ids=_array(task.id for task, _, _ in tasks),
                next_runs=_array(_text(next_run) for _, next_run, _ in tasks),
                batch_jobs=_array(batch_job_id or "NULL" for _, _, batch_job_id in tasks),
            )

    def note_jobs(self, occurrences: Sequence[tuple[int, datetime, str | None]]) -> None:
        self._columns("note_jobs", ("ids", "occurrences", "batch_jobs"), occurrences)

    def skip_for_enough_jobs(self, tasks: Sequence[DueTask], words: str) -> None:
        if tasks:
            self._execute("skip_for_enough_jobs", ids=[task.id for task in tasks], words=words)

    def claim_ended(self, limit: int) -> Sequence[Ended]:
        return [Ended(**{**row, **_enums(row)}) for row in self._execute("claim_ended", limit=limit)]

    def mark_followed(self, runs: Sequence[tuple[int, bool, str]]) -> None:
        self._columns("mark_followed", ("ids", "retried", "notes"), runs)

    def plan_retries(self, runs: Sequence[tuple[int, datetime]], now: datetime) -> None:
        self._columns("plan_retries", ("ids", "dues"), runs, now=now)

    def judge_tasks(self, tasks: Sequence[Health]) -> None:
        names = (
            "ids", "failures", "tolds", "stretched", "next_runs", "alarms", "pause_reasons", "pause_untils", "causes",
        )  # fmt: skip
        self._columns("judge_tasks", names, [astuple(task) for task in tasks])

    def record_events(self, notes: Sequence[Note], now: datetime) -> None:
        self._columns("record_events", ("ids", "whats", "words", "run_ids"), [astuple(note) for note in notes], now=now)

    def sum_up(self, now: datetime, limit: int) -> int:
        self._execute("set_patience", timeout="12s")
        return len(self._execute("sum_up", now=now, limit=limit))

    def claim_alarms(self, now: datetime, limit: int) -> Sequence[Alarm]:
        return [
            Alarm(**{**row, "kind": Kind(row["kind"])}) for row in self._execute("claim_alarms", now=now, limit=limit)
        ]

    def unreported_functions(self, now: datetime) -> Sequence[tuple[int, str]]:
        return [(row["id"], row["function"]) for row in self._execute("unreported_functions", now=now)]

    def announced_functions(self) -> Collection[str]:
        return [row["name"] for row in self._execute("functions")]

    def set_alarms(self, tasks: Sequence[tuple[int, datetime | None]]) -> None:
        self._columns("set_alarms", ("ids", "alarms"), tasks)

    def claim_ahead(self, now: datetime, limit: int) -> Sequence[DueTask]:
        return [_due(row) for row in self._next("claim_ahead", limit, now=now)]

    def reschedule(self, tasks: Sequence[tuple[DueTask, datetime | None]]) -> None:
        self._columns("set_next_runs", ("ids", "next_runs"), [(task.id, next_run) for task, next_run in tasks])

    def try_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        self._columns("try_later", ("ids", "errors", "afters"), failed)

    def claim_planned(
        self, now: datetime, limit: int, queue: str | None = None, without: Collection[str] = ()
    ) -> Sequence[PlannedRun]:
        which = {"now": now, "queue": queue, "without": list(without)}
        rows = self._execute("claim_planned", limit=limit, **which)
        if len(rows) < limit:
            rows += self._execute("claim_pieces", limit=limit - len(rows), **which)
        return [PlannedRun(**row) for row in rows]

    def claim_chosen_planned(self, ids: Sequence[int], now: datetime) -> Sequence[PlannedRun]:
        return [PlannedRun(**row) for row in self._execute("claim_chosen_planned", ids=list(ids), now=now)]

    def mark_pushed(self, runs: Sequence[tuple[int, str]], now: datetime) -> None:
        self._columns("mark_pushed", ("ids", "job_ids"), runs, now=now)

    def try_planned_later(self, failed: Sequence[tuple[int, str, datetime]]) -> None:
        self._columns("try_planned_later", ("ids", "errors", "afters"), failed)

    def claim_waiting(self, limit: int, now: datetime | None = None) -> Sequence[WaitingTask]:
        rows = self._execute("claim_waiting", after=self._swept.get("claim_waiting", 0), limit=limit, now=now)
        self._has_more = bool(rows and rows[0]["upto"])
        self._swept["claim_waiting"] = (rows and rows[0]["upto"]) or 0
        return [_waiting(row) for row in rows]

    def claim_unknown(self, now: datetime, limit: int) -> Sequence[DueTask]:
        return [_due(row) for row in self._execute("claim_unknown", now=now, limit=limit)]

    def note_expired(self, task_ids: Sequence[int], words: str, now: datetime) -> None:
        if task_ids:
            self._execute("note_expired", ids=list(task_ids), words=words, now=now)

    def wait_again(self, occurrences: Sequence[tuple[int, datetime, Reason]]) -> None:
        self._columns("wait_again", ("ids", "occurrences", "reasons"), occurrences)

    def settle(self, settled: Sequence[Settled], now: datetime) -> None:
        names = ("ids", "occurrences", "outcomes", "reasons")
        self._columns("settle_waiting", names, [astuple(one) for one in settled], now=now)

    def claim_pushed(self, limit: int, now: datetime) -> Sequence[PlannedRun]:
        rows = self._next("claim_pushed", limit, now=now)
        self._has_more = len(rows) == limit
        return [PlannedRun(**row) for row in rows]

    def has_more(self) -> bool:
        return self._has_more

    def lose_planned(self, run_ids: Sequence[int], reason: str, now: datetime) -> None:
        if run_ids:
            self._execute("lose_planned", ids=list(run_ids), reason=reason, now=now)

    def _columns(self, statement: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]], **values: Any) -> None:
        """Runs a statement over rows that it takes column by column. Does nothing if there are no rows."""
        if rows:
            self._execute(statement, **dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)), **values)

    def _next(self, statement: str, limit: int, **values: Any) -> list[sql.Row]:
        """Returns the rows after those of the last call, and starts over after the last row."""
        rows = self._execute(statement, after=self._swept.get(statement, 0), limit=limit, **values)
        self._swept[statement] = rows[-1]["id"] if len(rows) == limit else 0
        return rows


_KINDS: dict[str, Kind] = {kind.value: kind for kind in Kind}


def _array(elements: Iterable[object]) -> str:
    """Returns an array of numbers or times as PostgreSQL writes it. psycopg takes five times as long."""
    return "{" + ",".join(map(str, elements)) + "}"


def _text(instant: datetime | None) -> str:
    return "NULL" if instant is None else instant.isoformat()


def _waiting(row: sql.Row) -> WaitingTask:
    values = {name: value for name, value in row.items() if name != "upto"}
    return WaitingTask(**{**values, "waiting": tuple(sorted(row["waiting"]))})


def _due(row: sql.Row) -> DueTask:
    return DueTask._make(
        {**row, "kind": _KINDS[row["kind"]]}.values()
    )  # in the order of its fields, by the rule `claimed`


def _enums(row: sql.Row) -> dict[str, Any]:
    """Returns a run's kind, outcome and schedule as enum members."""
    return {"kind": RunKind(row["kind"]), "outcome": Outcome(row["outcome"]), "schedule": Kind(row["schedule"])}
