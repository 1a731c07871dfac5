"""What applications and workers do to the rows, over the in-memory double: the folder `sql` in Python.

The state machine in `tests/db/test_state_machine.py` holds this to the statements, row by row.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from tests import elastic
from tests.doubles import (
    NOWHERE,
    SECOND,
    MemoryQueue,
    MemoryStore,
    RunRow,
    TaskRow,
    Uptime,
    due_task,
    earlier,
    held_for,
    held_since,
    is_after,
    too_early,
    uptime_since,
)
from tests.pauses import LONGEST_UNKNOWN, note_known, note_unknown
from tests.simulation.pauses import FUNCTIONS, LEAST_BUDGET
from tests.simulation.rows import (
    BACK,
    GOOD,
    columns,
    freed,
    goes_back,
    hold,
    is_paused,
    judged_by,
    leaves_its_pause,
    running,
    verdict,
)
from tests.simulation.verdict import Job, Verdict
from tests.slots import Limit, give_back, take
from ticker.engine import jobs, timing
from ticker.errors import BadInput, RowLocked
from ticker.model import Kind, Outcome, Reason, RunKind
from ticker.schedules.hours import in_hours
from ticker.tasks import definition, fields
from ticker.tasks.definition import Wanted
from ticker.tasks.fields import Task
from ticker.tasks.rows import BOUNDS

OPEN = ("planned", "pushed")


class MemoryTables:
    """The rows in memory, with what was registered beside them."""

    retries = 0

    def __init__(self) -> None:
        self.queue = MemoryQueue()
        self.rows = MemoryStore()
        self.rows.least_budget = LEAST_BUDGET
        self._names: dict[str, int] = {}
        self._registered: dict[int, dict[str, Any]] = {}

    def another_store(self) -> MemoryStore:
        return self.rows.another()

    def heartbeat(self, ticker_id: str, at: datetime, now: datetime) -> None:
        self.rows.heartbeat(ticker_id, at, now)

    # -------------------------------------------------------------------------------------- registered and edited

    def register(self, now: datetime, name: str, *, first: datetime | None = None, **said: Any) -> int:
        given = Wanted(**{"function": "poll", "name": name, **said}).given()
        if name not in self._names:
            return self._insert(name, given, first, now)
        id_ = self._names[name]
        registered = self._registered[id_]
        news = {column: value for column, value in given.items() if registered.get(column) != value}
        if news.keys() & BOUNDS:
            news |= {column: given[column] for column in BOUNDS}
        if news:
            self._change(id_, news, now)
            self._registered[id_] = {**registered, **given}
        return id_

    def edit(self, now: datetime, task_id: int, **changes: Any) -> None:
        self._change(task_id, fields.check(changes), now)

    def pause(self, now: datetime, task_id: int, until: datetime | None) -> None:
        self._put(task_id, paused_by="someone", paused_until=until)

    def resume(self, now: datetime, task_id: int) -> None:
        row = self._unlocked(task_id)
        if row.paused_by is not None:
            self._put(
                task_id, paused_by=None, paused_reason="", paused_until=None, next_run=elastic.due_when_resumed(row, now),
                resumed_at=now if row.enabled else row.resumed_at,
            )  # fmt: skip

    def pause_all(self, now: datetime, scope: str, value: str, until: datetime | None) -> int:
        for id_, pause in self.rows.pauses.items():
            if (pause.scope, pause.value, pause.resumed_at) == (scope, value, None):
                pause.paused_at = pause.paused_at if pause.in_force(now) else now
                pause.until = until
                return id_
        return self.rows.add_pause(scope, value, until=until, paused_at=now)

    def resume_all(self, now: datetime, scope: str, value: str) -> None:
        for id_, pause in self.rows.pauses.items():
            if (pause.scope, pause.value) == (scope, value) and pause.in_force(now):
                self.rows.end_pause(id_, now)

    def delete(self, now: datetime, task_id: int) -> None:
        plans = [run for run in self.rows.plans.open.values() if run.task_id == task_id and run.state in OPEN]
        if any(run.id in self.rows.plans.held for run in plans):
            raise RowLocked(f"task {task_id}")
        gone = {"state": "ended", "outcome": Outcome.DROPPED, "reason": str(Reason.GONE), "ended_at": now}
        row = self._unlocked(task_id)
        for due in sorted({*row.waiting, row.waits_again} - {None}):
            record = RunRow(task_id=task_id, kind=RunKind.SCHEDULED, occurrence=due, due_at=None, created_at=now)
            self.rows.plans.add(replace(record, **gone))
        for run in plans:
            self.rows.plans[run.id] = replace(run, **gone)
        del self.rows.tasks[task_id]
        self._names = {name: id_ for name, id_ in self._names.items() if id_ != task_id}

    def run_now(self, now: datetime, task_id: int, once_within: float | None = None) -> int:
        row = self._unlocked(task_id)
        if not row.enabled:
            raise BadInput("task", task_id, "is disabled")
        if once_within is not None and row.pace_ms is not None:
            self._put(task_id, pace_ms=None, next_run=elastic.paced(row, None, now))
        kinds = (RunKind.SCHEDULED, RunKind.MANUAL)
        runs = sorted(
            (run for run in self.rows.runs() if run.task_id == task_id and run.kind in kinds), key=lambda run: run.id
        )
        last = max(
            (min(run.due_at, now) for run in runs[-100:] if run.kind is RunKind.MANUAL and run.due_at), default=None
        )
        due = now if last is None or once_within is None else max(now, last + timedelta(seconds=once_within))
        why = {"due_at": due, "reason": str(Reason.STILL_RUNNING) if is_after(row.running_until, now) else ""}
        waiting = [run for run in runs if run.kind is RunKind.MANUAL and run.state in OPEN]
        if waiting:
            if waiting[-1].state == "planned" and is_after(waiting[-1].due_at, due):
                self.rows.plans[waiting[-1].id] = replace(waiting[-1], due_at=due)
            return waiting[-1].id
        return self.rows.add_run(task_id=task_id, function=row.function, created_at=now, **why)

    def stop(self, now: datetime, task_id: int) -> None:
        runs = [run for run in self.rows.plans.open.values() if run.task_id == task_id]
        if any(run.id in self.rows.plans.held for run in runs):
            raise RowLocked(f"task {task_id}")
        for run in runs:
            self.rows.plans[run.id] = replace(run, stop_requested_by="someone")

    def limit(self, now: datetime, key: str, limit: Limit) -> None:
        one = self.rows.keys[key]
        one.concurrency, one.burst, one.token_for = limit.concurrency, limit.burst, limit.token

    def _insert(self, name: str, given: Mapping[str, Any], first: datetime | None, now: datetime) -> int:
        values = definition.applied(given, None)
        self._names[name] = id_ = self.rows.add_task(**columns(values), next_run=first or now, created_at=now)
        self._registered[id_] = dict(given)
        if first is None:
            row = self.rows.task(id_)
            self._put(id_, next_run=in_hours(due_task(row, now), now))
        return id_

    def _change(self, id_: int, given: Mapping[str, Any], now: datetime) -> None:
        row = self._unlocked(id_)
        before = cast(Task, SimpleNamespace(**{**definition.DEFAULTS, **vars(row)}))
        values = columns(definition.applied(given, before, self._registered[id_]))
        every, kept = values["every_ms"], elastic.kept_pace(row.pace_ms, values["every_ms"], values["every_most_ms"])
        if row.next_run is not None and values["enabled"] and not row.enabled and every == row.every_ms:
            values["next_run"] = elastic.due_when_resumed(row, now)
        elif row.next_run is not None and (every, kept) != (row.every_ms, row.pace_ms):
            long = timing.span(kept or every)
            moved = row.next_run + ((now - row.next_run + long) // long) * long  # rounds down, as -ceil does
            begun = [at for at in (row.last_run, *row.waiting) if at is not None]
            values["next_run"] = min(row.next_run, now + long, max([moved, *([max(begun) + long] if begun else [])]))
        pause = self.rows.pauses.get(row.pause_id or 0)
        if pause is not None and pause.resumed_at is None and leaves_its_pause(row, values):
            values["pause_id"] = None
        if values["enabled"] and not row.enabled and row.paused_by is None:
            values["resumed_at"] = now
        self._put(id_, **values, pace_ms=kept, push_errors=0, push_error="", push_after=None)
        changed = self.rows.task(id_)
        due = changed.next_run and in_hours(due_task(changed, now), changed.next_run)
        if every != row.every_ms and due != changed.next_run:
            self._put(id_, next_run=due, push_errors=0, push_error="")

    # -------------------------------------------------------------------------------------------- started and ended

    def start(self, now: datetime, job: Job, token: str, here: Uptime = NOWHERE) -> Verdict:
        row = self._unlocked(job.task_id)
        if job.run_id is not None:
            return self._start_planned(now, row, job, job.run_id, UUID(token), here)
        assert job.occurrence is not None
        return self._start_scheduled(now, row, job, job.occurrence, UUID(token), here)

    def _start_scheduled(
        self, now: datetime, row: TaskRow | None, job: Job, due: datetime, token: UUID, here: Uptime
    ) -> Verdict:
        if row is not None and row.run_token == token:  # the answer was lost
            return verdict(row, None, self.rows.plans.recorded[job.task_id, due])
        reason = self._refusal(row, due, now, here) if row else Reason.GONE
        if row is not None and reason is None and not self._takes_slots(row, now, token, here):
            reason = self._wait_again(row, due, now, Reason.NO_ROOM)
        if row is not None:
            is_judged = reason not in (Reason.REDELIVERED, Reason.STALE)
            self._note_worker(row, reason, now, is_judged=is_judged)
        if row is None or reason is Reason.STALE:
            return verdict(row, reason, self.rows.plans.recorded.get((job.task_id, due)))
        judged = judged_by(row, now)
        record = RunRow(
            task_id=job.task_id, kind=RunKind.SCHEDULED, occurrence=due, due_at=None, created_at=now, **judged
        )
        waiting = tuple(waits for waits in row.waiting if waits != due)
        self._put(row.id, waiting=waiting, **self._changes(row, reason, due, now, token, here))
        if reason is Reason.REDELIVERED or goes_back(row, reason):
            return verdict(row, reason, self.rows.plans.recorded.get((row.id, due)))
        if reason is not None:
            ended = replace(record, state="ended", outcome=Outcome.DROPPED, reason=str(reason), ended_at=now)
            return verdict(row, reason, self.rows.plans.add(ended))
        return verdict(row, None, self.rows.plans.add(running(record, row, now, token, here)))

    def _refusal(self, row: TaskRow, due: datetime, now: datetime, here: Uptime) -> Reason | None:
        is_expected = due in row.waiting or due == row.next_run
        if (row.id, due) in self.rows.plans.recorded:
            return Reason.REDELIVERED
        if not is_expected:
            return Reason.STALE
        if row.function not in FUNCTIONS:
            return self._wait_again(row, due, now, Reason.UNKNOWN_HERE)
        if not row.enabled or not row.owner_active:
            return Reason.PAUSED
        if is_after(row.last_run, now):
            return Reason.CLOCK
        if row.waiting and timing.has_expired(due, max(row.waiting), now, row.every_ms):
            return Reason.EXPIRED
        if row.last_occurrence is not None and due <= row.last_occurrence:
            return Reason.DUPLICATE
        if self._is_held(row, now, here):
            is_interval = row.kind is Kind.INTERVAL
            return Reason.STILL_RUNNING if is_interval else self._wait_again(row, due, now, Reason.STILL_RUNNING)
        if row.kind is Kind.INTERVAL and too_early(now, row.last_run, row.every_ms, row.tolerance_ms):
            return Reason.TOO_EARLY
        return self._wait_again(row, due, now, Reason.CLOSED) if self._is_paused(row, now) else None

    def _note_worker(self, row: TaskRow, reason: Reason | None, now: datetime, *, is_judged: bool) -> None:
        """Tasks of a function that no worker knows wait for one that does; the first start ends that."""
        if is_judged and row.function not in FUNCTIONS:
            note_unknown(self.rows.pauses, row, now)
        elif reason is None:
            note_known(self.rows.pauses, row, now)

    def _is_paused(self, row: TaskRow, now: datetime) -> bool:
        return is_paused(row, now) or any(one.in_force(now) and one.covers(row) for one in self.rows.pauses.values())

    def _takes_slots(self, row: TaskRow, now: datetime, token: UUID, here: Uptime) -> bool:
        """A slot of each of its keys, or none."""
        return take(self.rows.keys, row.limits or (), now, token, hold(row), lambda other: self._is_alive(other, here))

    def _is_alive(self, token: UUID, here: Uptime) -> bool:
        """By the uptime, whatever the clock says."""
        run = next((run for run in self.rows.plans.open.values() if run.token == token), None)
        since = run and uptime_since(run.boot, run.uptime_us, here)
        if run is None or since is None or run.until is None or run.started_at is None:
            return False
        return run.state == "running" and since <= run.until - run.started_at

    def _wait_again(self, row: TaskRow, due: datetime, now: datetime, reason: Reason) -> Reason:
        """Only the newest occurrence goes back to the row."""
        is_newer_due = row.next_run is not None and due < row.next_run <= now
        is_ahead = row.kind is Kind.INTERVAL and is_after(due, row.next_run or due)  # the clock was set back
        return Reason.SUPERSEDED if is_newer_due or is_ahead or due < max(row.waiting, default=due) else reason

    def _is_held(self, row: TaskRow, now: datetime, here: Uptime) -> bool:
        run = self._holder(row)
        since = run and uptime_since(run.boot, run.uptime_us, here)
        if run is None or since is None or run.until is None or run.started_at is None:
            return is_after(row.running_until, now)
        return run.until - run.started_at > since

    def _holder(self, row: TaskRow) -> RunRow | None:
        """Includes a run that a ticker on another host recorded as lost: on its own host it still holds the task."""
        if row.run_token is not None:
            runs = self.rows.plans.open.values()
            return next((run for run in runs if run.token == row.run_token and run.state == "running"), None)
        run = self.rows.plans.get(row.last_run_id or 0)
        if row.last_outcome is not Outcome.LOST or run is None or run.outcome is not Outcome.LOST:
            return None
        return run if run.ended_at and run.until and run.ended_at > run.until else None

    def _changes(
        self, row: TaskRow, reason: Reason | None, due: datetime, now: datetime, token: UUID, here: Uptime
    ) -> dict[str, Any]:
        if reason is None:
            changes = {
                "last_run": now, "last_occurrence": now if due > now + SECOND else due, "run_token": token,
                "running_until": now + hold(row), "started": row.started + 1,
            }  # fmt: skip
            if row.kind is Kind.INTERVAL and due > now + SECOND:
                changes["next_run"] = now + timing.span(row.every_ms)
            return changes
        if goes_back(row, reason):
            return {"next_run": min(due, row.next_run or due), "waits_again": due, "wait_reason": str(reason)}
        return self._brought_back(row, now, here) if reason is Reason.CLOCK else {}

    def _brought_back(self, row: TaskRow, now: datetime, here: Uptime) -> dict[str, Any]:
        """To the clock as it was set."""
        runs = self.rows.plans.open.values()
        changes: dict[str, Any] = {"last_run": now, "last_occurrence": earlier(row.last_occurrence, now)}
        since = held_since(runs, row, here)
        until = now + (held_for(runs, row) or hold(row)) - (since or 0 * SECOND)
        if since is not None or is_after(row.running_until, until):
            changes["running_until"] = until
        return changes

    def _start_planned(
        self, now: datetime, row: TaskRow | None, job: Job, run_id: int, token: UUID, here: Uptime
    ) -> Verdict:
        plan = self.rows.plans.get(run_id)
        if plan is not None and plan.task_id != job.task_id:
            plan = None
        if run_id in self.rows.plans.held:
            raise RowLocked(f"run {run_id}")
        if row is not None and plan is not None and (plan.state, plan.token) == ("running", token):
            return verdict(row, None, run_id)  # the answer was lost
        fresh = plan is not None and plan.state in ("planned", "pushed")
        reason = self._planned_refusal(row, plan, fresh, now, here)
        if plan is None or not fresh:
            return verdict(row, reason, plan and plan.id)
        if row is not None:
            self._note_worker(row, Reason.NO_ROOM, now, is_judged=True)
        if row is not None and reason is None and not self._takes_slots(row, now, token, here):
            reason = Reason.NO_ROOM
        if row is not None and reason is None:
            note_known(self.rows.pauses, row, now)
        if reason in (*BACK, Reason.STILL_RUNNING):
            due = now + 30 * SECOND if reason is Reason.UNKNOWN_HERE else plan.due_at
            self.rows.plans[run_id] = replace(plan, state="planned", pushed_at=None, reason=str(reason), due_at=due)
            return verdict(row, reason, run_id)
        judged = replace(plan, **judged_by(row, now), reason=str(reason or ""))
        if reason is not None or row is None:
            self.rows.plans[run_id] = replace(judged, state="ended", outcome=Outcome.DROPPED, ended_at=now)
        else:
            self.rows.plans[run_id] = running(judged, row, now, token, here)
            self._put(row.id, run_token=token, running_until=now + hold(row))
        return verdict(row, reason, run_id)

    def _planned_refusal(
        self, row: TaskRow | None, plan: RunRow | None, fresh: bool, now: datetime, here: Uptime
    ) -> Reason | None:
        if row is None:
            return Reason.GONE
        if plan is None:
            return Reason.STALE
        if not fresh:
            return Reason.REDELIVERED
        if row.function not in FUNCTIONS:
            return self._unknown(row, plan, now)
        if not row.enabled or not row.owner_active:
            return Reason.PAUSED
        if self._is_held(row, now, here):
            return Reason.STILL_RUNNING
        return Reason.CLOSED if self._keeps_waiting(row, plan, now) else None

    def _unknown(self, row: TaskRow, plan: RunRow, now: datetime) -> Reason:
        """Dropped if it was planned ten minutes ago, and no run of the function has started for as long."""
        gates = [one for one in self.rows.pauses.values() if one.is_gate(row) and one.resumed_at is None]
        longest = now - LONGEST_UNKNOWN
        is_old = plan.created_at <= longest and any(one.paused_at and one.paused_at <= longest for one in gates)
        return Reason.UNKNOWN_FUNCTION if is_old else Reason.UNKNOWN_HERE

    def _keeps_waiting(self, row: TaskRow, plan: RunRow, now: datetime) -> bool:
        if plan.kind is not RunKind.MANUAL:
            return self._is_paused(row, now)
        return any(one.scope == "all" and one.in_force(now) for one in self.rows.pauses.values())

    def checkpoint(self, task_id: int, token: str, value: Any) -> bool:
        row = self._unlocked(task_id)
        if row is None or row.run_token != UUID(token):
            return False
        self._put(task_id, cursor=value)
        return True

    def finish(
        self, now: datetime, task_id: int, token: str, outcome: Outcome, reason: str = "", *, alone: bool = False
    ) -> bool:
        row, key = self._unlocked(task_id), UUID(token)
        run = next((run for run in self.rows.plans.open.values() if run.token == key and run.state == "running"), None)
        if run is None or (row is not None and row.run_token != key):
            return False
        if run.id in self.rows.plans.held:
            raise RowLocked(f"run {run.id}")
        at = max(now, run.started_at or now)  # the clock may have been set back
        self.rows.plans[run.id] = replace(
            run, state="ended", outcome=outcome, reason=reason, ended_at=at, boot=None, uptime_us=None
        )
        for one in give_back(self.rows.keys.values(), key) if row is None or row.limits else ():
            if outcome in GOOD and run.started_at is not None:
                one.succeeded(run.started_at)
        if row is not None:
            self._put(task_id, **freed(row, run, outcome, at, alone=alone))
        return True

    def again(self, now: datetime, task_id: int, token: str, after: float) -> datetime | None:
        row, ms = self._unlocked(task_id), round(1000 * after)
        if row is None or row.run_token != UUID(token) or row.next_run is None or elastic.next_is_pushed(row):
            return None
        due = now + timing.span(min(ms, elastic.longest_again(row)))
        if row.last_run is not None:
            due = max(due, elastic.soonest_due(row.last_run, row.every_ms, row.tolerance_ms))
        self._put(task_id, next_run=due, again_at=due)
        return due

    def close_key(self, now: datetime, key: str, for_: timedelta, run_id: int | None) -> None:
        self.rows.keys[key].close_key(now, for_)

    # ------------------------------------------------------------------------------------------------- the queue

    def take(self) -> Job | None:
        id_ = self.queue.take()
        if id_ is None:
            return None
        args = self.queue.jobs[id_].args
        if len(args) == 3:
            return Job(id_, args[0], None, args[2])
        return Job(id_, args[0], jobs.instant(args[1]), None)

    def end_job(self, job_id: str, *, failed: bool = False) -> None:
        if failed:
            self.queue.set_status(job_id, "failed")
        else:
            self.queue.forget([job_id])

    def drop_from_list(self) -> str | None:
        return self.queue.pop()

    def bring_forward(self, job_id: str) -> None:
        self.queue.bring_forward(job_id)

    def wipe(self) -> None:
        self.queue.lose()

    # ------------------------------------------------------------------------------------------------- looked at

    def task_rows(self) -> list[TaskRow]:
        return list(self.rows.tasks.values())

    def run_rows(self) -> list[RunRow]:
        return self.rows.runs()

    def _unlocked(self, task_id: int) -> Any:
        """The row, or None where it is gone; a caller that wrote waits for an open batch in vain."""
        if task_id in self.rows.tasks.held:
            raise RowLocked(f"task {task_id}")
        return self.rows.tasks.get(task_id)

    def _put(self, task_id: int, **values: Any) -> None:
        self._unlocked(task_id)
        self.rows.put(task_id, **values)
