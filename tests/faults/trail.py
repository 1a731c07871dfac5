"""The audit trail of the database, line by line, into versions of tasks and into runs with their moments."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.faults.clockmap import ClockMap
from tests.faults.facts import Event, Moment, Run, Slot, Task, Version

TASK_COLUMNS = (
    "function", "kwargs", "kind", "every_ms", "tolerance_ms", "box_ms", "grace_ms", "enabled", "owner_active", "paused_by",
    "paused_until", "next_run", "waiting", "push_after", "push_errors", "last_run", "last_occurrence", "run_token",
    "running_until", "cursor", "last_run_id", "last_outcome", "updated_at",
    "failures", "retries", "alone_until", "every_most_ms", "pace_ms", "again_at",
    "queue", "group_name", "owner_type", "limits", "pause_id", "resumed_at", "waits_again", "enough_jobs_event",
)  # fmt: skip
DEFAULTS = {
    "every_ms": 0, "tolerance_ms": 0, "box_ms": 0, "grace_ms": 0, "enabled": False, "owner_active": False, "waiting": (),
    "push_errors": 0, "failures": 0, "retries": 0, "queue": "", "group_name": "", "owner_type": "",
}  # fmt: skip
RUN_COLUMNS = (
    "task_id", "kind", "occurrence", "attempt", "parent_id", "state", "outcome", "reason", "traceback", "token",
    "function", "started_at", "until", "every_ms", "tolerance_ms", "job_id", "pid",
)  # fmt: skip


def micros(instant: float | None) -> int | None:
    """An occurrence as it stands in a job's id."""
    return None if instant is None else round(instant * 1_000_000)


@dataclass(slots=True)
class OpenRun:
    """A run whose trail is still being read."""

    row: dict[str, Any]
    created: Moment
    started: Moment | None = None
    handed_out: Moment | None = None
    ends: list[tuple[str | None, Moment]] = field(default_factory=list)


class Trail:
    def __init__(self, clocks: ClockMap) -> None:
        self._clocks = clocks
        self._at: float | None = None
        self._rows: dict[int, dict[str, Any]] = {}
        self._versions: dict[int, list[Version]] = {}
        self._runs: dict[int, OpenRun] = {}
        self.final_runs: dict[int, tuple[str, str | None]] = {}
        self.final_tasks: set[int] = set()
        self._events: list[Mapping[str, Any]] = []
        self.slots: list[Slot] = []

    def add(self, line: Mapping[str, Any]) -> None:
        match line["event"], line.get("table"):
            case "row", "tasks":
                self._add_task(line, self._moment(line))
            case "row", "runs":
                self._add_run(line, self._moment(line))
            case "run", _:
                self.final_runs[line["row"]["id"]] = (line["row"]["state"], line["row"]["outcome"])
            case "slot", _:
                self.slots.append(Slot(*(line["row"][column] for column in Slot._fields)))
            case "noted", _:
                self._events.append(line["row"])
            case "task", _:
                self.final_tasks.add(line["row"]["id"])

    def _moment(self, line: Mapping[str, Any]) -> Moment:
        """The trail is in the order of its writing, so that the line before tells which of two equal times is meant."""
        self._at = self._clocks.at(line["clock"], near=self._at)
        return Moment(self._at, line["seq"], line["xid"])

    def _add_task(self, line: Mapping[str, Any], moment: Moment) -> None:
        row = self._rows.setdefault(line["id"], dict.fromkeys(TASK_COLUMNS) | DEFAULTS)
        changed = line["new"] or {}
        row.update((column, changed[column]) for column in changed.keys() & row.keys())
        if "waiting" in changed:
            row["waiting"] = tuple(round(occurrence * 1_000_000) for occurrence in changed["waiting"])
        self._versions.setdefault(line["id"], []).append(Version(moment=moment, op=line["op"], **row))

    def _add_run(self, line: Mapping[str, Any], moment: Moment) -> None:
        changed = line["new"] or {}
        run = self._runs.setdefault(line["id"], OpenRun(dict.fromkeys(RUN_COLUMNS), moment))
        was = run.row["state"]
        run.row.update((column, changed[column]) for column in changed.keys() & run.row.keys())
        if changed.get("state") == "running":
            run.started = moment
        if changed.get("state") == "processing":
            run.handed_out = moment
        if "ended" in (changed.get("state"), was) and changed.keys() & {"state", "outcome"}:
            run.ends.append((run.row["outcome"], moment))

    def tasks(self) -> dict[int, Task]:
        return {id_: Task(id_, tuple(versions)) for id_, versions in self._versions.items()}

    def events(self) -> list[Event]:
        """In the order of their ids, which also tells which of two equal times is meant."""
        events: list[Event] = []
        for row in sorted(self._events, key=lambda row: row["id"]):
            at = self._clocks.at(row["at"], near=events[-1].at if events else None)
            events.append(Event(row["id"], at, row["task_id"], row["what"], row["run_id"], row["words"] or ""))
        return events

    def changed_by(self) -> dict[tuple[int, int], int]:
        return {
            (task, version.moment.xid): number
            for task, versions in self._versions.items()
            for number, version in enumerate(versions)
        }

    def runs(self) -> dict[int, Run]:
        return {id_: _run(id_, run) for id_, run in self._runs.items()}


def _run(id_: int, run: OpenRun) -> Run:
    row = run.row
    return Run(
        id=id_, task=row["task_id"], kind=row["kind"], occurrence=micros(row["occurrence"]), attempt=row["attempt"] or 1,
        parent=row["parent_id"], state=row["state"], outcome=row["outcome"], reason=row["reason"] or "",
        traceback=row["traceback"] or "", token=row["token"], function=row["function"] or "",
        started_at=row["started_at"], until=row["until"], every_ms=row["every_ms"] or 0,
        tolerance_ms=row["tolerance_ms"] or 0, job=row["job_id"] or "", pid=row["pid"] or 0, created=run.created, started=run.started,
        ends=tuple(run.ends), handed_out=run.handed_out,
    )  # fmt: skip
