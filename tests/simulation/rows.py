"""What the statements read off one task's row, and write into it, in Python; `memory` puts it together."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tests import elastic
from tests.doubles import GUILTY_FOR, RunRow, TaskRow, Uptime
from tests.simulation.verdict import Verdict
from tests.turns import GROUPED
from ticker.engine import timing
from ticker.model import NO_FAILURE, Kind, Outcome, Reason

GOOD = (Outcome.SUCCEEDED, Outcome.PARTIAL, Outcome.NOTHING_TO_DO)
BACK = (Reason.NO_ROOM, Reason.CLOSED, Reason.UNKNOWN_HERE)


def columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the double keeps of a definition."""
    kept = (
        "function",
        "queue",
        "kind",
        "expression",
        "every_ms",
        "every_most_ms",
        "tolerance_ms",
        "box_ms",
        "grace_ms",
        "enabled",
        "during",
        "zone",
        "group_name",
    )
    return {name: values[name] for name in kept if name in values} | {
        "limits": tuple(values.get("limits") or ()) or None
    }


def is_paused(row: TaskRow, now: datetime) -> bool:
    return row.paused_by is not None and (row.paused_until is None or now < row.paused_until)


def leaves_its_pause(row: TaskRow, values: Mapping[str, Any]) -> bool:
    """As the trigger `tasks_leave_pause`."""
    scope = ("function", "queue", "group_name", "owner_type", "limits")
    return any(values.get(name, getattr(row, name)) != getattr(row, name) for name in scope)


def goes_back(row: TaskRow, reason: Reason | None) -> bool:
    """Whether a refused occurrence goes back to its row. A time that meets the run at work starts after it."""
    return reason in BACK or (reason is Reason.STILL_RUNNING and row.kind is not Kind.INTERVAL)


def hold(row: TaskRow) -> Any:
    return timing.span(row.box_ms + row.grace_ms)


def judged_by(row: TaskRow | None, now: datetime) -> dict[str, Any]:
    """The arithmetic of the verdict, as it is recorded."""
    return {
        "checked_last_run": row.last_run if row else None, "checked_at": now,
        "every_ms": row.every_ms if row else None, "tolerance_ms": row.tolerance_ms if row else None,
    }  # fmt: skip


def running(record: RunRow, row: TaskRow, now: datetime, token: UUID, here: Uptime) -> RunRow:
    until, (boot, uptime) = now + hold(row), here
    return replace(
        record, state="running", token=token, started_at=now, until=until, boot=boot, uptime_us=uptime, checked_at=None
    )


def freed(row: TaskRow, run: RunRow, outcome: Outcome, now: datetime, *, alone: bool = False) -> dict[str, Any]:
    """What the end of the run that holds the task writes into the task's row."""
    pace = elastic.pace(row, outcome, run.kind)
    values: dict[str, Any] = {
        "run_token": None, "running_until": None, "last_run_id": run.id, "last_outcome": outcome, "last_ended_at": now,
        "failures": 0 if outcome in GOOD else row.failures + (outcome not in NO_FAILURE),
        "alone_until": alone_until(row, outcome, now, alone), "pace_ms": pace, "next_run": elastic.paced(row, pace, now),
    }  # fmt: skip
    if outcome in GOOD:
        values["last_success_at"] = now
    if outcome in GOOD[:2]:
        values["last_worked_at"] = now
    return values


def alone_until(row: TaskRow, outcome: Outcome, now: datetime, alone: bool) -> datetime | None:
    if outcome is Outcome.KILLED and row.function == GROUPED:
        return now + GUILTY_FOR
    if row.alone_until is not None and now <= row.alone_until <= now + GUILTY_FOR:
        return row.alone_until
    if alone:
        return timing.LATEST
    return row.alone_until if outcome in (Outcome.INTERRUPTED, Outcome.LOST) else None


def verdict(row: TaskRow | None, reason: Reason | None, run_id: int | None) -> Verdict:
    refusal = None if reason is None else str(reason)
    if row is None:
        return Verdict(refusal, run_id)
    return Verdict(
        refusal, run_id, row.function, row.every_ms, row.tolerance_ms, row.box_ms, row.grace_ms, row.limits or ()
    )
