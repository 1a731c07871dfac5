"""Makes one pass of the ticker over what is due. Read this first: everything else serves it.

A pass knows neither SQL nor Redis. It gets a store and a queue, works once, and returns a report. For each batch of due
rows, it takes these steps in order (and no others if the first look saw only due tasks without limits):

1. Lock the rows so that no other ticker works on them. 2. Push one job for each, in one call. The job's id is a
function of (task, occurrence). So a push repeated after a crash names a job that the queue still holds, and is refused.
3. Note the occurrences as waiting, and set `next_run`. Rows that could not be pushed stay due and back off. Some
occurrences are recorded as dropped instead: missed ones, if the task wants no late run. Others are only counted,
because enough jobs of the task wait, or another one would overlap. A task outside its hours waits until they begin
again, without a record. 4. Commit.

The push comes before the commit. If the ticker is killed in between, the next pass pushes again. The other order would
lose the job.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from ticker.engine import jobs, key_limits, timing
from ticker.engine.follow_up import follow_up
from ticker.engine.key_limits import LimitedTask
from ticker.engine.passes import Pass, Pushed, Report, Room, Swept, TickOptions
from ticker.engine.ports import Batch, Queue, Settled, Store
from ticker.engine.sweep import sweep
from ticker.errors import BadInput, load_function, quoted
from ticker.model import DueTask, Kind, Outcome, PlannedRun, Reason
from ticker.schedules import kinds
from ticker.schedules.hours import in_hours

Plan = tuple[DueTask, datetime | None]
"""A task and when it is due next."""
SINGLE_PASS = TickOptions()
LISTED_AT_MOST = 20
"""How many batches of tasks with limits are listed at once. Each list costs the room of all of its keys."""
STEPS_IN_VAIN = 20
"""How many batches of tasks that need no budget, or no room, are handled at most. The next tick continues."""


def tick(store: Store, queue: Queue, now: datetime | None = None, options: TickOptions = SINGLE_PASS) -> Report:
    """Pushes what is due at `now` (None: the database's clock, read once), sweeps, and fills the queues that have a
    limit.

    Raises DatabaseUnavailable or QueueUnavailable. Whatever was not committed is due again in the next pass.
    """
    look = store.look(now, options.look_ahead)
    if look.idle_at is not None:
        return Report(look.idle_at)
    if look.only_due_at is not None and not options.depths:
        work = Pass(store, Room(queue, {}), look.only_due_at, options)
        return Report(work.now, push_in_threads(work, due_unlimited(work))[0])
    set_back = store.clamp(now, options.batch)
    # before any call to the queue, which may be unavailable
    ended = Swept(overdue=in_batches(lambda limit: store.end_overdue(now, limit, options.period), options))
    now = now or store.now()
    if set_back:
        bring_forward(store, now, options.batch)
    in_batches(partial(store.wake, now), options)
    in_batches(store.remove_done, options)
    in_batches(partial(store.drop_orphaned_plans, now), options)
    stopping = store.stop_runs(now, options.batch)
    followed = follow_up(store, now, options.batch)
    queue.stop(stopping)
    work = Pass(store, Room(queue, options.depths), now, options)
    apply_pauses(work)
    planned, due = push_unlimited(work)
    # before the next step, which could take all the room in every tick
    swept = ended + sweep(store, work.queue, now, options.batch, options.stop)
    keyed = [push_keyed(work, halves(work.queue.left))]
    limited_planned, limited_due = push_limited(work)
    if any(room > 0 for room in work.queue.left.values()):
        keyed.append(push_keyed(work, work.queue.left))
    left = left_due(work)
    drop_unknown(work)
    due = sum((one.due for one in keyed), due + limited_due)
    planned = sum((one.planned for one in keyed), planned + limited_planned)
    look_at = key_limits.soonest(one.look_at for one in keyed)
    return Report(now, due, planned, swept, followed, left, look_at)


def in_batches(step: Callable[[int], int], options: TickOptions) -> int:
    """Repeats a step, which handles up to a batch of rows and returns how many. Returns how many it handled in all."""
    total = 0
    while True:
        count = step(options.batch)
        total += count
        if count < options.batch / 2 or options.stop():  # a few rows of a batch may have been locked
            return total


def halves(left: Mapping[str, int]) -> dict[str, int]:
    """Returns half of the room of each queue, so that tasks with limits do not take all of it. Odd ones are rounded by
    chance.
    """
    return {name: (room + random.randint(0, 1)) // 2 for name, room in left.items()}


def bring_forward(store: Store, now: datetime, batch: int) -> None:
    """Makes cron and calendar tasks, and those with hours, wait for their first time after `now`: the clock was set
    back.
    """
    while True:
        with store.batch() as rows:
            ahead = rows.claim_ahead(now, batch)
            rows.reschedule([(task, first) for task in ahead if (first := first_time(task, now)) < task.occurrence])
        if len(ahead) < batch:
            return


def first_time(task: DueTask, now: datetime) -> datetime:
    """Returns the task's first time after `now`, or the time that it waits for if there is no other."""
    try:
        if task.kind is Kind.INTERVAL:
            return max(kinds.of(task).next_after(now) or now, task.starts_at or now)
        return kinds.first_run(kinds.of(task), now, task.starts_at) or task.occurrence
    except BadInput:
        return task.occurrence


def apply_pauses(work: Pass) -> None:
    """Makes due tasks wait for the pauses that are in force for them, and lets those go whose pauses are over."""
    pauses = work.store.open_pauses(work.now)
    if pauses.in_force or pauses.over:
        wait_for_gate(work)
    if pauses.in_force:
        work.store.probe(work.now, work.options.period)
    if pauses.over:
        let_go(work)


def wait_for_gate(work: Pass) -> None:
    """Examines each due task once, in order, so that many of them cost a pass only one walk."""
    after = None
    while not work.options.stop():
        after = work.store.wait_for_gate(work.now, work.options.look_ahead, work.options.batch, after)
        if after is None:
            return


def let_go(work: Pass) -> None:
    """Lets tasks go that have waited for longest, within the budget of this tick. The others wait for the next one."""
    options, full = work.options, [name for name, room in work.queue.left.items() if room <= 0]
    budget = work.store.grant_budget(
        work.now, options.look_ahead, options.period, options.period or timing.USUAL_TICK, full
    )
    left, in_vain = budget or 0, 0
    while left > 0 and in_vain < STEPS_IN_VAIN and not options.stop():
        most = min(left, options.batch)
        found, gone = work.store.let_go(work.now, most)
        left, in_vain = left - gone, in_vain + (gone == 0)
        if found < most:
            break
    if budget is not None:
        work.store.close_pauses(work.now)


def push_unlimited(work: Pass) -> tuple[Pushed, Pushed]:
    """Pushes planned runs and due tasks of all queues without a limit. The owners of due tasks take turns within a claim."""
    now, limited = work.now, work.options.depths

    def planned(most: int) -> Pushed:
        return push_planned(work, lambda rows: rows.claim_planned(now, most, None, limited))

    all_planned, all_due = push_in_threads(work, planned, due_unlimited(work))
    return all_planned, all_due


def due_unlimited(work: Pass) -> Callable[[int], Pushed]:
    now, look_ahead, limited = work.now, work.options.look_ahead, work.options.depths
    return lambda most: push_due(work, lambda rows: key_limits.in_turn(rows.claim_due(now, look_ahead, most, limited)))


def push_in_threads(work: Pass, *steps: Callable[[int], Pushed]) -> list[Pushed]:
    """Takes the steps in turns, in one or several threads. Returns what each step pushed."""
    by_thread = work.options.push_threads(lambda: in_turns(*steps, options=work.options))
    return [sum(step, Pushed()) for step in zip(*by_thread, strict=True)]


class Keyed(NamedTuple):
    """What was pushed of tasks with limits, and when to look again at keys without room; see `Report.look_at`."""

    planned: Pushed
    due: Pushed
    look_at: datetime | None


def push_keyed(work: Pass, depths: Mapping[str, int]) -> Keyed:
    """Pushes planned runs and due tasks with limits, as far as their keys and the queues with `depths` have room."""
    now, options, left = work.now, work.options, dict(depths)
    planned, due, looks = Pushed(), Pushed(), list[datetime | None]()
    full, after, listed, in_vain = set[str](), None, options.batch, 0
    while True:
        without = [name for name, room in left.items() if room <= 0]
        found, more = work.store.limited_due(
            now, options.look_ahead, listed, options.ahead, without, full, after, options.delays
        )
        choice = key_limits.choose(found, left, now, more)
        of_runs, of_tasks = push_chosen(work, choice.tasks)
        planned, due, looks = planned + of_runs, due + of_tasks, [*looks, choice.look_at]
        left.update((task.queue, left[task.queue] - 1) for task in choice.tasks if task.queue in left)
        passed = max(((task.next_run, task.id) for task in found if not task.is_planned), default=None)
        is_stuck = passed is None and not of_runs.due and choice.full <= full
        if of_tasks.missed and in_vain < STEPS_IN_VAIN and not options.stop():
            in_vain += 1  # what was missed has left its room to others: they are listed again
            continue
        if not more or is_stuck or options.stop():
            return Keyed(planned, due, key_limits.soonest(looks))
        full, after, listed = full | choice.full, passed or after, min(4 * listed, LISTED_AT_MOST * options.batch)


def push_chosen(work: Pass, chosen: Sequence[LimitedTask]) -> tuple[Pushed, Pushed]:
    """Pushes planned runs and tasks batch by batch. Threads share the batches of tasks, unless a push reduces the room
    of a queue.
    """
    now, options = work.now, work.options
    batches = batched([one.id for one in chosen if not one.is_planned], options.batch)
    watched = work.store.watched(now, options.period) if chosen else options.late

    def push() -> list[Pushed]:
        def claim(ids: Sequence[int]) -> Callable[[Batch], Sequence[DueTask]]:
            return lambda rows: rows.claim_chosen(now, options.look_ahead, ids)

        return [push_due(work, claim(ids), watched) for ids in batches if not options.stop()]

    def push_runs(ids: Sequence[int]) -> Pushed:
        return push_planned(work, lambda rows: rows.claim_chosen_planned(ids, now))

    of_runs = [push_runs(ids) for ids in batched([one.id for one in chosen if one.is_planned], options.batch)]
    of_tasks = [push()] if options.depths else options.push_threads(push)
    return sum(of_runs, Pushed()), sum((pushed for one in of_tasks for pushed in one), Pushed())


def batched(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    return iter([ids[start : start + size] for start in range(0, len(ids), size)])


def push_limited(work: Pass) -> tuple[Pushed, Pushed]:
    """Fills queues with a limit. Planned runs and due tasks share their room, and the owners of due tasks take turns.

    The rest stays planned or due.
    """
    due, planned = Pushed(), Pushed()
    for name in work.queue.left:
        pushed = fill(work, name)
        planned, due = planned + pushed[0], due + pushed[1]
    return planned, due


def left_due(work: Pass) -> dict[str, int]:
    """Returns how many tasks stay due, by the queue that is full."""
    full = [name for name, room in work.queue.left.items() if room <= 0]
    counts = {name: work.store.count_due(work.now, work.options.look_ahead, name) for name in full}
    return {name: count for name, count in counts.items() if count}


def fill(work: Pass, name: str) -> list[Pushed]:
    """Pushes planned runs and due tasks of one queue, up to its limit."""

    def planned(most: int) -> Pushed:
        return push_planned(work, lambda rows: rows.claim_planned(work.now, most, name))

    def due(most: int) -> Pushed:
        return push_due(work, lambda rows: rows.claim_in_turn(work.now, work.options.look_ahead, name, most))

    return in_turns(planned, due, options=work.options, left=lambda: work.queue.left[name])


def push_due(work: Pass, claim: Callable[[Batch], Sequence[DueTask]], watched: timedelta = timedelta(0)) -> Pushed:
    """Pushes one batch of due tasks: lock, push, advance, commit.

    What ticks alone cannot have delayed so long may have been missed. An interval task that waited for its keys while
    ticks went on (`watched`) has missed nothing: without its place in the order, later tasks would overtake it forever.
    """
    now, late = work.now, work.options.late
    lateness = {Kind.INTERVAL: max(late, watched)}
    with work.store.batch() as rows:
        tasks = claim(rows)
        plans, outside_hours, failed = with_next_times(tasks, now, work.options.beat)
        passed_over, plans = parted(plans, lambda task: was_missed(task, now, lateness.get(task.kind, late)))
        enough_jobs, plans = parted(plans, lambda task: has_enough_jobs(task, work.options.waiting_jobs))
        packed = jobs.packed(work.store.installation, (task for task, _ in plans))
        receipts = work.queue.push([job.spec for job in packed])
        sent = list(zip(packed, receipts, strict=True))
        refused = {task.id: receipt.error for job, receipt in sent if receipt.error for task in job.tasks}
        batch_jobs = {task.id: job.batch_job_id for job in packed for task in job.tasks}
        failed += [(task, refused[task.id]) for task, _ in plans if task.id in refused]
        rows.advance(
            [(*plan, batch_jobs[id_]) for plan in plans if (id_ := plan[0].id) in batch_jobs and id_ not in refused]
        )
        rows.try_later([(task.id, error, after_error(task, now)) for task, error in failed])
        rows.settle([Settled(task.id, task.occurrence, Outcome.DROPPED, Reason.MISSED) for task, _ in passed_over], now)
        rows.skip_for_enough_jobs(
            [task for task, _ in enough_jobs], f"{work.options.waiting_jobs} jobs of the task wait"
        )
        rows.reschedule([*passed_over, *enough_jobs, *outside_hours])
    stored = [task for job, receipt in sent if receipt.stored for task in job.tasks]
    held = sum(len(job.tasks) for job, receipt in sent if receipt.held)
    saved = sum(task.pace_ms // task.every_ms - 1 for task in stored if task.pace_ms is not None)
    return Pushed(
        len(tasks), len(stored), held, len(failed), len(passed_over), len(outside_hours), saved, len(enough_jobs)
    )


def drop_unknown(work: Pass) -> None:
    """Drops occurrences that have waited for ten minutes for a worker that knows their function. A single time has
    failed.
    """
    for _ in range(STEPS_IN_VAIN):
        with work.store.batch() as rows:
            tasks = rows.claim_unknown(work.now, work.options.batch)
            due, outside_hours, failed = with_next_times(tasks, work.now, work.options.beat)
            rows.settle([unknown(task) for task, _ in (*due, *outside_hours)], work.now)
            rows.reschedule([*due, *outside_hours])
            rows.try_later([(task.id, error, after_error(task, work.now)) for task, error in failed])
        if len(tasks) < work.options.batch or work.options.stop():
            return


def unknown(task: DueTask) -> Settled:
    if task.kind is not Kind.ONCE:
        return Settled(task.id, task.occurrence, Outcome.DROPPED, Reason.UNKNOWN_FUNCTION)
    why = f"for ten minutes, no worker started the function {quoted(task.function)}; {load_function(task.queue)}"
    return Settled(task.id, task.occurrence, Outcome.FAILED, why)


def was_missed(task: DueTask, now: datetime, late: timedelta) -> bool:
    """Returns whether the task missed this occurrence, and wants no late run."""
    return task.catch_up == "none" and kinds.was_missed(task, now, late)


def has_enough_jobs(task: DueTask, most: int) -> bool:
    """Returns whether the task gets no further job: enough of them wait, or it skips overlaps. A single time always
    gets its job.
    """
    return (task.busy or task.waiting >= most) and task.kind is not Kind.ONCE


def parted(plans: Sequence[Plan], are_first: Callable[[DueTask], bool]) -> tuple[list[Plan], list[Plan]]:
    """Returns the plans whose tasks are of the first kind, and the others."""
    parts: tuple[list[Plan], list[Plan]] = [], []
    for plan in plans:
        parts[0 if are_first(plan[0]) else 1].append(plan)
    return parts


class Plans(NamedTuple):
    """Due tasks with their next times: those to push, those outside their hours, and bad rows with the errors."""

    due: list[Plan]
    outside_hours: list[Plan]
    failed: list[tuple[DueTask, str]]


def with_next_times(tasks: Sequence[DueTask], now: datetime, beat: int = 0) -> Plans:
    """Computes the next time of each task. A bad row affects only itself."""
    plans = Plans([], [], [])
    for task in tasks:
        instant = max(now, task.occurrence)  # it may be due a little early
        try:
            if (first := in_hours(task, instant)) > instant:
                plans.outside_hours.append((task, kinds.bounded(task, first)))
            else:
                plans.due.append((task, kinds.next_run(task, now, beat)))
        except (BadInput, OverflowError) as error:
            plans.failed.append((task, str(error)))
    return plans


def push_planned(work: Pass, claim: Callable[[Batch], Sequence[PlannedRun]]) -> Pushed:
    """Pushes one batch of planned runs that are due, in the same four steps."""
    with work.store.batch() as rows:
        runs = claim(rows)
        packed = jobs.packed(work.store.installation, runs)
        receipts = work.queue.push([job.spec for job in packed])
        sent = [(run, job, receipt) for job, receipt in zip(packed, receipts, strict=True) for run in job.tasks]
        failed = [(run.id, receipt.error) for run, _, receipt in sent if receipt.error]
        rows.mark_pushed([(run.id, job.spec.job_id) for run, job, receipt in sent if not receipt.error], work.now)
        rows.try_planned_later([(run_id, error, work.now + timing.back_off(1)) for run_id, error in failed])
    return Pushed(len(runs), sum(r.stored for *_, r in sent), sum(r.held for *_, r in sent), len(failed))


def after_error(task: DueTask, now: datetime) -> datetime:
    """Returns when a row that could not be pushed is tried again."""
    return now + timing.back_off(task.push_errors + 1)


def in_turns(
    *steps: Callable[[int], Pushed], options: TickOptions, left: Callable[[], float] = lambda: math.inf
) -> list[Pushed]:
    """Runs a batch of each step in turn, so that a run with many pieces does not delay due tasks, or vice versa.

    Returns when each step has returned less than a full batch, when no room is `left`, or when a stop is requested. If
    room is short, the unfinished steps share it.
    """
    totals = [Pushed() for _ in steps]
    unfinished = list(range(len(steps)))
    while unfinished:
        turn = tuple(unfinished)
        for place, number in enumerate(turn):
            most = int(min(options.batch, -(-left() // (len(turn) - place))))
            if options.stop() or most <= 0:
                return totals
            pushed = steps[number](most)
            totals[number] += pushed
            if pushed.due < most:
                unfinished.remove(number)
    return totals
