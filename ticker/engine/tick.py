"""One pass of the ticker over what is due. Read this first: everything else is here to serve it.

A pass knows neither SQL nor Redis; it is handed a store and a queue, works once, and returns what it did. For each
batch of due rows, in this order:

1. lock the rows, so that no other ticker works on them;
2. push one job for each, in one call; the job's id is a function of (task, occurrence), so that a push that is
   repeated after a crash names a job which the queue still holds, and is refused;
3. note the occurrences as waiting and set `next_run`; rows that could not be pushed stay due and back off; what was
   missed by tasks that want no late run, or meets a job of a task that wants one at a time, is recorded and passed over;
4. commit.

Push comes before commit: killed at any point, the next pass pushes again. The other order would lose the job.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ticker.engine import jobs, timing
from ticker.engine.follow_up import Followed, follow_up
from ticker.engine.ports import Batch, Queue, Store
from ticker.engine.queue_limit import Room
from ticker.engine.sweep import Counts, Swept, sweep
from ticker.errors import BadInput
from ticker.model import DueTask, PlannedRun, Reason
from ticker.schedules import kinds

BATCH = 1000


@dataclass(frozen=True)
class Pushed(Counts):
    """Counts of one kind of push: rows found due, jobs stored, jobs the queue still held, rows that could not go.

    `missed` occurrences were passed over, as their tasks want no late runs, or one job at a time.
    """

    due: int = 0
    enqueued: int = 0
    held: int = 0
    errors: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What one pass did, at which instant of the database's clock. `left`: due tasks of queues that are full."""

    now: datetime
    due: Pushed = field(default_factory=Pushed)
    planned: Pushed = field(default_factory=Pushed)
    swept: Swept = field(default_factory=Swept)
    followed: Followed = field(default_factory=Followed)
    left: Mapping[str, int] = field(default_factory=dict)

    @property
    def enqueued(self) -> int:
        return self.due.enqueued + self.planned.enqueued + self.swept.repushed

    @property
    def errors(self) -> int:
        return self.due.errors + self.planned.errors + self.swept.errors


Claim = Callable[[Batch], Sequence[DueTask]]
"""Locks due tasks of a batch."""

NO_LIMITS: Mapping[str, int] = {}

Lane = Callable[[], list[Pushed]]
"""Pushes batch after batch until nothing is due any more; several may work side by side, as each locks rows of its own."""


def never() -> bool:
    return False


def alone(lane: Lane) -> list[list[Pushed]]:
    return [lane()]


def tick(
    store: Store,
    queue: Queue,
    now: datetime | None = None,
    *,
    look_ahead: int = 0,
    batch: int = BATCH,
    stop: Callable[[], bool] = never,
    late: timedelta = kinds.LATE,
    beat: int = 0,
    period: int = 0,
    depths: Mapping[str, int] = NO_LIMITS,
    lanes: Callable[[Lane], list[list[Pushed]]] = alone,
) -> Report:
    """Pushes what is due at `now` (None: the database's clock, read once), sweeps, and gives queues with a limit what they have room for.

    `look_ahead` is in milliseconds. `batch` rows are locked, pushed and committed at a time, and `stop` is asked between
    batches. `late` is how late an occurrence is by the rhythm alone: what is later may have been missed. `period` is the
    milliseconds between two ticks, or 0 for a single one: after a gap, workers get time for their ends. `beat` is the same
    if the last tick came that long ago, else 0. `depths` is how many jobs may wait in a queue at most. `lanes` has batches
    pushed side by side. Raises DatabaseUnavailable or QueueUnavailable; whatever was not committed is found due again.
    """
    idle_at = store.idle_at(now, look_ahead)
    if idle_at is not None:
        return Report(idle_at)
    set_back = store.clamp(now, batch)
    ended = Swept(overdue=store.end_overdue(now, batch, period))  # before any call to the queue, which may be away
    now = now or store.now()
    if set_back:
        while bring_forward(store, now, batch) == batch:
            pass
    store.wake(now, batch)
    store.remove_done(batch)
    followed = follow_up(store, now, batch)
    room = Room(queue, depths)
    pushed = lanes(
        lambda: in_turns(
            lambda most: push_planned(store, room, now, lambda rows: rows.claim_planned(now, most, None, depths)),
            lambda most: push_due(store, room, now, all_but(depths, now, look_ahead, most), late, beat),
            batch=batch,
            stop=stop,
        )
    )
    planned, due = (sum(kind, Pushed()) for kind in zip(*pushed, strict=True))
    swept = ended + sweep(
        store, room, now, batch, stop
    )  # before the step that would take all the room, tick after tick
    limited, limited_planned, left = push_limited(store, room, now, look_ahead, batch, late, beat, stop)
    return Report(now, due + limited, planned + limited_planned, swept, followed, left)


def all_but(depths: Collection[str], now: datetime, look_ahead: int, batch: int) -> Claim:
    return lambda rows: rows.claim_due(now, look_ahead, batch, depths)


def push_limited(
    store: Store, room: Room, now: datetime, look_ahead: int, batch: int, late: timedelta, beat: int,
    stop: Callable[[], bool],
) -> tuple[Pushed, Pushed, dict[str, int]]:  # fmt: skip
    """Fills queues with a limit: due tasks, of each owner in turn, and planned runs share their room.

    The rest stays due, or planned; the due tasks are counted.
    """
    due, planned, left = Pushed(), Pushed(), {}
    for name in room.left:
        pushed = in_turns(
            lambda most, name=name: push_planned(store, room, now, lambda rows: rows.claim_planned(now, most, name)),  # type: ignore[misc]
            lambda most, name=name: push_due(store, room, now, in_turn(name, now, look_ahead, most), late, beat),  # type: ignore[misc]
            batch=batch,
            stop=stop,
            left=lambda name=name: room.left[name],  # type: ignore[misc]
        )
        planned, due = planned + pushed[0], due + pushed[1]
        if room.left[name] <= 0 and (count := store.count_due(now, look_ahead, name)):
            left[name] = count
    return due, planned, left


def in_turn(name: str, now: datetime, look_ahead: int, most: int) -> Claim:
    return lambda rows: rows.claim_in_turn(now, look_ahead, name, most)


def bring_forward(store: Store, now: datetime, batch: int) -> int:
    """After the clock was set back: tasks by cron and calendar wait for their first time behind the new now."""
    with store.batch() as rows:
        ahead = rows.claim_ahead(now, batch)
        rows.bring_forward([(task, first) for task in ahead if (first := first_time(task, now)) < task.occurrence])
    return len(ahead)


def first_time(task: DueTask, now: datetime) -> datetime:
    """What would be its first time now; that which it waits for, where it has none."""
    try:
        return kinds.first_run(kinds.of(task), now, task.starts_at) or task.occurrence
    except BadInput:
        return task.occurrence


def push_due(
    store: Store, queue: Queue, now: datetime, claim: Claim, late: timedelta = kinds.LATE, beat: int = 0
) -> Pushed:
    """One batch of due tasks: lock, push, advance, commit."""
    with store.batch() as rows:
        tasks = claim(rows)
        plans, failed = with_next_times(tasks, now, beat)
        passed_over = [(*plan, reason) for plan in plans if (reason := passes_over(plan[0], now, late))]
        plans = [plan for plan in plans if not passes_over(plan[0], now, late)]
        parcels = jobs.parcels(store.installation, (task for task, _ in plans))
        receipts = queue.push([parcel.envelope for parcel in parcels])
        sent = list(zip(parcels, receipts, strict=True))
        refused = {task.id: receipt.error for parcel, receipt in sent if receipt.error for task in parcel.tasks}
        batch_jobs = {task.id: parcel.batch_job_id for parcel in parcels for task in parcel.tasks}
        failed += [(task, refused[task.id]) for task, _ in plans if task.id in refused]
        rows.advance([(task, next_run, batch_jobs.get(task.id)) for task, next_run in plans if task.id not in refused])
        rows.set_back([(task.id, error, after_error(task, now)) for task, error in failed])
        rows.skip(passed_over, now)
    stored = sum(len(parcel.tasks) for parcel, receipt in sent if receipt.stored)
    held = sum(len(parcel.tasks) for parcel, receipt in sent if receipt.held)
    return Pushed(len(tasks), stored, held, len(failed), len(passed_over))


def passes_over(task: DueTask, now: datetime, late: timedelta) -> Reason | None:
    """Why this occurrence gets no job, where its task wants none; None: it gets one."""
    if task.catch_up == "none" and kinds.was_missed(task, now, late):
        return Reason.MISSED
    return Reason.OVERLAP if task.overlap == "skip" and task.busy else None


def with_next_times(
    tasks: Sequence[DueTask], now: datetime, beat: int = 0
) -> tuple[list[tuple[DueTask, datetime | None]], list[tuple[DueTask, str]]]:
    """Each task with its next time; and apart, with an error, those that have none: a bad row costs only itself."""
    plans, failed = [], []
    for task in tasks:
        try:
            plans.append((task, kinds.next_run(task, now, beat)))
        except (BadInput, OverflowError) as error:
            failed.append((task, str(error)))
    return plans, failed


def push_planned(store: Store, queue: Queue, now: datetime, claim: Callable[[Batch], Sequence[PlannedRun]]) -> Pushed:
    """One batch of planned runs that are due: the same four steps."""
    with store.batch() as rows:
        runs = claim(rows)
        receipts = queue.push([jobs.for_planned(store.installation, run) for run in runs])
        failed = [(run.id, receipt.error) for run, receipt in zip(runs, receipts, strict=True) if receipt.error]
        rows.mark_pushed([run.id for run, receipt in zip(runs, receipts, strict=True) if not receipt.error], now)
        rows.set_back_planned([(run_id, error, now + timing.back_off(1)) for run_id, error in failed])
    return Pushed(len(runs), sum(r.stored for r in receipts), sum(r.held for r in receipts), len(failed))


def after_error(task: DueTask, now: datetime) -> datetime:
    """When a row that could not be pushed is tried again."""
    return now + timing.back_off(task.push_errors + 1)


def in_turns(
    *steps: Callable[[int], Pushed], batch: int, stop: Callable[[], bool], left: Callable[[], float] = lambda: math.inf
) -> list[Pushed]:
    """Runs a batch of each step in turn, until each came back less than full, no room is `left`, or `stop` says so.

    So a run in many pieces does not keep all due tasks waiting, and due tasks do not keep it waiting. If room is short,
    the unfinished steps share it.
    """
    totals = [Pushed() for _ in steps]
    unfinished = list(range(len(steps)))
    while unfinished:
        turn = tuple(unfinished)
        for place, number in enumerate(turn):
            most = int(min(batch, -(-left() // (len(turn) - place))))
            if stop() or most <= 0:
                return totals
            pushed = steps[number](most)
            totals[number] += pushed
            if pushed.due < most:
                unfinished.remove(number)
    return totals
